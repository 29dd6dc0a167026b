"""`McpServer`: the options, lifecycle and tools of an MCP server."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import math
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack
from urllib.parse import urlsplit

from tellback.errors import ConfigurationError, InvalidArgumentError, McpError, MissingExtraError
from tellback.tools.mcp.tool_list import (
    McpToolInfo,
    RefusedTool,
    ToolListing,
    assign_legal_names,
    build_shallow_binder,
    to_tool_result,
)
from tellback.tools.tool import Tool
from tellback.types import ToolResult

if TYPE_CHECKING:
    from tellback.tools.mcp.connection import McpConnection

log = logging.getLogger("tellback.tools.mcp")

ApprovalRule = bool | Collection[str] | Callable[[McpToolInfo], bool]
"""Which tools require approval: all or none, a list of the server's tool names, or a function that decides."""

_PREFIX = re.compile(r"[A-Za-z0-9_-]{1,32}\Z")

T = TypeVar("T")

INITIAL_RETRY_DELAY = 0.1
MAX_RETRY_DELAY = 5.0
CLOSE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class StdioTarget:
    """A server to run as a child process, connected through its standard input and output."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] | None = field(default=None, repr=False)
    cwd: str | Path | None = None

    def __post_init__(self) -> None:
        for name, value in (("command", (self.command,)), ("args", self.args), ("env", _flatten_pairs(self.env))):
            if not all(isinstance(text, str) for text in value):
                raise InvalidArgumentError(f"{name} must contain only strings.")


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """A server to connect to over streamable HTTP."""

    url: str = field(repr=False)
    headers: Mapping[str, str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.host:
            raise InvalidArgumentError("The url of an MCP server must be a complete http:// or https:// URL.")
        if not all(isinstance(text, str) for text in _flatten_pairs(self.headers)):
            raise InvalidArgumentError("headers must be a mapping of strings to strings.")

    @property
    def host(self) -> str:
        """The host name, or an empty text for an invalid url."""
        try:
            parts = urlsplit(self.url)
        except (ValueError, TypeError, AttributeError):
            return ""
        return (parts.hostname or "") if parts.scheme in ("http", "https") else ""


Target = StdioTarget | HttpTarget


class SessionLost(Exception):
    """The session is lost and the request was not executed or can be repeated, so retry on a new connection."""


class McpOptionFields(TypedDict, total=False):
    """The fields of `McpOptions`, as keywords."""

    connect_timeout: float
    call_timeout: float
    max_result_chars: int
    prefix: str | None
    only: Collection[str] | None
    requires_approval: ApprovalRule


@dataclass(frozen=True, slots=True)
class McpOptions:
    """Timeouts in seconds, a result limit in characters, and the selection of tools."""

    connect_timeout: float = 30
    call_timeout: float = 60
    max_result_chars: int = 100_000
    prefix: str | None = None
    only: Collection[str] | None = None
    requires_approval: ApprovalRule = False

    def __post_init__(self) -> None:
        for name in ("connect_timeout", "call_timeout", "max_result_chars"):
            _validate_number(name, getattr(self, name), is_integer=name == "max_result_chars")
        if self.prefix is not None and not (isinstance(self.prefix, str) and _PREFIX.match(self.prefix)):
            raise InvalidArgumentError(
                f"prefix={self.prefix!r} is not a valid prefix: use 1 to 32 letters, digits, '_' and '-'."
            )
        if self.only is not None:
            _validate_names("only", self.only, "a list of names")
        if not isinstance(self.requires_approval, bool) and not callable(self.requires_approval):
            _validate_names("requires_approval", self.requires_approval, "True, False, a list of names, or a function")

    def needs_approval(self, tool: McpToolInfo) -> bool:
        """Whether the loop must ask for approval before it runs the tool."""
        if isinstance(self.requires_approval, bool):
            return self.requires_approval
        if not callable(self.requires_approval):
            return tool.name in self.requires_approval
        try:
            return bool(self.requires_approval(tool))
        except Exception as error:  # user code may raise anything
            raise ConfigurationError(
                f"requires_approval={self.requires_approval!r} failed for the tool {tool.name!r}:"
                f" {type(error).__name__}: {error}. It must accept an McpToolInfo and return True or False."
            ) from error


def validate_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments if they are valid JSON; invalid ones would break the whole connection."""
    try:
        json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"The arguments of an MCP tool must be plain JSON: {error}") from error
    return dict(arguments)


def _flatten_pairs(pairs: Mapping[str, str] | None) -> tuple[object, ...]:
    if pairs is not None and not isinstance(pairs, Mapping):
        return (pairs, None)
    return (*(pairs or {}), *(pairs or {}).values())


def _validate_number(name: str, value: object, *, is_integer: bool) -> None:
    is_number = isinstance(value, int if is_integer else (int, float)) and not isinstance(value, bool)
    if not is_number or not value > 0 or value == math.inf:  # type: ignore[operator]
        kind = "an integer" if is_integer else "a number of seconds"
        raise InvalidArgumentError(f"{name} must be {kind} greater than 0, got {value!r}.")


def _validate_names(option: str, names: object, expected: str) -> None:
    if isinstance(names, (str, bytes)) or not isinstance(names, Collection):
        raise InvalidArgumentError(f"{option} must be {expected}, got {names!r}.")
    if not all(isinstance(name, str) for name in names):
        raise InvalidArgumentError(f"{option} must be {expected}, got {names!r}, which contains invalid names.")


def start_task(work: Coroutine[Any, Any, T], tasks: set[asyncio.Task[Any]]) -> asyncio.Task[T]:
    """Start a task in `tasks` with an empty context, so that no user or trace data reaches the server."""
    task = asyncio.create_task(work, context=contextvars.Context())
    tasks.add(task)

    def discard(task: asyncio.Task[T]) -> None:
        tasks.discard(task)
        if not task.cancelled():
            task.exception()  # mark the error as retrieved, because maybe no caller waits for it

    task.add_done_callback(discard)
    return task


async def finish_tasks(tasks: Collection[asyncio.Task[Any]], seconds: float) -> None:
    """Wait for tasks to finish, then cancel the remaining ones.

    A cancellation is raised only at the end, because no child process may be left running.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    cancelled: asyncio.CancelledError | None = None
    while (pending := {task for task in tasks if not task.done()}) and (remaining := deadline - loop.time()) > 0:
        try:
            await asyncio.wait(pending, timeout=remaining)
        except asyncio.CancelledError as error:
            cancelled = error
    if pending:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=1)
    if cancelled is not None:
        raise cancelled


class McpServer:
    """An MCP server whose tools can be used as Tellback tools.

    Create one with `McpServer.stdio` or `McpServer.http`. Use it with `async with server:`, or between `connect()` and
    `close()`. Several tasks can be inside `async with` at the same time: the last one to exit closes the connection.
    If the connection is lost, the next call reconnects; the interrupted call is not repeated.

    >>> McpServer.stdio("weather-server", name="weather")
    McpServer('weather')
    """

    def __init__(self, target: Target, options: McpOptions, name: str) -> None:
        self.name = name
        self._target = target
        self._options = options
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connection: McpConnection | None = None
        self._connect_task: asyncio.Task[McpConnection] | None = None
        self._close_tasks: set[asyncio.Task[None]] = set()
        self._failures = 0
        self._enter_count = 0
        self._stays_open = False
        self._cached_tools: tuple[ToolListing, list[Tool]] | None = None
        self._refused: tuple[RefusedTool, ...] = ()

    @classmethod
    def stdio(
        cls,
        command: str,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        *,
        name: str | None = None,
        **options: Unpack[McpOptionFields],
    ) -> McpServer:
        """Create a server that runs as a child process.

        Its environment is `env` and a few variables such as PATH and HOME, and no other variables of this process.
        """
        return cls(StdioTarget(command, tuple(args), env, cwd), McpOptions(**options), name or Path(command).name)

    @classmethod
    def http(
        cls,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        name: str | None = None,
        **options: Unpack[McpOptionFields],
    ) -> McpServer:
        """Create a server that is reached over streamable HTTP; `headers` are sent with every request."""
        target = HttpTarget(url, headers)
        return cls(target, McpOptions(**options), name or target.host)

    @property
    def connected(self) -> bool:
        """Whether a connection is open, as far as this client knows."""
        return self._connection is not None and self._connection.is_alive

    @property
    def refused(self) -> tuple[RefusedTool, ...]:
        """The tools that the last call of `tools()` rejected, with the reasons."""
        return self._refused

    async def connect(self) -> None:
        """Connect to the server until `close()`; does nothing if it is already connected."""
        await self._open()
        self._stays_open = True

    async def close(self) -> None:
        """Close the connection for all users, and stop the server's process if there is one.

        The server can be connected again.
        """
        self._validate_loop()
        self._stays_open = False
        connecting, connection = self._connect_task, self._connection
        self._loop = self._connection = self._connect_task = self._cached_tools = None
        if connecting is not None:
            connecting.cancel()
        if connection is not None:
            self._close_in_background(connection)
        try:
            await finish_tasks([connecting] if connecting is not None else [], CLOSE_SECONDS)
        finally:
            await finish_tasks(list(self._close_tasks), CLOSE_SECONDS)

    async def tools(self) -> list[Tool]:
        """Return the server's tools without unusable ones; see `refused`."""
        listing = await self._with_connection(lambda connection: connection.listing())
        if self._cached_tools is None or self._cached_tools[0] != listing:
            self._cached_tools = listing, self._build_tools(listing)
        return list(self._cached_tools[1])

    async def call(self, name: str, arguments: Mapping[str, Any] | None = None) -> ToolResult:
        """Call a tool by the server's name for it.

        Cancellation cancels only this call on the server.
        """
        checked_arguments = validate_arguments(arguments or {})
        answer = await self._with_connection(lambda connection: connection.call(name, checked_arguments))
        return to_tool_result(answer, self._options.max_result_chars)

    async def __aenter__(self) -> McpServer:
        self._validate_loop()
        self._enter_count += 1
        try:
            await self._open()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._enter_count = max(self._enter_count - 1, 0)
        if not self._enter_count and not self._stays_open:
            await self.close()

    def __repr__(self) -> str:
        return f"McpServer({self.name!r})"

    def _build_tools(self, listing: ToolListing) -> list[Tool]:
        only = self._options.only
        refused = [entry for entry in listing.refused if only is None or entry.name in only]
        selected: dict[str, McpToolInfo] = {}
        for info in listing.tools:
            if info.name in selected:
                refused.append(RefusedTool(info.name, "it is listed twice, and only the first one is used"))
            elif only is None or info.name in only:
                selected[info.name] = info
        missing = [name for name in only or () if name not in selected]
        if missing:
            log.warning("MCP server %r does not offer %s from only=...", self.name, ", ".join(map(repr, missing)))
        for name, reason in refused:
            log.warning("MCP server %r: tool %r is left out: %s", self.name, name, reason)
        self._refused = tuple(refused)
        names = assign_legal_names(list(selected), self._options.prefix)
        return [self._build_tool(names[name], info) for name, info in selected.items()]

    def _build_tool(self, name: str, info: McpToolInfo) -> Tool:
        async def fn(**arguments: Any) -> ToolResult:
            return await self.call(info.name, arguments)

        return Tool(
            name=name,
            description=info.description,
            parameters=info.parameters,
            fn=fn,
            requires_approval=self._options.needs_approval(info),
            bind=build_shallow_binder(info.parameters),
        )

    async def _with_connection(self, operation: Callable[[McpConnection], Awaitable[T]]) -> T:
        """Run an operation on the live connection, or on a new one if the server has lost the session."""
        for _ in range(2):
            connection = await self._live_connection()
            try:
                result = await operation(connection)
            except SessionLost:
                self._discard(connection)
            else:
                self._failures = 0
                return result
        raise McpError(self.name, "it lost the session twice in a row, and the call was not executed. Try again later.")

    async def _open(self) -> None:
        self._validate_loop()
        if self._loop is not None:
            await self._live_connection()
            return
        self._loop, self._failures = asyncio.get_running_loop(), 0
        try:
            await self._live_connection()
        except BaseException:  # the caller will not close a server that never connected
            await self.close()
            raise

    async def _live_connection(self) -> McpConnection:
        self._validate_loop()
        if self._loop is None:
            raise McpError(self.name, "it is not connected: use it inside `async with server:`, or after connect().")
        if self._connection is not None:
            if self._connection.is_alive:
                return self._connection
            self._discard(self._connection)
        if self._connect_task is None:
            # All callers share one attempt, which continues if a caller is cancelled.
            self._connect_task = asyncio.create_task(self._connect(), context=contextvars.Context())
            self._connect_task.add_done_callback(self._on_connect_done)
        try:
            return await asyncio.shield(self._connect_task)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise McpError(self.name, "it was closed while it was being connected.") from None

    def _validate_loop(self) -> None:
        """Reject another event loop; reset the state if the connection's loop is closed."""
        if self._loop is None or self._loop is asyncio.get_running_loop():
            return
        if not self._loop.is_closed():
            raise McpError(self.name, "it is connected in another event loop and can only be used and closed there.")
        self._loop = self._connection = self._connect_task = self._cached_tools = None
        self._enter_count, self._stays_open = 0, False
        self._close_tasks.clear()

    async def _connect(self) -> McpConnection:
        connection_class = await asyncio.to_thread(_load_connection_class)  # the SDK takes a second or two to load
        if self._failures:
            await asyncio.sleep(min(INITIAL_RETRY_DELAY * 2 ** min(self._failures - 1, 10), MAX_RETRY_DELAY))
        connection = connection_class(self.name, self._target, self._options)
        try:
            await connection.wait_open()
        except BaseException:
            self._failures += 1
            self._close_in_background(connection)
            raise
        self._connection = connection
        return connection

    def _on_connect_done(self, task: asyncio.Task[McpConnection]) -> None:
        if self._connect_task is task:
            self._connect_task = None
        if not task.cancelled():
            task.exception()  # mark the error as retrieved, because maybe no caller waits for it

    def _discard(self, connection: McpConnection) -> None:
        if self._connection is connection:
            self._connection = None
            self._failures += 1
            self._close_in_background(connection)

    def _close_in_background(self, connection: McpConnection) -> None:
        """Close a connection without waiting for it; `close` does."""
        start_task(connection.close(), self._close_tasks)


def _load_connection_class() -> type[McpConnection]:
    try:
        from tellback.tools.mcp.connection import McpConnection
    except ImportError as error:
        raise MissingExtraError("mcp", "mcp", "An MCP server") from error
    return McpConnection


@asynccontextmanager
async def mcp_tools(*servers: McpServer) -> AsyncIterator[list[Tool]]:
    """Connect to several servers at the same time, yield all their tools in one list, and close them at the end.

    A server that is also used elsewhere stays open until the last user exits.

    >>> import sys
    >>> async def main():
    ...     arguments = ["-m", "tellback.cli", "mcp", "--user", "maya", "--url", ":memory:"]
    ...     memory = McpServer.stdio(sys.executable, arguments)
    ...     async with mcp_tools(memory) as tools:
    ...         return [tool.name for tool in tools][:2]
    >>> asyncio.run(main())
    ['recall', 'timeline']
    """
    enter_tasks = [asyncio.ensure_future(server.__aenter__()) for server in servers]
    try:
        await _gather_all(enter_tasks)
        tool_lists = await _gather_all(server.tools() for server in servers)
        owners: dict[str, McpServer] = {}
        for server, tools in zip(servers, tool_lists, strict=True):
            for tool in tools:
                first = owners.setdefault(tool.name, server)
                if first is not server:
                    raise ConfigurationError(
                        f"MCP servers {first.name!r} and {server.name!r} both have a tool {tool.name!r}:"
                        " give one of them a prefix=... ."
                    )
        yield [tool for tools in tool_lists for tool in tools]
    finally:
        entered = [task.result() for task in enter_tasks if task.done() and not (task.cancelled() or task.exception())]
        await _gather_all(server.__aexit__() for server in entered)


async def _gather_all(work: Any) -> list[Any]:
    """Return all results after all have finished, or raise the first error."""
    outcomes = await asyncio.gather(*work, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return outcomes
