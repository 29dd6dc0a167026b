"""`OpenSearchAdapter`: sessions in OpenSearch or Elasticsearch 7, with full-text search over their messages."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal

from opensearchpy import AsyncOpenSearch

from tellback.errors import ConfigurationError, InvalidArgumentError, NotFoundError, SessionConflictError
from tellback.sessions import validation
from tellback.sessions.opensearch.connection import WORK_SECONDS, OpenSearchConnection
from tellback.sessions.opensearch.documents import (
    INDEX_NAME,
    INTERNAL,
    DocumentLayout,
    DocumentStore,
    SessionEntry,
    document_id,
    now_millis,
    prepare_index,
    resolve_field_names,
)
from tellback.sessions.records import DEFAULT_NAMES, EXPIRES_AT, count_messages, format_time, merge_turn
from tellback.sessions.storage import StorageAdapter, Ttl, resolve_ttls
from tellback.types.conversations import MessageData, SessionData, SessionStatus
from tellback.types.jsontext import is_storable

_REFRESH = {False: "false", True: "true", "wait_for": "wait_for"}
_MAX_QUERY_LENGTH = 2_000
"""The maximum number of characters of a search text. A longer one could have more words than a server accepts."""
_PAGE_SIZE = 500
SearchHit = dict[str, Any]

_PURGE_PAGE_SIZE = 200
_MAX_CONCURRENCY = 8
_MESSAGE_BATCH_SIZE = 1_000
_PENDING_WINDOW_MS = 7 * 24 * 3600 * 1000
"""How far back to look for messages that are not indexed yet."""


class _OpenSearchStorage:
    """Sessions by id and by user, and their messages by position."""

    def __init__(
        self, connection: OpenSearchConnection, layout: DocumentLayout, refresh: str, *, auto_create: bool, fresh: bool
    ) -> None:
        self.connection = connection
        self.layout = layout
        self._auto_create = auto_create
        self._store = DocumentStore(connection, layout, refresh)
        self.searcher = Searcher(self._store, fresh=fresh)

    async def initialize(self) -> None:
        """Create missing indices."""
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
        found = await self.searcher.find_sessions(terms, 1)
        return found[0] if found else None

    async def list_by_user(self, user_id: str, limit: int, before: SessionData | None) -> list[SessionData]:
        return await self.searcher.find_sessions({"user_id": user_id}, limit, before)

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
        """Delete expired data, and finish interrupted work."""
        return await purge(self._store)


class Searcher:
    """Searches both indices. `fresh` makes everything stored before a search visible to it."""

    def __init__(self, store: DocumentStore, *, fresh: bool) -> None:
        self._store = store
        self._fresh = fresh

    async def find_sessions(
        self, terms: Mapping[str, str], max_count: int, before: SessionData | None = None
    ) -> list[SessionData]:
        """Return the sessions whose fields have exactly these values, newest first."""
        layout = self._store.layout
        created, id = layout.sessions["created_at"], layout.sessions["id"]
        now = now_millis()
        filters: list[Any] = [{"term": {layout.sessions[name]: value}} for name, value in terms.items()]
        if before is not None:
            created_before = format_time(before.created_at)
            same_time = [{"term": {created: created_before}}, {"range": {id: {"lt": before.id}}}]
            filters.append(_any_of({"range": {created: {"lt": created_before}}}, {"bool": {"filter": same_time}}))
        body = {
            "query": {"bool": {"filter": filters, "must_not": [_expired_query(layout.sessions[EXPIRES_AT], now)]}},
            "sort": [{created: "desc"}, {id: "desc"}],
            "_source": {"excludes": [f"{INTERNAL}.pending"]},
        }
        found: list[SessionData] = []
        pages = await self._open_pages(layout.sessions_index, body, max_count)
        while len(found) < max_count and (page := await pages.next()):
            live = (layout.entry_from_document(hit["_source"]).live_session(now) for hit in page)
            found.extend(each for each in live if each is not None)
        return found[:max_count]

    async def find_messages(self, text: str, owner: str | None, max_count: int) -> list[MessageData]:
        """Return messages with some of these words, best first, without those of deleted sessions."""
        layout = self._store.layout
        names = layout.messages
        now = now_millis()
        owner_filter = [] if owner is None else [{"term": {f"{INTERNAL}.owner": owner}}]
        query = {
            "must": {"match": {names["content"]: text}},
            "filter": owner_filter,
            "must_not": [_expired_query(names[EXPIRES_AT], now)],
        }
        order = [{names["created_at"]: "desc"}, {names["session_id"]: "asc"}, {names["position"]: "desc"}]
        body = {"query": {"bool": query}, "sort": ["_score", *order]}
        found: list[MessageData] = []
        lives: dict[str, tuple[str, int]] = {}
        pages = await self._open_pages(layout.messages_index, body, max_count)
        while len(found) < max_count and (page := await pages.next()):
            await self._load_lives(lives, {hit["_source"][names["session_id"]] for hit in page})
            for hit in page:
                life, _, position = hit["_id"].rpartition("-")
                current_life, last = lives[hit["_source"][names["session_id"]]]
                if current_life == life and int(position) <= last and layout.is_live(hit["_source"], now):
                    found.append(layout.message_from_document(hit["_source"]))
        return found[:max_count]

    async def _load_lives(self, lives: dict[str, tuple[str, int]], ids: set[str]) -> None:
        """Load the current life of each session, and its last position."""
        unknown = sorted(ids - lives.keys())
        source = [f"{INTERNAL}.{name}" for name in ("life", "last", "record")]
        requests = ({"_id": document_id(each), "_source": source} for each in unknown)
        documents = await self._store.connection.get_many(self._store.layout.sessions_index, requests)
        for id, document in zip(unknown, documents, strict=True):
            internal: dict[str, Any] = document["_source"][INTERNAL] if document["found"] else {"record": "deleted"}
            lives[id] = ("", 0) if internal["record"] == "deleted" else (internal["life"], internal["last"])

    async def _open_pages(self, index: str, body: Mapping[str, Any], max_count: int) -> SearchPages:
        if self._fresh:
            await refresh_index(self._store, index)
        return SearchPages(self._store, index, body, min(max_count, _PAGE_SIZE))


class SearchPages:
    """The hits of an ordered search, page by page."""

    def __init__(self, store: DocumentStore, index: str, body: Mapping[str, Any], size: int) -> None:
        self._store = store
        self._index = index
        self._body = {**body, "size": size, "track_total_hits": False}
        self._has_more = True

    async def next(self) -> list[SearchHit]:
        """Return the next hits; empty if there are no more."""
        if not self._has_more:
            return []
        hits = await search(self._store, self._index, self._body)
        self._has_more = len(hits) == self._body["size"]
        if self._has_more:
            self._body["search_after"] = hits[-1]["sort"]
        return hits


async def refresh_index(store: DocumentStore, index: str) -> None:
    """Make stored data visible to searches."""
    await store.connection.request("POST", f"/{index}/_refresh", seconds=WORK_SECONDS)


async def search(store: DocumentStore, index: str, body: Mapping[str, Any]) -> list[SearchHit]:
    """Return the hits of one search. Raise an error if some shards did not answer."""
    params = {"allow_partial_search_results": "false"}
    answer = await store.connection.request("POST", f"/{index}/_search", body=body, params=params, seconds=WORK_SECONDS)
    hits: list[SearchHit] = answer["hits"]["hits"]
    return hits


def _expired_query(field: str, now: int) -> dict[str, Any]:
    return {"range": {field: {"lte": now}}}


def _any_of(*queries: Any) -> dict[str, Any]:
    return {"bool": {"should": list(queries), "minimum_should_match": 1}}


async def purge(store: DocumentStore) -> int:
    """Delete expired data, and return the number of deleted sessions and messages."""
    sessions = 0
    while True:
        purged, changed = await _purge_session_page(store)
        sessions += purged
        if not changed:
            break
    await _index_leftovers(store)
    return sessions + await _purge_messages(store)


async def _purge_session_page(store: DocumentStore) -> tuple[int, int]:
    """Purge one page of sessions. Return how many sessions expired, and how many documents were changed or deleted."""
    index, now = store.layout.sessions_index, now_millis()
    query = {"bool": {"should": _purgeable_queries(store, now), "minimum_should_match": 1}}
    expired: list[SessionEntry] = []
    empty: list[SessionEntry] = []
    others: list[SessionEntry] = []
    source = [store.layout.sessions["id"], store.layout.sessions[EXPIRES_AT], INTERNAL]
    for hit in await _find_some(store, index, query, _PURGE_PAGE_SIZE, source):
        entry = store.layout.entry_from_hit(hit)
        if entry.deleted or entry.live_session(now) is not None or entry.until > now:
            others.append(entry)
        else:
            (empty if entry.session is None else expired).append(entry)
    purged = await store.delete_sessions(expired)
    emptied = await store.delete_sessions(empty)
    semaphore = asyncio.Semaphore(_MAX_CONCURRENCY)
    results = await asyncio.gather(*(_purge_parts(store, each, semaphore) for each in others))
    expired_count = sum(was_session for was_session, _ in results)
    return purged + expired_count, purged + emptied + sum(done for _, done in results)


def _purgeable_queries(store: DocumentStore, now: int) -> list[dict[str, Any]]:
    expired = {"lte": now}
    placeholder = [{"term": {f"{INTERNAL}.record": "placeholder"}}, {"range": {f"{INTERNAL}.until": expired}}]
    return [
        {"range": {store.layout.sessions[EXPIRES_AT]: expired}},
        {"range": {f"{INTERNAL}.pending_until": expired}},
        {"term": {f"{INTERNAL}.record": "deleted"}},
        {"bool": {"filter": placeholder}},
    ]


async def _purge_parts(store: DocumentStore, found: SessionEntry, semaphore: asyncio.Semaphore) -> tuple[bool, bool]:
    """Delete the expired parts of one session. Return whether the session expired, and whether anything changed."""
    expired = False

    def decide(entry: SessionEntry, now: int) -> SessionEntry | None:
        nonlocal expired
        expired = False
        if entry.deleted:
            return None
        pending = tuple(each for each in entry.pending if store.layout.is_live(each, now))
        expired = entry.session is not None and entry.live_session(now) is None
        if expired:
            return replace(entry, session=None, expires=None, pending=pending)
        return replace(entry, pending=pending) if len(pending) < len(entry.pending) else None

    async with semaphore:
        if found.deleted:
            await store.delete_remains(found)
            return False, True
        changed = await store.change(found.id, decide)
    return expired and changed is not None, changed is not None


async def _index_leftovers(store: DocumentStore) -> None:
    """Index messages whose writer was interrupted before it indexed them."""
    since = {"range": {f"{INTERNAL}.written_at": {"gte": now_millis() - _PENDING_WINDOW_MS}}}
    some = {"range": {f"{INTERNAL}.pending_count": {"gte": 1}}}
    id = store.layout.sessions["id"]
    body = {"query": {"bool": {"filter": [since, some]}}, "sort": [{id: "asc"}], "_source": [id, INTERNAL]}
    pages = SearchPages(store, store.layout.sessions_index, body, _PURGE_PAGE_SIZE)
    while page := await pages.next():
        await store.index_pending([store.layout.entry_from_document(hit["_source"]) for hit in page])


async def _purge_messages(store: DocumentStore) -> int:
    query = {"range": {store.layout.messages[EXPIRES_AT]: {"lte": now_millis()}}}
    deleted = 0
    while True:
        keys = [hit["_id"] for hit in await _find_some(store, store.layout.messages_index, query, _MESSAGE_BATCH_SIZE)]
        deleted += await store.delete_messages(keys)
        if len(keys) < _MESSAGE_BATCH_SIZE:
            return deleted


async def _find_some(
    store: DocumentStore, index: str, query: dict[str, Any], size: int, source: list[str] | bool = False
) -> list[dict[str, Any]]:
    """Return some of the hits, in any order."""
    await refresh_index(store, index)
    return await search(store, index, {"query": query, "size": size, "seq_no_primary_term": True, "_source": source})


class OpenSearchAdapter(StorageAdapter):
    """Sessions in OpenSearch or Elasticsearch 7, with search over their messages.

    `client` is an `AsyncOpenSearch`, which its owner closes, or a URL. `indices` names the two indices, and
    `field_mappings` their fields: `{"sessions": {"user_id": "customer"}}`. With `auto_create_indices=False` both must
    exist with the mappings of `index_definitions`. `refresh` sets when other clients' searches see a change: False
    within the index's refresh interval, True immediately; with `"wait_for"`, each change waits until they do. This
    adapter's own lists are always complete, because it refreshes the index before it searches; `fresh_searches=False`
    saves that work. `session_ttl` and `message_ttl` are seconds or a timedelta, and None means forever; call
    `purge_expired` periodically.

    >>> adapter = OpenSearchAdapter("https://app:secret@search.example:9200", indices={"sessions": "shop-sessions"})
    >>> adapter.indices
    {'sessions': 'shop-sessions', 'messages': 'agent_messages'}

    It needs no transactions: a session's document is replaced only if it has not changed since it was read, and the
    messages of a turn are part of that write before they get their own documents. Reading by id sees every write
    immediately. Acknowledged changes survive a crash of the server, because it syncs its translog with each request:
    leave `index.translog.durability` at `request`.
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
            raise ConfigurationError(f"refresh must be True, False or 'wait_for', got {refresh!r:.80}.")
        connection = OpenSearchConnection(client)
        self.indices = validation.resolve_names(
            "indices",
            indices,
            DEFAULT_NAMES,
            is_name=INDEX_NAME.fullmatch,
            form="up to 200 lowercase letters, digits, '_', '-' and '.', beginning with a letter or a digit",
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
        """The definition of each index by name, for applications that create them manually."""
        return self._search.layout.index_definitions()

    async def search_messages(
        self, text: str, *, user_id: str | None = None, limit: int | None = 20
    ) -> list[MessageData]:
        """Return messages with some of these words, best first: of one user, or of all users.

        A message without a user belongs to its session's user.
        """
        if not isinstance(text, str) or not text.strip() or not is_storable(text) or len(text) > _MAX_QUERY_LENGTH:
            raise InvalidArgumentError(
                f"text must be a non-empty string of at most {_MAX_QUERY_LENGTH} characters, got {text!r:.80}."
            )
        owner = validation.validate_optional_id("user_id", user_id)
        return await self._search.searcher.find_messages(text, owner, validation.validate_limit(limit))


def _to_millis(seconds: float | None) -> int | None:
    return None if seconds is None else math.ceil(seconds * 1000)
