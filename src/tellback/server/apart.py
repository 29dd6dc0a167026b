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

_PREFIX_PATTERN = re.compile(r"~[0-9a-f]{32}~")


class TenantIds:
    """The ids of an app's users and sessions, as they are stored where other apps' are too.

    Those of the default tenant and app are stored as they are, so that code beside the server finds them.

    >>> TenantIds("default", "default").to_stored("web-42")
    'web-42'
    >>> TenantIds("acme", "shop").from_stored(TenantIds("acme", "shop").to_stored("web-42"))
    'web-42'
    """

    def __init__(self, tenant_id: str, app_id: str) -> None:
        self._prefix = ""
        if (tenant_id, app_id) != ("default", "default"):
            self._prefix = f"~{hashlib.sha256(dump_json([tenant_id, app_id]).encode()).hexdigest()[:32]}~"

    def to_stored(self, id: str) -> str:
        """An id as it is stored."""
        if not self._prefix and _PREFIX_PATTERN.match(id):
            raise InvalidArgumentError(f"an id cannot begin like {id!r:.40}: that is how ids of other apps begin.")
        return self._prefix + id

    def from_stored(self, id: str) -> str:
        """An id as its app knows it."""
        return id.removeprefix(self._prefix)

    def encode_session(self, session: SessionData) -> SessionData:
        """A session as it is stored."""
        user_id = None if session.user_id is None else self.to_stored(session.user_id)
        return replace(session, id=self.to_stored(session.id), user_id=user_id)

    def decode_session(self, session: SessionData) -> SessionData:
        """A session as its app knows it."""
        user_id = None if session.user_id is None else self.from_stored(session.user_id)
        return replace(session, id=self.from_stored(session.id), user_id=user_id)

    def encode_message(self, message: MessageData) -> MessageData:
        """A message as it is stored."""
        user_id = None if message.user_id is None else self.to_stored(message.user_id)
        return replace(message, session_id=self.to_stored(message.session_id), user_id=user_id)

    def decode_message(self, message: MessageData) -> MessageData:
        """A message as its app knows it."""
        user_id = None if message.user_id is None else self.from_stored(message.user_id)
        return replace(message, session_id=self.from_stored(message.session_id), user_id=user_id)

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Errors name ids as the app knows them."""
        try:
            yield
        except SessionConflictError as error:
            raise SessionConflictError(self.from_stored(error.id), error.version, error.stored) from error
        except NotFoundError as error:
            raise NotFoundError(error.kind, self.from_stored(str(error.id))) from error


class TenantSessionAdapter:
    """An adapter's sessions of one tenant and app: itself a `PersistenceAdapter`, and its `SessionRepository`."""

    def __init__(self, inner: PersistenceAdapter, ids: TenantIds) -> None:
        self._inner = inner
        self._ids = ids
        self.session_repository = self
        self.message_repository = _TenantMessages(inner, ids)

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
        with self._ids.translate_errors():
            encoded = [self._ids.encode_message(each) for each in messages]
            return self._ids.decode_session(await self._inner.save(self._ids.encode_session(session), encoded))

    async def create(self, session: SessionData) -> SessionData:
        """Store a new session."""
        with self._ids.translate_errors():
            created = await self._inner.session_repository.create(self._ids.encode_session(session))
        return self._ids.decode_session(created)

    async def get(self, session_id: str) -> SessionData | None:
        """A session, or None."""
        return self._decode(await self._inner.session_repository.get(self._ids.to_stored(session_id)))

    async def find_active(self, user_id: str, agent_name: str | None = None) -> SessionData | None:
        """The active session that was created last."""
        found = await self._inner.session_repository.find_active(self._ids.to_stored(user_id), agent_name)
        return self._decode(found)

    async def of_user(
        self, user_id: str, *, limit: int | None = None, before: SessionData | None = None
    ) -> list[SessionData]:
        """A user's sessions."""
        last = None if before is None else self._ids.encode_session(before)
        found = await self._inner.session_repository.of_user(self._ids.to_stored(user_id), limit=limit, before=last)
        return [self._ids.decode_session(each) for each in found]

    async def update_status(
        self, session_id: str, status: SessionStatus, *, at: datetime, completed_at: datetime | None
    ) -> SessionData | None:
        """Change a session's status."""
        id = self._ids.to_stored(session_id)
        sessions = self._inner.session_repository
        return self._decode(await sessions.update_status(id, status, at=at, completed_at=completed_at))

    async def delete(self, session_id: str) -> bool:
        """Delete a session and its messages."""
        return await self._inner.session_repository.delete(self._ids.to_stored(session_id))

    def _decode(self, session: SessionData | None) -> SessionData | None:
        return None if session is None else self._ids.decode_session(session)


class _TenantMessages:
    def __init__(self, inner: PersistenceAdapter, ids: TenantIds) -> None:
        self._inner = inner
        self._ids = ids

    async def add(self, messages: Sequence[MessageData], *, at: datetime) -> list[MessageData]:
        with self._ids.translate_errors():
            encoded = [self._ids.encode_message(each) for each in messages]
            added = await self._inner.message_repository.add(encoded, at=at)
        return [self._ids.decode_message(each) for each in added]

    async def of_session(
        self, session_id: str, *, limit: int | None = None, before: int | None = None, after: int | None = None
    ) -> list[MessageData]:
        id = self._ids.to_stored(session_id)
        found = await self._inner.message_repository.of_session(id, limit=limit, before=before, after=after)
        return [self._ids.decode_message(each) for each in found]


class TenantSessionStore:
    """The same for a `SessionStore` that is none of ours."""

    def __init__(self, inner: SessionStore, ids: TenantIds) -> None:
        self._inner = inner
        self._ids = ids
        self.auto_save: bool = getattr(inner, "auto_save", True)

    async def load(self, session_id: str) -> SessionState | None:
        """The session of that id, if it is stored."""
        with self._ids.translate_errors():
            found = await self._inner.load(self._ids.to_stored(session_id))
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
        stored_user_id = None if user_id is None else self._ids.to_stored(user_id)
        with self._ids.translate_errors():
            stored_session = replace(session, id=self._ids.to_stored(session.id))
            await self._inner.save(stored_session, events, agent_name=agent_name, user_id=stored_user_id)

    async def history(self, session_id: str, limit: int) -> Sequence[Event]:
        """The newest of what was said."""
        return await self._inner.history(self._ids.to_stored(session_id), limit)
