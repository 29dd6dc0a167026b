"""The way to a MongoDB server: whose client it is, and how its collections are used."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

import pymongo
from bson.codec_options import CodecOptions
from pymongo import AsyncMongoClient, ReadPreference, WriteConcern
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.uri_parser import parse_uri

from tellback.errors import ConfigurationError, StoreClosedError
from tellback.stores.sessions.checks import has_unescaped_password
from tellback.stores.sessions.mongo.documents import Document
from tellback.stores.sessions.mongo.failures import (
    DRIVER_ERRORS,
    DUPLICATE_KEY,
    error_code,
    is_commit_unknown,
    is_transient,
    is_write_unknown,
    translate_error,
)

T = TypeVar("T")

OPERATION_SECONDS = 10.0
DELETE_SECONDS = 30.0
"""For what may be much."""

INDEX_SECONDS = 600.0
"""For indexes of collections that are there already."""

_DEFAULT_OPTIONS = {"serverSelectionTimeoutMS": 5_000, "connectTimeoutMS": 5_000, "appname": "tellback"}
_DATABASE_NAME = re.compile(r'[^/\\. "$*<>:|?\x00-\x1f]{1,63}')
_RESERVED_DATABASES = ("admin", "local", "config")
_MAJORITY = WriteConcern("majority")
_CODEC: CodecOptions[Document] = CodecOptions(document_class=dict, tz_aware=True)


class MongoConnection:
    """A client to reach a database with: its owner's, or one of its own between `open` and `close`."""

    def __init__(self, client: Any, database_name: Any) -> None:
        if (
            not isinstance(database_name, str)
            or not _DATABASE_NAME.fullmatch(database_name)
            or database_name in _RESERVED_DATABASES
        ):
            raise ConfigurationError(f"database_name is the name of a database of your own, not {database_name!r:.80}.")
        if isinstance(client, str):
            self.place = _describe_url(client)
        elif isinstance(client, AsyncMongoClient):
            self.place = f"MongoDB, database {database_name!r},"
        else:
            raise ConfigurationError(
                f"The MongoDB adapter takes a pymongo.AsyncMongoClient or a URL, not {type(client).__name__}."
            )
        self._client_or_url: str | AsyncMongoClient[Any] = client
        self._database_name = database_name
        self._client: AsyncMongoClient[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self) -> bool:
        """Make the client, if need be, and say whether it was."""
        loop = asyncio.get_running_loop()
        if self._client is not None and self._loop is loop:
            return False
        self._client, self._loop = self._create_client(), loop
        return True

    async def close(self) -> None:
        """Give up the client; one that was passed in stays open."""
        client, self._client = self._client, None
        # The connections of a loop that has ended ended with it.
        if client is not None and client is not self._client_or_url and self._loop is asyncio.get_running_loop():
            with pymongo.timeout(OPERATION_SECONDS):
                await client.close()

    def database(self) -> AsyncDatabase[Document]:
        """The database. What is read was stored by most servers, and so was what is acknowledged."""
        return self._require_open().get_database(
            self._database_name,
            codec_options=_CODEC,
            read_preference=ReadPreference.PRIMARY,
            write_concern=_MAJORITY,
            read_concern=ReadConcern("majority"),
        )

    def collection(self, name: str) -> AsyncCollection[Document]:
        """A collection of it."""
        return self.database().get_collection(name)

    @asynccontextmanager
    async def operation(self, seconds: float = OPERATION_SECONDS, *, changes: bool = False) -> AsyncIterator[None]:
        """What is awaited inside has so much time, and fails in our words."""
        try:
            with pymongo.timeout(self._timeout(seconds)):
                yield
        except DRIVER_ERRORS as error:
            raise translate_error(error, self.place, in_doubt=changes and is_write_unknown(error)) from error

    async def transaction(
        self, work: Callable[[AsyncClientSession], Awaitable[T]], seconds: float = OPERATION_SECONDS
    ) -> T:
        """What `work` gives, in a transaction, which is begun again where others were in its way."""
        client, attempt = self._require_open(), 0
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout(seconds)
        while True:
            attempt += 1
            try:
                with pymongo.timeout(max(0.001, deadline - loop.time())):
                    return await _run_transaction(client, work)
            except DRIVER_ERRORS as error:
                pause = random.random() * min(0.5, 0.005 * 1.5**attempt)
                if not _can_retry(error, attempt) or loop.time() + pause > deadline:
                    raise translate_error(error, self.place, in_doubt=is_commit_unknown(error)) from error
                await asyncio.sleep(pause)

    def _timeout(self, seconds: float) -> float:
        """So long, or as long as the client's own `timeoutMS` says."""
        client_timeout = None if self._client is None else self._client.options.timeout
        return min(seconds, client_timeout or seconds)

    def _require_open(self) -> AsyncMongoClient[Any]:
        if self._client is None:
            raise StoreClosedError(f"The adapter of {self.place} is not open: await adapter.initialize() first.")
        if self._loop is not asyncio.get_running_loop():
            raise ConfigurationError(
                f"The adapter of {self.place} was initialized in another event loop: await adapter.initialize() in this"
                " one, or make an adapter for each."
            )
        return self._client

    def _create_client(self) -> AsyncMongoClient[Any]:
        if not isinstance(self._client_or_url, str):
            return self._client_or_url
        url_options = {name.lower() for name, _ in parse_qsl(urlsplit(self._client_or_url).query)}
        options: dict[str, Any] = {
            name: value for name, value in _DEFAULT_OPTIONS.items() if name.lower() not in url_options
        }
        try:
            return AsyncMongoClient(self._client_or_url, **options)
        except (PyMongoError, ValueError):
            raise _invalid_url_error() from None


async def _run_transaction(client: AsyncMongoClient[Any], work: Callable[[AsyncClientSession], Awaitable[T]]) -> T:
    async with client.start_session() as session:
        await session.start_transaction(ReadConcern("snapshot"), _MAJORITY, ReadPreference.PRIMARY)
        result = await work(session)
        await session.commit_transaction()
        return result


def _can_retry(error: BaseException, attempt: int) -> bool:
    # Two who make one session at once may also be told of a duplicate; the one who comes second then finds the first's.
    return (is_transient(error) and not is_commit_unknown(error)) or (
        error_code(error) == DUPLICATE_KEY and attempt < 3
    )


def _describe_url(url: str) -> str:
    try:
        if not url.startswith("mongodb+srv://"):  # its hosts are asked for when it connects
            parse_uri(url)
        hosts = urlsplit(url).netloc.rpartition("@")[2]
    except (PyMongoError, ValueError):
        raise _invalid_url_error() from None
    if has_unescaped_password(url):
        raise _invalid_url_error()
    return f"MongoDB at {hosts}"


def _invalid_url_error() -> ConfigurationError:
    # The driver's words are not passed on: they may hold parts of a password.
    return ConfigurationError(
        "The URL of a MongoDB server is like mongodb://user:password@host:27017/?replicaSet=rs0 or mongodb+srv://…, and"
        " what is special in a password is percent-encoded. The one that was passed is not like that, or has an option"
        " that MongoDB does not know."
    )
