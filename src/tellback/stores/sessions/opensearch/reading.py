"""Messages of a session by their positions: looked up by id, so that nothing that is stored is missed."""

from __future__ import annotations

from tellback.stores.sessions.opensearch.documents import Document, SessionEntry, now_millis
from tellback.stores.sessions.opensearch.keeper import DocumentStore

_READ_BATCH = 250


async def read_messages(
    store: DocumentStore, session_id: str, max_count: int, before: int | None, after: int | None
) -> list[Document]:
    """Documents of a session's messages that have time left, in their order, by their positions alone."""
    while True:
        found = await store.find(session_id)
        if found is None or found.entry.deleted:
            return []
        entry = found.entry
        low = max(entry.first, 1 if after is None else after + 1)
        high = entry.last if before is None else min(entry.last, before - 1)
        messages, is_complete = await _read_positions(store, entry, low, high, max_count, forward=after is not None)
        if is_complete or await store.exists(entry):
            return messages


async def _read_positions(
    store: DocumentStore, entry: SessionEntry, low: int, high: int, max_count: int, *, forward: bool
) -> tuple[list[Document], bool]:
    """At most so many from one end, and whether there was one at every position."""
    messages: list[Document] = []
    is_complete = True
    now = now_millis()
    while low <= high and len(messages) < max_count:
        size = min(_READ_BATCH, max_count - len(messages), high - low + 1)
        positions = range(low, low + size) if forward else range(high - size + 1, high + 1)
        batch = await store.messages_at(entry, positions)
        is_complete = is_complete and len(batch) == size
        live = [each for each in batch if store.layout.is_live(each, now)]
        messages = [*messages, *live] if forward else [*live, *messages]
        low, high = (low + size, high) if forward else (low, high - size)
    return messages, is_complete
