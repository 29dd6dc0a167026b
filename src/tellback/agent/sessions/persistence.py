"""Session stores: the `SessionStore` protocol, an in-memory store, and `Persistence` for a database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypedDict, Unpack

from tellback.agent.events import Event, adapt_event
from tellback.agent.sessions.serialization import (
    build_message_row,
    events_to_messages,
    message_to_events,
    plain_data,
    session_data_to_state,
    session_state_to_data,
    validate_no_reserved_keys,
    with_parsed_event,
)
from tellback.agent.sessions.session import SessionState
from tellback.errors import ConfigurationError, InvalidArgumentError, NotFoundError, SessionConflictError
from tellback.sessions import validation
from tellback.sessions.adapter import PersistenceAdapter, RepositoryAdapter
from tellback.sessions.storage import complete_adapter
from tellback.stores import SessionTurn
from tellback.types.access import Scope
from tellback.types.conversations import MessageData, MessageRole, SessionData, SessionStatus
from tellback.types.ids import new_id, utc_now
from tellback.validation import validate_mapping

if TYPE_CHECKING:
    from tellback.sessions.sql.adapter import StoreBackend


class SessionStore(Protocol):
    """Stores sessions: the type of `Agent(persistence=...)`.

    `save` stores a session and the messages of its turn in one step. If another turn of the session was saved in the
    meantime, it raises `SessionConflictError` and saves nothing: the stored version must be one less than the session's
    version. `Persistence` implements this protocol with a database. The agent does not save to a store whose
    `auto_save` is False.

    >>> store: SessionStore = InMemorySessions()
    """

    async def load(self, session_id: str) -> SessionState | None:
        """Return the stored session with this id, or None."""
        ...

    async def save(
        self,
        session: SessionState,
        events: Sequence[Event],
        *,
        agent_name: str | None = None,
        user_id: str | None = None,
    ) -> None:
        """Store a session after a turn, with its owner if known."""
        ...

    async def history(self, session_id: str, limit: int) -> Sequence[Event]:
        """Return the newest messages of a session, in order."""
        ...


class InMemorySessions:
    """Sessions in this process's memory, for tests and for agents whose sessions may be lost when the process ends.

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
        """Return the stored session with this id, or None."""
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
        """Return the newest messages of a session, in order."""
        return tuple(self._events.get(session_id, ())[-limit:] if limit > 0 else ())

    def clear(self) -> None:
        """Delete all sessions."""
        self._sessions.clear()
        self._events.clear()


class NewSession(TypedDict, total=False):
    """The fields of a new session. Without an id it gets a generated one.

    `initial_data` is your own JSON: it is stored in `collected_data` and in the metadata of the session's state.

    >>> import asyncio
    >>> from tellback.sessions import InMemoryAdapter
    >>> fields = NewSession(agent_name="Wanda", initial_data={"channel": "web"})
    >>> session = asyncio.run(Persistence(InMemoryAdapter(), user_id="maya").create_session(fields))
    >>> session.agent_name, session.user_id, session.collected_data
    ('Wanda', 'maya', {'channel': 'web'})
    """

    id: str | None
    user_id: str | None
    agent_name: str | None
    initial_data: Mapping[str, Any] | None
    status: SessionStatus


class NewMessage(TypedDict, total=False):
    """The fields of a new message; `event` alone is enough.

    >>> import asyncio
    >>> from tellback.sessions import InMemoryAdapter
    >>> async def main():
    ...     async with Persistence(InMemoryAdapter()) as persistence:
    ...         session = await persistence.create_session(user_id="maya")
    ...         return await persistence.save_message(NewMessage(session_id=session.id, role="user", content="Hello!"))
    >>> message = asyncio.run(main())
    >>> message.role, message.content, message.user_id
    ('user', 'Hello!', 'maya')
    """

    id: str | None
    session_id: str
    user_id: str | None
    role: MessageRole
    content: str
    route: str | None
    state: str | None
    tool_calls: Sequence[Mapping[str, Any]] | None
    event: Any
    created_at: datetime | str | None


class SessionWithState(NamedTuple):
    """A session as a stored row and as the state that an agent uses.

    >>> import asyncio
    >>> from tellback.sessions import InMemoryAdapter
    >>> created = asyncio.run(Persistence(InMemoryAdapter()).create_session_with_state(user_id="maya"))
    >>> created.session_state.id == created.session_data.id, created.session_data.status
    (True, 'active')
    """

    session_data: SessionData
    session_state: SessionState


class Persistence:
    """Stores an agent's sessions and messages in the database of an adapter: pass it as `Agent(persistence=...)`.

    With `auto_save` the agent saves each turn automatically: the session **and** its messages, in one step. Otherwise
    pass on `response.session`, and save it with `save`. `user_id` restricts it to one user: it does not find sessions
    of others. The adapter is initialized at the first use; `async with` disconnects it at the end. An adapter of your
    own needs only two repositories; then a save takes several steps (see `tellback.sessions.RepositoryAdapter`).

    >>> import asyncio
    >>> from tellback.sessions import InMemoryAdapter
    >>> async def main():
    ...     async with Persistence(InMemoryAdapter(), user_id="maya") as persistence:
    ...         session = await persistence.create_session(agent_name="Wanda", initial_data={"channel": "web"})
    ...         await persistence.save_message(session_id=session.id, role="user", content="Hello!")
    ...         return await persistence.load_session_history(session.id)
    >>> asyncio.run(main())[0].data.message
    'Hello!'
    """

    def __init__(
        self,
        adapter: PersistenceAdapter | RepositoryAdapter,
        auto_save: bool = True,
        user_id: str | None = None,
        *,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self.adapter = complete_adapter(adapter)
        if not isinstance(auto_save, bool):
            raise ConfigurationError(f"auto_save must be a bool, got {auto_save!r:.80}; pass user_id by keyword.")
        self.auto_save = auto_save
        self.user_id = validation.validate_optional_id("user_id", user_id)
        self.clock = clock
        self._init_lock = asyncio.Lock()
        self._is_ready = False

    async def __aenter__(self) -> Persistence:
        await self.initialize()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.disconnect()

    async def initialize(self) -> None:
        """Create missing tables and indexes, and run migrations. The first use calls it automatically."""
        async with self._init_lock:
            await self.adapter.initialize()
            self._is_ready = True

    async def disconnect(self) -> None:
        """Close the adapter's own connections."""
        await self.adapter.disconnect()

    async def create_session(
        self, data: SessionData | NewSession | None = None, **fields: Unpack[NewSession]
    ) -> SessionData:
        """Store a new session. Raise `SessionConflictError` if its id exists."""
        return await (await self._ready_adapter()).session_repository.create(self._build_session(data, fields))

    async def create_session_with_state(
        self, data: SessionData | NewSession | None = None, **fields: Unpack[NewSession]
    ) -> SessionWithState:
        """Store a new session, and return it also in the form that `agent.respond(..., session=...)` accepts.

        >>> import asyncio
        >>> from tellback.agent import Agent
        >>> from tellback.sessions import InMemoryAdapter
        >>> from tellback.testing import ScriptedModel, says
        >>> persistence = Persistence(InMemoryAdapter(), user_id="maya")
        >>> async def main():
        ...     agent = Agent("Wanda", persistence=persistence, model=ScriptedModel([says("Where to?")]))
        ...     created = await persistence.create_session_with_state(agent_name="Wanda")
        ...     await agent.respond("Hi!", created.session_state)
        ...     return await persistence.get_session_messages(created.session_data.id)
        >>> [message.content for message in asyncio.run(main())]
        ['Hi!', 'Where to?']
        """
        created = await self.create_session(data, **fields)
        return SessionWithState(created, session_data_to_state(created.id, created))

    async def get_session(self, session_id: str) -> SessionData | None:
        """Return a session, or None if it does not exist or belongs to another user."""
        found = await (await self._ready_adapter()).session_repository.get(session_id)
        return found if self._is_visible(found) else None

    async def find_active_session(
        self, user_id: str | None = None, agent_name: str | None = None
    ) -> SessionData | None:
        """Return the newest active session of a user, optionally of one agent.

        >>> import asyncio
        >>> from tellback.sessions import InMemoryAdapter
        >>> async def main():
        ...     async with Persistence(InMemoryAdapter(), user_id="maya") as persistence:
        ...         session = await persistence.create_session(agent_name="Wanda")
        ...         found = await persistence.find_active_session(agent_name="Wanda")
        ...         await persistence.complete_session(session.id)
        ...         return found.id == session.id, await persistence.find_active_session(agent_name="Wanda")
        >>> asyncio.run(main())
        (True, None)
        """
        return await (await self._ready_adapter()).session_repository.find_active(
            self._require_user_id(user_id), agent_name
        )

    async def get_user_sessions(
        self, user_id: str | None = None, limit: int | None = None, *, before: SessionData | str | None = None
    ) -> list[SessionData]:
        """Return a user's sessions, newest first; `before` is the last one of the previous page."""
        adapter, user = await self._ready_adapter(), self._require_user_id(user_id)
        if isinstance(before, str):
            before = await self._require_session(before)
        return await adapter.session_repository.list_by_user(user, limit=limit, before=before)

    async def update_session_status(self, session_id: str, status: SessionStatus) -> SessionData | None:
        """Change a session's status and return the session, or None if it does not exist."""
        validation.validate_status(status)
        if await self.get_session(session_id) is None:
            return None
        now = self.clock()
        return await self.adapter.session_repository.update_status(
            session_id, status, at=now, completed_at=now if status == "completed" else None
        )

    async def complete_session(self, session_id: str) -> SessionData | None:
        """Mark a session as completed."""
        return await self.update_session_status(session_id, "completed")

    async def abandon_session(self, session_id: str) -> SessionData | None:
        """Mark a session as abandoned."""
        return await self.update_session_status(session_id, "abandoned")

    async def delete_session(self, session_id: str) -> bool:
        """Delete a session with its messages; return whether it existed.

        With a `Tellback` store only the session's state is deleted: its messages belong to the user's log, and are
        erased with that.
        """
        if await self.get_session(session_id) is None and self.user_id is not None:
            return False
        return await self.adapter.session_repository.delete(session_id)  # also deletes the rest of an expired session

    async def delete_user_sessions(self, user_id: str | None = None) -> int:
        """Delete all sessions of a user with their messages, as `delete_session` does; return their number."""
        deleted = 0
        while found := await self.get_user_sessions(user_id, limit=100):
            deletions = [await self.adapter.session_repository.delete(each.id) for each in found]
            deleted += sum(deletions)
            if not any(deletions):  # the list may be stale
                break
        return deleted

    async def save_message(
        self, data: MessageData | NewMessage | None = None, **fields: Unpack[NewMessage]
    ) -> MessageData:
        """Append a message to a session. Raise `NotFoundError` if the session does not exist."""
        message = build_message_row(data, fields, self.clock())
        session = await self._require_session(message.session_id)
        message = replace(message, user_id=self._resolve_user_id(message.user_id) or session.user_id)
        (added,) = await self.adapter.message_repository.add([message], at=self.clock())
        return with_parsed_event(added)

    async def get_session_messages(
        self,
        session_id: str,
        limit: int | None = None,
        *,
        before: MessageData | int | None = None,
        after: MessageData | int | None = None,
    ) -> list[MessageData]:
        """Return a session's messages in order: the last `limit`, those before one, or the first after one.

        >>> import asyncio
        >>> from tellback.sessions import InMemoryAdapter
        >>> async def main():
        ...     async with Persistence(InMemoryAdapter(), user_id="maya") as persistence:
        ...         session = await persistence.create_session()
        ...         for text in ("Hello!", "A flight to Rome", "Tomorrow"):
        ...             await persistence.save_message(session_id=session.id, role="user", content=text)
        ...         return await persistence.get_session_messages(session.id, limit=2)
        >>> [message.content for message in asyncio.run(main())]
        ['A flight to Rome', 'Tomorrow']
        """
        until = before.position if isinstance(before, MessageData) else before
        since = after.position if isinstance(after, MessageData) else after
        return [with_parsed_event(each) for each in await self._load_messages(session_id, limit, until, since)]

    async def load_session_history(self, session_id: str, limit: int | None = None) -> list[Event]:
        """Return the last `limit` messages of a session as events for `agent.respond`, with their tool calls."""
        messages = await self._load_messages(session_id, limit)
        return [event for each in messages for event in message_to_events(each)]

    async def load(self, session_id: str) -> SessionState | None:
        """Return a session's state, or None. Raise `NotFoundError` if it belongs to another user."""
        found = await (await self._ready_adapter()).session_repository.get(session_id)
        if found is None:
            return None
        if not self._is_visible(found):
            raise NotFoundError("session", session_id, "Each user needs their own session ids.")
        return session_data_to_state(session_id, found)

    async def save(
        self,
        session: SessionState,
        events: Iterable[Any] = (),
        *,
        agent_name: str | None = None,
        user_id: str | None = None,
    ) -> None:
        """Store a session and the messages of its turn in one step; with `auto_save` the agent calls it.

        Raise `SessionConflictError` and save nothing if another turn of the session was saved in the meantime: the
        stored version must be one less than the session's version.
        """
        adapter = await self._ready_adapter()
        if self.user_id is not None and not self._is_visible(
            await adapter.session_repository.get(session.id), new=True
        ):
            raise NotFoundError("session", session.id, "Each user needs their own session ids.")
        turn = self.build_session_turn(session, events, agent_name=agent_name, user_id=user_id)
        await adapter.save(turn.session, turn.messages)

    def build_session_turn(
        self, session: SessionState, events: Iterable[Any], *, agent_name: str | None, user_id: str | None
    ) -> SessionTurn:
        """Return a session and the messages of its turn as rows."""
        row = self._build_row(session, agent_name, self._resolve_user_id(user_id))
        messages = events_to_messages(session, [adapt_event(each) for each in events], row.user_id)
        return SessionTurn(row, tuple(messages))

    def shares_store_with(self, store: Any, scope: Scope) -> bool:
        """Whether the sessions are in the same store as the user's conversations.

        Raise `ConfigurationError` if they are, but belong to another tenant or app.
        """
        agent_sessions: StoreBackend | None = getattr(self.adapter, "store_backend", None)
        if agent_sessions is None:
            return False
        if agent_sessions.store is not store:
            if _store_location(agent_sessions.store) == _store_location(store) is not None:
                raise ConfigurationError(
                    f"the agent's memory and its sessions are both in {store.url}, but use two Tellback objects:"
                    " pass the same Tellback to both."
                )
            return False
        if (agent_sessions.tenant_id, agent_sessions.app_id) != (scope.tenant_id, scope.app_id):
            raise ConfigurationError(
                f"the agent's memory is in app {scope.app_id!r} of tenant {scope.tenant_id!r}, but its sessions are in"
                f" {agent_sessions.app_id!r} of {agent_sessions.tenant_id!r}: pass tenant_id and app_id to the adapter."
            )
        return True

    async def history(self, session_id: str, limit: int) -> Sequence[Event]:
        """Return the newest messages of a session, in order."""
        return tuple(await self.load_session_history(session_id, limit)) if limit > 0 else ()

    def _build_row(self, session: SessionState, agent_name: str | None, user_id: str | None) -> SessionData:
        data, now = session_state_to_data(session), self.clock()
        metadata_user_id = session.metadata.get("user_id")
        return SessionData(
            id=session.id,
            user_id=user_id or (metadata_user_id if isinstance(metadata_user_id, str) and metadata_user_id else None),
            agent_name=agent_name,
            current_route=data["current_route"],
            current_state=data["current_state"],
            collected_data=data["collected_data"],
            created_at=now,
            updated_at=now,
            version=session.version,
        )

    def _build_session(self, source: SessionData | NewSession | None, fields: NewSession) -> SessionData:
        if isinstance(source, SessionData):
            if fields:
                raise InvalidArgumentError("pass either a SessionData or its fields, not both.")
            session = replace(
                source, user_id=self._resolve_user_id(source.user_id), collected_data=plain_data(source.collected_data)
            )
            session_data_to_state(session.id, session)  # raises for a session that could not be read again
            return session
        values: Mapping[str, Any] = {**validate_mapping("a session", source), **fields}
        unknown = values.keys() - NewSession.__annotations__.keys()
        if unknown:
            raise InvalidArgumentError(f"create_session got unknown fields: {', '.join(sorted(unknown))}.")
        data = validate_mapping("initial_data", values.get("initial_data"))
        validate_no_reserved_keys(data)
        now = self.clock()
        return SessionData(
            id=values.get("id") or new_id("session"),
            user_id=self._resolve_user_id(values.get("user_id")),
            agent_name=values.get("agent_name"),
            status=values.get("status") or "active",
            collected_data=plain_data(data),
            created_at=now,
            updated_at=now,
        )

    def _resolve_user_id(self, user_id: str | None) -> str | None:
        if self.user_id is not None and user_id not in (None, self.user_id):
            raise InvalidArgumentError(f"this persistence belongs to user {self.user_id!r}, not to {user_id!r:.80}.")
        return self.user_id if user_id is None else user_id

    def _require_user_id(self, user_id: str | None) -> str:
        found = self._resolve_user_id(user_id)
        if found is None:
            raise InvalidArgumentError("user_id is missing: pass it here or to Persistence(...).")
        return found

    def _is_visible(self, session: SessionData | None, *, new: bool = False) -> bool:
        if session is None:
            return new
        return self.user_id is None or session.user_id == self.user_id

    async def _load_messages(
        self, session_id: str, limit: int | None, before: int | None = None, after: int | None = None
    ) -> list[MessageData]:
        session = await self.get_session(session_id)
        if session is None and self.user_id is not None:
            return []  # messages of a session that no longer exists are returned only without a user_id
        messages = self.adapter.message_repository
        while True:
            found = await messages.list_by_session(session_id, limit=limit, before=before, after=after)
            visible = [each for each in found if session is None or _belongs_to_session(each, session)]
            if visible or not found or after is None:
                return visible
            after = found[-1].position  # the page has only messages of another user's expired session with this id

    async def _require_session(self, session_id: str) -> SessionData:
        found = await self.get_session(session_id)
        if found is None:
            raise NotFoundError("session", session_id, "Create it with create_session.")
        return found

    async def _ready_adapter(self) -> PersistenceAdapter:
        if not self._is_ready:
            async with self._init_lock:
                if not self._is_ready:
                    await self.adapter.initialize()
                    self._is_ready = True
        return self.adapter


def _store_location(store: Any) -> Any:
    """Return a key for the store's location, or None if no other store can share it."""
    settings = getattr(store, "queue_settings", None)  # PostgreSQL stores; includes the schema
    if settings is not None:
        return settings()
    return None if ":memory:" in store.url else store.url


def _belongs_to_session(message: MessageData, session: SessionData) -> bool:
    """Whether the message belongs to this session, not to another user's expired session with the same id."""
    return message.user_id is None or session.user_id is None or message.user_id == session.user_id
