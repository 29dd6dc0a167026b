"""The connection to a Redis server: the client, retries, and the translation of its errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from redis import exceptions
from redis.asyncio import ConnectionPool, Redis, RedisCluster
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.client import NEVER_DECODE
from redis.exceptions import NoScriptError, RedisError
from redis.maint_notifications import MaintNotificationsConfig

from tellback.errors import (
    ConfigurationError,
    StoreBusyError,
    StoreClosedError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
    TellbackError,
)
from tellback.sessions.redis.scripts import Script
from tellback.sessions.storage import ClientConnection
from tellback.sessions.validation import has_unescaped_password

DRIVER_ERRORS = (exceptions.RedisError, exceptions.RedisClusterException, OSError, RuntimeError)
"""Errors of the driver. It raises RuntimeError for a client of another event loop."""

_LOST_CONNECTION = (exceptions.ConnectionError, exceptions.TimeoutError, OSError)
_REFUSED = (exceptions.AuthenticationError, exceptions.AuthorizationError, exceptions.NoPermissionError)
_NOT_LOST = (exceptions.BusyLoadingError, exceptions.MaxConnectionsError)
_UNAVAILABLE = ("LOADING", "MASTERDOWN", "CLUSTERDOWN", "NOREPLICAS", "UNKILLABLE")
_BUSY = ("BUSY", "TRYAGAIN")

RedisClient = Redis | RedisCluster

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 10.0
OPERATION_SECONDS = 30.0
MAX_CONCURRENCY = 50
SCAN_COUNT = 500


def is_connection_lost(error: BaseException) -> bool:
    """Whether the connection broke, so that another one may work."""
    return isinstance(error, exceptions.ConnectionError) and not isinstance(error, (*_REFUSED, *_NOT_LOST))


def translate_error(error: BaseException, place: str, *, in_doubt: bool = False) -> TellbackError:
    """Convert an error to a store error that says what to do. `in_doubt`: a change was sent."""
    if isinstance(error, RuntimeError):
        return ConfigurationError(f"The client of {place} belongs to another event loop: {error}.")
    if isinstance(error, _REFUSED) or _has_code(error, "NOAUTH", "WRONGPASS", "NOPERM"):
        return StoreUnavailableError(
            f"{place} rejected the login: {error}. Check the user, the password and permissions."
        )
    if isinstance(error, exceptions.MaxConnectionsError):
        return StoreBusyError(f"All connections to {place} are in use: raise the client's max_connections.")
    if isinstance(error, exceptions.BusyLoadingError):
        return StoreUnavailableError(f"{place} is not ready: {error}. Try again.")
    if isinstance(error, _LOST_CONNECTION):
        doubt = " The change may have been stored: load the session again to check." if in_doubt else ""
        problem = "did not answer in time" if _is_timeout(error) else f"cannot be reached: {error}"
        return StoreUnavailableError(f"{place} {problem}.{doubt}", in_doubt=in_doubt)
    return _translate_server_error(error, place)


def _translate_server_error(error: BaseException, place: str) -> TellbackError:
    if isinstance(error, exceptions.OutOfMemoryError) or _has_code(error, "OOM"):
        return StoreFullError(f"{place} is full: {error}. Raise its maxmemory, or delete unused data.")
    if _has_code(error, "READONLY") or isinstance(error, exceptions.ReadOnlyError):
        return StoreReadOnlyError(f"{place} is read-only: {error}. Connect to the primary server.")
    if _has_code(error, "MISCONF"):
        return StoreReadOnlyError(f"{place} rejects writes: {error}. Check its disk and its log.")
    if _has_code(error, "CROSSSLOT") or isinstance(error, exceptions.ClusterCrossSlotError):
        return ConfigurationError(
            f"{place} is a cluster, and the keys of a session are in several slots: use a hash tag in key_prefix,"
            " such as '{agent}:'."
        )
    if _has_code(error, *_UNAVAILABLE) or isinstance(error, exceptions.RedisClusterException):
        return StoreUnavailableError(f"{place} is not ready: {error}. Try again.")
    if _has_code(error, *_BUSY):
        return StoreBusyError(f"{place} is too busy: {error}. Try again.")
    return StoreError(f"{place}: {error}")


def _has_code(error: BaseException, *codes: str) -> bool:
    """Whether the server's reply begins with a code. A script's own error text may precede it."""
    text = str(error)
    return text.startswith(codes) or any(f"-{code} " in text or f": {code} " in text for code in codes)


def _is_timeout(error: BaseException) -> bool:
    return isinstance(error, exceptions.TimeoutError | TimeoutError)


class RedisConnection(ClientConnection[RedisClient]):
    """A client to run scripts: passed in by its owner, or created by `open` and closed by `close`.

    Any change may be sent twice, even by the driver, because its script recognizes repeated requests.
    """

    def __init__(self, client: Any) -> None:
        if not isinstance(client, str | RedisClient):
            raise ConfigurationError(
                f"The Redis adapter needs a client of redis.asyncio or a URL, got {type(client).__name__}."
            )
        super().__init__(client, _describe_url(client) if isinstance(client, str) else _describe_client(client))
        self._semaphore = asyncio.Semaphore(MAX_CONCURRENCY)

    def open(self) -> bool:
        is_new = super().open()
        if is_new:
            self._semaphore = asyncio.Semaphore(MAX_CONCURRENCY)
        return is_new

    async def run(self, script: Script, keys: Sequence[bytes], values: Sequence[Any], *, changes: bool = False) -> Any:
        """Run a script and return its reply. `changes`: it may take effect even if the reply is lost."""
        arguments = (len(keys), *keys, *map(_encode, values))

        async def send(client: RedisClient) -> Any:
            try:
                return await _send(client, "EVALSHA", script.sha, *arguments)
            except NoScriptError:
                return await _send(client, "EVAL", script.text, *arguments)

        return await self._send_with_retry(send, changes=changes)

    async def read(self, command: str, *arguments: Any) -> Any:
        """Run a read command and return its reply."""
        return await self._send_with_retry(
            lambda client: _send(client, command, *map(_encode, arguments)), changes=False
        )

    async def _send_with_retry(self, send: Callable[[RedisClient], Awaitable[Any]], *, changes: bool) -> Any:
        """Send a request, and send it again if the connection is lost."""
        client, is_sent = self.require_open(), False
        try:
            async with asyncio.timeout(OPERATION_SECONDS), self._semaphore:
                try:
                    await _check_reachable(client)
                    is_sent = True
                    return await send(client)
                except RedisError as error:
                    if not is_sent or not is_connection_lost(error):
                        raise
                if self._client is not client:  # a closed pool would open connections and never close them
                    raise StoreClosedError(
                        f"The adapter of {self.place} was disconnected during the call.", in_doubt=changes
                    )
                await _check_reachable(client)
                return await send(client)
        except DRIVER_ERRORS as error:
            raise translate_error(error, self.place, in_doubt=changes and is_sent) from error

    async def scan(self, pattern: bytes) -> AsyncIterator[bytes]:
        """Yield the keys of a pattern. A key may appear twice."""
        client = self.require_open()
        encoder = client.get_encoder()
        try:
            async for key in client.scan_iter(match=pattern, count=SCAN_COUNT):
                yield encoder.encode(key)
        except DRIVER_ERRORS as error:
            raise translate_error(error, self.place) from error

    def _create_client(self, url: str) -> RedisClient:
        pool: ConnectionPool = ConnectionPool.from_url(
            url,
            socket_timeout=ANSWER_SECONDS,
            socket_connect_timeout=CONNECT_SECONDS,
            max_connections=2 * MAX_CONCURRENCY,
            retry=Retry(NoBackoff(), 0),
            maint_notifications_config=MaintNotificationsConfig(enabled=False),
        )
        return Redis.from_pool(pool)

    async def _close_client(self, client: RedisClient) -> None:
        try:
            await client.aclose()
        except DRIVER_ERRORS as error:
            raise translate_error(error, self.place) from error


async def _check_reachable(client: RedisClient) -> None:
    """Raise an error if the server is unreachable. Nothing has been sent yet, so no change is in doubt."""
    if isinstance(client, Redis) and not client.single_connection_client:
        pool: Any = client.connection_pool
        await pool.release(await pool.get_connection())


async def _send(client: RedisClient, *command: Any) -> Any:
    # The client may be set to decode replies, in any encoding; we decode them ourselves.
    return await client.execute_command(*command, **{NEVER_DECODE: []})


def _encode(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def _describe_url(url: str) -> str:
    # The driver's message is left out: it may contain parts of a password.
    try:
        options = parse_url(url)
        has_path = bool(urlsplit(url).path)
    except ValueError:
        options, has_path = {}, False
    if has_unescaped_password(url) or (not options.get("host") and not (options.get("path") and has_path)):
        raise ConfigurationError(
            "The URL of a Redis server must be like redis://user:password@host:6379/0, rediss://… or unix:///path, with"
            " special characters in the password percent-encoded."
        )
    return f"Redis at {options.get('path') or _format_host(options)}"


def _describe_client(client: RedisClient) -> str:
    if isinstance(client, RedisCluster):
        return "the Redis cluster"
    options = client.connection_pool.connection_kwargs
    return f"Redis at {options.get('path') or _format_host(options)}"


def _format_host(options: Any) -> str:
    return f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"
