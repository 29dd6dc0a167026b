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
from tellback.stores.sessions import checks, given
from tellback.stores.sessions.mongo.documents import NOW, Document, Documents, Messages, Sessions
from tellback.stores.sessions.mongo.link import DELETE_SECONDS, INDEX_SECONDS, Link
from tellback.stores.sessions.records import EXPIRES, message_of
from tellback.types.sessions import MessageData, SessionData, SessionStatus

COLLECTIONS = {"sessions": "agent_sessions", "messages": "agent_messages"}
TURN_SECONDS = 2.0
PURGED = 1_000
"""How many documents are deleted at once."""

_OLDEST_WIRE = 9
"""MongoDB 4.4."""


class _Storage:
    """Two collections, and the steps in which they change."""

    def __init__(self, link: Link, names: Mapping[str, str], sessions: Sessions, messages: Messages) -> None:
        self.link = link
        self.names = names
        self.sessions = sessions
        self.messages = messages
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, session_id: str) -> AsyncIterator[None]:
        """One change of a session after another, in this process: so they are seldom in each other's way."""
        lock = self._turns.setdefault(session_id, asyncio.Lock())
        is_mine = False
        # It is only a courtesy, so nobody waits for long: the database keeps changes apart.
        with suppress(TimeoutError):
            is_mine = await asyncio.wait_for(lock.acquire(), TURN_SECONDS)
        try:
            yield
        finally:
            if is_mine:
                lock.release()

    async def change(
        self, session: AsyncClientSession | None, query: Document, update: list[Document], *, upsert: bool = False
    ) -> Document | None:
        """A session's document after an update, or None if there is none."""
        documents = self.link.collection(self.names["sessions"])
        found: Document | None = await documents.find_one_and_update(
            query,
            update,
            projection=self.sessions.wanted,
            return_document=ReturnDocument.AFTER,
            upsert=upsert,
            session=session,
        )
        return found

    async def begin(
        self, session: AsyncClientSession, record: Mapping[str, Any], expected: int, added: int = 0
    ) -> Document:
        """Make a session that is not there, behind the messages that are."""
        id = record["id"]
        stored = await self.link.collection(self.names["sessions"]).find_one(self.query(id), session=session)
        if stored is not None or expected != 0:
            version = 0 if stored is None else self.sessions.read(stored).version
            raise SessionConflictError(id, expected, version)
        position = await self._last_position(session, id)
        update = self.sessions.made_of(record, position + added)
        made = await self.change(session, {self.sessions.fields["id"]: id}, update, upsert=True)
        assert made is not None
        return made

    async def append(
        self, session: AsyncClientSession, document: Document, records: Sequence[Mapping[str, Any]]
    ) -> int:
        """Store messages that were counted in the session's document, and give the position of the first."""
        first = self.sessions.last_position(document) - len(records) + 1
        if records:
            made = self.messages.made_of(records, first, document[NOW])
            await self.link.collection(self.names["messages"]).insert_many(made, session=session)
        return first

    def query(self, session_id: str) -> Document:
        """A session of that id that is not past its time."""
        return {self.sessions.fields["id"]: session_id, **self.sessions.living()}

    async def _last_position(self, session: AsyncClientSession, session_id: str) -> int:
        fields = self.messages.fields
        last = await self.link.collection(self.names["messages"]).find_one(
            {fields["session_id"]: session_id}, sort=[(fields["position"], DESCENDING)], session=session
        )
        return 0 if last is None else int(last[fields["position"]])


class _Sessions:
    def __init__(self, storage: _Storage) -> None:
        self._storage = storage

    async def create(self, session: SessionData) -> SessionData:
        record = given.session(session)

        async def work(transaction: AsyncClientSession) -> SessionData:
            return self._storage.sessions.read(await self._storage.begin(transaction, record, 0))

        async with self._storage.turn(session.id):
            return await self._storage.link.transaction(work)

    async def get(self, session_id: str) -> SessionData | None:
        query = self._storage.query(checks.id_of("session_id", session_id))
        found = await self._find(query, limit=1)
        return found[0] if found else None

    async def find_active(self, user_id: str, agent_name: str | None = None) -> SessionData | None:
        fields = self._storage.sessions.fields
        query = {fields["user_id"]: checks.id_of("user_id", user_id), fields["status"]: "active"}
        if agent_name is not None:
            query[fields["agent_name"]] = checks.id_of("agent_name", agent_name)
        found = await self._find({**query, **self._storage.sessions.living()}, limit=1)
        return found[0] if found else None

    async def of_user(
        self, user_id: str, *, limit: int | None = None, before: SessionData | None = None
    ) -> list[SessionData]:
        sessions = self._storage.sessions
        query = {sessions.fields["user_id"]: checks.id_of("user_id", user_id), **sessions.living()}
        most = checks.limit_of(limit)
        if before is not None:
            created_at = given.moment("before's created_at", checks.session(before).created_at)
            query |= sessions.behind(before, created_at)
        return await self._find(query, limit=most)

    async def update_status(
        self, session_id: str, status: SessionStatus, *, at: datetime, completed_at: datetime | None
    ) -> SessionData | None:
        query = self._storage.query(checks.id_of("session_id", session_id))
        checks.status(status)
        completed = None if completed_at is None else given.moment("completed_at", completed_at)
        update = self._storage.sessions.with_status(status, given.moment("at", at), completed)
        async with self._storage.turn(session_id), self._storage.link.asking(changes=True):
            found = await self._storage.change(None, query, update)
        return None if found is None else self._storage.sessions.read(found)

    async def delete(self, session_id: str) -> bool:
        checks.id_of("session_id", session_id)
        names, link = self._storage.names, self._storage.link
        session, messages = self._storage.sessions.fields["id"], self._storage.messages.fields["session_id"]

        async def work(transaction: AsyncClientSession) -> bool:
            sessions = link.collection(names["sessions"])
            was_there = await sessions.find_one(self._storage.query(session_id), {session: 1}, session=transaction)
            await sessions.delete_one({session: session_id}, session=transaction)
            await link.collection(names["messages"]).delete_many({messages: session_id}, session=transaction)
            return was_there is not None

        async with self._storage.turn(session_id):
            return await link.transaction(work, DELETE_SECONDS)

    async def _find(self, query: Document, *, limit: int) -> list[SessionData]:
        sessions = self._storage.sessions
        newest_first = [(sessions.fields[name], DESCENDING) for name in ("created_at", "id")]
        async with self._storage.link.asking():
            cursor = self._storage.link.collection(self._storage.names["sessions"]).find(
                query, sort=newest_first, limit=limit
            )
            return [sessions.read(document) for document in await cursor.to_list()]


class _Messages:
    def __init__(self, storage: _Storage) -> None:
        self._storage = storage

    async def add(self, messages: Sequence[MessageData], *, at: datetime) -> list[MessageData]:
        new = checks.messages(messages)
        if not new:
            return []
        storage, session_id = self._storage, new[0].session_id
        records = [given.message(each) for each in new]
        update = storage.sessions.after_adding(len(new), records[-1]["created_at"], given.moment("at", at))

        async def work(transaction: AsyncClientSession) -> int:
            document = await storage.change(transaction, storage.query(session_id), update)
            if document is None:
                raise NotFoundError("session", session_id)
            return await storage.append(transaction, document, records)

        async with storage.turn(session_id):
            first = await storage.link.transaction(work)
        return [replace(message_of(record), position=first + n) for n, record in enumerate(records)]

    async def of_session(
        self, session_id: str, *, limit: int | None = None, before: int | None = None, after: int | None = None
    ) -> list[MessageData]:
        messages = self._storage.messages
        query = {messages.fields["session_id"]: checks.id_of("session_id", session_id), **messages.living()}
        most = checks.limit_of(limit)
        ends = {"$lt": checks.position_of("before", before), "$gt": checks.position_of("after", after)}
        position, wanted = messages.fields["position"], {name: end for name, end in ends.items() if end is not None}
        if wanted:
            query[position] = wanted
        direction = DESCENDING if after is None else 1
        async with self._storage.link.asking():
            cursor = self._storage.link.collection(self._storage.names["messages"]).find(
                query, sort=[(position, direction)], limit=most
            )
            found = [messages.read(document) for document in await cursor.to_list()]
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
        self._link = Link(client, database_name)
        self._database_name = database_name
        names = checks.names("collections", collections, COLLECTIONS)
        mappings = _mappings(field_mappings)
        sessions = Sessions(mappings.get("sessions"), checks.ttl("session_ttl", session_ttl))
        messages = Messages(mappings.get("messages"), checks.ttl("message_ttl", message_ttl))
        self._storage = _Storage(self._link, names, sessions, messages)
        self.session_repository = _Sessions(self._storage)
        self.message_repository = _Messages(self._storage)

    def __repr__(self) -> str:
        names = ", ".join(f"{what}={name!r}" for what, name in self._storage.names.items())
        return f"MongoAdapter({self._link.place}, {self._database_name!r}, {names})"

    async def initialize(self) -> None:
        """Connect, and make the indexes that are missing."""
        is_new = self._link.open()
        try:
            async with self._link.asking():
                await self._check()
            async with self._link.asking(INDEX_SECONDS):
                await self._make_indexes()
        except BaseException:
            if is_new:
                await self._link.close()
            raise

    async def disconnect(self) -> None:
        """Give up the connections; a client that was passed in stays open."""
        async with self._link.asking():
            await self._link.close()

    async def save(self, session: SessionData, messages: Sequence[MessageData]) -> SessionData:
        """Store a session after a turn, and the messages of that turn."""
        record = given.session(session)
        records = [given.message(each) for each in checks.messages(messages, session.id)]
        storage, expected, count = self._storage, session.version - 1, len(records)
        newest = records[-1]["created_at"] if records else None
        update = storage.sessions.after_turn(record, count, newest)
        begun = {**record, "message_count": count, "last_message_at": newest or record["last_message_at"]}
        query = {**storage.query(session.id), storage.sessions.fields["version"]: expected}

        async def work(transaction: AsyncClientSession) -> SessionData:
            document = await storage.change(transaction, query, update)
            if document is None:
                document = await storage.begin(transaction, begun, expected, added=count)
            await storage.append(transaction, document, records)
            return storage.sessions.read(document)

        async with storage.turn(session.id):
            return await self._link.transaction(work)

    async def purge_expired(self) -> int:
        """Delete what is past its time; MongoDB does so too, about once a minute."""
        gone = 0
        for name, documents in (("messages", self._storage.messages), ("sessions", self._storage.sessions)):
            while taken := await self._purge(self._storage.names[name], documents):
                gone += taken
        return gone

    async def _purge(self, name: str, documents: Documents) -> int:
        async with self._link.asking(DELETE_SECONDS):
            now = (await self._link.database().command("hello"))["localTime"]
            collection, past = self._link.collection(name), {documents.fields[EXPIRES]: {"$lte": now}}
            found = await collection.find(past, {"_id": 1}, limit=PURGED).to_list()
            if not found:
                return 0
            ids = [document["_id"] for document in found]
            return (await collection.delete_many({"_id": {"$in": ids}, **past})).deleted_count

    async def _check(self) -> None:
        hello = await self._link.database().command("hello")
        if "setName" not in hello and hello.get("msg") != "isdbgrid":
            raise ConfigurationError(
                f"{self._link.place} is a single server without a replica set, so it has no transactions: start mongod"
                " with --replSet rs0, run rs.initiate() once, and connect with ?replicaSet=rs0. One server is enough."
            )
        if hello["maxWireVersion"] < _OLDEST_WIRE:
            raise ConfigurationError(f"{self._link.place} is older than MongoDB 4.4, which is the first that will do.")
        wanted = {"name": {"$in": list(self._storage.names.values())}}
        async for found in await self._link.database().list_collections(filter=wanted):
            if found["type"] != "collection" or "collation" in found["options"]:
                raise ConfigurationError(
                    f"Collection {found['name']!r} is a view, or has a collation by which unlike ids may be equal: give"
                    " collections=... other names."
                )

    async def _make_indexes(self) -> None:
        sessions, messages = self._storage.sessions, self._storage.messages
        ordered = [(messages.fields["session_id"], 1), (messages.fields["position"], 1)]
        of_messages = [IndexModel(ordered, unique=True), *messages.indexes()]
        of_sessions = sessions.indexes(("user_id", "created_at", "id"), ("user_id", "status", "created_at", "id"))
        await self._link.collection(self._storage.names["sessions"]).create_indexes(of_sessions)
        await self._link.collection(self._storage.names["messages"]).create_indexes(of_messages)


def _mappings(found: Any) -> Mapping[str, Any]:
    if not isinstance(found, Mapping | None) or (found or {}).keys() - COLLECTIONS.keys():
        raise ConfigurationError(f"field_mappings has names for {' and '.join(COLLECTIONS)}, not {found!r:.80}.")
    return found or {}
