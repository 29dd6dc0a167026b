"""Operations that store where a session stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tellback.errors import NotFoundError, SessionConflictError
from tellback.stores import session_rows
from tellback.stores.engine import Operation
from tellback.types.sessions import MessageData, SessionData
from tellback.types.times import to_micros


def insert_session(values: dict[str, Any]) -> Operation[bool]:
    """Insert a session. Its conversations are those that are open now, if any, and those to come."""
    conversations = yield "conversations_of_session", {"session_id": values["id"], "since": ""}
    since = ""
    for row in conversations:
        if row[1] == "open":
            break
        since = row[0]
    return bool((yield "session_insert", {**values, "since": since}))


def save_session(session: SessionData, messages: Sequence[MessageData]) -> Operation[Any]:
    """Store a session after a turn, and count its messages; gives its row."""
    values = session_rows.session_values(session)
    counts = {
        "message_count": len(messages),
        "last_message_at": to_micros(messages[-1].created_at) if messages else None,
    }
    saved = yield "session_save", {**values, **counts}
    if not saved and session.version == 1 and (yield from insert_session({**values, **counts})):
        saved = yield "session_get", {"id": session.id}
    if not saved:
        stored = yield "session_get", {"id": session.id}
        if not stored and session.version == 1:  # it could not be inserted
            raise NotFoundError("session", session.id, "Users need ids of their own.")
        version = session_rows.session_from_row(stored[0]).version if stored else 0
        raise SessionConflictError(session.id, session.version - 1, version)
    return saved[0]
