"""Convert rows to values and back: conversations, messages, events, agent sessions, bindings, jobs, usage, API keys,
spaces, atoms, entities and citations.

Columns are in the order in which the SQL files list them.
"""

from __future__ import annotations

import functools
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from tellback.errors import InvalidArgumentError
from tellback.stores.ports.store import StoredResponse
from tellback.types.access import ApiKey, Scope
from tellback.types.blocks import ContentBlock, TextBlock, chat_messages, load_blocks
from tellback.types.conversations import (
    Conversation,
    Event,
    MessageData,
    MessageDraft,
    MessageRole,
    SessionData,
    StoredMessage,
)
from tellback.types.ids import from_micros, register_cache, to_micros
from tellback.types.jobs import (
    ANY,
    Binding,
    ConversationScope,
    ExtractionPolicy,
    Job,
    JobStatus,
    UsageRecord,
    UsageTotal,
)
from tellback.types.jsontext import dump_stored_json, is_storable, validate_depth
from tellback.types.memory import (
    Atom,
    AtomStatus,
    Category,
    CategoryKind,
    Citation,
    Entity,
    EntityStatus,
    EntityType,
    MemorySpace,
)
from tellback.types.messages import Message
from tellback.types.replies import ChatUsage

_decode_json = json.JSONDecoder().raw_decode


SESSION_NOTE = "tellback.session"
"""The name in a message's metadata of what only a session's message has."""

SESSION_AFTER_CONVERSATION = 13
"""The place in a row of the id that the session's conversations come after."""

API_KEY_DIGEST = 10
"""Where the digest stands behind the columns of a key."""

_POSITIONS_PER_CONVERSATION = 2**32
_SESSION_ROLES: dict[str, MessageRole] = {"user": "user", "assistant": "agent", "system": "system"}
_LOG_ROLES = {role: name for name, role in _SESSION_ROLES.items()}


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
        closed_at=optional_datetime(row[11]),
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


def session_from_row(row: Sequence[Any]) -> SessionData:
    """A row of `sessions`."""
    return SessionData(
        id=row[0],
        user_id=row[1],
        agent_name=row[2],
        status=row[3],
        current_route=row[4],
        current_state=row[5],
        collected_data=json.loads(row[6]),
        message_count=row[7],
        last_message_at=optional_datetime(row[8]),
        completed_at=optional_datetime(row[9]),
        created_at=from_micros(row[10]),
        updated_at=from_micros(row[11]),
        version=row[12],
    )


def session_values(session: SessionData) -> dict[str, Any]:
    """The values a session binds."""
    try:
        collected = json.dumps(dict(session.collected_data), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"session {session.id!r} holds what is not JSON: {error}.") from error
    return {
        "id": session.id,
        "agent_name": session.agent_name,
        "status": session.status,
        "current_route": session.current_route,
        "current_state": session.current_state,
        "collected_data": collected,
        "message_count": session.message_count,
        "last_message_at": _optional_micros(session.last_message_at),
        "completed_at": _optional_micros(session.completed_at),
        "created_at": to_micros(session.created_at),
        "updated_at": to_micros(session.updated_at),
        "version": session.version,
    }


def draft_from_session_message(message: MessageData, agent_name: str | None) -> MessageDraft:
    """A session's message for the log. One that says nothing, such as of tools that ran, is not for readers."""
    labels = {"agent": agent_name, "route": message.route, "state": message.state}
    note = {"tool_calls": list(message.tool_calls), "event": message.event}
    is_visible = message.content.strip() and (message.event or {}).get("kind") != "status"
    return MessageDraft(
        id=message.id,
        role=_LOG_ROLES[message.role],
        content=(TextBlock(message.content),),
        created_at=message.created_at,
        visibility="user" if is_visible else "hidden",
        metadata={**{name: value for name, value in labels.items() if value is not None}, SESSION_NOTE: note},
    )


def session_message_from_stored(
    stored: StoredMessage, session_id: str, user_id: str, conversation_number: int
) -> MessageData | None:
    """A message of the log as its session's, or None if it is not for users to see. `conversation_number` counts
    the session's conversations."""
    metadata = stored.metadata or {}
    note = metadata.get(SESSION_NOTE) if isinstance(metadata.get(SESSION_NOTE), Mapping) else None
    if stored.role not in _SESSION_ROLES or (note is None and (stored.visibility != "user" or not stored.text.strip())):
        return None
    note = note or {}
    return MessageData(
        id=stored.id,
        session_id=session_id,
        role=_SESSION_ROLES[stored.role],
        content=stored.text,
        user_id=user_id,
        route=metadata.get("route"),
        state=metadata.get("state"),
        tool_calls=tuple(note.get("tool_calls") or ()),
        event=note.get("event"),
        created_at=stored.created_at,
        position=conversation_number * _POSITIONS_PER_CONVERSATION + stored.seq,
    )


def split_position(position: int | None, default: tuple[int, int]) -> tuple[int, int]:
    """The conversation, by its number, and the seq that a position stands for."""
    return default if position is None else divmod(position, _POSITIONS_PER_CONVERSATION)


@dataclass(frozen=True, slots=True)
class BindingRow:
    """A binding, and the position in the events from which on it holds."""

    binding: Binding
    since_position: int


def binding_from_row(row: Sequence[Any]) -> BindingRow:
    """A row of `bindings`."""
    binding = Binding(
        id=row[0],
        tenant_id=row[1],
        app_id=row[2],
        created_by=row[3],
        conversation_scope=tuple(ConversationScope(*each) for each in json.loads(row[4])),
        memory_space_ids=tuple(json.loads(row[5])),
        memory_space_names=tuple(json.loads(row[6])),
        extraction_policy=ExtractionPolicy(**json.loads(row[7])),
        enabled=bool(row[8]),
        created_at=from_micros(row[10]),
        updated_at=from_micros(row[11]),
    )
    return BindingRow(binding, row[9])


def binding_values(binding: Binding, since: int) -> dict[str, Any]:
    """A binding to be stored."""
    return {
        "id": binding.id,
        "created_by": binding.created_by,
        "scopes": dump_stored_json([[scope.namespace, scope.user_id] for scope in binding.conversation_scope]),
        "space_ids": dump_stored_json(binding.memory_space_ids),
        "space_names": dump_stored_json(binding.memory_space_names),
        "policy": dump_policy(binding.extraction_policy),
        "enabled": int(binding.enabled),
        "windowed": int(binding.extraction_policy.windowed),
        "single_user_id": _single_user(binding),
        "since": since,
        "now": to_micros(binding.created_at),
    }


def _single_user(binding: Binding) -> str | None:
    """Whom a binding is about, if that is one user."""
    users = {scope.user_id for scope in binding.conversation_scope}
    return None if len(users) != 1 or ANY in users else users.pop()


def dump_policy(policy: ExtractionPolicy) -> str:
    """A policy to be stored."""
    return dump_stored_json(asdict(policy))


def job_from_row(row: Sequence[Any]) -> Job:
    """A row of `jobs`."""
    return Job(
        id=row[0],
        scope=Scope(row[1], row[2], row[3]),
        kind=row[4],
        status=JobStatus(row[5]),
        conversation_id=row[6],
        binding_id=row[7],
        memory_space_id=row[8],
        extraction_version=row[9],
        from_seq=row[10],
        to_seq=row[11],
        attempts=row[12],
        due_at=from_micros(row[13]),
        created_at=from_micros(row[14]),
        updated_at=from_micros(row[15]),
        finished_at=optional_datetime(row[16]),
        error=row[17],
        raw_output=row[18],
        result={} if row[19] is None else json.loads(row[19]),
        runs=row[20],
    )


def usage_from_row(row: Sequence[Any]) -> UsageRecord:
    """A row of `usage`."""
    return UsageRecord(
        id=row[0],
        scope=Scope(row[1], row[2], row[3]),
        purpose=row[4],
        job_id=row[5],
        conversation_id=row[6],
        model=row[7],
        provider=row[8],
        input_tokens=row[9],
        output_tokens=row[10],
        cost_usd=row[11],
        created_at=from_micros(row[12]),
    )


def usage_values(record: UsageRecord) -> dict[str, Any]:
    """A call's cost, to be stored."""
    return {
        "id": record.id,
        "purpose": record.purpose,
        "job_id": record.job_id,
        "conversation_id": record.conversation_id,
        "model": record.model,
        "provider": record.provider,
        "input_tokens": record.input_tokens,
        "output_tokens": record.output_tokens,
        "cost_usd": record.cost_usd,
        "created_at": to_micros(record.created_at),
    }


def usage_total_from_row(row: Sequence[Any]) -> UsageTotal:
    """A sum of rows of `usage`."""
    return UsageTotal(
        Scope(row[0], row[1], row[2]), row[3], row[4], row[5], int(row[6]), int(row[7]), float(row[8]), int(row[9])
    )


def api_key_from_row(row: Sequence[Any]) -> ApiKey:
    """A row of `api_keys`."""
    return ApiKey(
        id=row[0],
        tenant_id=row[1],
        app_id=row[2],
        user_id=row[3],
        role=row[4],
        name=row[5],
        rate_limit=row[6],
        created_at=from_micros(row[7]),
        expires_at=optional_datetime(row[8]),
        revoked_at=optional_datetime(row[9]),
    )


def api_key_values(key: ApiKey, digest: str) -> dict[str, Any]:
    """A key to be stored."""
    return {
        "id": key.id,
        "tenant": key.tenant_id,
        "app": key.app_id,
        "user": key.user_id,
        "role": key.role,
        "name": key.name,
        "digest": digest,
        "rate_limit": key.rate_limit,
        "created_at": to_micros(key.created_at),
        "expires_at": _optional_micros(key.expires_at),
        "revoked_at": _optional_micros(key.revoked_at),
    }


def stored_response_from_columns(status: int, content_type: str, headers: str, body: bytes) -> StoredResponse:
    """What a request was answered."""
    return StoredResponse(status, content_type, bytes(body), json.loads(headers))


def stored_response_values(response: StoredResponse) -> dict[str, Any]:
    """An answer to be stored."""
    return {
        "status": response.status,
        "content_type": response.content_type,
        "headers": dump_stored_json(dict(response.headers)),
        "body": response.body,
    }


def optional_datetime(micros: int | None) -> datetime | None:
    """A moment that may be missing."""
    return None if micros is None else from_micros(micros)


def _optional_micros(moment: datetime | None) -> int | None:
    return None if moment is None else to_micros(moment)


TEXT, CATEGORY, KIND, IMPORTANCE, STATUS, VALID_FROM, CREATED_AT = 5, 6, 7, 8, 10, 11, 13
SUPERSEDES, SUPERSEDED_BY, SOURCE_CONVERSATION_ID, ENTITY_IDS, SEQ, SLOT, VALUE = 16, 17, 18, 20, 22, 23, 24
"""Places in a row of `atoms`, for whoever needs a few of them of many rows."""

_ATOM_STATUSES = {status.value: status for status in AtomStatus}


def space_from_row(row: Sequence[Any]) -> MemorySpace:
    """A row of `spaces`."""
    return MemorySpace(
        id=row[0],
        scope=Scope(row[1], row[2], row[3]),
        name=row[4],
        metadata=json.loads(row[5]),
        created_at=from_micros(row[6]),
        updated_at=from_micros(row[7]),
        atom_count=row[8],
    )


def atom_from_row(row: Sequence[Any]) -> Atom:
    """A row of `atoms`."""
    return Atom(
        id=row[0],
        memory_space_id=row[1],
        scope=_cached_scope(row[2], row[3], row[4]),
        text=row[5],
        category=_cached_category(row[6], row[7]),
        importance=row[8],
        confidence=row[9],
        status=_ATOM_STATUSES[row[10]],
        valid_from=from_micros(row[11]),
        valid_to=optional_datetime(row[12]),
        created_at=from_micros(row[13]),
        updated_at=from_micros(row[14]),
        superseded_at=optional_datetime(row[15]),
        supersedes=row[16],
        superseded_by=row[17],
        source_conversation_id=row[18],
        source_message_ids=parse_ids(row[19]),
        entity_ids=parse_ids(row[20]),
        other_sources=parse_citations(row[21]),
    )


def parse_citations(text: str | None) -> tuple[Citation, ...]:
    """A JSON list of conversations with their messages, which is mostly missing.

    >>> parse_citations('[["conv_1",["msg_2"]]]')
    (Citation(conversation_id='conv_1', message_ids=('msg_2',)),)
    """
    return () if text is None else tuple(Citation(id, tuple(messages)) for id, messages in json.loads(text))


def dump_citations(sources: Sequence[Citation]) -> str | None:
    """The same, to be stored.

    >>> dump_citations([Citation("conv_1", ("msg_2",))])
    '[["conv_1",["msg_2"]]]'
    """
    return dump_stored_json([[each.conversation_id, each.message_ids] for each in sources]) if sources else None


def entity_from_row(row: Sequence[Any]) -> Entity:
    """A row of `entities`."""
    return Entity(
        id=row[0],
        memory_space_id=row[1],
        scope=Scope(row[2], row[3], row[4]),
        type=EntityType(row[5]),
        canonical_name=row[6],
        description=row[7],
        attributes=json.loads(row[8]),
        aliases=parse_ids(row[9]),
        status=EntityStatus(row[10]),
        merged_into=row[11],
        first_seen_at=optional_datetime(row[12]),
        last_seen_at=optional_datetime(row[13]),
        atom_count=row[14],
        created_at=from_micros(row[15]),
        updated_at=from_micros(row[16]),
    )


def parse_ids(text: str) -> tuple[str, ...]:
    """A JSON list of texts, which is mostly empty or of one plain id.

    >>> parse_ids("[]"), parse_ids('["msg_1"]'), parse_ids('["a","b"]')
    ((), ('msg_1',), ('a', 'b'))
    """
    if text == "[]":
        return ()
    inner = text[2:-2]
    return (inner,) if '"' not in inner and "\\" not in inner else tuple(json.loads(text))


def vector_to_floats(vector: bytes) -> tuple[float, ...]:
    """Half-precision numbers, one by one.

    >>> vector_to_floats(bytes.fromhex("003c00c0"))
    (1.0, -2.0)
    """
    return struct.unpack(f"<{len(vector) // 2}e", vector)


@functools.lru_cache(maxsize=1_024)
def _cached_category(name: str, kind: str) -> Category:
    return Category(name, CategoryKind(kind))


@functools.lru_cache(maxsize=1_024)
def _cached_scope(tenant_id: str, app_id: str, user_id: str) -> Scope:
    return Scope(tenant_id, app_id, user_id)


register_cache(_cached_category.cache_clear)
register_cache(_cached_scope.cache_clear)
