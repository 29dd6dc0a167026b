"""The connection to a MongoDB server: the client, transactions, and the translation of its errors."""

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
from bson.errors import BSONError
from pymongo import AsyncMongoClient, ReadPreference, WriteConcern, errors
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.uri_parser import parse_uri

from tellback.errors import (
    ConfigurationError,
    InvalidArgumentError,
    StoreBusyError,
    StoreClosedError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
    TellbackError,
)
from tellback.sessions.storage import ClientConnection
from tellback.sessions.validation import has_unescaped_password

T = TypeVar("T")
Document = dict[str, Any]

DRIVER_ERRORS = (errors.PyMongoError, BSONError, OSError, RuntimeError)
"""Errors of the driver. It raises RuntimeError for a client of another event loop."""

DUPLICATE_KEY = 11000
_TOO_LARGE = (10334, 17419, 17420, 17280)
_REFUSED = (13, 18, 8000)
_BUSY = (24, 46, 112, 251, 290)
_OUT_OF_DISK = (14031,)
_INDEX_CONFLICT = (85, 86)
_NOT_WRITABLE = (10107, 13435, 13436, 11602, 189, 91)
_TIMED_OUT = (50, 64, 100)
_MAX_MESSAGE_LENGTH = 300

OPERATION_SECONDS = 10.0
DELETE_SECONDS = 30.0
"""The timeout of deletions, which may affect many documents."""

INDEX_SECONDS = 600.0
"""The timeout for indexing existing collections."""

_DEFAULT_OPTIONS = {"serverSelectionTimeoutMS": 5_000, "connectTimeoutMS": 5_000, "appname": "tellback"}
_DATABASE_NAME = re.compile(r'[^/\\. "$*<>:|?\x00-\x1f]{1,63}')
_RESERVED_DATABASES = ("admin", "local", "config")
_MAJORITY = WriteConcern("majority")
_CODEC: CodecOptions[Document] = CodecOptions(document_class=dict, tz_aware=True)


def error_code(error: BaseException) -> int | None:
    """Return the server's error code, if the server sent one."""
    if isinstance(error, errors.BulkWriteError):
        details: Any = error.details
        codes = [each.get("code") for each in details.get("writeErrors", [])]
        return codes[0] if codes else error.code
    return error.code if isinstance(error, errors.OperationFailure) else None


def is_transient(error: BaseException) -> bool:
    """Whether the transaction was aborted because of a conflict, and may be run again."""
    # The driver also labels errors of a closed client as transient.
    if not isinstance(error, errors.PyMongoError) or isinstance(error, errors.InvalidOperation):
        return False
    return error.has_error_label("TransientTransactionError")


def is_commit_unknown(error: BaseException) -> bool:
    """Whether the transaction may have been committed."""
    return isinstance(error, errors.PyMongoError) and error.has_error_label("UnknownTransactionCommitResult")


def is_write_unknown(error: BaseException) -> bool:
    """Whether a change without a transaction may have taken effect."""
    if isinstance(error, errors.ServerSelectionTimeoutError | errors.WaitQueueTimeoutError):
        return False
    return isinstance(error, errors.ConnectionFailure | errors.WriteConcernError) or error_code(error) in _TIMED_OUT


def translate_error(error: BaseException, place: str, *, in_doubt: bool = False) -> TellbackError:
    """Convert an error to a store error that says what to do."""
    if isinstance(error, errors.InvalidOperation):
        return StoreClosedError(f"The client of {place} is closed: create an adapter with an open client.")
    if isinstance(error, RuntimeError):
        return ConfigurationError(f"The client of {place} belongs to another event loop: {error}.")
    if isinstance(error, errors.DocumentTooLarge) or error_code(error) in _TOO_LARGE:
        return InvalidArgumentError("A session or a message is larger than 16 MB, MongoDB's limit for a document.")
    if isinstance(error, BSONError):
        return InvalidArgumentError(f"MongoDB cannot store these values: {_error_message(error)}.")
    if isinstance(error, errors.WaitQueueTimeoutError):
        return StoreBusyError(f"All connections to {place} are in use: raise the client's maxPoolSize.")
    if isinstance(error, errors.OperationFailure):
        return _translate_server_error(error, error_code(error), place, in_doubt)
    return _unavailable_error(error, place, in_doubt)


def _translate_server_error(
    error: errors.OperationFailure, code: int | None, place: str, in_doubt: bool
) -> TellbackError:
    message = _error_message(error)
    if code in _REFUSED:
        return StoreUnavailableError(
            f"{place} rejected the login: {message}. Check the user, the password and permissions."
        )
    if code == DUPLICATE_KEY:
        return InvalidArgumentError(f"A message with that id already exists: {message}.")
    if is_transient(error) or code in _BUSY:
        return StoreBusyError(f"{place} is too busy: {message}. Try again.")
    if code in _OUT_OF_DISK:
        return StoreFullError(f"The disk of {place} is full: {message}. Free some space and try again.")
    if code in _INDEX_CONFLICT:
        return ConfigurationError(f"{place} has a conflicting index: {message}. Drop it, and try again.")
    if code in _NOT_WRITABLE:
        return StoreReadOnlyError(f"{place} is read-only: {message}. Connect to the primary server.")
    if in_doubt or error.timeout or code in _TIMED_OUT:
        return _unavailable_error(error, place, in_doubt)
    return StoreError(f"{place}: {message}")


def _unavailable_error(error: BaseException, place: str, in_doubt: bool) -> StoreUnavailableError:
    doubt = " The change may have been stored: load the session again to check." if in_doubt else ""
    timed_out = isinstance(error, errors.NetworkTimeout | errors.ExecutionTimeout | TimeoutError)
    problem = "did not answer in time" if timed_out else f"cannot be reached: {_error_message(error)}"
    return StoreUnavailableError(f"{place} {problem}.{doubt}", in_doubt=in_doubt)


def _error_message(error: BaseException) -> str:
    details: Any = error.details if isinstance(error, errors.OperationFailure) else None
    first = ((details or {}).get("writeErrors") or [{}])[0]
    message = (details or {}).get("errmsg") or first.get("errmsg") or str(error)
    return str(message)[:_MAX_MESSAGE_LENGTH].rstrip(".")


class MongoConnection(ClientConnection[AsyncMongoClient[Any]]):
    """A client for a database: passed in by its owner, or created by `open` and closed by `close`."""

    def __init__(self, client: Any, database_name: Any) -> None:
        if (
            not isinstance(database_name, str)
            or not _DATABASE_NAME.fullmatch(database_name)
            or database_name in _RESERVED_DATABASES
        ):
            raise ConfigurationError(
                "database_name must be a valid MongoDB database name other than admin, config and local, got"
                f" {database_name!r:.80}."
            )
        if not isinstance(client, str | AsyncMongoClient):
            raise ConfigurationError(
                f"The MongoDB adapter needs a pymongo.AsyncMongoClient or a URL, got {type(client).__name__}."
            )
        place = _describe_url(client) if isinstance(client, str) else f"MongoDB, database {database_name!r},"
        super().__init__(client, place)
        self.database_name = database_name

    def database(self) -> AsyncDatabase[Document]:
        """Return the database, with majority read and write concerns."""
        return self.require_open().get_database(
            self.database_name,
            codec_options=_CODEC,
            read_preference=ReadPreference.PRIMARY,
            write_concern=_MAJORITY,
            read_concern=ReadConcern("majority"),
        )

    def collection(self, name: str) -> AsyncCollection[Document]:
        """Return a collection of the database."""
        return self.database().get_collection(name)

    @asynccontextmanager
    async def operation(self, seconds: float | None = None, *, changes: bool = False) -> AsyncIterator[None]:
        """Limit the time of the block, and translate its errors."""
        try:
            with pymongo.timeout(self._timeout(seconds)):
                yield
        except DRIVER_ERRORS as error:
            raise translate_error(error, self.place, in_doubt=changes and is_write_unknown(error)) from error

    async def transaction(self, work: Callable[[AsyncClientSession], Awaitable[T]], seconds: float | None = None) -> T:
        """Run `work` in a transaction, and return its result. Retry after conflicts."""
        client, attempt = self.require_open(), 0
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

    def _timeout(self, seconds: float | None) -> float:
        """Return the timeout (default: `OPERATION_SECONDS`), or the client's own `timeoutMS` if that is shorter."""
        limit = OPERATION_SECONDS if seconds is None else seconds
        client_timeout = None if self._client is None else self._client.options.timeout
        return min(limit, client_timeout or limit)

    def _create_client(self, url: str) -> AsyncMongoClient[Any]:
        url_options = {name.lower() for name, _ in parse_qsl(urlsplit(url).query)}
        options: dict[str, Any] = {
            name: value for name, value in _DEFAULT_OPTIONS.items() if name.lower() not in url_options
        }
        try:
            return AsyncMongoClient(url, **options)
        except (PyMongoError, ValueError):
            raise _invalid_url_error() from None

    async def _close_client(self, client: AsyncMongoClient[Any]) -> None:
        async with self.operation():
            await client.close()


async def _run_transaction(client: AsyncMongoClient[Any], work: Callable[[AsyncClientSession], Awaitable[T]]) -> T:
    async with client.start_session() as session:
        await session.start_transaction(ReadConcern("snapshot"), _MAJORITY, ReadPreference.PRIMARY)
        result = await work(session)
        await session.commit_transaction()
        return result


def _can_retry(error: BaseException, attempt: int) -> bool:
    # Concurrent creations of one session may fail with a duplicate key; the retry finds the session.
    return (is_transient(error) and not is_commit_unknown(error)) or (
        error_code(error) == DUPLICATE_KEY and attempt < 3
    )


def _describe_url(url: str) -> str:
    try:
        if not url.startswith("mongodb+srv://"):  # its hosts are looked up when it connects
            parse_uri(url)
        hosts = urlsplit(url).netloc.rpartition("@")[2]
    except (PyMongoError, ValueError):
        raise _invalid_url_error() from None
    if has_unescaped_password(url):
        raise _invalid_url_error()
    return f"MongoDB at {hosts}"


def _invalid_url_error() -> ConfigurationError:
    # The driver's message is left out: it may contain parts of a password.
    return ConfigurationError(
        "The URL of a MongoDB server must be like mongodb://user:password@host:27017/?replicaSet=rs0 or"
        " mongodb+srv://…, with special characters in the password percent-encoded and only options that"
        " MongoDB knows."
    )
