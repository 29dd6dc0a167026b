"""From what a caller passes to messages that can be stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

from tellback import validation
from tellback.errors import InvalidArgumentError
from tellback.stores import TurnDraft
from tellback.types import Message
from tellback.types.blocks import Content, message_blocks
from tellback.types.conversations import AssistantTurn, MessageDraft
from tellback.types.ids import new_id

ROLES = ("user", "assistant", "tool", "system")

_FIELD_ALIASES = {
    "stopReason": "stop_reason",
    "traceId": "trace_id",
    "createdAt": "created_at",
    "idempotencyKey": "idempotency_key",
}
_ASSISTANT_FIELDS = tuple(field.name for field in fields(AssistantTurn))


def build_draft(
    role: str,
    content: Content,
    now: datetime,
    *,
    visibility: str,
    created_at: datetime | str | None = None,
    trace_id: str | None = None,
    idempotency_key: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> MessageDraft:
    """A message of a person, a tool or the system."""
    return MessageDraft(
        id=new_id("msg"),
        role=role,
        content=validation.parse_content(content),
        created_at=now if created_at is None else validation.parse_datetime("created_at", created_at),
        visibility=validation.validate_visibility(visibility),
        trace_id=validation.validate_optional_text("trace_id", trace_id, validation.KEY_LENGTH),
        idempotency_key=validation.validate_optional_text("idempotency_key", idempotency_key, validation.KEY_LENGTH),
        metadata=None if metadata is None else validation.validate_metadata(metadata),
    )


def build_assistant_draft(turn: AssistantTurn | Mapping[str, Any], now: datetime) -> MessageDraft:
    """A message of the assistant, with what is known of how it came about."""
    if not isinstance(turn, AssistantTurn):
        turn = AssistantTurn(**_parse_mapping("an assistant's turn", turn, _ASSISTANT_FIELDS))
    return _draft("assistant", turn, now)


def build_imported_draft(message: Message | Mapping[str, Any], now: datetime) -> MessageDraft:
    """A message of a chat that took place elsewhere."""
    if isinstance(message, Message):
        role = validation.validate_choice("role", message.role, ROLES)
        return MessageDraft(new_id("msg"), role, message_blocks(message), now, meta=message.meta)
    values = _parse_mapping("a message", message, ("role", "idempotency_key", *_ASSISTANT_FIELDS))
    role = validation.validate_choice("role", values.pop("role", None), ROLES)
    key = validation.validate_optional_text(
        "idempotency_key", values.pop("idempotency_key", None), validation.KEY_LENGTH
    )
    turn = AssistantTurn(**{"visibility": "internal" if role == "system" else "user", **values})
    return replace(_draft(role, turn, now), idempotency_key=key)


def group_by_turn(drafts: Sequence[MessageDraft]) -> list[TurnDraft]:
    """Drafts by turn: a user's message begins one, and what comes before the first joins the one that is going on."""
    turns: list[tuple[bool, list[MessageDraft]]] = []
    for draft in drafts:
        if draft.role == "user" or not turns:
            turns.append((draft.role == "user", []))
        turns[-1][1].append(draft)
    return [TurnDraft(new_id("turn"), messages, starts=starts, joins=not starts) for starts, messages in turns]


def _draft(role: str, turn: AssistantTurn, now: datetime) -> MessageDraft:
    return MessageDraft(
        id=new_id("msg"),
        role=role,
        content=validation.parse_content(turn.content),
        created_at=now if turn.created_at is None else validation.parse_datetime("created_at", turn.created_at),
        visibility=validation.validate_visibility(turn.visibility),
        stop_reason=validation.validate_optional_text("stop_reason", turn.stop_reason, validation.KEY_LENGTH),
        model=validation.validate_optional_text("model", turn.model, validation.KEY_LENGTH),
        provider=validation.validate_optional_text("provider", turn.provider, validation.KEY_LENGTH),
        usage=validation.parse_usage(turn.usage, turn.provider, turn.model),
        trace_id=validation.validate_optional_text("trace_id", turn.trace_id, validation.KEY_LENGTH),
    )


def _parse_mapping(label: str, values: Any, field_names: Sequence[str]) -> dict[str, Any]:
    if not isinstance(values, Mapping) or "content" not in values:
        raise InvalidArgumentError(f"{label} is a mapping with 'content', not {values!r:.80}.")
    renamed = {str(_FIELD_ALIASES.get(name, name)): value for name, value in values.items()}
    unknown = [name for name in renamed if name not in field_names]
    if unknown:
        raise InvalidArgumentError(f"{label} has {', '.join(field_names)}, but not {', '.join(unknown)}.")
    return renamed
