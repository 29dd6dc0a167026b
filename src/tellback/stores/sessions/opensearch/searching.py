"""What is searched: a user's sessions, and messages by their words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tellback.stores.sessions.opensearch.documents import INTERNAL, Document, document_id, now_millis
from tellback.stores.sessions.opensearch.keeper import DocumentStore
from tellback.stores.sessions.opensearch.link import WORK_SECONDS
from tellback.stores.sessions.records import EXPIRES_AT, format_time
from tellback.types.sessions import SessionData

_PAGE_SIZE = 500
SearchHit = dict[str, Any]


class Searcher:
    """Searches both indices; `fresh` makes all that was stored before a search visible to it."""

    def __init__(self, store: DocumentStore, *, fresh: bool) -> None:
        self._store = store
        self._fresh = fresh

    async def find_sessions(
        self, terms: Mapping[str, str], max_count: int, before: SessionData | None = None
    ) -> list[SessionData]:
        """Sessions whose fields are exactly these, those created last first."""
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

    async def find_messages(self, text: str, owner: str | None, max_count: int) -> list[Document]:
        """Messages that have some of these words, the best first. What was deleted is left out, indexed or not."""
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
        found: list[Document] = []
        lives: dict[str, tuple[str, int]] = {}
        pages = await self._open_pages(layout.messages_index, body, max_count)
        while len(found) < max_count and (page := await pages.next()):
            await self._load_lives(lives, {hit["_source"][names["session_id"]] for hit in page})
            for hit in page:
                life, _, position = hit["_id"].rpartition("-")
                current_life, last = lives[hit["_source"][names["session_id"]]]
                if current_life == life and int(position) <= last and layout.is_live(hit["_source"], now):
                    found.append(hit["_source"])
        return found[:max_count]

    async def _load_lives(self, lives: dict[str, tuple[str, int]], ids: set[str]) -> None:
        """Which life each session is in, and how far its messages go."""
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
    """The hits of a search that has an order, however many."""

    def __init__(self, store: DocumentStore, index: str, body: Mapping[str, Any], size: int) -> None:
        self._store = store
        self._index = index
        self._body = {**body, "size": size, "track_total_hits": False}
        self._has_more = True

    async def next(self) -> list[SearchHit]:
        """The next of them; nothing if there are no more."""
        if not self._has_more:
            return []
        hits = await search(self._store, self._index, self._body)
        self._has_more = len(hits) == self._body["size"]
        if self._has_more:
            self._body["search_after"] = hits[-1]["sort"]
        return hits


async def refresh_index(store: DocumentStore, index: str) -> None:
    """Make what was stored visible to searches."""
    await store.connection.request("POST", f"/{index}/_refresh", seconds=WORK_SECONDS)


async def search(store: DocumentStore, index: str, body: Mapping[str, Any]) -> list[SearchHit]:
    """The hits of one search; a part of them is never taken for all."""
    params = {"allow_partial_search_results": "false"}
    answer = await store.connection.request("POST", f"/{index}/_search", body=body, params=params, seconds=WORK_SECONDS)
    hits: list[SearchHit] = answer["hits"]["hits"]
    return hits


def _expired_query(field: str, now: int) -> dict[str, Any]:
    return {"range": {field: {"lte": now}}}


def _any_of(*queries: Any) -> dict[str, Any]:
    return {"bool": {"should": list(queries), "minimum_should_match": 1}}
