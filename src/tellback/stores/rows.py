"""Rows to values and back. Columns come in the order the SQL files list them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from tellback.errors import InvalidArgumentError
from tellback.types.blocks import ContentBlock, TextBlock, chat_messages, load_blocks
from tellback.types.conversations import Conversation, Event, MessageDraft, StoredMessage
from tellback.types.jsontext import is_storable
from tellback.types.messages import Message
from tellback.types.replies import ChatUsage
from tellback.types.scope import Scope
from tellback.types.times import from_micros, to_micros


def _mapping_to_dict(value: Any) -> Any:
    """What JSON does not know by itself: other mappings than dict. The rest would come back as something else."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{value!r:.80} is not JSON")


_STORED_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_mapping_to_dict)
_decode_json = json.JSONDecoder().raw_decode
_STORED_ASCII_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_mapping_to_dict)


MAX_JSON_DEPTH = 100
"""How far values may be nested: what is deeper could be written here and not be read from further down the stack."""


def validate_depth(value: Any, levels_left: int = MAX_JSON_DEPTH) -> None:
    """Refuse what is nested too far."""
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return
    if not levels_left:
        raise ValueError(f"it is nested more than {MAX_JSON_DEPTH} deep")
    for inner in value:
        validate_depth(inner, levels_left - 1)


def dump_stored_json(value: Any) -> str:
    """JSON text that anyone can read: what models write past the range of numbers becomes null."""
    try:
        return dump_strict_json(value)
    except ValueError:
        validate_depth(value)  # also what is in itself
        return dump_strict_json(_replace_nonfinite(value))


def _replace_nonfinite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _replace_nonfinite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_nonfinite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def dump_strict_json(value: Any) -> str:
    """JSON text that any database can hold: a lone surrogate, which UTF-8 cannot, is escaped."""
    text = _STORED_ENCODER.encode(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        return _STORED_ASCII_ENCODER.encode(value)
    return text


def conversation_from_row(row: Sequence[Any]) -> Conversation:
    """A row of `conversations`."""
    return Conversation(
        id=row[0],
        scope=Scope(row[1], row[2], row[3]),
        namespace=row[4],
        status=row[5],
        created_at=from_micros(row[6]),
        updated_at=from_micros(row[7]),
        title=row[8],
        session_id=row[9],
        metadata=json.loads(row[10]),
        closed_at=None if row[11] is None else from_micros(row[11]),
        last_seq=row[12],
        turns=row[13],
        rolling_summary=row[14],
        rolling_summary_until_seq=row[15],
        summarized_turns=row[16],
        close_after=None if row[17] is None else timedelta(microseconds=row[17]),
    )


def message_from_row(row: Sequence[Any]) -> StoredMessage:
    """A row of `messages`."""
    return StoredMessage(
        id=row[0],
        conversation_id=row[1],
        seq=row[2],
        turn_id=row[3],
        role=row[4],
        content=_decode_content(row[5]),
        created_at=from_micros(row[6]),
        visibility=row[7],
        stop_reason=row[8],
        model=row[9],
        provider=row[10],
        usage=None if row[11] is None else ChatUsage(**json.loads(row[11])),
        trace_id=row[12],
        idempotency_key=row[13],
        meta=None if row[14] is None else json.loads(row[14]),
        metadata=None if row[15] is None else json.loads(row[15]),
    )


def history_from_rows(rows: Sequence[Sequence[Any]]) -> tuple[Message, ...]:
    """Rows of `history_before` as chat messages, the oldest first."""
    return tuple([message for row in reversed(rows) for message in _chat_messages_from_row(row[0], row[1], row[2])])


def _chat_messages_from_row(role: str, content: str, meta: str | None) -> list[Message]:
    provider_state = None if meta is None else json.loads(meta)
    if content[:1] != "[":
        return [Message(role, content, meta=provider_state)]
    return chat_messages(role, load_blocks(json.loads(content)), provider_state)


def events_from_rows(rows: Sequence[Sequence[Any]]) -> list[Event]:
    """Rows of `events`, which are mostly of the same few users."""
    scopes: dict[tuple[str, str, str], Scope] = {}
    result = []
    for position, type, tenant_id, app_id, user_id, subject_id, data, created_at in rows:
        owner_ids = (tenant_id, app_id, user_id)
        scope = scopes.get(owner_ids) or scopes.setdefault(owner_ids, Scope(*owner_ids))
        # As it was written, without spaces around: looking for them costs more than reading it, and feeds read many.
        result.append(Event(position, type, scope, subject_id, _decode_json(data)[0], from_micros(created_at)))
    return result


def draft_values(draft: MessageDraft) -> dict[str, Any]:
    """The values a draft binds; what cannot be stored is refused by name."""
    try:
        return _encode_draft(draft)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidArgumentError(f"the message cannot be stored: {error}.") from error


def _encode_draft(draft: MessageDraft) -> dict[str, Any]:
    validate_depth(draft.meta)
    return {
        "id": draft.id,
        "role": draft.role,
        "visibility": draft.visibility,
        "content": _encode_content(draft.content),
        "meta": None if draft.meta is None else dump_stored_json(draft.meta),
        "stop_reason": draft.stop_reason,
        "model": draft.model,
        "provider": draft.provider,
        "usage": None if draft.usage is None else dump_stored_json(_encode_usage(draft.usage)),
        "trace_id": draft.trace_id,
        "idempotency_key": draft.idempotency_key,
        "created_at": to_micros(draft.created_at),
        "metadata": None if draft.metadata is None else dump_stored_json(draft.metadata),
    }


def _encode_content(blocks: Sequence[ContentBlock]) -> str:
    """Words as they are, everything else as a JSON list of blocks.

    Nearly all messages are words, and a turn reads dozens of them: they are worth a form that needs no parsing.
    """
    if len(blocks) == 1 and type(blocks[0]) is TextBlock and blocks[0].meta is None:
        text = blocks[0].text
        if text[:1] != "[" and is_storable(text):
            return text
    dicts = [dict(block) for block in blocks]
    validate_depth(dicts)
    return dump_stored_json(dicts)


def _decode_content(content: str) -> tuple[ContentBlock, ...]:
    return (TextBlock(content),) if content[:1] != "[" else load_blocks(json.loads(content))


def _encode_usage(usage: ChatUsage) -> dict[str, Any]:
    values = ((name, getattr(usage, name)) for name in ChatUsage.__dataclass_fields__)
    return {name: value for name, value in values if value is not None}


def stored_message_from_draft(draft: MessageDraft, conversation_id: str, seq: int, turn_id: str) -> StoredMessage:
    """A draft that has found its place."""
    return StoredMessage(
        id=draft.id,
        conversation_id=conversation_id,
        seq=seq,
        turn_id=turn_id,
        role=draft.role,
        content=draft.content,
        created_at=draft.created_at,
        visibility=draft.visibility,
        stop_reason=draft.stop_reason,
        model=draft.model,
        provider=draft.provider,
        usage=draft.usage,
        trace_id=draft.trace_id,
        idempotency_key=draft.idempotency_key,
        meta=draft.meta,
        metadata=draft.metadata,
    )
