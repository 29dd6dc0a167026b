"""What is past its time is deleted, and what broke off is brought to its end."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from tellback.stores.sessions.opensearch.documents import OURS, Held, now_millis
from tellback.stores.sessions.opensearch.keeper import Keeper, WhichWrite
from tellback.stores.sessions.opensearch.searching import Pages, refresh, search
from tellback.stores.sessions.records import EXPIRES

_PAGE = 200
_AT_ONCE = 8
_MESSAGES_AT_ONCE = 1_000
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
    query = {"bool": {"should": _due(keeper, now), "minimum_should_match": 1}}
    gone: list[WhichWrite] = []
    empty: list[WhichWrite] = []
    others: list[Held] = []
    source = [keeper.layout.sessions["id"], keeper.layout.sessions[EXPIRES], OURS]
    for hit in await _first(keeper, index, query, _PAGE, source):
        held = keeper.layout.held_of(hit["_source"])
        if held.deleted or held.living(now) is not None or held.until > now:
            others.append(held)
        else:
            (empty if held.session is None else gone).append((hit["_id"], hit["_seq_no"], hit["_primary_term"]))
    purged = await keeper.remove(gone)
    emptied = await keeper.remove(empty)
    gate = asyncio.Semaphore(_AT_ONCE)
    ended = await asyncio.gather(*(_strip(keeper, each, gate) for each in others))
    expired = sum(was_session for was_session, _ in ended)
    return purged + expired, purged + emptied + sum(done for _, done in ended)


def _due(keeper: Keeper, now: int) -> list[dict[str, Any]]:
    past = {"lte": now}
    husk = [{"term": {f"{OURS}.record": "husk"}}, {"range": {f"{OURS}.until": past}}]
    return [
        {"range": {keeper.layout.sessions[EXPIRES]: past}},
        {"range": {f"{OURS}.pending_until": past}},
        {"term": {f"{OURS}.record": "deleted"}},
        {"bool": {"filter": husk}},
    ]


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
    pages = Pages(keeper, keeper.layout.sessions_index, body, _PAGE)
    while page := await pages.next():
        await keeper.settle([keeper.layout.held_of(hit["_source"]) for hit in page])


async def _messages(keeper: Keeper) -> int:
    query = {"range": {keeper.layout.messages[EXPIRES]: {"lte": now_millis()}}}
    deleted = 0
    while True:
        keys = [hit["_id"] for hit in await _first(keeper, keeper.layout.messages_index, query, _MESSAGES_AT_ONCE)]
        deleted += await keeper.delete_messages(keys)
        if len(keys) < _MESSAGES_AT_ONCE:
            return deleted


async def _first(
    keeper: Keeper, index: str, query: dict[str, Any], size: int, source: list[str] | bool = False
) -> list[dict[str, Any]]:
    """Some of what is found now, in no order."""
    await refresh(keeper, index)
    return await search(keeper, index, {"query": query, "size": size, "seq_no_primary_term": True, "_source": source})
