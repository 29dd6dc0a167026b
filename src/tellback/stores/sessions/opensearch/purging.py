"""What is past its time is deleted, and what broke off is brought to its end."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from tellback.stores.sessions.opensearch.documents import INTERNAL, SessionEntry, now_millis
from tellback.stores.sessions.opensearch.keeper import DocumentStore, DocumentVersion
from tellback.stores.sessions.opensearch.searching import SearchPages, refresh_index, search
from tellback.stores.sessions.records import EXPIRES_AT

_PURGE_PAGE_SIZE = 200
_MAX_CONCURRENCY = 8
_MESSAGE_BATCH_SIZE = 1_000
_PENDING_WINDOW_MS = 7 * 24 * 3600 * 1000
"""How far back to look for messages that did not get into their index."""


async def purge(store: DocumentStore) -> int:
    """Delete what is past its time, and say how many sessions and messages that were."""
    sessions = 0
    while True:
        purged, changed = await _purge_session_page(store)
        sessions += purged
        if not changed:
            break
    await _index_leftovers(store)
    return sessions + await _purge_messages(store)


async def _purge_session_page(store: DocumentStore) -> tuple[int, int]:
    """Deal with one page of sessions: how many were purged, and for how many anything was done."""
    index, now = store.layout.sessions_index, now_millis()
    query = {"bool": {"should": _purgeable_queries(store, now), "minimum_should_match": 1}}
    expired_versions: list[DocumentVersion] = []
    empty: list[DocumentVersion] = []
    others: list[SessionEntry] = []
    source = [store.layout.sessions["id"], store.layout.sessions[EXPIRES_AT], INTERNAL]
    for hit in await _find_some(store, index, query, _PURGE_PAGE_SIZE, source):
        entry = store.layout.entry_from_document(hit["_source"])
        if entry.deleted or entry.live_session(now) is not None or entry.until > now:
            others.append(entry)
        else:
            (empty if entry.session is None else expired_versions).append(
                (hit["_id"], hit["_seq_no"], hit["_primary_term"])
            )
    purged = await store.delete_sessions(expired_versions)
    emptied = await store.delete_sessions(empty)
    semaphore = asyncio.Semaphore(_MAX_CONCURRENCY)
    results = await asyncio.gather(*(_purge_parts(store, each, semaphore) for each in others))
    expired_count = sum(was_session for was_session, _ in results)
    return purged + expired_count, purged + emptied + sum(done for _, done in results)


def _purgeable_queries(store: DocumentStore, now: int) -> list[dict[str, Any]]:
    expired = {"lte": now}
    husk = [{"term": {f"{INTERNAL}.record": "husk"}}, {"range": {f"{INTERNAL}.until": expired}}]
    return [
        {"range": {store.layout.sessions[EXPIRES_AT]: expired}},
        {"range": {f"{INTERNAL}.pending_until": expired}},
        {"term": {f"{INTERNAL}.record": "deleted"}},
        {"bool": {"filter": husk}},
    ]


async def _purge_parts(store: DocumentStore, found: SessionEntry, semaphore: asyncio.Semaphore) -> tuple[bool, bool]:
    """Take away what is past its time of what still has some: whether that was the session, and whether anything."""
    expired = False

    def decide(entry: SessionEntry | None, now: int) -> SessionEntry | None:
        nonlocal expired
        expired = False
        if entry is None or entry.deleted:
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
    """Index messages whose writer broke off before it did."""
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
    """Some of what is found now, in no order."""
    await refresh_index(store, index)
    return await search(store, index, {"query": query, "size": size, "seq_no_primary_term": True, "_source": source})
