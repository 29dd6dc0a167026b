"""`McpServer`: a server whose tools a model may call."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tellback.errors import McpError, MissingExtraError
from tellback.tools.mcp.listing import Listing, McpToolInfo, Refused
from tellback.tools.mcp.names import legal_names
from tellback.tools.mcp.options import Address, Approval, Options, Program, SessionGone, Target, plain_arguments
from tellback.tools.mcp.results import tool_result
from tellback.tools.mcp.schemas import binder_for
from tellback.tools.mcp.waiting import finish
from tellback.tools.tool import Tool
from tellback.types import ToolResult

if TYPE_CHECKING:
    from tellback.tools.mcp.connection import Connection

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
CLOSE_SECONDS = 15.0

log = logging.getLogger("tellback.tools.mcp")

T = TypeVar("T")


class McpServer:
    """A server of the Model Context Protocol, and its tools as ours.

    Make one with `McpServer.stdio` or `McpServer.http`; use it as `async with server:`, or between `connect()` and
    `close()`. Several tasks may be inside `async with` at once: the last one to leave closes it. When the connection
    is lost, the next call connects again; a call that was running is not repeated.

    >>> McpServer.stdio("weather-server", name="weather")
    McpServer('weather')
    """

    def __init__(self, target: Target, options: Options, name: str) -> None:
        self.name = name
        self._target = target
        self._options = options
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[Connection] | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        self._failures = 0
        self._inside = 0
        self._kept_open = False
        self._listed: tuple[Listing, list[Tool]] | None = None
        self._refused: tuple[Refused, ...] = ()

    @classmethod
    def stdio(
        cls,
        command: str,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        *,
        name: str | None = None,
        connect_timeout: float = 30,
        call_timeout: float = 60,
        max_result_chars: int = 100_000,
        prefix: str | None = None,
        only: Collection[str] | None = None,
        requires_approval: Approval = False,
    ) -> McpServer:
        """A server that is a program to start.

        It gets `env` and a few variables such as PATH and HOME, nothing else of this process's environment.
        """
        options = Options(connect_timeout, call_timeout, max_result_chars, prefix, only, requires_approval)
        return cls(Program(command, tuple(args), env, cwd), options, name or Path(command).name)

    @classmethod
    def http(
        cls,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        name: str | None = None,
        connect_timeout: float = 30,
        call_timeout: float = 60,
        max_result_chars: int = 100_000,
        prefix: str | None = None,
        only: Collection[str] | None = None,
        requires_approval: Approval = False,
    ) -> McpServer:
        """A server that is reached over streamable HTTP; `headers` go with every request."""
        options = Options(connect_timeout, call_timeout, max_result_chars, prefix, only, requires_approval)
        address = Address(url, headers)
        return cls(address, options, name or address.host)

    @property
    def connected(self) -> bool:
        """Whether a connection is up, as far as is known."""
        return self._connection is not None and self._connection.alive

    @property
    def refused(self) -> tuple[Refused, ...]:
        """The tools that the last `tools()` left out, with the reasons."""
        return self._refused

    async def connect(self) -> None:
        """Start or reach the server, until `close()`; nothing happens if that was done before."""
        await self._open()
        self._kept_open = True

    async def close(self) -> None:
        """End the connection for all who use it, and the server's process if it has one.

        It may be connected again.
        """
        self._check_loop()
        self._kept_open = False
        connecting, connection = self._connecting, self._connection
        self._loop = self._connection = self._connecting = self._listed = None
        if connecting is not None:
            connecting.cancel()
        if connection is not None:
            self._leave(connection)
        try:
            await finish([connecting] if connecting is not None else [], CLOSE_SECONDS)
        finally:
            await finish(list(self._leaving), CLOSE_SECONDS)

    async def tools(self) -> list[Tool]:
        """The server's tools. Those that cannot be used are left out: see `refused`."""
        listing = await self._with_connection(lambda connection: connection.listing())
        if self._listed is None or self._listed[0] != listing:
            self._listed = listing, self._offered(listing)
        return list(self._listed[1])

    async def call(self, name: str, arguments: Mapping[str, Any] | None = None) -> ToolResult:
        """Call a tool by the server's own name for it.

        Cancelling this cancels the call at the server, and nothing else.
        """
        plain = plain_arguments(arguments or {})
        answer = await self._with_connection(lambda connection: connection.call(name, plain))
        return tool_result(answer, self._options.max_result_chars)

    async def __aenter__(self) -> McpServer:
        self._check_loop()
        self._inside += 1
        try:
            await self._open()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._inside = max(self._inside - 1, 0)
        if not self._inside and not self._kept_open:
            await self.close()

    def __repr__(self) -> str:
        return f"McpServer({self.name!r})"

    def _offered(self, listing: Listing) -> list[Tool]:
        only = self._options.only
        refused = [entry for entry in listing.refused if only is None or entry.name in only]
        wanted: dict[str, McpToolInfo] = {}
        for info in listing.tools:
            if info.name in wanted:
                refused.append(Refused(info.name, "it is listed twice, and the first is used"))
            elif only is None or info.name in only:
                wanted[info.name] = info
        missing = [name for name in only or () if name not in wanted]
        if missing:
            log.warning("MCP server %r does not offer %s, named in only=...", self.name, ", ".join(map(repr, missing)))
        for name, reason in refused:
            log.warning("MCP server %r: tool %r is left out: %s", self.name, name, reason)
        self._refused = tuple(refused)
        names = legal_names(list(wanted), self._options.prefix)
        return [self._tool(names[name], info) for name, info in wanted.items()]

    def _tool(self, name: str, info: McpToolInfo) -> Tool:
        async def fn(**arguments: Any) -> ToolResult:
            return await self.call(info.name, arguments)

        return Tool(
            name=name,
            description=info.description,
            parameters=info.parameters,
            fn=fn,
            requires_approval=self._options.needs_approval(info),
            bind=binder_for(info.parameters),
        )

    async def _with_connection(self, do: Callable[[Connection], Awaitable[T]]) -> T:
        """Do it on a live connection; on a new one if the server says that it has forgotten ours."""
        for _ in range(2):
            connection = await self._live_connection()
            try:
                done = await do(connection)
            except SessionGone:
                self._drop(connection)
            else:
                self._failures = 0
                return done
        raise McpError(self.name, "it lost the session twice in a row; nothing was called. Try again later.")

    async def _open(self) -> None:
        self._check_loop()
        if self._loop is not None:
            await self._live_connection()
            return
        self._loop, self._failures = asyncio.get_running_loop(), 0
        try:
            await self._live_connection()
        except BaseException:  # nobody closes what was never connected
            await self.close()
            raise

    async def _live_connection(self) -> Connection:
        self._check_loop()
        if self._loop is None:
            raise McpError(self.name, "it is not connected: use it inside `async with server:`, or after connect().")
        if self._connection is not None:
            if self._connection.alive:
                return self._connection
            self._drop(self._connection)
        if self._connecting is None:
            # One attempt for all who wait, which goes on when one of them gives up.
            self._connecting = asyncio.create_task(self._connect(), context=contextvars.Context())
            self._connecting.add_done_callback(self._settle)
        try:
            return await asyncio.shield(self._connecting)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise McpError(self.name, "it was closed while it was being connected.") from None

    def _check_loop(self) -> None:
        """A connection lives in one event loop, and is forgotten when that has ended."""
        if self._loop is None or self._loop is asyncio.get_running_loop():
            return
        if not self._loop.is_closed():
            raise McpError(self.name, "it is connected in another event loop, and can be used and closed there only.")
        self._loop = self._connection = self._connecting = self._listed = None
        self._inside, self._kept_open = 0, False
        self._leaving.clear()

    async def _connect(self) -> Connection:
        make = await asyncio.to_thread(_connection_class)  # the SDK takes a second or two to load
        if self._failures:
            await asyncio.sleep(min(FIRST_PAUSE * 2 ** min(self._failures - 1, 10), LONGEST_PAUSE))
        connection = make(self.name, self._target, self._options)
        try:
            await connection.opened()
        except BaseException:
            self._failures += 1
            self._leave(connection)
            raise
        self._connection = connection
        return connection

    def _settle(self, connecting: asyncio.Task[Connection]) -> None:
        if self._connecting is connecting:
            self._connecting = None
        if not connecting.cancelled():
            connecting.exception()  # all who waited may be gone

    def _drop(self, connection: Connection) -> None:
        if self._connection is connection:
            self._connection = None
            self._failures += 1
            self._leave(connection)

    def _leave(self, connection: Connection) -> None:
        """Close a connection without waiting for it; `close` does."""
        task = asyncio.create_task(connection.close(), context=contextvars.Context())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)


def _connection_class() -> type[Connection]:
    try:
        from tellback.tools.mcp.connection import Connection
    except ImportError as error:
        raise MissingExtraError("mcp", "mcp", "An MCP server") from error
    return Connection
