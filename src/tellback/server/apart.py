"""Sessions of several apps in one place: each tenant's and app's are under ids of their own, apart from others."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime

from tellback.agent.events import Event
from tellback.agent.session import SessionState
from tellback.agent.sessions import SessionStore
from tellback.errors import InvalidArgumentError, NotFoundError, SessionConflictError
from tellback.stores.sessions.adapter import PersistenceAdapter
from tellback.types.jsontext import dump_json
from tellback.types.sessions import MessageData, SessionData, SessionStatus

_MARK = re.compile(r"~[0-9a-f]{32}~")


class Names:
    """The ids of an app's users and sessions, as they are stored where other apps' are too.

    Those of the default tenant and app are stored as they are, so that code beside the server finds them.

    >>> Names("default", "default").stored("web-42")
    'web-42'
    >>> Names("acme", "shop").given(Names("acme", "shop").stored("web-42"))
    'web-42'
    """

    def __init__(self, tenant_id: str, app_id: str) -> None:
        self._prefix = ""
        if (tenant_id, app_id) != ("default", "default"):
            self._prefix = f"~{hashlib.sha256(dump_json([tenant_id, app_id]).encode()).hexdigest()[:32]}~"

    def stored(self, id: str) -> str:
        """An id as it is stored."""
        if not self._prefix and _MARK.match(id):
            raise InvalidArgumentError(f"an id cannot begin like {id!r:.40}: that is how ids of other apps begin.")
        return self._prefix + id

    def given(self, id: str) -> str:
        """An id as its app knows it."""
        return id.removeprefix(self._prefix)

    def session_out(self, session: SessionData) -> SessionData:
        """A session as it is stored."""
        user_id = None if session.user_id is None else self.stored(session.user_id)
        return replace(session, id=self.stored(session.id), user_id=user_id)

    def session_back(self, session: SessionData) -> SessionData:
        """A session as its app knows it."""
        user_id = None if session.user_id is None else self.given(session.user_id)
        return replace(session, id=self.given(session.id), user_id=user_id)

    def message_out(self, message: MessageData) -> MessageData:
        """A message as it is stored."""
        user_id = None if message.user_id is None else self.stored(message.user_id)
        return replace(message, session_id=self.stored(message.session_id), user_id=user_id)

    def message_back(self, message: MessageData) -> MessageData:
        """A message as its app knows it."""
        user_id = None if message.user_id is None else self.given(message.user_id)
        return replace(message, session_id=self.given(message.session_id), user_id=user_id)

    @contextmanager
    def told(self) -> Iterator[None]:
        """Errors name ids as the app knows them."""
        try:
            yield
        except SessionConflictError as error:
            raise SessionConflictError(self.given(error.id), error.version, error.stored) from error
        except NotFoundError as error:
            raise NotFoundError(error.kind, self.given(str(error.id))) from error


class ApartAdapter:
    """An adapter's sessions of one tenant and app: itself a `PersistenceAdapter`, and its `SessionRepository`."""

    def __init__(self, inner: PersistenceAdapter, names: Names) -> None:
        self._inner = inner
        self._names = names
        self.session_repository = self
        self.message_repository = _Messages(inner, names)

    async def initialize(self) -> None:
        """Make what is missing."""
        await self._inner.initialize()

    async def disconnect(self) -> None:
        """The adapter is its owner's to disconnect."""

    async def purge_expired(self) -> int:
        """Delete what is past its time, of all apps."""
        return await self._inner.purge_expired()

    async def save(self, session: SessionData, messages: Sequence[MessageData]) -> SessionData:
        """Store a session after a turn, and its messages, in one step."""
        with self._names.told():
            said = [self._names.message_out(each) for each in messages]
            return self._names.session_back(await self._inner.save(self._names.session_out(session), said))

    async def create(self, session: SessionData) -> SessionData:
        """Store a new session."""
        with self._names.told():
            created = await self._inner.session_repository.create(self._names.session_out(session))
        return self._names.session_back(created)

    async def get(self, session_id: str) -> SessionData | None:
        """A session, or None."""
        return self._back(await self._inner.session_repository.get(self._names.stored(session_id)))

    async def find_active(self, user_id: str, agent_name: str | None = None) -> SessionData | None:
        """The active session that was created last."""
        found = await self._inner.session_repository.find_active(self._names.stored(user_id), agent_name)
        return self._back(found)

    async def of_user(
        self, user_id: str, *, limit: int | None = None, before: SessionData | None = None
    ) -> list[SessionData]:
        """A user's sessions."""
        last = None if before is None else self._names.session_out(before)
        found = await self._inner.session_repository.of_user(self._names.stored(user_id), limit=limit, before=last)
        return [self._names.session_back(each) for each in found]

    async def update_status(
        self, session_id: str, status: SessionStatus, *, at: datetime, completed_at: datetime | None
    ) -> SessionData | None:
        """Change a session's status."""
        id = self._names.stored(session_id)
        sessions = self._inner.session_repository
        return self._back(await sessions.update_status(id, status, at=at, completed_at=completed_at))

    async def delete(self, session_id: str) -> bool:
        """Delete a session and its messages."""
        return await self._inner.session_repository.delete(self._names.stored(session_id))

    def _back(self, session: SessionData | None) -> SessionData | None:
        return None if session is None else self._names.session_back(session)


class _Messages:
    def __init__(self, inner: PersistenceAdapter, names: Names) -> None:
        self._inner = inner
        self._names = names

    async def add(self, messages: Sequence[MessageData], *, at: datetime) -> list[MessageData]:
        with self._names.told():
            said = [self._names.message_out(each) for each in messages]
            added = await self._inner.message_repository.add(said, at=at)
        return [self._names.message_back(each) for each in added]

    async def of_session(
        self, session_id: str, *, limit: int | None = None, before: int | None = None, after: int | None = None
    ) -> list[MessageData]:
        id = self._names.stored(session_id)
        found = await self._inner.message_repository.of_session(id, limit=limit, before=before, after=after)
        return [self._names.message_back(each) for each in found]


class ApartSessions:
    """The same for a `SessionStore` that is none of ours."""

    def __init__(self, inner: SessionStore, names: Names) -> None:
        self._inner = inner
        self._names = names
        self.auto_save: bool = getattr(inner, "auto_save", True)

    async def load(self, session_id: str) -> SessionState | None:
        """The session of that id, if it is stored."""
        with self._names.told():
            found = await self._inner.load(self._names.stored(session_id))
        return None if found is None else replace(found, id=session_id)

    async def save(
        self,
        session: SessionState,
        events: Sequence[Event],
        *,
        agent_name: str | None = None,
        user_id: str | None = None,
    ) -> None:
        """Store a session after a turn."""
        whose = None if user_id is None else self._names.stored(user_id)
        with self._names.told():
            kept = replace(session, id=self._names.stored(session.id))
            await self._inner.save(kept, events, agent_name=agent_name, user_id=whose)

    async def history(self, session_id: str, limit: int) -> Sequence[Event]:
        """The newest of what was said."""
        return await self._inner.history(self._names.stored(session_id), limit)
