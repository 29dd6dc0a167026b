"""Rows of agents' sessions to values and back, and their messages as the log has them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tellback.errors import InvalidArgumentError
from tellback.types.blocks import TextBlock
from tellback.types.conversations import MessageDraft, StoredMessage
from tellback.types.sessions import MessageData, MessageRole, SessionData
from tellback.types.times import from_micros, to_micros

NOTE = "tellback.session"
"""The name in a message's metadata of what only a session's message has."""

SINCE = 13
"""The place in a row of the id that the session's conversations come after."""

_STEP = 2**32
_ROLES: dict[str, MessageRole] = {"user": "user", "assistant": "agent", "system": "system"}
_LOG_ROLES = {role: name for name, role in _ROLES.items()}


def session(row: Sequence[Any]) -> SessionData:
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
        last_message_at=None if row[8] is None else from_micros(row[8]),
        completed_at=None if row[9] is None else from_micros(row[9]),
        created_at=from_micros(row[10]),
        updated_at=from_micros(row[11]),
        version=row[12],
    )


def values(given: SessionData) -> dict[str, Any]:
    """The values a session binds."""
    try:
        collected = json.dumps(dict(given.collected_data), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"session {given.id!r} holds what is not JSON: {error}.") from error
    return {
        "id": given.id,
        "agent_name": given.agent_name,
        "status": given.status,
        "current_route": given.current_route,
        "current_state": given.current_state,
        "collected_data": collected,
        "message_count": given.message_count,
        "last_message_at": None if given.last_message_at is None else to_micros(given.last_message_at),
        "completed_at": None if given.completed_at is None else to_micros(given.completed_at),
        "created_at": to_micros(given.created_at),
        "updated_at": to_micros(given.updated_at),
        "version": given.version,
    }


def draft(message: MessageData, agent_name: str | None) -> MessageDraft:
    """A session's message for the log. One that says nothing, such as of tools that ran, is not for readers."""
    known = {"agent": agent_name, "route": message.route, "state": message.state}
    note = {"tool_calls": list(message.tool_calls), "event": message.event}
    is_said = message.content.strip() and (message.event or {}).get("kind") != "status"
    return MessageDraft(
        id=message.id,
        role=_LOG_ROLES[message.role],
        content=(TextBlock(message.content),),
        created_at=message.created_at,
        visibility="user" if is_said else "hidden",
        metadata={**{name: value for name, value in known.items() if value is not None}, NOTE: note},
    )


def message(stored: StoredMessage, session_id: str, user_id: str, part: int) -> MessageData | None:
    """A message of the log as its session's, or None if it is not for users to see. `part` counts conversations."""
    known = stored.metadata or {}
    note = known.get(NOTE) if isinstance(known.get(NOTE), Mapping) else None
    if stored.role not in _ROLES or (note is None and (stored.visibility != "user" or not stored.text.strip())):
        return None
    note = note or {}
    return MessageData(
        id=stored.id,
        session_id=session_id,
        role=_ROLES[stored.role],
        content=stored.text,
        user_id=user_id,
        route=known.get("route"),
        state=known.get("state"),
        tool_calls=tuple(note.get("tool_calls") or ()),
        event=note.get("event"),
        created_at=stored.created_at,
        position=part * _STEP + stored.seq,
    )


def place(position: int | None, otherwise: tuple[int, int]) -> tuple[int, int]:
    """The conversation, by its number, and the seq that a position stands for."""
    return otherwise if position is None else divmod(position, _STEP)
