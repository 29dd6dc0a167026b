"""Messages of a session by their positions: looked up by id, so that nothing that is stored is missed."""

from __future__ import annotations

from tellback.stores.sessions.opensearch.documents import Document, Held, now_millis
from tellback.stores.sessions.opensearch.keeper import Keeper

_CHUNK = 250


async def messages_of(
    keeper: Keeper, session_id: str, most: int, before: int | None, after: int | None
) -> list[Document]:
    """Documents of a session's messages that have time left, in their order, by their positions alone."""
    while True:
        found = await keeper.find(session_id)
        if found is None or found.held.deleted:
            return []
        held = found.held
        low = max(held.first, 1 if after is None else after + 1)
        high = held.last if before is None else min(held.last, before - 1)
        gathered, whole = await _gather(keeper, held, low, high, most, forwards=after is not None)
        if whole or await keeper.lives(held):
            return gathered


async def _gather(
    keeper: Keeper, held: Held, low: int, high: int, most: int, *, forwards: bool
) -> tuple[list[Document], bool]:
    """At most so many from one end, and whether there was one at every position."""
    gathered: list[Document] = []
    whole = True
    now = now_millis()
    while low <= high and len(gathered) < most:
        size = min(_CHUNK, most - len(gathered), high - low + 1)
        positions = range(low, low + size) if forwards else range(high - size + 1, high + 1)
        there = await keeper.messages_at(held, positions)
        whole = whole and len(there) == size
        living = [each for each in there if keeper.layout.has_time(each, now)]
        gathered = [*gathered, *living] if forwards else [*living, *gathered]
        low, high = (low + size, high) if forwards else (low, high - size)
    return gathered, whole
