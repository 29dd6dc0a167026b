"""`OpenSearchAdapter`: sessions in OpenSearch or Elasticsearch 7, with full-text search over their messages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal

from opensearchpy import AsyncOpenSearch

from tellback.errors import ConfigurationError, InvalidArgumentError, NotFoundError, SessionConflictError
from tellback.sessions import validation
from tellback.sessions.opensearch.connection import OpenSearchConnection
from tellback.sessions.opensearch.documents import (
    INDEX_NAME,
    DocumentLayout,
    DocumentStore,
    SessionEntry,
    now_millis,
    prepare_index,
    resolve_field_names,
)
from tellback.sessions.opensearch.search import Searcher, purge
from tellback.sessions.records import DEFAULT_NAMES, count_messages, merge_turn
from tellback.sessions.storage import StorageAdapter, Ttl, resolve_ttls
from tellback.types.conversations import MessageData, SessionData, SessionStatus
from tellback.types.jsontext import is_storable

_REFRESH = {False: "false", True: "true", "wait_for": "wait_for"}
_MAX_QUERY_LENGTH = 2_000
"""Characters. More words than a server puts into one query do not fit into that."""


class _OpenSearchStorage:
    """Sessions by their ids and by whose they are, and their messages by their positions."""

    def __init__(
        self, connection: OpenSearchConnection, layout: DocumentLayout, refresh: str, *, auto_create: bool, fresh: bool
    ) -> None:
        self.connection = connection
        self.layout = layout
        self._auto_create = auto_create
        self._store = DocumentStore(connection, layout, refresh)
        self._searcher = Searcher(self._store, fresh=fresh)

    async def initialize(self) -> None:
        """Create the indices that are missing."""
        await self.connection.leave_closed_loop()
        async with self.connection.initialization():
            for name, definition in self.layout.index_definitions().items():
                await prepare_index(self.connection, name, definition, create=self._auto_create)

    async def disconnect(self) -> None:
        await self.connection.close()

    async def create(self, session: SessionData) -> SessionData:
        def decide(entry: SessionEntry, now: int) -> SessionEntry:
            found = entry.live_session(now)
            if found is not None:
                raise SessionConflictError(session.id, 0, found.version)
            return self.layout.store_turn(entry, session, (), now)

        return self.layout.read_back(await self._store.change(session.id, decide))

    async def get(self, session_id: str) -> SessionData | None:
        return (await self._store.find(session_id)).live_session(now_millis())

    async def find_active(self, user_id: str, agent_name: str | None) -> SessionData | None:
        terms = {"user_id": user_id, "status": "active"}
        if agent_name is not None:
            terms["agent_name"] = agent_name
        found = await self._searcher.find_sessions(terms, 1)
        return found[0] if found else None

    async def list_by_user(self, user_id: str, limit: int, before: SessionData | None) -> list[SessionData]:
        return await self._searcher.find_sessions({"user_id": user_id}, limit, before)

    async def update_status(
        self, session_id: str, status: SessionStatus, at: datetime, completed_at: datetime | None
    ) -> SessionData | None:
        def decide(entry: SessionEntry, now: int) -> SessionEntry | None:
            found = entry.live_session(now)
            if found is None:
                return None
            changed = replace(found, status=status, completed_at=completed_at, updated_at=at)
            return self.layout.store_turn(entry, changed, (), now)

        changed = await self._store.change(session_id, decide)
        return None if changed is None else self.layout.read_back(changed)

    async def delete(self, session_id: str) -> bool:
        was_there = False

        def decide(entry: SessionEntry, now: int) -> SessionEntry | None:
            nonlocal was_there
            if entry.version is None:
                return None
            was_there = entry.live_session(now) is not None
            return SessionEntry(session_id, deleted=True, life=entry.life, last=entry.last, writes=entry.writes)

        await self._store.change(session_id, decide)
        return was_there

    async def save(self, session: SessionData, messages: Sequence[MessageData]) -> SessionData:
        def decide(entry: SessionEntry, now: int) -> SessionEntry:
            saved = merge_turn(entry.live_session(now), session, messages)
            return self.layout.store_turn(entry, saved, messages, now)

        return self.layout.read_back(await self._store.change(session.id, decide))

    async def add(self, messages: Sequence[MessageData], at: datetime) -> list[MessageData]:
        id = messages[0].session_id

        def decide(entry: SessionEntry, now: int) -> SessionEntry:
            found = entry.live_session(now)
            if found is None:
                raise NotFoundError("session", id)
            return self.layout.store_turn(entry, count_messages(found, messages, at), messages, now)

        entry = await self._store.change(id, decide)
        assert entry is not None
        return [self.layout.message_from_document(each) for each in entry.pending]

    async def list_by_session(
        self, session_id: str, limit: int, before: int | None, after: int | None
    ) -> list[MessageData]:
        found = await self._store.read_messages(session_id, limit, before, after)
        return [self.layout.message_from_document(each) for each in found]

    async def purge_expired(self) -> int:
        """Delete what is past its time, and finish what broke off."""
        return await purge(self._store)

    async def search_messages(self, text: str, owner: str | None, limit: int) -> list[MessageData]:
        """Messages that have some of these words, the best first."""
        found = await self._searcher.find_messages(text, owner, limit)
        return [self.layout.message_from_document(each) for each in found]


class OpenSearchAdapter(StorageAdapter):
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
        session_ttl: Ttl = None,
        message_ttl: Ttl = None,
    ) -> None:
        if refresh not in (True, False, "wait_for"):
            raise ConfigurationError(f"refresh is True, False or 'wait_for', not {refresh!r:.80}.")
        connection = OpenSearchConnection(client)
        self.indices = validation.resolve_names(
            "indices",
            indices,
            DEFAULT_NAMES,
            is_name=INDEX_NAME.fullmatch,
            form="small letters, digits, '_', '-' and '.'",
        )
        session_ttl, message_ttl = map(_to_millis, resolve_ttls(session_ttl, message_ttl))
        layout = DocumentLayout(
            self.indices["sessions"],
            self.indices["messages"],
            session_ttl=session_ttl,
            message_ttl=message_ttl,
            **resolve_field_names(field_mappings),
        )
        self._search = _OpenSearchStorage(
            connection, layout, _REFRESH[refresh], auto_create=auto_create_indices, fresh=fresh_searches
        )
        super().__init__(self._search)

    def __repr__(self) -> str:
        return f"OpenSearchAdapter({self._search.connection.place!r}, indices={self.indices!r})"

    @property
    def index_definitions(self) -> dict[str, dict[str, Any]]:
        """What each index is created with, by its name: for those who create them themselves."""
        return self._search.layout.index_definitions()

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
        owner = validation.validate_optional_name("user_id", user_id)
        return await self._search.search_messages(text, owner, validation.validate_limit(limit))


def _to_millis(seconds: float | None) -> int | None:
    return None if seconds is None else math.ceil(seconds * 1000)
