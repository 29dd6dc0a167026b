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
from tellback.agent.owning import format_owner, validate_owner
from tellback.agent.responding import Responder
from tellback.agent.session import SessionState
from tellback.agent.session_data import session_data_to_state
from tellback.agent.sessions import SessionStore
from tellback.app import Tellback
from tellback.errors import ConfigurationError, NotFoundError
from tellback.server.apart import TenantIds, TenantSessionAdapter, TenantSessionStore
from tellback.server.callers import Caller
from tellback.stores.sessions.kept import StoreBackend
from tellback.stores.sessions.sql.adapter import SqlAdapter
from tellback.types.scope import Scope
from tellback.types.sessions import SessionData
from tellback.user import User

MAX_RECENT_AGENTS = 1_000
"""So many tenants' agents are held at least; others are made again when they are asked for."""

_TenantKey = tuple[str, str, str]


class TenantAgents:
    """The agents of an application, by tenant and app. Turns of one session wait for each other as long as one runs."""

    def __init__(self) -> None:
        self._recent: OrderedDict[_TenantKey, Agent] = OrderedDict()
        self._live: WeakValueDictionary[_TenantKey, Agent] = WeakValueDictionary()

    @classmethod
    def for_app(cls, app: Any) -> TenantAgents:
        """The one of an application, in its `state.serving`."""
        agents = getattr(app.state, "serving", None)
        if agents is None:
            agents = app.state.serving = cls()
        assert isinstance(agents, TenantAgents)
        return agents

    def agent(self, caller: Caller, name: str) -> ServedAgent:
        """An agent with routes, for the user of a request."""
        source = caller.server.agents.get(name)
        if source is None:
            raise NotFoundError("agent with routes", name)
        scope = caller.user.scope
        key = (name, scope.tenant_id, scope.app_id)
        agent = self._live.get(key)
        if agent is None:
            agent = self._live[key] = _copy_for_tenant(source, caller.server.rc, scope)
        self._recent[key] = agent
        self._recent.move_to_end(key)
        if len(self._recent) > MAX_RECENT_AGENTS:
            self._recent.popitem(last=False)
        return ServedAgent(agent, caller.user)


@dataclass(frozen=True, slots=True)
class ServedAgent:
    """An agent with routes, and the user it is to talk to."""

    agent: Agent
    user: User

    @property
    def persistence(self) -> Persistence:
        """Where its sessions are."""
        store = self.agent.persistence
        if not isinstance(store, Persistence):
            raise ConfigurationError(
                f"{self.agent.place} keeps its sessions in {type(store).__name__}, which can only load and save them:"
                " pass Agent(persistence=Persistence(...))."
            )
        return store

    async def find_session(self, session_id: str) -> SessionData | None:
        """The user's session of that id with this agent, or None. Another's raises `NotFoundError`."""
        session = await self.persistence.get_session(session_id)
        if session is not None and not self.owns(session):
            raise NotFoundError("session", session_id)
        return session

    async def get_session(self, session_id: str) -> SessionData:
        """The user's session of that id with this agent; another raises `NotFoundError`."""
        session = await self.find_session(session_id)
        if session is None:
            raise NotFoundError("session", session_id)
        return session

    def owns(self, session: SessionData) -> bool:
        """Whether a session is the user's, with this agent."""
        if session.user_id != self.user.scope.user_id or session.agent_name not in (None, self.agent.name):
            return False
        owner = session.collected_data.get("owner")
        return not owner or owner == format_owner((self.user.scope, session.id))

    async def load_state(self, session_id: str) -> tuple[SessionState, str] | None:
        """Where a session of the user's stands, and its status; None if it is yet to begin."""
        store = self.agent.persistence
        if isinstance(store, Persistence):
            row = await self.find_session(session_id)
            return None if row is None else (session_data_to_state(session_id, row), row.status)
        assert store is not None
        state = await store.load(session_id)
        if state is None:
            return None
        validate_owner(state, (self.user.scope, session_id))
        return state, "active"


def _copy_for_tenant(source: Agent, rc: Tellback, scope: Scope) -> Agent:
    """The agent with sessions of one tenant and app. Its routes are the same ones."""
    agent = copy.copy(source)
    agent.persistence = _tenant_session_store(source, rc, scope)
    if agent.memory is None:
        agent.memory = rc
    agent._responder = Responder(agent)
    return agent


def _tenant_session_store(source: Agent, rc: Tellback, scope: Scope) -> SessionStore:
    store = source.persistence
    if store is None or _is_stored_in(store, rc):
        options = source.memory_options
        sessions = StoreBackend(
            rc.store,
            tenant_id=scope.tenant_id,
            app_id=scope.app_id,
            namespace=options.namespace,
            close_after=options.close_after,
        )
        return Persistence(SqlAdapter(sessions), clock=lambda: rc.clock())
    ids = TenantIds(scope.tenant_id, scope.app_id)
    if isinstance(store, Persistence):
        return Persistence(TenantSessionAdapter(store.adapter, ids), clock=store.clock)
    return TenantSessionStore(store, ids)


def _is_stored_in(store: SessionStore, rc: Tellback) -> bool:
    sessions = getattr(getattr(store, "adapter", None), "kept", None)
    return isinstance(sessions, StoreBackend) and sessions.store is rc.store
