"""What becomes of a stored session when something is saved: the same for every database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from tellback.errors import SessionConflictError
from tellback.types.sessions import MessageData, SessionData


def merge_turn(stored: SessionData | None, session: SessionData, messages: Sequence[MessageData]) -> SessionData:
    """A session as it is stored after a turn, with what a turn does not change as it was.

    Raises `SessionConflictError` unless the turn began from what is stored.
    """
    version = 0 if stored is None else stored.version
    if version != session.version - 1:
        raise SessionConflictError(session.id, session.version - 1, version)
    if stored is None:
        return count_messages(replace(session, message_count=0), messages)
    merged = replace(
        session,
        user_id=stored.user_id if stored.user_id is not None else session.user_id,
        agent_name=stored.agent_name if stored.agent_name is not None else session.agent_name,
        status=stored.status,
        completed_at=stored.completed_at,
        created_at=stored.created_at,
        message_count=stored.message_count,
        last_message_at=stored.last_message_at,
    )
    return count_messages(merged, messages)


def count_messages(session: SessionData, messages: Sequence[MessageData], at: datetime | None = None) -> SessionData:
    """A session with more messages."""
    return replace(
        session,
        message_count=session.message_count + len(messages),
        last_message_at=messages[-1].created_at if messages else session.last_message_at,
        updated_at=at or session.updated_at,
    )
