"""Session documents in OpenSearch: their format, and how they are read and replaced."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import re
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from opensearchpy import TransportError

from tellback.errors import ConfigurationError, StoreBusyError, StoreError, StoreUnavailableError, TellbackError
from tellback.sessions import records
from tellback.sessions.opensearch.connection import (
    IN_DOUBT_HINT,
    WORK_SECONDS,
    OpenSearchConnection,
    error_type,
    is_connection_lost,
    response_error,
)
from tellback.sessions.records import EXPIRES_AT, FieldNames
from tellback.types.conversations import MessageData, SessionData

INTERNAL = "tellback"
"""The field with the adapter's internal data."""
FOREVER = 2**53
MAX_WRITE_IDS = 32

_SAFE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,199}")

Document = Mapping[str, Any]

INDEX_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,199}")
_KEYWORD = {"type": "keyword"}
_NUMBER = {"type": "long", "ignore_malformed": True}
_MILLIS = {"type": "date", "format": "epoch_millis"}
_TIME = {"type": "keyword", "fields": {"date": {"type": "date", "ignore_malformed": True}}}
"""A string that sorts by time to the microsecond, with a date field for dashboards."""
_STORED_ONLY = {"type": "object", "enabled": False}
"""Stored, but not searchable."""

_FIELD_TYPES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(records.JSON_FIELDS, _STORED_ONLY),
    **dict.fromkeys(records.TIME_FIELDS, _TIME),
    **dict.fromkeys(records.NUMBER_FIELDS, _NUMBER),
    "content": {"type": "text"},
    EXPIRES_AT: _MILLIS,
}
_INTERNAL_SESSION_FIELDS = {
    **dict.fromkeys(("record",), _KEYWORD),
    **dict.fromkeys(("until", "pending_until", "written_at"), _MILLIS),
    "pending_count": {"type": "integer"},
    "pending": _STORED_ONLY,
}

log = logging.getLogger("tellback.stores")

CONFLICT_SECONDS = 25.0

_READ_BATCH = 250


@dataclass(frozen=True, slots=True)
class SessionEntry:
    """All data stored under a session's id.

    `session` is None if it has expired while some of its messages have not. `life` changes each time an id is created
    again, so that deleted messages cannot reappear. The messages have the positions from `first` to `last`, and all of
    them have expired by `until`. Those in `pending` may not be in the index of messages yet. `writes` are the ids of
    the last changes. Times are milliseconds since 1970. `version` is the sequence number and primary term of the
    document that was read; None if there is no document.
    """

    id: str
    session: SessionData | None = None
    expires: int | None = None
    deleted: bool = False
    life: str = field(default_factory=lambda: uuid.uuid4().hex)
    first: int = 1
    last: int = 0
    until: int = 0
    pending: tuple[Document, ...] = ()
    writes: tuple[str, ...] = ()
    version: tuple[int, int] | None = field(default=None, compare=False)

    def live_session(self, now: int) -> SessionData | None:
        """Return the session, unless it has expired."""
        return None if self.expires is not None and self.expires <= now else self.session

    def message_key(self, position: int) -> str:
        return f"{self.life}-{position}"


def now_millis() -> int:
    """Return the current time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def document_id(session_id: str) -> str:
    """Return the id of a session's document: the session's id, or its hash if that is not possible.

    >>> document_id("web-42"), document_id("a/b")[:9]
    ('web-42', '~c14cddc0')
    """
    if _SAFE_ID.fullmatch(session_id):
        return session_id
    return "~" + hashlib.sha256(session_id.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class DocumentLayout:
    """The format of documents: the names of indices and fields, and the times to live, in milliseconds."""

    sessions_index: str
    messages_index: str
    sessions: FieldNames
    messages: FieldNames
    session_ttl: int | None
    message_ttl: int | None

    def index_definitions(self) -> dict[str, dict[str, Any]]:
        """Return the definition of each index by name."""
        return {
            self.sessions_index: _build_definition(self.sessions, records.SESSION_FIELDS, _INTERNAL_SESSION_FIELDS),
            self.messages_index: _build_definition(self.messages, records.MESSAGE_FIELDS, {"owner": _KEYWORD}),
        }

    def store_turn(
        self, entry: SessionEntry, session: SessionData, messages: Sequence[MessageData], now: int
    ) -> SessionEntry:
        """Return the entry after a session was stored and messages were appended."""
        base = SessionEntry(entry.id) if entry.deleted else entry
        first, until = (base.first, base.until) if base.until > now else (base.last + 1, 0)
        message_expiry = FOREVER if self.message_ttl is None else now + self.message_ttl
        positioned = [replace(each, position=base.last + n) for n, each in enumerate(messages, start=1)]
        return replace(
            base,
            session=session,
            expires=None if self.session_ttl is None else now + self.session_ttl,
            first=first,
            last=base.last + len(messages),
            until=max(until, message_expiry) if messages else until,
            pending=tuple(self.message_document(each, message_expiry, session.user_id) for each in positioned),
        )

    def session_document(self, entry: SessionEntry, now: int) -> dict[str, Any]:
        names = self.sessions
        fields: dict[str, Any] = {names["id"]: entry.id}
        if entry.session is not None:
            fields = names.to_database(records.encode_valid_session(entry.session))
        if entry.expires is not None:
            fields[names[EXPIRES_AT]] = entry.expires
        internal: dict[str, Any] = {
            "record": "deleted" if entry.deleted else "placeholder" if entry.session is None else "session",
            **{name: getattr(entry, name) for name in ("life", "first", "last", "until", "writes", "pending")},
            "pending_count": len(entry.pending),
            "written_at": now,
        }
        expiries = [each[self.messages[EXPIRES_AT]] for each in entry.pending if self.messages[EXPIRES_AT] in each]
        if expiries:
            internal["pending_until"] = max(expiries)
        return {**fields, INTERNAL: internal}

    def entry_from_hit(self, hit: Mapping[str, Any]) -> SessionEntry:
        """Build the entry from a document that was read with its version."""
        return replace(self.entry_from_document(hit["_source"]), version=(hit["_seq_no"], hit["_primary_term"]))

    def entry_from_document(self, source: Document) -> SessionEntry:
        """Build the entry from a document's content. Fields that were not requested count as missing."""
        record = self.sessions.from_database(source)
        internal = source.get(INTERNAL) or {}
        return SessionEntry(
            id=record["id"],
            session=records.session_from_record(record) if internal.get("record") == "session" else None,
            expires=record.get(EXPIRES_AT),
            deleted=internal.get("record") == "deleted",
            life=internal.get("life", ""),
            first=internal.get("first", 1),
            last=internal.get("last", 0),
            until=internal.get("until", 0),
            pending=tuple(internal.get("pending") or ()),
            writes=tuple(internal.get("writes") or ()),
        )

    def read_back(self, entry: SessionEntry | None) -> SessionData:
        """Build the stored session."""
        assert entry is not None
        session = self.entry_from_document(self.session_document(entry, 0)).session
        assert session is not None
        return session

    def message_document(self, message: MessageData, expires_at: int, owner: str | None) -> dict[str, Any]:
        """Build a message's document. Its owner for searches is its own user, or else its session's user."""
        document = self.messages.to_database(records.encode_message(message))
        if expires_at != FOREVER:
            document[self.messages[EXPIRES_AT]] = expires_at
        return {**document, INTERNAL: {"owner": message.user_id if message.user_id is not None else owner}}

    def message_from_document(self, document: Document) -> MessageData:
        return records.message_from_record(self.messages.from_database(document))

    def position_of(self, document: Document) -> int:
        position: int = document[self.messages["position"]]
        return position

    def is_live(self, document: Document, now: int) -> bool:
        expires_at = document.get(self.messages[EXPIRES_AT])
        return expires_at is None or expires_at > now


def resolve_field_names(field_mappings: Any) -> dict[str, FieldNames]:
    """Return the field names of sessions and of messages. Reject names that OpenSearch or the adapter uses."""
    names = records.resolve_field_names(field_mappings)
    for role, mapping in (field_mappings or {}).items():
        for name in (mapping or {}).values():
            if name == INTERNAL or name.startswith("_"):
                raise ConfigurationError(f"field_mappings[{role!r}]: {name!r} is taken; choose another name.")
    return names


async def prepare_index(
    connection: OpenSearchConnection, name: str, definition: Mapping[str, Any], *, create: bool
) -> None:
    """Create an index unless it exists, and check that its searchable fields have the right types."""
    if not await connection.request("HEAD", f"/{name}"):
        if not create:
            raise ConfigurationError(
                f"{connection.place} has no index {name!r}, and auto_create_indices is False: create it with the"
                " mappings of index_definitions."
            )
        await _create_index(connection, name, definition)
    found = await connection.request("GET", f"/{name}/_mapping")
    for index, each in found.items():
        _check_mapping(index, definition["mappings"]["properties"], each.get("mappings", {}).get("properties", {}))


async def _create_index(connection: OpenSearchConnection, name: str, definition: Mapping[str, Any]) -> None:
    try:
        await connection.request("PUT", f"/{name}", body=definition, seconds=WORK_SECONDS)
    except StoreError as error:
        cause = error.__cause__
        if not isinstance(cause, TransportError) or error_type(cause) != "resource_already_exists_exception":
            raise


def _check_mapping(index: str, expected: Mapping[str, Any], found: Mapping[str, Any], path: str = "") -> None:
    for name, each in expected.items():
        existing = found.get(name, {})
        if "properties" in each:
            _check_mapping(index, each["properties"], existing.get("properties", {}), f"{path}{name}.")
        elif each["type"] in ("keyword", "text", "date") and existing.get("type") != each["type"]:
            raise ConfigurationError(
                f"Index {index!r} has {path}{name} as {existing.get('type', 'nothing')}, but it must be {each['type']}:"
                " use another index, or recreate it with the mappings of index_definitions."
            )


def _build_definition(fields: FieldNames, names: tuple[str, ...], internal: Mapping[str, Any]) -> dict[str, Any]:
    properties = {fields[name]: _FIELD_TYPES.get(name, _KEYWORD) for name in (*names, EXPIRES_AT)}
    return {"mappings": {"dynamic": False, "properties": {**properties, INTERNAL: {"properties": dict(internal)}}}}


Decision = Callable[[SessionEntry, int], SessionEntry | None]
"""Computes the new entry from the current one and the time; None changes nothing. It may be called again."""


@dataclass(slots=True)
class _WriteAttempts:
    """The attempts to store one change, so that its own write is recognized if the answer was lost."""

    deadline: float
    max_pause: float = 0.01
    last_sent: SessionEntry | None = None
    unconfirmed: SessionEntry | None = None

    async def pause(self, session_id: str) -> None:
        """Wait a random time after a conflict. Raise `StoreBusyError` if the deadline has passed."""
        if asyncio.get_running_loop().time() > self.deadline:
            raise StoreBusyError(
                f"Session {session_id!r} had conflicting changes for {CONFLICT_SECONDS:g} seconds. Try again."
            )
        await asyncio.sleep(random.uniform(0, self.max_pause))
        self.max_pause = min(2 * self.max_pause, 0.5)

    def add_write_id(self, entry: SessionEntry) -> SessionEntry:
        """Return the entry with an id for this write."""
        self.last_sent = replace(entry, writes=(*entry.writes, uuid.uuid4().hex[:16])[-MAX_WRITE_IDS:])
        return self.last_sent

    def find_own_write(self, found: SessionEntry) -> SessionEntry | None:
        """Return the entry that an earlier attempt has stored, if any.

        A client may send a request twice, and the second one then conflicts with the first.
        """
        sent = (each for each in (self.last_sent, self.unconfirmed) if each is not None)
        return next((each for each in sent if each.writes[-1] in found.writes), None)

    def mark_in_doubt(self, error: StoreError) -> StoreError:
        """Return the error, marked as in doubt if an earlier attempt may have been stored."""
        if self.unconfirmed is None or error.in_doubt:
            return error
        return type(error)(f"{error}{IN_DOUBT_HINT}", in_doubt=True)


class DocumentStore:
    """Reads and changes session entries."""

    def __init__(self, connection: OpenSearchConnection, layout: DocumentLayout, refresh: str) -> None:
        self.connection = connection
        self.layout = layout
        self._refresh = refresh

    async def find(self, session_id: str, *, brief: bool = False) -> SessionEntry:
        """Return the current entry of a session; `brief` loads only its life."""
        includes = f"{self.layout.sessions['id']},{INTERNAL}.life,{INTERNAL}.record"
        params = {"_source_includes": includes} if brief else {}
        answer = await self.connection.request("GET", self._path(session_id), params=params, accept=(404,))
        if "found" not in answer:
            raise response_error(404, answer.get("error"), self.connection.place)
        return self.layout.entry_from_hit(answer) if answer["found"] else SessionEntry(session_id)

    async def exists(self, entry: SessionEntry) -> bool:
        """Whether the entry still exists, in the same life."""
        found = await self.find(entry.id, brief=True)
        return not found.deleted and found.life == entry.life

    async def change(self, session_id: str, decide: Decision) -> SessionEntry | None:
        """Compute the new entry, store it in one step, and return it. Retry if another write was faster."""
        attempts = _WriteAttempts(asyncio.get_running_loop().time() + CONFLICT_SECONDS)
        while True:
            try:
                found = await self.find(session_id)
                stored = attempts.find_own_write(found)
                if stored is None:
                    decided = decide(found, now_millis())
                    if decided is None:
                        return None
                    await self._finish_previous(found)
                    stored = attempts.add_write_id(decided)
                    if not await self._write(stored, found.version, attempts):
                        await attempts.pause(session_id)
                        continue
            except StoreError as error:
                raise attempts.mark_in_doubt(error) from error.__cause__
            return await self._finish(stored)

    async def index_pending(self, entries: Sequence[SessionEntry]) -> None:
        """Index messages that are not indexed yet."""
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

    async def _messages_at(self, entry: SessionEntry, positions: Sequence[int]) -> list[Document]:
        """Return the existing messages at these positions, in order."""
        pending = {self.layout.position_of(each): each for each in entry.pending}
        missing = [each for each in positions if each not in pending]
        found = await self.connection.get_many(
            self.layout.messages_index, ({"_id": entry.message_key(n)} for n in missing)
        )
        indexed = {n: each["_source"] for n, each in zip(missing, found, strict=True) if each["found"]}
        return [each for n in positions if (each := pending.get(n, indexed.get(n))) is not None]

    async def read_messages(
        self, session_id: str, max_count: int, before: int | None, after: int | None
    ) -> list[Document]:
        """Return the documents of a session's messages that have not expired, in order.

        They are read by id, not searched: a search may miss recent documents.
        """
        while True:
            entry = await self.find(session_id)
            if entry.deleted:
                return []
            low = max(entry.first, 1 if after is None else after + 1)
            high = entry.last if before is None else min(entry.last, before - 1)
            messages, is_complete = await self._read_positions(entry, low, high, max_count, forward=after is not None)
            if is_complete or await self.exists(entry):
                return messages

    async def _read_positions(
        self, entry: SessionEntry, low: int, high: int, max_count: int, *, forward: bool
    ) -> tuple[list[Document], bool]:
        """Return at most `max_count` messages from one end, and whether no position was missing."""
        messages: list[Document] = []
        is_complete = True
        now = now_millis()
        while low <= high and len(messages) < max_count:
            size = min(_READ_BATCH, max_count - len(messages), high - low + 1)
            positions = range(low, low + size) if forward else range(high - size + 1, high + 1)
            batch = await self._messages_at(entry, positions)
            is_complete = is_complete and len(batch) == size
            live = [each for each in batch if self.layout.is_live(each, now)]
            messages = [*messages, *live] if forward else [*live, *messages]
            low, high = (low + size, high) if forward else (low, high - size)
        return messages, is_complete

    async def delete_remains(self, entry: SessionEntry) -> None:
        """Delete the messages of a deleted session, and then its own document."""
        await self._delete_all_messages(entry)
        found = await self.find(entry.id, brief=True)
        if found.deleted and found.life == entry.life:
            await self.delete_sessions([found])

    async def delete_sessions(self, entries: Iterable[SessionEntry]) -> int:
        """Delete session documents that have not changed since they were read. Return how many were deleted."""
        keys = (
            {"_id": document_id(each.id), "if_seq_no": each.version[0], "if_primary_term": each.version[1]}
            for each in entries
            if each.version is not None
        )
        actions = (("delete", key, None) for key in keys)
        return await self.connection.bulk(actions, self._refresh, self.layout.sessions_index)

    async def _delete_all_messages(self, entry: SessionEntry) -> None:
        await self.delete_messages(entry.message_key(position) for position in range(1, entry.last + 1))

    async def _finish_previous(self, entry: SessionEntry) -> None:
        if entry.deleted:
            await self._delete_all_messages(entry)
        else:
            await self.index_pending([entry])

    async def _write(self, entry: SessionEntry, version: tuple[int, int] | None, attempts: _WriteAttempts) -> bool:
        """Store an entry if the document has not changed since it was read. Return whether it was stored."""
        params: dict[str, Any] = {"refresh": self._refresh}
        if version is None:
            params["op_type"] = "create"
        else:
            params |= {"if_seq_no": version[0], "if_primary_term": version[1]}
        document = self.layout.session_document(entry, now_millis())
        try:
            answer = await self.connection.request_once(
                "POST", self._path(entry.id), body=document, params=params, accept=(409,)
            )
        except StoreUnavailableError as error:
            # The next read shows whether it was stored; but a slow server gets no second request.
            if not error.in_doubt or attempts.unconfirmed or not is_connection_lost(error.__cause__):
                raise
            attempts.unconfirmed = entry
            return False
        return "error" not in answer

    async def _finish(self, entry: SessionEntry) -> SessionEntry:
        """Do what follows from a stored change: delete or index messages."""
        if entry.deleted:
            try:
                await self.delete_remains(entry)
            except TellbackError as error:
                raise StoreUnavailableError(
                    f"{error} The session is deleted, but some of its messages are not: delete it again, or call"
                    " purge_expired().",
                    in_doubt=True,
                ) from error
        elif entry.pending:
            try:
                await self._index_messages(entry, entry.pending)
            except TellbackError as error:
                # They are stored in the session's document, and the next change indexes them.
                log.warning("Indexing messages of session %r failed; the next change retries: %s", entry.id, error)
        return entry

    async def _index_messages(self, entry: SessionEntry, messages: Sequence[Document]) -> None:
        keys = [entry.message_key(self.layout.position_of(each)) for each in messages]
        actions = (("index", {"_id": key}, each) for key, each in zip(keys, messages, strict=True))
        await self.connection.bulk(actions, self._refresh, self.layout.messages_index)
        if not await self.exists(entry):
            # The session was deleted, perhaps before these messages were indexed.
            await self.delete_messages(keys)

    async def delete_messages(self, keys: Iterable[str]) -> int:
        """Delete message documents, and return how many existed."""
        actions = (("delete", {"_id": key}, None) for key in keys)
        return await self.connection.bulk(actions, self._refresh, self.layout.messages_index)

    def _path(self, session_id: str) -> str:
        return f"/{self.layout.sessions_index}/_doc/{document_id(session_id)}"
