"""`DocumentStore`: reads and changes the documents of sessions, one compare-and-set write for each change.

New messages are stored inside the session's document first and put into the message index afterwards. The next change
of the document makes sure that they are indexed before it drops them, so an interruption loses nothing."""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tellback.errors import StoreBusyError, StoreError, StoreUnavailableError, TellbackError
from tellback.sessions.opensearch.connection import (
    IN_DOUBT_HINT,
    OpenSearchConnection,
    is_connection_lost,
    response_error,
)
from tellback.sessions.opensearch.documents import (
    INTERNAL,
    MAX_WRITE_IDS,
    Document,
    DocumentLayout,
    SessionEntry,
    document_id,
    now_millis,
)

log = logging.getLogger("tellback.stores")

CONFLICT_SECONDS = 25.0


@dataclass(frozen=True, slots=True)
class VersionedEntry:
    """What is held, and which write of it was read."""

    entry: SessionEntry
    seq_no: int
    primary_term: int


DocumentVersion = tuple[str, int, int]
"""The id of a document, and which write of it was read: its number, and the term of its primary."""

Decision = Callable[[SessionEntry | None, int], SessionEntry | None]
"""Makes of what is held now, at this time, what shall be held; None leaves it as it is. It may be called again."""


@dataclass(slots=True)
class _WriteAttempts:
    """What one change tried to store, so that it knows its own write when the answer was lost."""

    deadline: float
    max_pause: float = 0.01
    last_sent: SessionEntry | None = None
    unconfirmed: SessionEntry | None = None

    async def pause(self, session_id: str) -> None:
        """Wait so that those who met here do not meet again; but not for ever."""
        if asyncio.get_running_loop().time() > self.deadline:
            raise StoreBusyError(
                f"Session {session_id!r} was changed by others for {CONFLICT_SECONDS:g} seconds. Try again."
            )
        await asyncio.sleep(random.uniform(0, self.max_pause))
        self.max_pause = min(2 * self.max_pause, 0.5)

    def add_write_id(self, entry: SessionEntry) -> SessionEntry:
        """The same with a name for this write."""
        self.last_sent = replace(entry, writes=(*entry.writes, uuid.uuid4().hex[:16])[-MAX_WRITE_IDS:])
        return self.last_sent

    def find_own_write(self, found: VersionedEntry | None) -> SessionEntry | None:
        """What was stored, if one of these was. A client may have sent the last one twice, and say it was refused."""
        if found is None:
            return None
        own_writes = (
            each
            for each in (self.last_sent, self.unconfirmed)
            if each is not None and each.writes[-1] in found.entry.writes
        )
        return next(own_writes, None)

    def mark_in_doubt(self, error: StoreError) -> StoreError:
        """The error, and that an earlier attempt may have been stored if so."""
        if self.unconfirmed is None or error.in_doubt:
            return error
        return type(error)(f"{error}{IN_DOUBT_HINT}", in_doubt=True)


class DocumentStore:
    """Reads and changes what is held of sessions."""

    def __init__(self, connection: OpenSearchConnection, layout: DocumentLayout, refresh: str) -> None:
        self.connection = connection
        self.layout = layout
        self._refresh = refresh

    async def find(self, session_id: str, *, brief: bool = False) -> VersionedEntry | None:
        """What is held of a session now; `brief` leaves out all but which life of it that is."""
        includes = f"{self.layout.sessions['id']},{INTERNAL}.life,{INTERNAL}.record"
        params = {"_source_includes": includes} if brief else {}
        answer = await self.connection.request("GET", self._path(session_id), params=params, accept=(404,))
        if "found" not in answer:
            raise response_error(404, answer.get("error"), self.connection.place)
        if not answer["found"]:
            return None
        entry = self.layout.entry_from_document(answer["_source"])
        return VersionedEntry(entry, answer["_seq_no"], answer["_primary_term"])

    async def exists(self, entry: SessionEntry) -> bool:
        """Whether it was not deleted since."""
        found = await self.find(entry.id, brief=True)
        return found is not None and not found.entry.deleted and found.entry.life == entry.life

    async def change(self, session_id: str, decide: Decision) -> SessionEntry | None:
        """Decide on what is held, store that in one step, and give it; decide again if another was faster."""
        attempts = _WriteAttempts(asyncio.get_running_loop().time() + CONFLICT_SECONDS)
        while True:
            try:
                found = await self.find(session_id)
                stored = attempts.find_own_write(found)
                if stored is None:
                    current = None if found is None else found.entry
                    decided = decide(current, now_millis())
                    if decided is None:
                        return None
                    await self._finish_previous(current)
                    stored = attempts.add_write_id(decided)
                    if not await self._write(stored, found, attempts):
                        await attempts.pause(session_id)
                        continue
            except StoreError as error:
                raise attempts.mark_in_doubt(error) from error.__cause__
            return await self._finish(stored)

    async def index_pending(self, entries: Sequence[SessionEntry]) -> None:
        """Put messages into their index that are not there yet."""
        now, layout = now_millis(), self.layout
        pending = [
            (entry, document) for entry in entries for document in entry.pending if layout.is_live(document, now)
        ]
        keys = (entry.message_key(layout.position_of(document)) for entry, document in pending)
        found = await self.connection.get_many(layout.messages_index, [{"_id": key, "_source": False} for key in keys])
        missing: dict[str, tuple[SessionEntry, list[Document]]] = {}
        for (entry, document), result in zip(pending, found, strict=True):
            if not result["found"]:
                missing.setdefault(entry.id, (entry, []))[1].append(document)
        for entry, messages in missing.values():
            await self._index_messages(entry, messages)

    async def messages_at(self, entry: SessionEntry, positions: Sequence[int]) -> list[Document]:
        """The documents of messages that are there, in the order of the positions."""
        pending = {self.layout.position_of(each): each for each in entry.pending}
        missing = [each for each in positions if each not in pending]
        found = await self.connection.get_many(
            self.layout.messages_index, ({"_id": entry.message_key(n)} for n in missing)
        )
        indexed = {n: each["_source"] for n, each in zip(missing, found, strict=True) if each["found"]}
        return [each for n in positions if (each := pending.get(n, indexed.get(n))) is not None]

    async def delete_remains(self, entry: SessionEntry) -> None:
        """Delete the messages of a session that was deleted, and then what is left of itself."""
        keys = (entry.message_key(position) for position in range(1, entry.last + 1))
        await self.delete_messages(keys)
        found = await self.find(entry.id, brief=True)
        if found is not None and found.entry.deleted and found.entry.life == entry.life:
            await self.delete_sessions([(document_id(entry.id), found.seq_no, found.primary_term)])

    async def delete_sessions(self, documents: Sequence[DocumentVersion]) -> int:
        """Delete documents of sessions that are as they were read, and say how many."""
        actions = (
            ("delete", {"_id": id, "if_seq_no": seq_no, "if_primary_term": term}, None)
            for id, seq_no, term in documents
        )
        return await self.connection.bulk(actions, self._refresh, self.layout.sessions_index)

    async def _finish_previous(self, entry: SessionEntry | None) -> None:
        if entry is not None and entry.deleted:
            await self.delete_messages(entry.message_key(position) for position in range(1, entry.last + 1))
        elif entry is not None:
            await self.index_pending([entry])

    async def _write(self, entry: SessionEntry, found: VersionedEntry | None, attempts: _WriteAttempts) -> bool:
        """Store what is held if nobody stored anything since it was read, and say whether so."""
        params: dict[str, Any] = {"refresh": self._refresh}
        if found is None:
            params["op_type"] = "create"
        else:
            params |= {"if_seq_no": found.seq_no, "if_primary_term": found.primary_term}
        document = self.layout.session_document(entry, now_millis())
        try:
            answer = await self.connection.request_once(
                "POST", self._path(entry.id), body=document, params=params, accept=(409,)
            )
        except StoreUnavailableError as error:
            # Whether it was stored, the next look tells; but a server that is slow is not asked again.
            if not error.in_doubt or attempts.unconfirmed or not is_connection_lost(error.__cause__):
                raise
            attempts.unconfirmed = entry
            return False
        return "error" not in answer

    async def _finish(self, entry: SessionEntry) -> SessionEntry:
        """What was decided is stored: now do what follows from it."""
        if entry.deleted:
            try:
                await self.delete_remains(entry)
            except TellbackError as error:
                text = f"{error} The session is deleted, but not all of its messages: delete it again, or purge."
                raise StoreUnavailableError(text, in_doubt=True) from error
        elif entry.pending:
            try:
                await self._index_messages(entry, entry.pending)
            except TellbackError as error:
                # They are stored, in the session's document, and the next change puts them into the index.
                log.warning("messages of session %r are not in the index yet: %s", entry.id, error)
        return entry

    async def _index_messages(self, entry: SessionEntry, messages: Sequence[Document]) -> None:
        keys = [entry.message_key(self.layout.position_of(each)) for each in messages]
        actions = (("index", {"_id": key}, each) for key, each in zip(keys, messages, strict=True))
        await self.connection.bulk(actions, self._refresh, self.layout.messages_index)
        if not await self.exists(entry):
            # It was deleted meanwhile, perhaps before these came.
            await self.delete_messages(keys)

    async def delete_messages(self, keys: Iterable[str]) -> int:
        """Delete documents of messages, and say how many were there."""
        actions = (("delete", {"_id": key}, None) for key in keys)
        return await self.connection.bulk(actions, self._refresh, self.layout.messages_index)

    def _path(self, session_id: str) -> str:
        return f"/{self.layout.sessions_index}/_doc/{document_id(session_id)}"


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
