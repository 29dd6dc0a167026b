"""From what a caller passes to messages that can be stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

from tellback.conversations import checks
from tellback.errors import InvalidArgumentError
from tellback.stores import TurnDraft
from tellback.types import Message
from tellback.types.blocks import Content, message_blocks
from tellback.types.conversations import AssistantTurn, MessageDraft
from tellback.types.ids import new_id

ROLES = ("user", "assistant", "tool", "system")

_OTHER_NAMES = {
    "stopReason": "stop_reason",
    "traceId": "trace_id",
    "createdAt": "created_at",
    "idempotencyKey": "idempotency_key",
}
_ASSISTANT = tuple(field.name for field in fields(AssistantTurn))


def plain_draft(
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
        content=checks.content(content),
        created_at=now if created_at is None else checks.moment("created_at", created_at),
        visibility=checks.visibility(visibility),
        trace_id=checks.optional_text("trace_id", trace_id, checks.KEY_LENGTH),
        idempotency_key=checks.optional_text("idempotency_key", idempotency_key, checks.KEY_LENGTH),
        metadata=None if metadata is None else checks.metadata(metadata),
    )


def assistant_draft(given: AssistantTurn | Mapping[str, Any], now: datetime) -> MessageDraft:
    """A message of the assistant, with what is known of how it came about."""
    if not isinstance(given, AssistantTurn):
        given = AssistantTurn(**_named("an assistant's turn", given, _ASSISTANT))
    return _draft("assistant", given, now)


def imported_draft(message: Message | Mapping[str, Any], now: datetime) -> MessageDraft:
    """A message of a chat that took place elsewhere."""
    if isinstance(message, Message):
        role = checks.one_of("role", message.role, ROLES)
        return MessageDraft(new_id("msg"), role, message_blocks(message), now, meta=message.meta)
    given = _named("a message", message, ("role", "idempotency_key", *_ASSISTANT))
    role = checks.one_of("role", given.pop("role", None), ROLES)
    key = checks.optional_text("idempotency_key", given.pop("idempotency_key", None), checks.KEY_LENGTH)
    turn = AssistantTurn(**{"visibility": "internal" if role == "system" else "user", **given})
    return replace(_draft(role, turn, now), idempotency_key=key)


def in_turns(drafts: Sequence[MessageDraft]) -> list[TurnDraft]:
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
        content=checks.content(turn.content),
        created_at=now if turn.created_at is None else checks.moment("created_at", turn.created_at),
        visibility=checks.visibility(turn.visibility),
        stop_reason=checks.optional_text("stop_reason", turn.stop_reason, checks.KEY_LENGTH),
        model=checks.optional_text("model", turn.model, checks.KEY_LENGTH),
        provider=checks.optional_text("provider", turn.provider, checks.KEY_LENGTH),
        usage=checks.usage(turn.usage, turn.provider, turn.model),
        trace_id=checks.optional_text("trace_id", turn.trace_id, checks.KEY_LENGTH),
    )


def _named(what: str, given: Any, known: Sequence[str]) -> dict[str, Any]:
    if not isinstance(given, Mapping) or "content" not in given:
        raise InvalidArgumentError(f"{what} is a mapping with 'content', not {given!r:.80}.")
    named = {str(_OTHER_NAMES.get(name, name)): value for name, value in given.items()}
    unknown = [name for name in named if name not in known]
    if unknown:
        raise InvalidArgumentError(f"{what} has {', '.join(known)}, but not {', '.join(unknown)}.")
    return named
