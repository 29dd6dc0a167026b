"""`OpenSearchAdapter`: sessions in OpenSearch or Elasticsearch 7, with full-text search over their messages."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from opensearchpy import AsyncOpenSearch

from tellback.errors import (
    ConfigurationError,
    InvalidArgumentError,
    NotFoundError,
    SessionConflictError,
    StoreClosedError,
)
from tellback.sessions import validation
from tellback.sessions.opensearch.connection import OpenSearchConnection, describe_server, validate_target
from tellback.sessions.opensearch.documents import (
    DocumentLayout,
    DocumentStore,
    SessionEntry,
    message_definition,
    now_millis,
    prepare_index,
    read_messages,
    resolve_field_names,
    resolve_index_names,
    session_definition,
)
from tellback.sessions.opensearch.search import Searcher, purge
from tellback.sessions.records import count_messages, merge_turn
from tellback.types.conversations import MessageData, SessionData, SessionStatus
from tellback.types.jsontext import is_storable

_REFRESH = {False: "false", True: "true", "wait_for": "wait_for"}
_MAX_QUERY_LENGTH = 2_000
"""Characters. More words than a server puts into one query do not fit into that."""


@dataclass(frozen=True, slots=True)
class OpenResources:
    """What an adapter works with while it is initialized."""

    connection: OpenSearchConnection
    store: DocumentStore
    searcher: Searcher


class OpenSearchSessions:
    """Sessions, by their ids and by whose they are."""

    def __init__(self, require_open: Callable[[], OpenResources], layout: DocumentLayout) -> None:
        self._require_open = require_open
        self._layout = layout

    async def create(self, session: SessionData) -> SessionData:
        validation.validate_session(session)

        def decide(entry: SessionEntry | None, now: int) -> SessionEntry:
            found = None if entry is None else entry.live_session(now)
            if found is not None:
                raise SessionConflictError(session.id, 0, found.version)
            return self._layout.store_turn(entry, session.id, session, (), now)

        return self._layout.read_back(await self._require_open().store.change(session.id, decide))

    async def get(self, session_id: str) -> SessionData | None:
        found = await self._require_open().store.find(validation.validate_id("session_id", session_id))
        return None if found is None else found.entry.live_session(now_millis())

    async def find_active(self, user_id: str, agent_name: str | None = None) -> SessionData | None:
        terms = {"user_id": validation.validate_id("user_id", user_id), "status": "active"}
        if validation.validate_optional_id("agent_name", agent_name) is not None:
            terms["agent_name"] = str(agent_name)
        found = await self._require_open().searcher.find_sessions(terms, 1)
        return found[0] if found else None

    async def list_by_user(
        self, user_id: str, *, limit: int | None = None, before: SessionData | None = None
    ) -> list[SessionData]:
        terms = {"user_id": validation.validate_id("user_id", user_id)}
        max_count = validation.validate_limit(limit)
        if before is not None:
            if not isinstance(before, SessionData):
                raise InvalidArgumentError(f"before is a SessionData, not {before!r:.80}.")
            validation.validate_id("the id of before", before.id)
        return await self._require_open().searcher.find_sessions(terms, max_count, before)

    async def update_status(
        self, session_id: str, status: SessionStatus, *, at: datetime, completed_at: datetime | None
    ) -> SessionData | None:
        validation.validate_status(status)
        validation.validate_id("session_id", session_id)
        validation.validate_times(at=at, completed_at=completed_at)

        def decide(entry: SessionEntry | None, now: int) -> SessionEntry | None:
            found = None if entry is None else entry.live_session(now)
            if found is None:
                return None
            changed = replace(found, status=status, completed_at=completed_at, updated_at=at)
            return self._layout.store_turn(entry, session_id, changed, (), now)

        changed = await self._require_open().store.change(session_id, decide)
        return None if changed is None else self._layout.read_back(changed)

    async def delete(self, session_id: str) -> bool:
        validation.validate_id("session_id", session_id)
        was_there = False

        def decide(entry: SessionEntry | None, now: int) -> SessionEntry | None:
            nonlocal was_there
            if entry is None:
                return None
            was_there = entry.live_session(now) is not None
            return SessionEntry(session_id, deleted=True, life=entry.life, last=entry.last, writes=entry.writes)

        await self._require_open().store.change(session_id, decide)
        return was_there


class OpenSearchMessages:
    """Messages of those sessions, by their positions."""

    def __init__(self, require_open: Callable[[], OpenResources], layout: DocumentLayout) -> None:
        self._require_open = require_open
        self._layout = layout

    async def add(self, messages: Sequence[MessageData], *, at: datetime) -> list[MessageData]:
        validated = validation.validate_messages(messages)
        validation.validate_times(at=at)
        store = self._require_open().store
        if not validated:
            return []
        id = validated[0].session_id

        def decide(entry: SessionEntry | None, now: int) -> SessionEntry:
            found = None if entry is None else entry.live_session(now)
            if found is None:
                raise NotFoundError("session", id)
            return self._layout.store_turn(entry, id, count_messages(found, validated, at), validated, now)

        entry = await store.change(id, decide)
        assert entry is not None
        return [self._layout.message_from_document(each) for each in entry.pending]

    async def list_by_session(
        self, session_id: str, *, limit: int | None = None, before: int | None = None, after: int | None = None
    ) -> list[MessageData]:
        validation.validate_id("session_id", session_id)
        max_count = validation.validate_limit(limit)
        before_position, after_position = (
            validation.validate_position("before", before),
            validation.validate_position("after", after),
        )
        found = await read_messages(self._require_open().store, session_id, max_count, before_position, after_position)
        return [self._layout.message_from_document(each) for each in found]


class OpenSearchAdapter:
    """Sessions in OpenSearch or Elasticsearch 7, for those who want to search what was said, or have it anyway.

    `client` is an `AsyncOpenSearch`, which stays its owner's to close, or a URL. `indices` names the two indices, and
    `field_mappings` their fields: `{"sessions": {"user_id": "customer"}}`. With `auto_create_indices=False` both must
    be there, as `index_definitions` says. `refresh` is when a change is seen by searches of others: False within the
    index's refresh interval, True at once, `"wait_for"` returns when it is. This adapter's own lists are complete
    anyway, as it makes what is stored visible before it searches; `fresh_searches=False` saves that work. `session_ttl`
    and `message_ttl` are seconds or a timedelta, and None is for ever; something must call `purge_expired` now and
    then.

    >>> adapter = OpenSearchAdapter("https://app:secret@search.example:9200", indices={"sessions": "shop-sessions"})
    >>> adapter.indices
    {'sessions': 'shop-sessions', 'messages': 'agent_messages'}

    There are no transactions, and none are needed: a session's document is replaced only if it is still the one that
    was read, and the messages of a turn ride in that same write before they get documents of their own. Reading by id
    sees every write at once. What was acknowledged outlives a kill of the server, as its translog is synced with
    each request: leave `index.translog.durability` at `request`.
    """

    def __init__(
        self,
        client: AsyncOpenSearch | str,
        *,
        indices: Mapping[str, str] | None = None,
        auto_create_indices: bool = True,
        refresh: bool | Literal["wait_for"] = False,
        fresh_searches: bool = True,
        field_mappings: Mapping[str, Mapping[str, str]] | None = None,
        session_ttl: timedelta | float | None = None,
        message_ttl: timedelta | float | None = None,
    ) -> None:
        if refresh not in (True, False, "wait_for"):
            raise ConfigurationError(f"refresh is True, False or 'wait_for', not {refresh!r:.80}.")
        self._client = validate_target(client)
        self._auto_create = auto_create_indices
        self._refresh = _REFRESH[refresh]
        self._fresh_searches = fresh_searches
        self.indices = resolve_index_names(indices)
        self._layout = DocumentLayout(
            self.indices["sessions"],
            self.indices["messages"],
            *resolve_field_names(field_mappings),
            _ttl_millis("session_ttl", session_ttl),
            _ttl_millis("message_ttl", message_ttl),
        )
        self._resources: OpenResources | None = None
        self.session_repository = OpenSearchSessions(self._require_open, self._layout)
        self.message_repository = OpenSearchMessages(self._require_open, self._layout)

    def __repr__(self) -> str:
        return f"OpenSearchAdapter({describe_server(self._client)!r}, indices={self.indices!r})"

    @property
    def index_definitions(self) -> dict[str, dict[str, Any]]:
        """What each index is created with, by its name: for those who create them themselves."""
        return {
            self.indices["sessions"]: session_definition(self._layout.sessions),
            self.indices["messages"]: message_definition(self._layout.messages),
        }

    async def initialize(self) -> None:
        """Connect, and create the indices that are missing."""
        current = self._resources
        if current is not None and current.connection.loop.is_closed():
            await self._close(current)
            current = None
        connection = OpenSearchConnection.connect(self._client) if current is None else current.connection
        try:
            for name, definition in self.index_definitions.items():
                await prepare_index(connection, name, definition, create=self._auto_create)
        except BaseException:
            if current is None:
                await connection.close()
            raise
        if current is not None:
            return
        if self._resources is None:
            store = DocumentStore(connection, self._layout, self._refresh)
            self._resources = OpenResources(connection, store, Searcher(store, fresh=self._fresh_searches))
        else:  # another call of this was faster
            await connection.close()

    async def disconnect(self) -> None:
        """Close the connections that were opened here."""
        if self._resources is not None:
            await self._close(self._resources)

    async def save(self, session: SessionData, messages: Sequence[MessageData]) -> SessionData:
        """Store a session after a turn, and the messages of that turn, in one step."""
        validation.validate_session(session)
        validated = validation.validate_messages(messages, session.id)

        def decide(entry: SessionEntry | None, now: int) -> SessionEntry:
            saved = merge_turn(None if entry is None else entry.live_session(now), session, validated)
            return self._layout.store_turn(entry, session.id, saved, validated, now)

        return self._layout.read_back(await self._require_open().store.change(session.id, decide))

    async def purge_expired(self) -> int:
        """Delete what is past its time, and finish what broke off."""
        return await purge(self._require_open().store)

    async def search_messages(
        self, text: str, *, user_id: str | None = None, limit: int | None = 20
    ) -> list[MessageData]:
        """Messages that have some of these words, the best first: of a user, or of all of them.

        A message without a user is found as one of its session's user.
        """
        if not isinstance(text, str) or not text.strip() or not is_storable(text) or len(text) > _MAX_QUERY_LENGTH:
            raise InvalidArgumentError(
                f"text is words to search for, at most {_MAX_QUERY_LENGTH} characters: {text!r:.80}"
            )
        owner = validation.validate_optional_id("user_id", user_id)
        found = await self._require_open().searcher.find_messages(text, owner, validation.validate_limit(limit))
        return [self._layout.message_from_document(each) for each in found]

    def _require_open(self) -> OpenResources:
        if self._resources is None:
            raise StoreClosedError("The OpenSearch adapter is not open: call initialize() first.")
        return self._resources

    async def _close(self, resources: OpenResources) -> None:
        self._resources = None
        # Connections of a loop that has ended went with it.
        with contextlib.suppress(RuntimeError) if resources.connection.loop.is_closed() else contextlib.nullcontext():
            await resources.connection.close()


def _ttl_millis(label: str, ttl: timedelta | float | None) -> int | None:
    seconds = validation.to_ttl_seconds(label, ttl)
    return None if seconds is None else math.ceil(seconds * 1000)
