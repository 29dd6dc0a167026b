"""One connection to a server, in a separate task: an SDK session must be exited by the task that entered it."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Coroutine
from importlib import metadata
from typing import Any, TypeVar

import mcp_types as types
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter, ValidationError

from tellback.errors import McpError
from tellback.tools.mcp.server import McpOptions, SessionLost, StdioTarget, Target, finish_tasks, start_task
from tellback.tools.mcp.tool_list import (
    McpToolInfo,
    RefusedTool,
    ToolListing,
    ToolListPages,
    ToolListTooLarge,
    limit_blocks,
)
from tellback.tools.mcp.transport import ConnectionBroken, HttpTransport, McpTransport, StdioTransport

log = logging.getLogger("tellback.tools.mcp")

MAX_PAGES = 100
CLOSE_STDIO_SECONDS = 10.0  # stopping an unresponsive process may take 7 seconds
CLOSE_HTTP_SECONDS = 3.0


T = TypeVar("T")
_ANSWER_ADAPTER: TypeAdapter[Any] = TypeAdapter(dict[str, Any])  # the session has validated the answer already


class McpConnection:
    """A live session with a server. Its methods may be called from any task of the event loop."""

    def __init__(self, server: str, target: Target, options: McpOptions) -> None:
        self._server = server
        self._target = target
        self._options = options
        self._transport: McpTransport = (
            StdioTransport(server, target, self._filter_answer)
            if isinstance(target, StdioTarget)
            else HttpTransport(target, self._filter_answer)
        )
        self._open_event = asyncio.Event()
        self._session: ClientSession | None = None
        self._failure: BaseException | None = None
        self._requests: set[asyncio.Task[Any]] = set()
        self._pages = ToolListPages()
        self._listing: ToolListing | None = None
        self._listing_version = 0
        self._listing_task: asyncio.Task[ToolListing] | None = None
        # An empty context: the connection must not inherit the user or trace of the first caller.
        self._session_task = asyncio.create_task(self._run_session(), context=contextvars.Context())

    @property
    def is_alive(self) -> bool:
        return self._session is not None and not self._transport.ended.is_set()

    async def wait_open(self) -> None:
        """Wait until the connection is open; raise `McpError` if it fails or times out."""
        try:
            async with asyncio.timeout(self._options.connect_timeout):
                await self._open_event.wait()
        except TimeoutError:
            seconds = self._options.connect_timeout
            raise self._error(
                f"it did not connect within {seconds:g} seconds.{self._transport.describe_stderr()}"
            ) from None
        if self._session is None:
            raise self._error(
                f"it cannot be connected: {_format_reason(self._failure)}.{self._transport.describe_stderr()}"
            )

    async def close(self) -> None:
        """Close the session and its transport within a bounded time."""
        if self._session is None:
            self._session_task.cancel()
        self._transport.ended.set()
        for request in self._requests:
            request.cancel()
        await finish_tasks(
            [self._session_task], CLOSE_STDIO_SECONDS if isinstance(self._target, StdioTarget) else CLOSE_HTTP_SECONDS
        )
        await finish_tasks(list(self._requests), 1)

    async def listing(self) -> ToolListing:
        """Return the tools: from the cache if the server announces changes and has announced none, else list again."""
        version = self._transport.tool_changes
        if self._listing is not None and self._notifies_changes and self._listing_version >= version:
            return self._listing
        found = await self._refresh_listing()
        # The shared request may have started before the last change.
        return found if self._listing_version >= version else await self._refresh_listing()

    async def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call a tool and return the server's answer. A call that may have been executed is not repeated."""
        if self._listing is None:  # some servers require header fields that only their list describes
            await self.listing()
        return await self._send_request(self._call_tool(tool, arguments), self._options.call_timeout, tool)

    @property
    def _notifies_changes(self) -> bool:
        # Over HTTP, changes are announced on a stream that may break unnoticed, and since protocol 2026-07-28 only to
        # subscribers.
        session = self._session
        if not isinstance(self._target, StdioTarget) or session is None or session.initialize_result is None:
            return False
        tools = session.initialize_result.capabilities.tools
        return tools is not None and bool(tools.list_changed)

    async def _run_session(self) -> None:
        try:
            client_info = types.Implementation(name="tellback", version=metadata.version("tellback"))
            async with self._transport, ClientSession(dispatcher=self._transport, client_info=client_info) as session:
                await _negotiate(session)
                self._session = session
                self._open_event.set()
                await self._transport.ended.wait()
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001
            # A transport may raise anything: waiting callers get the error, and later errors are logged.
            self._failure = error
            if self._session is not None:
                log.warning("MCP server %r: the connection broke: %s", self._server, _format_reason(error))
        finally:
            self._transport.ended.set()
            self._open_event.set()

    async def _filter_answer(self, method: str, answer: dict[str, Any]) -> dict[str, Any]:
        """Filter answers before the SDK reads them.

        The SDK drops a whole page of tools for one bad entry, and reads any number of content blocks.
        """
        if method == "tools/list" and isinstance(answer.get("tools"), list):
            return await asyncio.to_thread(self._pages.filter_page, answer)
        return limit_blocks(answer) if method == "tools/call" else answer

    async def _refresh_listing(self) -> ToolListing:
        """Fetch a new listing. Concurrent callers share one request, which continues if a caller is cancelled."""
        if self._listing_task is None:
            self._listing_task = asyncio.create_task(self._fetch_listing(), context=contextvars.Context())
            self._listing_task.add_done_callback(self._on_listing_done)
        return await asyncio.shield(self._listing_task)

    def _on_listing_done(self, task: asyncio.Task[ToolListing]) -> None:
        self._listing_task = None
        if not task.cancelled():
            task.exception()  # mark the error as retrieved, because maybe no caller waits for it

    async def _fetch_listing(self) -> ToolListing:
        version = self._transport.tool_changes
        found = await self._send_request(
            self._list_tools(), self._options.connect_timeout, "tools/list", is_repeatable=True
        )
        self._listing, self._listing_version = found, version
        return found

    async def _list_tools(self) -> ToolListing:
        session = self._require_session()
        self._pages = pages = ToolListPages()
        tools: list[McpToolInfo] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            try:
                page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
            except MCPError as error:
                capabilities = session.server_capabilities
                if error.code == types.METHOD_NOT_FOUND and (capabilities is None or capabilities.tools is None):
                    return ToolListing()
                raise
            tools.extend(_to_tool_info(tool) for tool in page.tools)
            dropped = set(pages.usable_names) - {tool.name for tool in page.tools}
            pages.refused += [RefusedTool(name, "its x-mcp-header annotations are invalid") for name in sorted(dropped)]
            cursor = page.next_cursor
            if not cursor:
                return ToolListing(tuple(tools), tuple(pages.refused))
        raise ToolListTooLarge(f"its list of tools has more than {MAX_PAGES} pages")

    async def _call_tool(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        session = self._require_session()
        request = types.CallToolRequest(params=types.CallToolRequestParams(name=tool, arguments=arguments))
        try:
            answer = await session.send_request(request, _ANSWER_ADAPTER)
        except MCPError as error:
            if error.code != types.HEADER_MISMATCH:
                raise
            await self._refresh_listing()  # the server rejected the call, because its list has changed
            answer = await session.send_request(request, _ANSWER_ADAPTER)
        if answer.get("resultType") == "input_required":
            raise self._error(f"{tool} requests further user input, which is not supported.")
        return dict(answer)

    async def _send_request(
        self, request: Coroutine[Any, Any, T], seconds: float, label: str, *, is_repeatable: bool = False
    ) -> T:
        """Run a request and convert its errors to `McpError`."""
        try:
            return await self._run_with_timeout(request, seconds)
        except TimeoutError:
            warning = "" if is_repeatable else " It may still take effect."
            raise self._error(f"{label} was not answered within {seconds:g} seconds.{warning}") from None
        except MCPError as error:
            raise self._error(f"{label} was rejected: {error.message:.1000} (code {error.code}).") from error
        except ConnectionBroken as error:
            if not error.was_sent and not self._transport.ended.is_set():
                raise self._error(f"it cannot be connected: {error}. The call was not sent.") from error
            if is_repeatable or not error.was_sent:
                raise SessionLost from error
            raise self._error(
                f"the connection broke while {label} was running: {error}. It may or may not have taken effect, and was"
                " not repeated; the next call reconnects."
            ) from error
        except ToolListTooLarge as error:
            raise self._error(f"{error}.") from error
        except (ValueError, RecursionError) as error:
            problem = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
            raise self._error(f"the answer to {label} cannot be read: {problem:.200}.") from error

    async def _run_with_timeout(self, request: Coroutine[Any, Any, T], seconds: float) -> T:
        """Run a request in a separate task, because cancelling it may take a while."""
        task = start_task(request, self._requests)
        try:
            done, _ = await asyncio.wait({task}, timeout=seconds)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not done:
            task.cancel()
            raise TimeoutError
        if task.cancelled():
            raise ConnectionBroken("the connection was closed")
        return task.result()

    def _require_session(self) -> ClientSession:
        if self._session is None:
            raise self._error("it is not connected.")
        return self._session

    def _error(self, problem: str) -> McpError:
        return McpError(self._server, problem)


async def _negotiate(session: ClientSession) -> None:
    """Negotiate the newest common protocol; older servers do not support discovery and get an initialize request."""
    try:
        await session.discover()
    except (MCPError, ValidationError, RuntimeError):
        try:
            await session.initialize()
        except MCPError as error:
            if error.code != types.UNSUPPORTED_PROTOCOL_VERSION:
                raise
            await session.discover()  # the server started slowly, but supports discovery


def _to_tool_info(tool: types.Tool) -> McpToolInfo:
    hints = tool.annotations.model_dump(by_alias=True, exclude_none=True) if tool.annotations else {}
    return McpToolInfo(tool.name, tool.description or "", tool.input_schema, hints)


def _format_reason(error: BaseException | None) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if error is None:
        return "the connection was closed"
    if isinstance(error, MCPError):
        return error.message[:1_000].rstrip(".: ")
    text = str(error) if isinstance(error, ConnectionBroken) else f"{type(error).__name__}: {error}"
    return text[:1_000].rstrip(".: ")
