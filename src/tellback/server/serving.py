"""Agents with routes as they are served: each tenant and app has its own sessions, and each user a memory.

An agent without `persistence` keeps its sessions in the Tellback, beside the conversations. One with its own keeps
them there, under ids that are apart by tenant and app. Whatever its `memory` is, it is the caller's that is used.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from tellback.agent import Agent, Persistence
from tellback.agent.owning import owner_of, refuse_foreign
from tellback.agent.responding import Responding
from tellback.agent.session import SessionState
from tellback.agent.session_data import session_data_to_state
from tellback.agent.sessions import SessionStore
from tellback.app import Tellback
from tellback.errors import ConfigurationError, NotFoundError
from tellback.server.apart import ApartAdapter, ApartSessions, Names
from tellback.server.callers import Caller
from tellback.stores.sessions.kept import KeptSessions
from tellback.stores.sessions.sql.adapter import BackedAdapter
from tellback.types.scope import Scope
from tellback.types.sessions import SessionData
from tellback.user import User

MOST_HELD = 1_000
"""So many tenants' agents are held at least; others are made again when they are asked for."""

_Key = tuple[str, str, str]


class Serving:
    """The agents of an application, by tenant and app. Turns of one session wait for each other as long as one runs."""

    def __init__(self) -> None:
        self._held: OrderedDict[_Key, Agent] = OrderedDict()
        self._alive: WeakValueDictionary[_Key, Agent] = WeakValueDictionary()

    @classmethod
    def of(cls, app: Any) -> Serving:
        """The one of an application, in its `state.serving`."""
        found = getattr(app.state, "serving", None)
        if found is None:
            found = app.state.serving = cls()
        assert isinstance(found, Serving)
        return found

    def agent(self, caller: Caller, name: str) -> Served:
        """An agent with routes, for the user of a request."""
        source = caller.home.agents.get(name)
        if source is None:
            raise NotFoundError("agent with routes", name)
        scope = caller.user.scope
        key = (name, scope.tenant_id, scope.app_id)
        found = self._alive.get(key)
        if found is None:
            found = self._alive[key] = _twin(source, caller.home.rc, scope)
        self._held[key] = found
        self._held.move_to_end(key)
        if len(self._held) > MOST_HELD:
            self._held.popitem(last=False)
        return Served(found, caller.user)


@dataclass(frozen=True, slots=True)
class Served:
    """An agent with routes, and the user it is to talk to."""

    agent: Agent
    user: User

    @property
    def persistence(self) -> Persistence:
        """Where its sessions are."""
        found = self.agent.persistence
        if not isinstance(found, Persistence):
            raise ConfigurationError(
                f"{self.agent.place} keeps its sessions in {type(found).__name__}, which can only load and save them:"
                " pass Agent(persistence=Persistence(...))."
            )
        return found

    async def found(self, session_id: str) -> SessionData | None:
        """The user's session of that id with this agent, or None. Another's raises `NotFoundError`."""
        found = await self.persistence.get_session(session_id)
        if found is not None and not self.has(found):
            raise NotFoundError("session", session_id)
        return found

    async def session(self, session_id: str) -> SessionData:
        """The user's session of that id with this agent; another raises `NotFoundError`."""
        found = await self.found(session_id)
        if found is None:
            raise NotFoundError("session", session_id)
        return found

    def has(self, session: SessionData) -> bool:
        """Whether a session is the user's, with this agent."""
        if session.user_id != self.user.scope.user_id or session.agent_name not in (None, self.agent.name):
            return False
        owner = session.collected_data.get("owner")
        return not owner or owner == owner_of((self.user.scope, session.id))

    async def state(self, session_id: str) -> tuple[SessionState, str] | None:
        """Where a session of the user's stands, and its status; None if it is yet to begin."""
        store = self.agent.persistence
        if isinstance(store, Persistence):
            row = await self.found(session_id)
            return None if row is None else (session_data_to_state(session_id, row), row.status)
        assert store is not None
        found = await store.load(session_id)
        if found is None:
            return None
        refuse_foreign(found, (self.user.scope, session_id))
        return found, "active"


def _twin(source: Agent, rc: Tellback, scope: Scope) -> Agent:
    """The agent with sessions of one tenant and app. Its routes are the same ones."""
    twin = copy.copy(source)
    twin.persistence = _sessions(source, rc, scope)
    if twin.memory is None:
        twin.memory = rc
    twin._responding = Responding(twin)
    return twin


def _sessions(source: Agent, rc: Tellback, scope: Scope) -> SessionStore:
    store = source.persistence
    if store is None or _is_kept_in(store, rc):
        options = source.memory_options
        kept = KeptSessions(
            rc.store,
            tenant_id=scope.tenant_id,
            app_id=scope.app_id,
            namespace=options.namespace,
            close_after=options.close_after,
        )
        return Persistence(BackedAdapter(kept), clock=lambda: rc.clock())
    names = Names(scope.tenant_id, scope.app_id)
    if isinstance(store, Persistence):
        return Persistence(ApartAdapter(store.adapter, names), clock=store.clock)
    return ApartSessions(store, names)


def _is_kept_in(store: SessionStore, rc: Tellback) -> bool:
    kept = getattr(getattr(store, "adapter", None), "kept", None)
    return isinstance(kept, KeptSessions) and kept.store is rc.store
