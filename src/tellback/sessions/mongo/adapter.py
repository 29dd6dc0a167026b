"""`MongoAdapter`: sessions in MongoDB, as documents that can be queried."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from bson.int64 import Int64
from pymongo import ASCENDING, DESCENDING, AsyncMongoClient, IndexModel, ReturnDocument
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection

from tellback.errors import ConfigurationError, NotFoundError, SessionConflictError
from tellback.sessions import records, validation
from tellback.sessions.mongo.connection import DELETE_SECONDS, INDEX_SECONDS, Document, MongoConnection
from tellback.sessions.records import EXPIRES_AT, FieldNames
from tellback.sessions.storage import StorageAdapter, Ttl, resolve_ttls
from tellback.types.conversations import MessageData, SessionData, SessionStatus
from tellback.types.jsontext import is_storable

T = TypeVar("T")

LOCK_SECONDS = 2.0
PURGE_BATCH_SIZE = 1_000
"""How many documents are deleted at a time."""

_TURN_FIELDS = ("current_route", "current_state", "collected_data", "updated_at", "version")
_MIN_WIRE_VERSION = 9
"""MongoDB 4.4."""

LAST_POSITION = "last_position"
"""The position of a session's last message: a field that exists only in the database."""

SERVER_TIME = "server-now"
"""The field for the server's time in query results. No other field can have this name."""

MAX_DEPTH = 50
"""How deep JSON may be nested to be stored as a document; deeper JSON is stored as text."""


class Documents:
    """The common part of both collections: field names and the time to live."""

    def __init__(self, role: str, fields: tuple[str, ...], overrides: Any, ttl: float | None) -> None:
        overrides = {"id": "_id", **overrides} if isinstance(overrides, Mapping) else overrides or {"id": "_id"}
        self.fields = FieldNames(role, fields, overrides)
        self._field_names = fields
        self._ttl_ms = None if ttl is None else max(1, round(ttl * 1000))
        taken = [name for name in (*fields, EXPIRES_AT) if self.fields[name] == "_id" and name != "id"]
        if taken:
            raise ConfigurationError(f"field_mappings[{role!r}]: only id can be mapped to _id, not {taken[0]}.")

    @property
    def projection(self) -> Document:
        """Return the fields to read, and the server's time."""
        return {**{self.fields[name]: 1 for name in self._field_names}, SERVER_TIME: "$$NOW"}

    def is_live(self) -> Document:
        """Return the condition that a document has not expired, by the server's clock."""
        expires = self.fields[EXPIRES_AT]
        return {"$or": [{expires: None}, {"$expr": {"$gt": [f"${expires}", "$$NOW"]}}]}

    def indexes(self, *fields: tuple[str, ...]) -> list[IndexModel]:
        """Return indexes over these fields, one for expiry, and one for the id if it is not `_id`."""
        models = [IndexModel([(self.fields[name], ASCENDING) for name in names]) for names in fields]
        models.append(IndexModel([(self.fields[EXPIRES_AT], ASCENDING)], expireAfterSeconds=0))
        if self.fields["id"] != "_id":
            models.append(IndexModel([(self.fields["id"], ASCENDING)], unique=True))
        return models


class SessionDocuments(Documents):
    """The format of session documents."""

    def __init__(self, overrides: Any, ttl: float | None) -> None:
        super().__init__("sessions", (*records.SESSION_FIELDS, LAST_POSITION), overrides, ttl)

    def build_update(
        self, values: Mapping[str, Any], *, set_once: Mapping[str, Any] | None = None, added: int = 0
    ) -> list[Document]:
        """Build an update that sets fields of a record, some only if they are unset, and adds to the message count."""
        changes: Document = {name: {"$literal": value} for name, value in values.items()}
        if "collected_data" in values:
            changes["collected_data"] = {"$literal": to_native_json(values["collected_data"])}
        for name, value in (set_once or {}).items():
            changes[name] = {"$ifNull": [f"${self.fields[name]}", {"$literal": value}]}
        for name in ("message_count", LAST_POSITION) if added else ():
            changes[name] = {"$add": [{"$ifNull": [f"${self.fields[name]}", 0]}, added]}
        # Each change renews the time to live, by the server's clock.
        changes[EXPIRES_AT] = {"$literal": None} if self._ttl_ms is None else {"$add": ["$$NOW", self._ttl_ms]}
        return [{"$set": self.fields.to_database(changes)}]

    def is_older_than(self, session: SessionData, created_at: str) -> Document:
        """Return the condition that a session comes after this one in its user's list."""
        created, id = self.fields["created_at"], self.fields["id"]
        alternatives = [{created: {"$lt": created_at}}, {created: created_at, id: {"$lt": session.id}}]
        return {created: {"$lte": created_at}, "$and": [{"$or": alternatives}]}

    def from_document(self, document: Mapping[str, Any]) -> SessionData:
        return records.session_from_record(to_plain_json(self.fields.from_database(document)))

    def last_position(self, document: Mapping[str, Any]) -> int:
        return int(document.get(self.fields[LAST_POSITION]) or 0)


class MessageDocuments(Documents):
    """The format of message documents."""

    def __init__(self, overrides: Any, ttl: float | None) -> None:
        super().__init__("messages", records.MESSAGE_FIELDS, overrides, ttl)

    def to_documents(self, rows: Sequence[Mapping[str, Any]], position: int, now: datetime) -> list[Document]:
        """Build documents of messages with consecutive positions from `position`."""
        expiry = {} if self._ttl_ms is None else {EXPIRES_AT: now + timedelta(milliseconds=self._ttl_ms)}
        documents = []
        for place, record in enumerate(rows, start=position):
            native = {name: to_native_json(record[name]) for name in ("tool_calls", "event")}
            documents.append(self.fields.to_database({**record, **native, **expiry, "position": place}))
        return documents

    def from_document(self, document: Mapping[str, Any]) -> MessageData:
        return records.message_from_record(to_plain_json(self.fields.from_database(document)))


def to_native_json(text: str | None) -> Any:
    """Convert JSON to MongoDB values, so that it can be queried; keep the text if they would not be equal.

    >>> to_native_json('{"to": "Rome"}'), to_native_json('{"$to": "Rome"}')
    ({'to': 'Rome'}, '{"$to": "Rome"}')
    """
    value = None if text is None else json.loads(text)
    return text if isinstance(value, str) or not _is_lossless(value, MAX_DEPTH) else value


def to_plain_json(value: Any) -> Any:
    """Convert a MongoDB value to JSON: the driver has its own type for large integers."""
    if isinstance(value, dict):
        return {name: to_plain_json(each) for name, each in value.items()}
    if isinstance(value, list):
        return [to_plain_json(each) for each in value]
    return int(value) if isinstance(value, Int64) else value


def _is_lossless(value: Any, max_depth: int) -> bool:
    """Whether MongoDB returns the value unchanged."""
    if isinstance(value, dict):
        return max_depth > 0 and all(
            _is_valid_key(name) and _is_lossless(each, max_depth - 1) for name, each in value.items()
        )
    if isinstance(value, list):
        return max_depth > 0 and all(_is_lossless(each, max_depth - 1) for each in value)
    if isinstance(value, str):
        return is_storable(value.replace("\x00", ""))
    return not isinstance(value, int) or -(2**63) <= value < 2**63


def _is_valid_key(name: str) -> bool:
    return bool(name) and not name.startswith("$") and "." not in name and is_storable(name)


class _MongoStorage:
    """Two collections, and the transactions on them."""

    def __init__(
        self,
        connection: MongoConnection,
        names: Mapping[str, str],
        sessions: SessionDocuments,
        messages: MessageDocuments,
    ) -> None:
        self.connection = connection
        self.names = names
        self.sessions = sessions
        self.messages = messages
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def initialize(self) -> None:
        """Create missing indexes."""
        async with self.connection.initialization():
            async with self.connection.operation():
                await self._check_server()
            async with self.connection.operation(INDEX_SECONDS):
                await self._create_indexes()

    async def disconnect(self) -> None:
        await self.connection.close()

    async def create(self, session: SessionData) -> SessionData:
        record = records.encode_valid_session(session)

        async def work(transaction: AsyncClientSession) -> SessionData:
            return self.sessions.from_document(await self._create_session(transaction, record, 0))

        return await self._change(session.id, work)

    async def get(self, session_id: str) -> SessionData | None:
        found = await self._find_sessions(self._session_query(session_id), limit=1)
        return found[0] if found else None

    async def find_active(self, user_id: str, agent_name: str | None) -> SessionData | None:
        fields = self.sessions.fields
        query = {fields["user_id"]: user_id, fields["status"]: "active", **self.sessions.is_live()}
        if agent_name is not None:
            query[fields["agent_name"]] = agent_name
        found = await self._find_sessions(query, limit=1)
        return found[0] if found else None

    async def list_by_user(self, user_id: str, limit: int, before: SessionData | None) -> list[SessionData]:
        query = {self.sessions.fields["user_id"]: user_id, **self.sessions.is_live()}
        if before is not None:
            query |= self.sessions.is_older_than(before, records.format_time(before.created_at))
        return await self._find_sessions(query, limit=limit)

    async def update_status(
        self, session_id: str, status: SessionStatus, at: datetime, completed_at: datetime | None
    ) -> SessionData | None:
        completed = None if completed_at is None else records.format_time(completed_at)
        values = {"status": status, "updated_at": records.format_time(at), "completed_at": completed}
        update = self.sessions.build_update(values)
        async with self._lock_session(session_id), self.connection.operation(changes=True):
            found = await self._update_session(None, self._session_query(session_id), update)
        return None if found is None else self.sessions.from_document(found)

    async def delete(self, session_id: str) -> bool:
        session, messages = self.sessions.fields["id"], self.messages.fields["session_id"]

        async def work(transaction: AsyncClientSession) -> bool:
            sessions = self._collection("sessions")
            was_there = await sessions.find_one(self._session_query(session_id), {session: 1}, session=transaction)
            await sessions.delete_one({session: session_id}, session=transaction)
            await self._collection("messages").delete_many({messages: session_id}, session=transaction)
            return was_there is not None

        return await self._change(session_id, work, DELETE_SECONDS)

    async def save(self, session: SessionData, messages: Sequence[MessageData]) -> SessionData:
        record = records.encode_valid_session(session)
        message_records = [records.encode_message(each) for each in messages]
        expected, count = session.version - 1, len(message_records)
        newest = {"last_message_at": message_records[-1]["created_at"]} if message_records else {}
        values = {name: record[name] for name in _TURN_FIELDS}
        set_once = {name: record[name] for name in ("user_id", "agent_name")}
        update = self.sessions.build_update({**values, **newest}, set_once=set_once, added=count)
        first_turn = {**record, "message_count": count, **newest}
        query = {**self._session_query(session.id), self.sessions.fields["version"]: expected}

        async def work(transaction: AsyncClientSession) -> SessionData:
            document = await self._update_session(transaction, query, update)
            if document is None:
                document = await self._create_session(transaction, first_turn, expected, added=count)
            await self._append_messages(transaction, document, message_records)
            return self.sessions.from_document(document)

        return await self._change(session.id, work)

    async def add(self, messages: Sequence[MessageData], at: datetime) -> list[MessageData]:
        session_id = messages[0].session_id
        message_records = [records.encode_message(each) for each in messages]
        values = {"updated_at": records.format_time(at), "last_message_at": message_records[-1]["created_at"]}
        update = self.sessions.build_update(values, added=len(messages))

        async def work(transaction: AsyncClientSession) -> int:
            document = await self._update_session(transaction, self._session_query(session_id), update)
            if document is None:
                raise NotFoundError("session", session_id)
            return await self._append_messages(transaction, document, message_records)

        return records.positioned_messages(message_records, await self._change(session_id, work))

    async def list_by_session(
        self, session_id: str, limit: int, before: int | None, after: int | None
    ) -> list[MessageData]:
        fields = self.messages.fields
        query = {fields["session_id"]: session_id, **self.messages.is_live()}
        position_range = {name: end for name, end in (("$lt", before), ("$gt", after)) if end is not None}
        if position_range:
            query[fields["position"]] = position_range
        direction = DESCENDING if after is None else 1
        async with self.connection.operation():
            cursor = self._collection("messages").find(query, sort=[(fields["position"], direction)], limit=limit)
            found = [self.messages.from_document(document) for document in await cursor.to_list()]
        return found[::direction]

    async def purge_expired(self) -> int:
        """Delete expired data; MongoDB also does so, about once a minute."""
        purged = 0
        for name, documents in (("messages", self.messages), ("sessions", self.sessions)):
            while deleted := await self._purge_batch(name, documents):
                purged += deleted
        return purged

    def _collection(self, role: str) -> AsyncCollection[Document]:
        return self.connection.collection(self.names[role])

    async def _change(
        self, session_id: str, work: Callable[[AsyncClientSession], Awaitable[T]], seconds: float | None = None
    ) -> T:
        """Change a session in a transaction."""
        async with self._lock_session(session_id):
            return await self.connection.transaction(work, seconds)

    @asynccontextmanager
    async def _lock_session(self, session_id: str) -> AsyncIterator[None]:
        """Serialize changes of a session in this process, which avoids most conflicts."""
        lock = self._locks.setdefault(session_id, asyncio.Lock())
        is_acquired = False
        # This is only an optimization, so it does not wait for long: transactions keep the data correct.
        with suppress(TimeoutError):
            is_acquired = await asyncio.wait_for(lock.acquire(), LOCK_SECONDS)
        try:
            yield
        finally:
            if is_acquired:
                lock.release()

    async def _update_session(
        self, session: AsyncClientSession | None, query: Document, update: list[Document], *, upsert: bool = False
    ) -> Document | None:
        """Update a session's document and return it, or None if there is none."""
        documents = self._collection("sessions")
        found: Document | None = await documents.find_one_and_update(
            query,
            update,
            projection=self.sessions.projection,
            return_document=ReturnDocument.AFTER,
            upsert=upsert,
            session=session,
        )
        return found

    async def _create_session(
        self, session: AsyncClientSession, record: Mapping[str, Any], expected: int, added: int = 0
    ) -> Document:
        """Create a session. Its positions continue after existing messages."""
        id = record["id"]
        stored = await self._collection("sessions").find_one(self._session_query(id), session=session)
        if stored is not None or expected != 0:
            version = 0 if stored is None else self.sessions.from_document(stored).version
            raise SessionConflictError(id, expected, version)
        values = {**record, LAST_POSITION: await self._last_position(session, id) + added}
        del values["id"]
        update = self.sessions.build_update(values)
        created = await self._update_session(session, {self.sessions.fields["id"]: id}, update, upsert=True)
        assert created is not None
        return created

    async def _append_messages(
        self, session: AsyncClientSession, document: Document, message_records: Sequence[Mapping[str, Any]]
    ) -> int:
        """Store messages that the session's document already counts. Return the first position."""
        first_position = self.sessions.last_position(document) - len(message_records) + 1
        if message_records:
            documents = self.messages.to_documents(message_records, first_position, document[SERVER_TIME])
            await self._collection("messages").insert_many(documents, session=session)
        return first_position

    def _session_query(self, session_id: str) -> Document:
        """Return the query for an unexpired session by id."""
        return {self.sessions.fields["id"]: session_id, **self.sessions.is_live()}

    async def _last_position(self, session: AsyncClientSession, session_id: str) -> int:
        fields = self.messages.fields
        last = await self._collection("messages").find_one(
            {fields["session_id"]: session_id}, sort=[(fields["position"], DESCENDING)], session=session
        )
        return 0 if last is None else int(last[fields["position"]])

    async def _find_sessions(self, query: Document, *, limit: int) -> list[SessionData]:
        newest_first = [(self.sessions.fields[name], DESCENDING) for name in ("created_at", "id")]
        async with self.connection.operation():
            cursor = self._collection("sessions").find(query, sort=newest_first, limit=limit)
            return [self.sessions.from_document(document) for document in await cursor.to_list()]

    async def _purge_batch(self, name: str, documents: Documents) -> int:
        async with self.connection.operation(DELETE_SECONDS):
            now = (await self.connection.database().command("hello"))["localTime"]
            collection, is_expired = self._collection(name), {documents.fields[EXPIRES_AT]: {"$lte": now}}
            found = await collection.find(is_expired, {"_id": 1}, limit=PURGE_BATCH_SIZE).to_list()
            if not found:
                return 0
            ids = [document["_id"] for document in found]
            return (await collection.delete_many({"_id": {"$in": ids}, **is_expired})).deleted_count

    async def _check_server(self) -> None:
        hello = await self.connection.database().command("hello")
        if "setName" not in hello and hello.get("msg") != "isdbgrid":
            raise ConfigurationError(
                f"{self.connection.place} is a single server without a replica set, so it has no transactions: start"
                " mongod with --replSet rs0, run rs.initiate() once, and connect with ?replicaSet=rs0. One server"
                " is enough."
            )
        if hello["maxWireVersion"] < _MIN_WIRE_VERSION:
            raise ConfigurationError(f"{self.connection.place} is older than MongoDB 4.4: upgrade it.")
        by_name = {"name": {"$in": list(self.names.values())}}
        async for found in await self.connection.database().list_collections(filter=by_name):
            if found["type"] != "collection" or "collation" in found["options"]:
                raise ConfigurationError(
                    f"Collection {found['name']!r} is a view, or has a collation that treats different ids as equal:"
                    " pass other names in collections=... ."
                )

    async def _create_indexes(self) -> None:
        sessions, messages = self.sessions, self.messages
        by_position = [(messages.fields["session_id"], 1), (messages.fields["position"], 1)]
        message_indexes = [IndexModel(by_position, unique=True), *messages.indexes()]
        session_indexes = sessions.indexes(("user_id", "created_at", "id"), ("user_id", "status", "created_at", "id"))
        await self._collection("sessions").create_indexes(session_indexes)
        await self._collection("messages").create_indexes(message_indexes)


class MongoAdapter(StorageAdapter):
    """Sessions in MongoDB, as documents that can be queried.

    `client` is a `pymongo.AsyncMongoClient`, which its owner closes, or a URL. `collections` and `field_mappings`
    rename collections and fields, for example `field_mappings={"sessions": {"user_id": "customer"}}`; an id is `_id`
    unless it is mapped. Sessions expire `session_ttl` after their last change and messages `message_ttl` after they
    were stored (seconds or a timedelta; None means never). Collected data is stored as an embedded document, or as JSON
    text if MongoDB would not return it unchanged. Requests time out after ten seconds, or after the client's
    `timeoutMS` if that is shorter.

    A turn is one transaction, so it is stored completely or not at all. Acknowledged changes are on the disks of most
    servers of the replica set. Transactions need a replica set with MongoDB 4.4 or later; one server is enough.

    >>> MongoAdapter("mongodb://localhost:27017/?replicaSet=rs0", "shop", collections={"sessions": "chats"})
    MongoAdapter(MongoDB at localhost:27017, 'shop', sessions='chats', messages='agent_messages')
    """

    def __init__(
        self,
        client: AsyncMongoClient[Any] | str,
        database_name: str,
        *,
        collections: Mapping[str, str] | None = None,
        field_mappings: Mapping[str, Mapping[str, str]] | None = None,
        session_ttl: Ttl = None,
        message_ttl: Ttl = None,
    ) -> None:
        connection = MongoConnection(client, database_name)
        names = validation.resolve_names("collections", collections, records.DEFAULT_NAMES)
        mappings = records.validate_field_mappings(field_mappings)
        ttls = resolve_ttls(session_ttl, message_ttl)
        sessions = SessionDocuments(mappings.get("sessions"), ttls[0])
        messages = MessageDocuments(mappings.get("messages"), ttls[1])
        self._description = f"{connection.place}, {database_name!r}, " + ", ".join(
            f"{role}={name!r}" for role, name in names.items()
        )
        super().__init__(_MongoStorage(connection, names, sessions, messages))

    def __repr__(self) -> str:
        return f"MongoAdapter({self._description})"
