"""`MongoAdapter`: sessions in MongoDB."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from weakref import WeakValueDictionary

from pymongo import DESCENDING, AsyncMongoClient, IndexModel, ReturnDocument
from pymongo.asynchronous.client_session import AsyncClientSession

from tellback.errors import ConfigurationError, NotFoundError, SessionConflictError
from tellback.sessions import records, validation
from tellback.sessions.mongo.connection import DELETE_SECONDS, INDEX_SECONDS, MongoConnection
from tellback.sessions.mongo.documents import SERVER_TIME, Document, Documents, MessageDocuments, SessionDocuments
from tellback.sessions.records import EXPIRES_AT, message_from_record
from tellback.types.conversations import MessageData, SessionData, SessionStatus

DEFAULT_COLLECTIONS = {"sessions": "agent_sessions", "messages": "agent_messages"}
LOCK_SECONDS = 2.0
PURGE_BATCH_SIZE = 1_000
"""How many documents are deleted at once."""

_MIN_WIRE_VERSION = 9
"""MongoDB 4.4."""


class _MongoStorage:
    """Two collections, and the steps in which they change."""

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

    @asynccontextmanager
    async def lock_session(self, session_id: str) -> AsyncIterator[None]:
        """One change of a session after another, in this process: so they are seldom in each other's way."""
        lock = self._locks.setdefault(session_id, asyncio.Lock())
        is_acquired = False
        # It is only a courtesy, so nobody waits for long: the database keeps changes apart.
        with suppress(TimeoutError):
            is_acquired = await asyncio.wait_for(lock.acquire(), LOCK_SECONDS)
        try:
            yield
        finally:
            if is_acquired:
                lock.release()

    async def update_session(
        self, session: AsyncClientSession | None, query: Document, update: list[Document], *, upsert: bool = False
    ) -> Document | None:
        """A session's document after an update, or None if there is none."""
        documents = self.connection.collection(self.names["sessions"])
        found: Document | None = await documents.find_one_and_update(
            query,
            update,
            projection=self.sessions.projection,
            return_document=ReturnDocument.AFTER,
            upsert=upsert,
            session=session,
        )
        return found

    async def create_session(
        self, session: AsyncClientSession, record: Mapping[str, Any], expected: int, added: int = 0
    ) -> Document:
        """Make a session that is not there, behind the messages that are."""
        id = record["id"]
        stored = await self.connection.collection(self.names["sessions"]).find_one(
            self.session_query(id), session=session
        )
        if stored is not None or expected != 0:
            version = 0 if stored is None else self.sessions.from_document(stored).version
            raise SessionConflictError(id, expected, version)
        position = await self._last_position(session, id)
        update = self.sessions.create_update(record, position + added)
        created = await self.update_session(session, {self.sessions.fields["id"]: id}, update, upsert=True)
        assert created is not None
        return created

    async def append_messages(
        self, session: AsyncClientSession, document: Document, message_records: Sequence[Mapping[str, Any]]
    ) -> int:
        """Store messages that were counted in the session's document, and give the position of the first."""
        first_position = self.sessions.last_position(document) - len(message_records) + 1
        if message_records:
            documents = self.messages.to_documents(message_records, first_position, document[SERVER_TIME])
            await self.connection.collection(self.names["messages"]).insert_many(documents, session=session)
        return first_position

    def session_query(self, session_id: str) -> Document:
        """A session of that id that is not past its time."""
        return {self.sessions.fields["id"]: session_id, **self.sessions.is_live()}

    async def _last_position(self, session: AsyncClientSession, session_id: str) -> int:
        fields = self.messages.fields
        last = await self.connection.collection(self.names["messages"]).find_one(
            {fields["session_id"]: session_id}, sort=[(fields["position"], DESCENDING)], session=session
        )
        return 0 if last is None else int(last[fields["position"]])


class _MongoSessions:
    def __init__(self, storage: _MongoStorage) -> None:
        self._storage = storage

    async def create(self, session: SessionData) -> SessionData:
        record = records.encode_session(session)

        async def work(transaction: AsyncClientSession) -> SessionData:
            return self._storage.sessions.from_document(await self._storage.create_session(transaction, record, 0))

        async with self._storage.lock_session(session.id):
            return await self._storage.connection.transaction(work)

    async def get(self, session_id: str) -> SessionData | None:
        query = self._storage.session_query(validation.validate_id("session_id", session_id))
        found = await self._find(query, limit=1)
        return found[0] if found else None

    async def find_active(self, user_id: str, agent_name: str | None = None) -> SessionData | None:
        fields = self._storage.sessions.fields
        query = {fields["user_id"]: validation.validate_id("user_id", user_id), fields["status"]: "active"}
        if agent_name is not None:
            query[fields["agent_name"]] = validation.validate_id("agent_name", agent_name)
        found = await self._find({**query, **self._storage.sessions.is_live()}, limit=1)
        return found[0] if found else None

    async def list_by_user(
        self, user_id: str, *, limit: int | None = None, before: SessionData | None = None
    ) -> list[SessionData]:
        sessions = self._storage.sessions
        query = {sessions.fields["user_id"]: validation.validate_id("user_id", user_id), **sessions.is_live()}
        max_count = validation.validate_limit(limit)
        if before is not None:
            created_at = records.encode_time("before's created_at", validation.validate_session(before).created_at)
            query |= sessions.is_older_than(before, created_at)
        return await self._find(query, limit=max_count)

    async def update_status(
        self, session_id: str, status: SessionStatus, *, at: datetime, completed_at: datetime | None
    ) -> SessionData | None:
        query = self._storage.session_query(validation.validate_id("session_id", session_id))
        validation.validate_status(status)
        completed = None if completed_at is None else records.encode_time("completed_at", completed_at)
        update = self._storage.sessions.status_update(status, records.encode_time("at", at), completed)
        async with self._storage.lock_session(session_id), self._storage.connection.operation(changes=True):
            found = await self._storage.update_session(None, query, update)
        return None if found is None else self._storage.sessions.from_document(found)

    async def delete(self, session_id: str) -> bool:
        validation.validate_id("session_id", session_id)
        names, connection = self._storage.names, self._storage.connection
        session, messages = self._storage.sessions.fields["id"], self._storage.messages.fields["session_id"]

        async def work(transaction: AsyncClientSession) -> bool:
            sessions = connection.collection(names["sessions"])
            was_there = await sessions.find_one(
                self._storage.session_query(session_id), {session: 1}, session=transaction
            )
            await sessions.delete_one({session: session_id}, session=transaction)
            await connection.collection(names["messages"]).delete_many({messages: session_id}, session=transaction)
            return was_there is not None

        async with self._storage.lock_session(session_id):
            return await connection.transaction(work, DELETE_SECONDS)

    async def _find(self, query: Document, *, limit: int) -> list[SessionData]:
        sessions = self._storage.sessions
        newest_first = [(sessions.fields[name], DESCENDING) for name in ("created_at", "id")]
        async with self._storage.connection.operation():
            cursor = self._storage.connection.collection(self._storage.names["sessions"]).find(
                query, sort=newest_first, limit=limit
            )
            return [sessions.from_document(document) for document in await cursor.to_list()]


class _MongoMessages:
    def __init__(self, storage: _MongoStorage) -> None:
        self._storage = storage

    async def add(self, messages: Sequence[MessageData], *, at: datetime) -> list[MessageData]:
        validated = validation.validate_messages(messages)
        if not validated:
            return []
        storage, session_id = self._storage, validated[0].session_id
        message_records = [records.encode_message(each) for each in validated]
        update = storage.sessions.add_messages_update(
            len(validated), message_records[-1]["created_at"], records.encode_time("at", at)
        )

        async def work(transaction: AsyncClientSession) -> int:
            document = await storage.update_session(transaction, storage.session_query(session_id), update)
            if document is None:
                raise NotFoundError("session", session_id)
            return await storage.append_messages(transaction, document, message_records)

        async with storage.lock_session(session_id):
            first_position = await storage.connection.transaction(work)
        return [
            replace(message_from_record(record), position=first_position + n)
            for n, record in enumerate(message_records)
        ]

    async def list_by_session(
        self, session_id: str, *, limit: int | None = None, before: int | None = None, after: int | None = None
    ) -> list[MessageData]:
        messages = self._storage.messages
        query = {messages.fields["session_id"]: validation.validate_id("session_id", session_id), **messages.is_live()}
        max_count = validation.validate_limit(limit)
        bounds = {
            "$lt": validation.validate_position("before", before),
            "$gt": validation.validate_position("after", after),
        }
        position, position_range = (
            messages.fields["position"],
            {name: end for name, end in bounds.items() if end is not None},
        )
        if position_range:
            query[position] = position_range
        direction = DESCENDING if after is None else 1
        async with self._storage.connection.operation():
            cursor = self._storage.connection.collection(self._storage.names["messages"]).find(
                query, sort=[(position, direction)], limit=max_count
            )
            found = [messages.from_document(document) for document in await cursor.to_list()]
        return found[::direction]


class MongoAdapter:
    """Sessions in MongoDB, as documents that can be queried.

    `client` is a `pymongo.AsyncMongoClient`, which stays its owner's to close, or a URL. `collections` and
    `field_mappings` give things other names, as in `field_mappings={"sessions": {"user_id": "customer"}}`; an id is
    `_id` unless it is mapped. A session lives for `session_ttl` after its last change, and a message for `message_ttl`
    (seconds or a timedelta; None is for ever). What was gathered is a document of its own, or JSON text where MongoDB
    would not give it back exactly. A server that does not answer is given up after ten seconds, or the client's
    `timeoutMS` if that is less.

    A turn is a transaction, so it is stored whole or not at all. What was acknowledged is on the disks of most servers
    of the replica set. Transactions need a replica set, of MongoDB 4.4 or later; one server is enough for it.

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
        session_ttl: timedelta | float | None = None,
        message_ttl: timedelta | float | None = None,
    ) -> None:
        self._connection = MongoConnection(client, database_name)
        self._database_name = database_name
        names = validation.resolve_names("collections", collections, DEFAULT_COLLECTIONS)
        mappings = _validate_field_mappings(field_mappings)
        sessions = SessionDocuments(mappings.get("sessions"), validation.to_ttl_seconds("session_ttl", session_ttl))
        messages = MessageDocuments(mappings.get("messages"), validation.to_ttl_seconds("message_ttl", message_ttl))
        self._storage = _MongoStorage(self._connection, names, sessions, messages)
        self.session_repository = _MongoSessions(self._storage)
        self.message_repository = _MongoMessages(self._storage)

    def __repr__(self) -> str:
        names = ", ".join(f"{role}={name!r}" for role, name in self._storage.names.items())
        return f"MongoAdapter({self._connection.place}, {self._database_name!r}, {names})"

    async def initialize(self) -> None:
        """Connect, and make the indexes that are missing."""
        is_new = self._connection.open()
        try:
            async with self._connection.operation():
                await self._check_server()
            async with self._connection.operation(INDEX_SECONDS):
                await self._create_indexes()
        except BaseException:
            if is_new:
                await self._connection.close()
            raise

    async def disconnect(self) -> None:
        """Give up the connections; a client that was passed in stays open."""
        async with self._connection.operation():
            await self._connection.close()

    async def save(self, session: SessionData, messages: Sequence[MessageData]) -> SessionData:
        """Store a session after a turn, and the messages of that turn."""
        record = records.encode_session(session)
        message_records = [records.encode_message(each) for each in validation.validate_messages(messages, session.id)]
        storage, expected, count = self._storage, session.version - 1, len(message_records)
        newest = message_records[-1]["created_at"] if message_records else None
        update = storage.sessions.turn_update(record, count, newest)
        first_turn = {**record, "message_count": count, "last_message_at": newest or record["last_message_at"]}
        query = {**storage.session_query(session.id), storage.sessions.fields["version"]: expected}

        async def work(transaction: AsyncClientSession) -> SessionData:
            document = await storage.update_session(transaction, query, update)
            if document is None:
                document = await storage.create_session(transaction, first_turn, expected, added=count)
            await storage.append_messages(transaction, document, message_records)
            return storage.sessions.from_document(document)

        async with storage.lock_session(session.id):
            return await self._connection.transaction(work)

    async def purge_expired(self) -> int:
        """Delete what is past its time; MongoDB does so too, about once a minute."""
        purged = 0
        for name, documents in (("messages", self._storage.messages), ("sessions", self._storage.sessions)):
            while deleted := await self._purge_batch(self._storage.names[name], documents):
                purged += deleted
        return purged

    async def _purge_batch(self, name: str, documents: Documents) -> int:
        async with self._connection.operation(DELETE_SECONDS):
            now = (await self._connection.database().command("hello"))["localTime"]
            collection, is_expired = self._connection.collection(name), {documents.fields[EXPIRES_AT]: {"$lte": now}}
            found = await collection.find(is_expired, {"_id": 1}, limit=PURGE_BATCH_SIZE).to_list()
            if not found:
                return 0
            ids = [document["_id"] for document in found]
            return (await collection.delete_many({"_id": {"$in": ids}, **is_expired})).deleted_count

    async def _check_server(self) -> None:
        hello = await self._connection.database().command("hello")
        if "setName" not in hello and hello.get("msg") != "isdbgrid":
            raise ConfigurationError(
                f"{self._connection.place} is a single server without a replica set, so it has no transactions: start"
                " mongod with --replSet rs0, run rs.initiate() once, and connect with ?replicaSet=rs0. One server"
                " is enough."
            )
        if hello["maxWireVersion"] < _MIN_WIRE_VERSION:
            raise ConfigurationError(
                f"{self._connection.place} is older than MongoDB 4.4, which is the first that will do."
            )
        by_name = {"name": {"$in": list(self._storage.names.values())}}
        async for found in await self._connection.database().list_collections(filter=by_name):
            if found["type"] != "collection" or "collation" in found["options"]:
                raise ConfigurationError(
                    f"Collection {found['name']!r} is a view, or has a collation by which unlike ids may be equal: give"
                    " collections=... other names."
                )

    async def _create_indexes(self) -> None:
        sessions, messages = self._storage.sessions, self._storage.messages
        by_position = [(messages.fields["session_id"], 1), (messages.fields["position"], 1)]
        message_indexes = [IndexModel(by_position, unique=True), *messages.indexes()]
        session_indexes = sessions.indexes(("user_id", "created_at", "id"), ("user_id", "status", "created_at", "id"))
        await self._connection.collection(self._storage.names["sessions"]).create_indexes(session_indexes)
        await self._connection.collection(self._storage.names["messages"]).create_indexes(message_indexes)


def _validate_field_mappings(field_mappings: Any) -> Mapping[str, Any]:
    if not isinstance(field_mappings, Mapping | None) or (field_mappings or {}).keys() - DEFAULT_COLLECTIONS.keys():
        raise ConfigurationError(
            f"field_mappings has names for {' and '.join(DEFAULT_COLLECTIONS)}, not {field_mappings!r:.80}."
        )
    return field_mappings or {}
