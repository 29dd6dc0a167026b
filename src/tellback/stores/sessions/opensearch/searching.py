"""What is searched: a user's sessions, and messages by their words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tellback.stores.sessions.opensearch.documents import OURS, Document, document_id, now_millis
from tellback.stores.sessions.opensearch.keeper import Keeper
from tellback.stores.sessions.opensearch.link import WORK_SECONDS
from tellback.stores.sessions.records import EXPIRES, iso_time
from tellback.types.sessions import SessionData

_PAGE = 500
Hit = dict[str, Any]


class Searcher:
    """Searches both indices; `fresh` makes all that was stored before a search visible to it."""

    def __init__(self, keeper: Keeper, *, fresh: bool) -> None:
        self._keeper = keeper
        self._fresh = fresh

    async def sessions(
        self, exactly: Mapping[str, str], most: int, before: SessionData | None = None
    ) -> list[SessionData]:
        """Sessions whose fields are exactly these, those created last first."""
        layout = self._keeper.layout
        created, id = layout.sessions["created_at"], layout.sessions["id"]
        now = now_millis()
        wanted: list[Any] = [{"term": {layout.sessions[name]: value}} for name, value in exactly.items()]
        if before is not None:
            moment = iso_time(before.created_at)
            at_once = [{"term": {created: moment}}, {"range": {id: {"lt": before.id}}}]
            wanted.append(_any({"range": {created: {"lt": moment}}}, {"bool": {"filter": at_once}}))
        body = {
            "query": {"bool": {"filter": wanted, "must_not": [_past(layout.sessions[EXPIRES], now)]}},
            "sort": [{created: "desc"}, {id: "desc"}],
            "_source": {"excludes": [f"{OURS}.pending"]},
        }
        found: list[SessionData] = []
        pages = await self._pages(layout.sessions_index, body, most)
        while len(found) < most and (page := await pages.next()):
            living = (layout.held_of(hit["_source"]).living(now) for hit in page)
            found.extend(each for each in living if each is not None)
        return found[:most]

    async def messages(self, text: str, owner: str | None, most: int) -> list[Document]:
        """Messages that have some of these words, the best first. What was deleted is left out, indexed or not."""
        layout = self._keeper.layout
        theirs = layout.messages
        now = now_millis()
        whose = [] if owner is None else [{"term": {f"{OURS}.owner": owner}}]
        query = {
            "must": {"match": {theirs["content"]: text}},
            "filter": whose,
            "must_not": [_past(theirs[EXPIRES], now)],
        }
        order = [{theirs["created_at"]: "desc"}, {theirs["session_id"]: "asc"}, {theirs["position"]: "desc"}]
        body = {"query": {"bool": query}, "sort": ["_score", *order]}
        found: list[Document] = []
        lives: dict[str, tuple[str, int]] = {}
        pages = await self._pages(layout.messages_index, body, most)
        while len(found) < most and (page := await pages.next()):
            await self._learn_lives(lives, {hit["_source"][theirs["session_id"]] for hit in page})
            for hit in page:
                life, _, position = hit["_id"].rpartition("-")
                known, last = lives[hit["_source"][theirs["session_id"]]]
                if known == life and int(position) <= last and layout.has_time(hit["_source"], now):
                    found.append(hit["_source"])
        return found[:most]

    async def _learn_lives(self, lives: dict[str, tuple[str, int]], ids: set[str]) -> None:
        """Which life each session is in, and how far its messages go."""
        unknown = sorted(ids - lives.keys())
        source = [f"{OURS}.{name}" for name in ("life", "last", "record")]
        wanted = ({"_id": document_id(each), "_source": source} for each in unknown)
        documents = await self._keeper.link.get_many(self._keeper.layout.sessions_index, wanted)
        for id, document in zip(unknown, documents, strict=True):
            ours: dict[str, Any] = document["_source"][OURS] if document["found"] else {"record": "deleted"}
            lives[id] = ("", 0) if ours["record"] == "deleted" else (ours["life"], ours["last"])

    async def _pages(self, index: str, body: Mapping[str, Any], most: int) -> Pages:
        if self._fresh:
            await refresh(self._keeper, index)
        return Pages(self._keeper, index, body, min(most, _PAGE))


class Pages:
    """The hits of a search that has an order, however many."""

    def __init__(self, keeper: Keeper, index: str, body: Mapping[str, Any], size: int) -> None:
        self._keeper = keeper
        self._index = index
        self._body = {**body, "size": size, "track_total_hits": False}
        self._more = True

    async def next(self) -> list[Hit]:
        """The next of them; nothing if there are no more."""
        if not self._more:
            return []
        hits = await search(self._keeper, self._index, self._body)
        self._more = len(hits) == self._body["size"]
        if self._more:
            self._body["search_after"] = hits[-1]["sort"]
        return hits


async def refresh(keeper: Keeper, index: str) -> None:
    """Make what was stored visible to searches."""
    await keeper.link.ask("POST", f"/{index}/_refresh", seconds=WORK_SECONDS)


async def search(keeper: Keeper, index: str, body: Mapping[str, Any]) -> list[Hit]:
    """The hits of one search; a part of them is never taken for all."""
    whole = {"allow_partial_search_results": "false"}
    answer = await keeper.link.ask("POST", f"/{index}/_search", body=body, params=whole, seconds=WORK_SECONDS)
    hits: list[Hit] = answer["hits"]["hits"]
    return hits


def _past(field: str, now: int) -> dict[str, Any]:
    return {"range": {field: {"lte": now}}}


def _any(*queries: Any) -> dict[str, Any]:
    return {"bool": {"should": list(queries), "minimum_should_match": 1}}
