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

SESSION_NOTE = "tellback.session"
"""The name in a message's metadata of what only a session's message has."""

SESSION_SINCE = 13
"""The place in a row of the id that the session's conversations come after."""

_POSITIONS_PER_CONVERSATION = 2**32
_SESSION_ROLES: dict[str, MessageRole] = {"user": "user", "assistant": "agent", "system": "system"}
_LOG_ROLES = {role: name for name, role in _SESSION_ROLES.items()}


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
        last_message_at=None if row[8] is None else from_micros(row[8]),
        completed_at=None if row[9] is None else from_micros(row[9]),
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
        "last_message_at": None if session.last_message_at is None else to_micros(session.last_message_at),
        "completed_at": None if session.completed_at is None else to_micros(session.completed_at),
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
    """A message of the log as its session's, or None if it is not for users to see. `part` counts conversations."""
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
