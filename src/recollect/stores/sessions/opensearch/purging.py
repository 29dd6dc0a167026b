"""What is past its time is deleted, and what broke off is brought to its end."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from recollect.errors import StoreError
from recollect.stores.sessions.opensearch.documents import OURS, Held, now_millis
from recollect.stores.sessions.opensearch.failures import refusal
from recollect.stores.sessions.opensearch.keeper import Keeper
from recollect.stores.sessions.opensearch.link import WORK_SECONDS
from recollect.stores.sessions.opensearch.searching import pages, refresh
from recollect.stores.sessions.records import EXPIRES

_PAGE = 200
_AT_ONCE = 8
_MESSAGES_AT_ONCE = 5_000
_WEEK = 7 * 24 * 3600 * 1000
"""How far back to look for messages that did not get into their index."""


async def purge(keeper: Keeper) -> int:
    """Delete what is past its time, and say how many sessions and messages that were."""
    sessions = 0
    while True:
        purged, progress = await _sessions(keeper)
        sessions += purged
        if not progress:
            break
    await _settle_leftovers(keeper)
    return sessions + await _messages(keeper)


async def _sessions(keeper: Keeper) -> tuple[int, int]:
    """Deal with one page of sessions: how many were purged, and for how many anything was done."""
    index, now = keeper.layout.sessions_index, now_millis()
    await refresh(keeper, index)
    query = {"bool": {"should": _due(keeper, now), "minimum_should_match": 1}}
    answer = await keeper.link.ask(
        "POST",
        f"/{index}/_search",
        body={"query": query, "size": _PAGE, "seq_no_primary_term": True},
        params={"allow_partial_search_results": "false"},
        seconds=WORK_SECONDS,
    )
    hits = answer["hits"]["hits"]
    held = [keeper.layout.held_of(hit["_source"]) for hit in hits]
    over = [(hit["_id"], hit["_seq_no"], hit["_primary_term"]) for hit, each in zip(hits, held, strict=True) if _over(each, now)]
    husks = sum(_over(each, now) and each.session is None for each in held)
    removed = await keeper.remove(over)
    gate = asyncio.Semaphore(_AT_ONCE)
    others = [each for each in held if not _over(each, now)]
    ended = await asyncio.gather(*(_strip(keeper, each, gate) for each in others))
    purged = max(0, removed - husks) + sum(was_session for was_session, _ in ended)
    return purged, removed + sum(done for _, done in ended)


def _due(keeper: Keeper, now: int) -> list[dict[str, Any]]:
    past = {"lte": now}
    husk = [{"term": {f"{OURS}.record": "husk"}}, {"range": {f"{OURS}.until": past}}]
    return [
        {"range": {keeper.layout.sessions[EXPIRES]: past}},
        {"range": {f"{OURS}.pending_until": past}},
        {"term": {f"{OURS}.record": "deleted"}},
        {"bool": {"filter": husk}},
    ]


def _over(held: Held, now: int) -> bool:
    """Whether neither the session nor any message of it has time left."""
    return not held.deleted and held.living(now) is None and held.until <= now


async def _strip(keeper: Keeper, seen: Held, gate: asyncio.Semaphore) -> tuple[bool, bool]:
    """Take away what is past its time of what still has some: whether that was the session, and whether anything."""
    expired = False

    def decide(held: Held | None, now: int) -> Held | None:
        nonlocal expired
        expired = False
        if held is None or held.deleted:
            return None
        pending = tuple(each for each in held.pending if keeper.layout.has_time(each, now))
        expired = held.session is not None and held.living(now) is None
        if expired:
            return replace(held, session=None, expires=None, pending=pending)
        return replace(held, pending=pending) if len(pending) < len(held.pending) else None

    async with gate:
        if seen.deleted:
            await keeper.erase(seen)
            return False, True
        changed = await keeper.change(seen.id, decide)
    return expired and changed is not None, changed is not None


async def _settle_leftovers(keeper: Keeper) -> None:
    """Index messages whose writer broke off before it did."""
    since = {"range": {f"{OURS}.written_at": {"gte": now_millis() - _WEEK}}}
    some = {"range": {f"{OURS}.pending_count": {"gte": 1}}}
    id = keeper.layout.sessions["id"]
    body = {"query": {"bool": {"filter": [since, some]}}, "sort": [{id: "asc"}], "_source": [id, OURS]}
    async for page in pages(keeper, keeper.layout.sessions_index, body, _PAGE):
        held = [keeper.layout.held_of({**hit["_source"], OURS: {**hit["_source"][OURS], "record": "husk"}}) for hit in page]
        await keeper.settle_all(held)


async def _messages(keeper: Keeper) -> int:
    index = keeper.layout.messages_index
    await refresh(keeper, index)
    body = {"query": {"range": {keeper.layout.messages[EXPIRES]: {"lte": now_millis()}}}}
    deleted = 0
    while True:
        params = {"conflicts": "proceed", "refresh": "true", "max_docs": _MESSAGES_AT_ONCE}
        answer = await keeper.link.ask(
            "POST", f"/{index}/_delete_by_query", body=body, params=params, seconds=WORK_SECONDS
        )
        for failure in answer.get("failures", ()):
            error = refusal(failure.get("status", 500), failure.get("cause"), keeper.link.place)
            raise error if isinstance(error, StoreError) else StoreError(str(error))
        deleted += answer["deleted"]
        if answer["deleted"] < _MESSAGES_AT_ONCE:
            return deleted
