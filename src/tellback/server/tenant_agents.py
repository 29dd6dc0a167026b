"""Serve agents to each tenant and app, with separate sessions.

An agent without `persistence` stores its sessions in the Tellback. An agent with `persistence` stores them there, with
ids that are prefixed by tenant and app. The agent's `memory` is replaced by the caller's.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from tellback.agent import Agent, Persistence
from tellback.agent.events import Event
from tellback.agent.sessions.persistence import SessionStore
from tellback.agent.sessions.session import SessionState
from tellback.app import Tellback
from tellback.chat_backends import ServedAgent, bind_agent, store_sessions
from tellback.errors import InvalidArgumentError, NotFoundError, SessionConflictError
from tellback.server.auth import Caller
from tellback.sessions.adapter import PersistenceAdapter
from tellback.sessions.sql.adapter import StoreBackend
from tellback.types.access import Scope
from tellback.types.conversations import MessageData, SessionData, SessionStatus
from tellback.types.jsontext import dump_json

_PREFIX_PATTERN = re.compile(r"~[0-9a-f]{32}~")

MAX_RECENT_AGENTS = 1_000
"""The number of agents cached for tenants; others are rebuilt when they are used again."""

_TenantKey = tuple[str, str, str]
Stored = TypeVar("Stored", SessionData, MessageData)


class TenantIds:
    """The user and session ids of an app, as stored in a database that other apps share.

    Ids of the default tenant and app get no prefix, so that code outside the server finds them.

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
        """Return the id as stored."""
        if not self._prefix and _PREFIX_PATTERN.match(id):
            raise InvalidArgumentError(
                f"The id {id!r:.40} begins with a prefix that is reserved for other apps: choose another id."
            )
        return self._prefix + id

    def from_stored(self, id: str) -> str:
        """Return the id as the app uses it."""
        return id.removeprefix(self._prefix)

    def encode(self, value: Stored) -> Stored:
        """Return a session or message with ids as stored."""
        return _replace_ids(value, self.to_stored)

    def decode(self, value: Stored) -> Stored:
        """Return a session or message with ids as the app uses them."""
        return _replace_ids(value, self.from_stored)

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Translate the ids in errors to the app's ids."""
        try:
            yield
        except SessionConflictError as error:
            raise SessionConflictError(self.from_stored(error.id), error.version, error.stored) from error
        except NotFoundError as error:
            raise NotFoundError(error.kind, self.from_stored(str(error.id))) from error


def _replace_ids(value: Stored, convert: Callable[[str], str]) -> Stored:
    """Return a copy with converted session and user ids."""
    user_id = None if value.user_id is None else convert(value.user_id)
    if isinstance(value, SessionData):
        return replace(value, id=convert(value.id), user_id=user_id)
    return replace(value, session_id=convert(value.session_id), user_id=user_id)


class TenantSessionAdapter:
    """The sessions of one tenant and app in a shared adapter: a `PersistenceAdapter` and both of its repositories."""

    def __init__(self, inner: PersistenceAdapter, ids: TenantIds) -> None:
        self._inner = inner
        self._ids = ids
        self.session_repository = self.message_repository = self

    async def initialize(self) -> None:
        await self._inner.initialize()

    async def disconnect(self) -> None:
        """Do nothing: the owner of the adapter disconnects it."""

    async def purge_expired(self) -> int:
        """Delete expired sessions of all apps."""
        return await self._inner.purge_expired()

    async def save(self, session: SessionData, messages: Sequence[MessageData]) -> SessionData:
        with self._ids.translate_errors():
            encoded = [self._ids.encode(each) for each in messages]
            return self._ids.decode(await self._inner.save(self._ids.encode(session), encoded))

    async def create(self, session: SessionData) -> SessionData:
        with self._ids.translate_errors():
            created = await self._inner.session_repository.create(self._ids.encode(session))
        return self._ids.decode(created)

    async def get(self, session_id: str) -> SessionData | None:
        return self._decode(await self._inner.session_repository.get(self._ids.to_stored(session_id)))

    async def find_active(self, user_id: str, agent_name: str | None = None) -> SessionData | None:
        found = await self._inner.session_repository.find_active(self._ids.to_stored(user_id), agent_name)
        return self._decode(found)

    async def list_by_user(
        self, user_id: str, *, limit: int | None = None, before: SessionData | None = None
    ) -> list[SessionData]:
        last = None if before is None else self._ids.encode(before)
        found = await self._inner.session_repository.list_by_user(
            self._ids.to_stored(user_id), limit=limit, before=last
        )
        return [self._ids.decode(each) for each in found]

    async def update_status(
        self, session_id: str, status: SessionStatus, *, at: datetime, completed_at: datetime | None
    ) -> SessionData | None:
        id = self._ids.to_stored(session_id)
        sessions = self._inner.session_repository
        return self._decode(await sessions.update_status(id, status, at=at, completed_at=completed_at))

    async def delete(self, session_id: str) -> bool:
        return await self._inner.session_repository.delete(self._ids.to_stored(session_id))

    async def add(self, messages: Sequence[MessageData], *, at: datetime) -> list[MessageData]:
        with self._ids.translate_errors():
            encoded = [self._ids.encode(each) for each in messages]
            added = await self._inner.message_repository.add(encoded, at=at)
        return [self._ids.decode(each) for each in added]

    async def list_by_session(
        self, session_id: str, *, limit: int | None = None, before: int | None = None, after: int | None = None
    ) -> list[MessageData]:
        id = self._ids.to_stored(session_id)
        found = await self._inner.message_repository.list_by_session(id, limit=limit, before=before, after=after)
        return [self._ids.decode(each) for each in found]

    def _decode(self, session: SessionData | None) -> SessionData | None:
        return None if session is None else self._ids.decode(session)


class TenantSessionStore:
    """The sessions of one tenant and app in a shared custom `SessionStore`."""

    def __init__(self, inner: SessionStore, ids: TenantIds) -> None:
        self._inner = inner
        self._ids = ids
        self.auto_save: bool = getattr(inner, "auto_save", True)

    async def load(self, session_id: str) -> SessionState | None:
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
        stored_user_id = None if user_id is None else self._ids.to_stored(user_id)
        with self._ids.translate_errors():
            stored_session = replace(session, id=self._ids.to_stored(session.id))
            await self._inner.save(stored_session, events, agent_name=agent_name, user_id=stored_user_id)

    async def history(self, session_id: str, limit: int) -> Sequence[Event]:
        return await self._inner.history(self._ids.to_stored(session_id), limit)


class TenantAgents:
    """The agents of an application, by tenant and app.

    Requests share an agent that is in use, so that turns of a session wait for each other.
    """

    def __init__(self) -> None:
        self._recent: OrderedDict[_TenantKey, Agent] = OrderedDict()
        self._live: WeakValueDictionary[_TenantKey, Agent] = WeakValueDictionary()

    @classmethod
    def for_app(cls, app: Any) -> TenantAgents:
        """Return the agents of an application, stored in `app.state.serving`."""
        agents = getattr(app.state, "serving", None)
        if agents is None:
            agents = app.state.serving = cls()
        assert isinstance(agents, TenantAgents)
        return agents

    def agent(self, caller: Caller, name: str) -> ServedAgent:
        """Return an agent with routes, bound to the request's user."""
        source = caller.server.agents.get(name)
        if source is None:
            raise NotFoundError("agent with routes", name)
        scope = caller.user.scope
        key = (name, scope.tenant_id, scope.app_id)
        agent = self._live.get(key)
        if agent is None:
            tb = caller.server.tb
            agent = self._live[key] = bind_agent(source, tb, _tenant_session_store(source, tb, scope))
        self._recent[key] = agent
        self._recent.move_to_end(key)
        if len(self._recent) > MAX_RECENT_AGENTS:
            self._recent.popitem(last=False)
        return ServedAgent(agent, caller.user)


def _tenant_session_store(source: Agent, tb: Tellback, scope: Scope) -> SessionStore:
    store = source.persistence
    if store is None or _is_stored_in(store, tb):
        return store_sessions(source, tb, scope)
    ids = TenantIds(scope.tenant_id, scope.app_id)
    if isinstance(store, Persistence):
        return Persistence(TenantSessionAdapter(store.adapter, ids), clock=store.clock)
    return TenantSessionStore(store, ids)


def _is_stored_in(store: SessionStore, tb: Tellback) -> bool:
    backend = getattr(getattr(store, "adapter", None), "store_backend", None)
    return isinstance(backend, StoreBackend) and backend.store is tb.store
