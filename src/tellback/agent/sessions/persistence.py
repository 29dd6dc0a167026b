"""Session stores: the `SessionStore` protocol, sessions in memory, and `Persistence` for a database."""

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
from tellback.sessions.adapter import PersistenceAdapter
from tellback.stores import SessionTurn
from tellback.types.access import Scope
from tellback.types.conversations import MessageData, MessageRole, SessionData, SessionStatus
from tellback.types.ids import new_id, utc_now
from tellback.validation import validate_mapping

if TYPE_CHECKING:
    from tellback.sessions.sql.adapter import StoreBackend


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


_ADAPTER_ATTRIBUTES = ("session_repository", "message_repository", "initialize", "disconnect", "save", "purge_expired")


class NewSession(TypedDict, total=False):
    """What a session is created from. Without an id it gets a new one.

    `initial_data` is your own JSON about it: it is in `collected_data`, and in the metadata of the session's state.
    """

    id: str | None
    user_id: str | None
    agent_name: str | None
    initial_data: Mapping[str, Any] | None
    status: SessionStatus


class NewMessage(TypedDict, total=False):
    """What a message is made from; `event` alone is enough."""

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
    """A session as it is stored, and as an agent takes it."""

    session_data: SessionData
    session_state: SessionState


class Persistence:
    """Keeps an agent's sessions and messages in the database of an adapter: what `Agent(persistence=...)` takes.

    With `auto_save` the agent saves each turn by itself: where the session stands **and** what was said, in one step.
    Without, pass on `response.session`, and save it with `save`. `user_id` makes it one user's: sessions of others are
    not there for it. The adapter is initialized at the first use; `async with` disconnects it at the end.

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
        adapter: PersistenceAdapter,
        auto_save: bool = True,
        user_id: str | None = None,
        *,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        if isinstance(adapter, type) or not isinstance(adapter, PersistenceAdapter):
            missing = [name for name in _ADAPTER_ATTRIBUTES if not hasattr(adapter, name)]
            hint = f" It has no {', '.join(missing)}." if len(missing) < len(_ADAPTER_ATTRIBUTES) else ""
            raise ConfigurationError(f"adapter is an adapter such as InMemoryAdapter(), not {adapter!r:.80}.{hint}")
        if not isinstance(auto_save, bool):
            raise ConfigurationError(f"auto_save is True or False, not {auto_save!r:.80}; write user_id=... by name.")
        self.adapter = adapter
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
        """Make what is missing in the database: tables, indexes, migrations. It happens by itself at the first use."""
        async with self._init_lock:
            await self.adapter.initialize()
            self._is_ready = True

    async def disconnect(self) -> None:
        """Give up the adapter's own connections."""
        await self.adapter.disconnect()

    async def create_session(
        self, data: SessionData | NewSession | None = None, **fields: Unpack[NewSession]
    ) -> SessionData:
        """Store a new session. Raises `SessionConflictError` if its id is taken."""
        return await (await self._ready_adapter()).session_repository.create(self._build_session(data, fields))

    async def create_session_with_state(
        self, data: SessionData | NewSession | None = None, **fields: Unpack[NewSession]
    ) -> SessionWithState:
        """Store a new session, and give it also as `agent.respond(..., session=...)` takes it."""
        created = await self.create_session(data, **fields)
        return SessionWithState(created, session_data_to_state(created.id, created))

    async def get_session(self, session_id: str) -> SessionData | None:
        """A session, or None if there is none of that id, or it is another user's."""
        found = await (await self._ready_adapter()).session_repository.get(session_id)
        return found if self._is_visible(found) else None

    async def find_active_session(
        self, user_id: str | None = None, agent_name: str | None = None
    ) -> SessionData | None:
        """The active session of a user, and of an agent if one is named, that was created last."""
        return await (await self._ready_adapter()).session_repository.find_active(
            self._require_user_id(user_id), agent_name
        )

    async def get_user_sessions(
        self, user_id: str | None = None, limit: int | None = None, *, before: SessionData | str | None = None
    ) -> list[SessionData]:
        """A user's sessions, those created last first; `before` is the last one of the page before."""
        adapter, user = await self._ready_adapter(), self._require_user_id(user_id)
        if isinstance(before, str):
            before = await self._require_session(before)
        return await adapter.session_repository.list_by_user(user, limit=limit, before=before)

    async def update_session_status(self, session_id: str, status: SessionStatus) -> SessionData | None:
        """Change a session's status, and give it as it is then; None if there is none of that id."""
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
        """Delete a session with its messages; says whether it was there.

        In a `Tellback` only where it stood is deleted: what was said is the user's log, and is erased with that.
        """
        if await self.get_session(session_id) is None and self.user_id is not None:
            return False
        return await self.adapter.session_repository.delete(session_id)  # also what is left of one that expired

    async def delete_user_sessions(self, user_id: str | None = None) -> int:
        """Delete all sessions of a user with their messages, as `delete_session` does; gives how many there were."""
        deleted = 0
        while found := await self.get_user_sessions(user_id, limit=100):
            deletions = [await self.adapter.session_repository.delete(each.id) for each in found]
            deleted += sum(deletions)
            if not any(deletions):  # a list that lags behind
                break
        return deleted

    async def save_message(
        self, data: MessageData | NewMessage | None = None, **fields: Unpack[NewMessage]
    ) -> MessageData:
        """Append a message to a session. Raises `NotFoundError` if there is no such session."""
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
        """A session's messages in order: the last `limit` of them, those before one, or the first ones after one."""
        until = before.position if isinstance(before, MessageData) else before
        since = after.position if isinstance(after, MessageData) else after
        return [with_parsed_event(each) for each in await self._load_messages(session_id, limit, until, since)]

    async def load_session_history(self, session_id: str, limit: int | None = None) -> list[Event]:
        """What was said and done in a session, as `agent.respond` takes it; of the last `limit` messages."""
        messages = await self._load_messages(session_id, limit)
        return [event for each in messages for event in message_to_events(each)]

    async def load(self, session_id: str) -> SessionState | None:
        """Where a session stands, if it is stored. Raises `NotFoundError` if it is another user's."""
        found = await (await self._ready_adapter()).session_repository.get(session_id)
        if found is None:
            return None
        if not self._is_visible(found):
            raise NotFoundError("session", session_id, "Users need ids of their own.")
        return session_data_to_state(session_id, found)

    async def save(
        self,
        session: SessionState,
        events: Iterable[Any] = (),
        *,
        agent_name: str | None = None,
        user_id: str | None = None,
    ) -> None:
        """Store a session and what was said in its turn, in one step: with `auto_save` the agent does.

        Raises `SessionConflictError` unless the version that is stored is the one before the session's: a turn that
        lost a race saves nothing.
        """
        adapter = await self._ready_adapter()
        if self.user_id is not None and not self._is_visible(
            await adapter.session_repository.get(session.id), new=True
        ):
            raise NotFoundError("session", session.id, "Users need ids of their own.")
        turn = self.build_session_turn(session, events, agent_name=agent_name, user_id=user_id)
        await adapter.save(turn.session, turn.messages)

    def build_session_turn(
        self, session: SessionState, events: Iterable[Any], *, agent_name: str | None, user_id: str | None
    ) -> SessionTurn:
        """A session and what was said in its turn, as they are stored."""
        row = self._build_row(session, agent_name, self._resolve_user_id(user_id))
        messages = events_to_messages(session, [adapt_event(each) for each in events], row.user_id)
        return SessionTurn(row, tuple(messages))

    def shares_store_with(self, store: Any, scope: Scope) -> bool:
        """Whether sessions are kept in the same store as a user's conversations.

        Raises `ConfigurationError` if they are, but for users of another tenant or app.
        """
        agent_sessions: StoreBackend | None = getattr(self.adapter, "store_backend", None)
        if agent_sessions is None:
            return False
        if agent_sessions.store is not store:
            if _store_location(agent_sessions.store) == _store_location(store) is not None:
                raise ConfigurationError(
                    f"the agent remembers and keeps its sessions in {store.url} through two Tellbacks:"
                    " pass the same one to both."
                )
            return False
        if (agent_sessions.tenant_id, agent_sessions.app_id) != (scope.tenant_id, scope.app_id):
            raise ConfigurationError(
                f"the agent remembers in app {scope.app_id!r} of tenant {scope.tenant_id!r}, and keeps its sessions in"
                f" {agent_sessions.app_id!r} of {agent_sessions.tenant_id!r}: pass tenant_id and app_id to the adapter."
            )
        return True

    async def history(self, session_id: str, limit: int) -> Sequence[Event]:
        """The newest of what was said in a session, in order."""
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
                raise InvalidArgumentError("pass a SessionData, or its fields, not both.")
            session = replace(
                source, user_id=self._resolve_user_id(source.user_id), collected_data=plain_data(source.collected_data)
            )
            session_data_to_state(session.id, session)  # what could not be read must not be stored
            return session
        values: Mapping[str, Any] = {**validate_mapping("a session", source), **fields}
        unknown = values.keys() - NewSession.__annotations__.keys()
        if unknown:
            raise InvalidArgumentError(f"create_session takes no {', '.join(sorted(unknown))}.")
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
            raise InvalidArgumentError(f"this persistence is of user {self.user_id!r}, not of {user_id!r:.80}.")
        return self.user_id if user_id is None else user_id

    def _require_user_id(self, user_id: str | None) -> str:
        found = self._resolve_user_id(user_id)
        if found is None:
            raise InvalidArgumentError("whose sessions? Pass user_id=..., here or to Persistence(...).")
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
            return []  # messages may outlive their session: then they are for those who see everyone's
        messages = self.adapter.message_repository
        while True:
            found = await messages.list_by_session(session_id, limit=limit, before=before, after=after)
            visible = [each for each in found if session is None or _belongs_to_session(each, session)]
            if visible or not found or after is None:
                return visible
            after = found[-1].position  # a whole page of another user, who had the id before

    async def _require_session(self, session_id: str) -> SessionData:
        found = await self.get_session(session_id)
        if found is None:
            raise NotFoundError("session", session_id, "create_session makes one.")
        return found

    async def _ready_adapter(self) -> PersistenceAdapter:
        if not self._is_ready:
            async with self._init_lock:
                if not self._is_ready:
                    await self.adapter.initialize()
                    self._is_ready = True
        return self.adapter


def _store_location(store: Any) -> Any:
    """Where a store is, if another one can be there too."""
    settings = getattr(store, "queue_settings", None)  # of PostgreSQL, with the schema
    if settings is not None:
        return settings()
    return None if ":memory:" in store.url else store.url


def _belongs_to_session(message: MessageData, session: SessionData) -> bool:
    """Whether it is of the session as it is now, and not of another user who had the same id before it expired."""
    return message.user_id is None or session.user_id is None or message.user_id == session.user_id
