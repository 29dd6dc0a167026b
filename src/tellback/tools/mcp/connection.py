"""One connection to a server, in a task of its own: the SDK's sessions must be left by the task that entered them."""

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
from tellback.tools.mcp.http import HttpWire
from tellback.tools.mcp.listing import Listing, McpToolInfo, Pages, Refused, TooMuch
from tellback.tools.mcp.options import Options, Program, SessionGone, Target
from tellback.tools.mcp.program import ProgramWire
from tellback.tools.mcp.results import fewer_blocks
from tellback.tools.mcp.waiting import finish
from tellback.tools.mcp.wire import Broken, Clean, Wire

MAX_PAGES = 100
CLOSE_PROGRAM = 10.0  # it may take 7 to end a process that does not want to
CLOSE_HTTP = 3.0

log = logging.getLogger("tellback.tools.mcp")

T = TypeVar("T")
_ANSWER: TypeAdapter[Any] = TypeAdapter(dict[str, Any])  # the session has checked it before; this keeps it as it came


class Connection:
    """A live session with a server. Its methods may be called from any task of the event loop."""

    def __init__(self, server: str, target: Target, options: Options) -> None:
        self._server = server
        self._target = target
        self._options = options
        self._wire = _wire_to(server, target, self._clean)
        self._opened = asyncio.Event()
        self._session: ClientSession | None = None
        self._failure: BaseException | None = None
        self._requests: set[asyncio.Task[Any]] = set()
        self._pages = Pages()
        self._listing: Listing | None = None
        self._listed_at = 0
        self._relisting: asyncio.Task[Listing] | None = None
        # In a context of its own: nothing of whoever connects first, such as a user or a trace, reaches the server.
        self._living = asyncio.create_task(self._live(), context=contextvars.Context())

    @property
    def alive(self) -> bool:
        return self._session is not None and not self._wire.ended.is_set()

    async def opened(self) -> None:
        """Wait until it can be used; raises `McpError` when it cannot, or not in time."""
        try:
            async with asyncio.timeout(self._options.connect_timeout):
                await self._opened.wait()
        except TimeoutError:
            raise self._error(
                f"it did not connect within {self._options.connect_timeout:g} seconds.{self._wire.last_words()}"
            ) from None
        if self._session is None:
            raise self._error(f"it cannot be connected: {_reason(self._failure)}.{self._wire.last_words()}")

    async def close(self) -> None:
        """End the session and what carries it, in a bounded time."""
        if self._session is None:
            self._living.cancel()
        self._wire.ended.set()
        for request in self._requests:
            request.cancel()
        await finish([self._living], CLOSE_PROGRAM if isinstance(self._target, Program) else CLOSE_HTTP)
        await finish(list(self._requests), 1)

    async def listing(self) -> Listing:
        """The tools: as listed before where the server tells of changes and told of none, else listed anew."""
        wanted = self._wire.changes
        if self._listing is not None and self._tells_changes and self._listed_at >= wanted:
            return self._listing
        found = await self._relisted()
        # It may have been asked for before the last change, by somebody else.
        return found if self._listed_at >= wanted else await self._relisted()

    async def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The server's answer to a call, made once and never again."""
        if self._listing is None:  # some servers want header fields that only their list tells of
            await self.listing()
        return await self._answered(self._call(tool, arguments), self._options.call_timeout, tool)

    @property
    def _tells_changes(self) -> bool:
        # Over HTTP they are told on a stream that may break unseen; from protocol 2026-07-28 on, to subscribers only.
        session = self._session
        if not isinstance(self._target, Program) or session is None or session.initialize_result is None:
            return False
        tools = session.initialize_result.capabilities.tools
        return tools is not None and bool(tools.list_changed)

    async def _live(self) -> None:
        try:
            me = types.Implementation(name="tellback", version=metadata.version("tellback"))
            async with self._wire, ClientSession(dispatcher=self._wire, client_info=me) as session:
                await _negotiate(session)
                self._session = session
                self._opened.set()
                await self._wire.ended.wait()
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001
            # A transport may fail with anything; whoever waits is told, and later failures are logged.
            self._failure = error
            if self._session is not None:
                log.warning("MCP server %r: the connection broke: %s", self._server, _reason(error))
        finally:
            self._wire.ended.set()
            self._opened.set()

    async def _clean(self, method: str, answer: dict[str, Any]) -> dict[str, Any]:
        """The SDK throws a whole page away for one wrong entry, and reads any number of blocks."""
        if method == "tools/list" and isinstance(answer.get("tools"), list):
            return await asyncio.to_thread(self._pages.clean, answer)
        return fewer_blocks(answer) if method == "tools/call" else answer

    async def _relisted(self) -> Listing:
        """A new listing, which all share who ask for it meanwhile, and which goes on when one of them gives up."""
        if self._relisting is None:
            self._relisting = asyncio.create_task(self._relist(), context=contextvars.Context())
            self._relisting.add_done_callback(self._settle)
        return await asyncio.shield(self._relisting)

    def _settle(self, relisting: asyncio.Task[Listing]) -> None:
        self._relisting = None
        if not relisting.cancelled():
            relisting.exception()  # all who waited may be gone

    async def _relist(self) -> Listing:
        began = self._wire.changes
        found = await self._answered(self._list(), self._options.connect_timeout, "tools/list", repeatable=True)
        self._listing, self._listed_at = found, began
        return found

    async def _list(self) -> Listing:
        session = self._ready()
        self._pages = pages = Pages()
        tools: list[McpToolInfo] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            try:
                page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
            except MCPError as error:
                if error.code == types.METHOD_NOT_FOUND and not _has_tools(session):
                    return Listing()
                raise
            tools.extend(_described(tool) for tool in page.tools)
            dropped = set(pages.kept) - {tool.name for tool in page.tools}
            pages.refused += [Refused(name, "its x-mcp-header annotations are wrong") for name in sorted(dropped)]
            cursor = page.next_cursor
            if not cursor:
                return Listing(tuple(tools), tuple(pages.refused))
        raise TooMuch(f"its list of tools does not end: it was stopped after {MAX_PAGES} pages")

    async def _call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        session = self._ready()
        request = types.CallToolRequest(params=types.CallToolRequestParams(name=tool, arguments=arguments))
        try:
            answer = await session.send_request(request, _ANSWER)
        except MCPError as error:
            if error.code != types.HEADER_MISMATCH:
                raise
            await self._relisted()  # the server did nothing, as its list has changed since we read it
            answer = await session.send_request(request, _ANSWER)
        if answer.get("resultType") == "input_required":
            raise self._error(f"{tool} asks for more than its arguments, which cannot be given here.")
        return dict(answer)

    async def _answered(
        self, request: Coroutine[Any, Any, T], seconds: float, what: str, *, repeatable: bool = False
    ) -> T:
        """The outcome of a request, with all other errors as ours."""
        try:
            return await self._in_time(request, seconds)
        except TimeoutError:
            doubt = "" if repeatable else " It may still take effect."
            raise self._error(f"{what} was not answered within {seconds:g} seconds.{doubt}") from None
        except MCPError as error:
            raise self._error(f"{what} was refused: {error.message:.1000} (code {error.code}).") from error
        except Broken as error:
            if not error.sent and not self._wire.ended.is_set():
                raise self._error(f"it cannot be connected: {error}. Nothing was called.") from error
            if repeatable or not error.sent:
                raise SessionGone from error
            raise self._error(
                f"the connection broke while {what} was running: {error}. It may or may not have taken effect,"
                " and was not repeated; the next call connects again."
            ) from error
        except TooMuch as error:
            raise self._error(f"{error}.") from error
        except ValidationError as error:
            raise self._error(f"the answer to {what} cannot be read: {error.errors()[0]['msg']:.200}.") from error
        except (ValueError, RecursionError) as error:
            raise self._error(f"the answer to {what} cannot be read: {error!s:.200}.") from error

    async def _in_time(self, request: Coroutine[Any, Any, T], seconds: float) -> T:
        """Run a request in a task that can be left behind: ending it may itself take a while."""
        task = asyncio.create_task(request, context=contextvars.Context())
        self._requests.add(task)
        task.add_done_callback(self._forget)
        try:
            done, _ = await asyncio.wait({task}, timeout=seconds)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not done:
            task.cancel()
            raise TimeoutError
        if task.cancelled():
            raise Broken("it was closed")
        return task.result()

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._requests.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited may be gone

    def _ready(self) -> ClientSession:
        if self._session is None:
            raise self._error("it is not connected.")
        return self._session

    def _error(self, problem: str) -> McpError:
        return McpError(self._server, problem)


def _wire_to(server: str, target: Target, clean: Clean) -> Wire:
    return ProgramWire(server, target, clean) if isinstance(target, Program) else HttpWire(target, clean)


async def _negotiate(session: ClientSession) -> None:
    """The newest protocol both sides know; older servers do not know the question, and are greeted the old way."""
    try:
        await session.discover()
    except (MCPError, ValidationError, RuntimeError):
        try:
            await session.initialize()
        except MCPError as error:
            if error.code != types.UNSUPPORTED_PROTOCOL_VERSION:
                raise
            await session.discover()  # it was slow to start, and has read the question since


def _has_tools(session: ClientSession) -> bool:
    return session.server_capabilities is not None and session.server_capabilities.tools is not None


def _described(tool: types.Tool) -> McpToolInfo:
    hints = tool.annotations.model_dump(by_alias=True, exclude_none=True) if tool.annotations else {}
    return McpToolInfo(tool.name, tool.description or "", tool.input_schema, hints)


def _reason(error: BaseException | None) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if error is None:
        return "it was closed"
    if isinstance(error, MCPError):
        return error.message[:1_000].rstrip(".: ")
    text = str(error) if isinstance(error, Broken) else f"{type(error).__name__}: {error}"
    return text[:1_000].rstrip(".: ")
