"""The way to a Redis server: whose client it is, and what is sent through it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from redis.asyncio import ConnectionPool, Redis, RedisCluster
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.client import NEVER_DECODE
from redis.exceptions import NoScriptError, RedisError
from redis.maint_notifications import MaintNotificationsConfig

from tellback.errors import ConfigurationError, StoreClosedError
from tellback.stores.sessions.checks import has_stray_password
from tellback.stores.sessions.redis.failures import FAILURES, is_lost, store_error
from tellback.stores.sessions.redis.scripts import Script

Client = Redis | RedisCluster

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 10.0
OPERATION_SECONDS = 30.0
AT_ONCE = 50
SCANNED = 500


class Link:
    """A client to run scripts with: its owner's, or one of its own between `open` and `close`.

    Every change may be sent twice, by the driver too, because its script knows what it did before.
    """

    def __init__(self, given: Any) -> None:
        if isinstance(given, str):
            self.place = _place_of_url(given)
        elif isinstance(given, Client):
            self.place = _place_of_client(given)
        else:
            raise ConfigurationError(
                f"The Redis adapter takes a client of redis.asyncio or a URL, not {type(given).__name__}."
            )
        self._given: str | Client = given
        self._client: Client | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._gate = asyncio.Semaphore(AT_ONCE)

    async def open(self, probe: Script, keys: Sequence[bytes]) -> None:
        """Make the client, if need be, and see whether it works."""
        loop = asyncio.get_running_loop()
        is_new = self._client is None or self._loop is not loop
        if is_new:
            self._client, self._loop = self._make(), loop
            self._gate = asyncio.Semaphore(AT_ONCE)
        try:
            await self.run(probe, keys, ())
        except BaseException:
            if is_new:
                await self.close()
            raise

    async def close(self) -> None:
        """Give up the client; one that was passed in stays open."""
        client, self._client = self._client, None
        # The connections of a loop that has ended ended with it.
        if client is not None and client is not self._given and self._loop is asyncio.get_running_loop():
            try:
                await client.aclose()
            except FAILURES as error:
                raise store_error(error, self.place) from error

    async def run(self, script: Script, keys: Sequence[bytes], values: Sequence[Any], *, changes: bool = False) -> Any:
        """What a script gives. `changes`: it may have been made even if the answer is lost."""
        arguments = (len(keys), *keys, *map(_encoded, values))

        async def send(client: Client) -> Any:
            try:
                return await _send(client, "EVALSHA", script.sha, *arguments)
            except NoScriptError:
                return await _send(client, "EVAL", script.text, *arguments)

        return await self._twice(send, changes=changes)

    async def ask(self, command: str, *arguments: Any) -> Any:
        """What a command that changes nothing gives."""
        return await self._twice(lambda client: _send(client, command, *map(_encoded, arguments)), changes=False)

    async def _twice(self, send: Callable[[Client], Awaitable[Any]], *, changes: bool) -> Any:
        """What is sent, and sent again if the connection is lost."""
        client, is_sent = self._ready(), False
        try:
            async with asyncio.timeout(OPERATION_SECONDS), self._gate:
                try:
                    await _reach(client)
                    is_sent = True
                    return await send(client)
                except RedisError as error:
                    if not is_sent or not is_lost(error):
                        raise
                if self._client is not client:  # a pool that was closed would open connections that nobody closes
                    raise StoreClosedError(f"The adapter of {self.place} was disconnected meanwhile.", in_doubt=changes)
                await _reach(client)
                return await send(client)
        except FAILURES as error:
            raise store_error(error, self.place, in_doubt=changes and is_sent) from error

    async def scan(self, pattern: bytes) -> AsyncIterator[bytes]:
        """The keys of a pattern, some of them twice perhaps."""
        client = self._ready()
        encoder = client.get_encoder()
        try:
            async for key in client.scan_iter(match=pattern, count=SCANNED):
                yield encoder.encode(key)
        except FAILURES as error:
            raise store_error(error, self.place) from error

    def _ready(self) -> Client:
        if self._client is None:
            raise StoreClosedError(f"The adapter of {self.place} is not open: await adapter.initialize() first.")
        if self._loop is not asyncio.get_running_loop():
            raise ConfigurationError(
                f"The adapter of {self.place} was initialized in another event loop: await adapter.initialize() in this"
                " one, or make an adapter for each."
            )
        return self._client

    def _make(self) -> Client:
        if not isinstance(self._given, str):
            return self._given
        pool: ConnectionPool = ConnectionPool.from_url(
            self._given,
            socket_timeout=ANSWER_SECONDS,
            socket_connect_timeout=CONNECT_SECONDS,
            max_connections=2 * AT_ONCE,
            retry=Retry(NoBackoff(), 0),
            maint_notifications_config=MaintNotificationsConfig(enabled=False),
        )
        return Redis.from_pool(pool)


async def _reach(client: Client) -> None:
    """Raise before anything is sent if the server is not there: then nothing is in doubt."""
    if isinstance(client, Redis) and not client.single_connection_client:
        pool: Any = client.connection_pool
        await pool.release(await pool.get_connection())


async def _send(client: Client, *command: Any) -> Any:
    # The client may decode, and in any encoding; we do it ourselves.
    return await client.execute_command(*command, **{NEVER_DECODE: []})


def _encoded(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def _place_of_url(url: str) -> str:
    # The driver's words are not passed on: they may hold parts of a password.
    try:
        options = parse_url(url)
        has_path = bool(urlsplit(url).path)
    except ValueError:
        options, has_path = {}, False
    if has_stray_password(url) or (not options.get("host") and not (options.get("path") and has_path)):
        raise ConfigurationError(
            "The URL of a Redis server is like redis://user:password@host:6379/0, rediss://… or unix:///path; what is"
            " special in a password is percent-encoded. The one that was passed is not."
        )
    return f"Redis at {options.get('path') or _host(options)}"


def _place_of_client(client: Client) -> str:
    if isinstance(client, RedisCluster):
        return "the Redis cluster"
    options = client.connection_pool.connection_kwargs
    return f"Redis at {options.get('path') or _host(options)}"


def _host(options: Any) -> str:
    return f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"
