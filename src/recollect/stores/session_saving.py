"""Operations that store where a session stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recollect.errors import SessionConflictError
from recollect.stores import session_rows
from recollect.stores.engine import Operation
from recollect.types.sessions import MessageData, SessionData
from recollect.types.times import to_micros


def inserted(values: dict[str, Any]) -> Operation[bool]:
    """Insert a session. Its conversations are those that are open now, if any, and those to come."""
    known = yield "conversations_of_session", {"session_id": values["id"], "since": ""}
    since = ""
    for id, status in known:
        if status == "open":
            break
        since = id
    return bool((yield "session_insert", {**values, "since": since}))


def stored_version(id: str) -> Operation[int]:
    """The version that is stored; 0 if there is none that this user may see."""
    found = yield "session_get", {"id": id}
    return session_rows.session(found[0]).version if found else 0


def save_session(session: SessionData, messages: Sequence[MessageData]) -> Operation[Any]:
    """Store a session after a turn, and count its messages; gives its row."""
    values = session_rows.values(session)
    counts = {
        "message_count": len(messages),
        "last_message_at": to_micros(messages[-1].created_at) if messages else None,
    }
    found = yield "session_save", {**values, **counts}
    if not found and session.version == 1 and (yield from inserted({**values, **counts})):
        found = yield "session_get", {"id": session.id}
    if not found:
        raise SessionConflictError(session.id, session.version - 1, (yield from stored_version(session.id)))
    return found[0]
