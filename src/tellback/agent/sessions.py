"""Where sessions are kept between turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tellback.agent.events import Event
from tellback.agent.session import SessionState
from tellback.errors import SessionConflictError


class SessionStore(Protocol):
    """Keeps sessions: what `Agent(persistence=...)` takes.

    `save` stores a session and what was said in its turn, in one step. It raises `SessionConflictError` unless the
    stored version is the one before the session's: a turn that lost a race saves nothing. `Persistence` keeps them in a
    database; one with `auto_save` set to False is only read from.

    >>> store: SessionStore = InMemorySessions()
    """

    async def load(self, session_id: str) -> SessionState | None:
        """The session of that id, if it is stored."""
        ...

    async def save(
        self,
        session: SessionState,
        events: Sequence[Event],
        *,
        agent_name: str | None = None,
        user_id: str | None = None,
    ) -> None:
        """Store a session after a turn, with whose it is, if that is known."""
        ...

    async def history(self, session_id: str, limit: int) -> Sequence[Event]:
        """The newest of what was said in a session, in order."""
        ...


class InMemorySessions:
    """Sessions in this process's memory, for tests and for agents that need not outlive it.

    >>> import asyncio
    >>> from tellback.agent import create_session
    >>> sessions = InMemorySessions()
    >>> asyncio.run(sessions.load("web-42")) is None
    True
    """

    def __init__(self) -> None:
        self._sessions: dict[str, SessionState] = {}
        self._events: dict[str, list[Event]] = {}

    async def load(self, session_id: str) -> SessionState | None:
        """The session of that id, if it is stored."""
        return self._sessions.get(session_id)

    async def save(
        self,
        session: SessionState,
        events: Sequence[Event],
        *,
        agent_name: str | None = None,
        user_id: str | None = None,
    ) -> None:
        """Store a session after a turn."""
        stored = self._sessions.get(session.id)
        stored_version = 0 if stored is None else stored.version
        if stored_version != session.version - 1:
            raise SessionConflictError(session.id, session.version - 1, stored_version)
        self._sessions[session.id] = session
        self._events.setdefault(session.id, []).extend(events)

    async def history(self, session_id: str, limit: int) -> Sequence[Event]:
        """The newest of what was said in a session, in order."""
        return tuple(self._events.get(session_id, ())[-limit:] if limit > 0 else ())

    def clear(self) -> None:
        """Forget all of them."""
        self._sessions.clear()
        self._events.clear()
