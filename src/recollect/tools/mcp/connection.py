"""One connection to a server, in a task of its own: the SDK's sessions must be left by the task that entered them."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from importlib import metadata
from typing import Any, TypeVar

import anyio
import anyio.abc
import mcp_types as types
from mcp.client.session import ClientSession, IncomingMessage
from mcp.shared.dispatcher import CallOptions, OnNotify, OnNotifyIntercept, OnRequest
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from pydantic import TypeAdapter, ValidationError

from recollect.errors import McpError
from recollect.tools.mcp.listing import Listing, McpToolInfo, Refused, clean_page
from recollect.tools.mcp.options import Options, Program, SessionGone, Target
from recollect.tools.mcp.transports import Evidence, open_transport
from recollect.tools.mcp.waiting import finish

MAX_PAGES = 100
MAX_TOOLS = 2_000
CLOSE_PROGRAM = 10.0  # the SDK needs up to 7 to end a process that does not want to
CLOSE_HTTP = 3.0
_BROKEN_OFF = ("Connection closed", "SSE stream")

log = logging.getLogger("recollect.tools.mcp")

T = TypeVar("T")
_ANSWER: TypeAdapter[types.Result] = TypeAdapter(types.CallToolResult | types.InputRequiredResult)


class _Dispatcher(JSONRPCDispatcher[TransportContext]):
    """Cleans lists of tools before the SDK reads them, since it throws a whole page away for one wrong entry."""

    def __init__(self, read: Any, write: Any, on_end: Callable[[], None]) -> None:
        super().__init__(read, write)
        self._on_end = on_end
        self.refused: list[Refused] = []
        self.kept: list[str] = []

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        try:
            await super().run(on_request, on_notify, on_notify_intercept, task_status=task_status)
        finally:
            self._on_end()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None, **more: Any
    ) -> dict[str, Any]:
        answer = await super().send_raw_request(method, params, opts, **more)
        if method == "tools/list" and isinstance(answer.get("tools"), list):
            answer, refused = clean_page(answer)
            self.refused.extend(refused)
            self.kept = [tool["name"] for tool in answer["tools"]]
        return answer


class Connection:
    """A live session with a server. Its methods may be called from any task of the event loop."""

    def __init__(self, server: str, target: Target, options: Options) -> None:
        self._server = server
        self._target = target
        self._options = options
        self._evidence = Evidence()
        self._opened = asyncio.Event()
        self._over = asyncio.Event()
        self._session: ClientSession | None = None
        self._dispatcher: _Dispatcher | None = None
        self._failure: BaseException | None = None
        self._requests: set[asyncio.Task[Any]] = set()
        self._listing: Listing | None = None
        self._listing_lock = asyncio.Lock()
        self._changed = False
        # In a context of its own: nothing of whoever connects first, such as a user or a trace, reaches the server.
        self._living = asyncio.create_task(self._live(), context=contextvars.Context())

    @property
    def alive(self) -> bool:
        return self._session is not None and not self._over.is_set() and not self._evidence.session_gone

    async def opened(self) -> None:
        """Wait until it can be used; raises `McpError` when it cannot, or not in time."""
        try:
            async with asyncio.timeout(self._options.connect_timeout):
                await self._opened.wait()
        except TimeoutError:
            raise self._error(
                f"it did not connect within {self._options.connect_timeout:g} seconds.{self._evidence.explain()}"
            ) from None
        if self._session is None:
            raise self._error(f"it cannot be connected: {_reason(self._failure)}.{self._evidence.explain()}")

    async def close(self) -> None:
        """End the session and what carries it, in a bounded time."""
        if self._session is None:
            self._living.cancel()
        self._over.set()
        await finish([self._living], CLOSE_PROGRAM if isinstance(self._target, Program) else CLOSE_HTTP)
        await finish(self._requests, 1)

    async def listing(self) -> Listing:
        """The tools: as listed before where the server tells of changes and told of none, else listed anew."""
        async with self._listing_lock:
            if self._listing is None or self._changed or not self._tells_changes:
                self._changed = False
                self._listing = await self._answered(
                    self._list(), self._options.connect_timeout, "tools/list", repeatable=True
                )
            return self._listing

    async def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The server's answer to a call, made once and never again."""
        if self._listing is None:  # some servers want header fields that only their list tells of
            await self.listing()
        return await self._answered(self._call(tool, arguments), self._options.call_timeout, tool)

    @property
    def _tells_changes(self) -> bool:
        session = self._session
        if session is None or session.initialize_result is None:
            return False  # from protocol 2026-07-28 on they are told to subscribers only
        tools = session.initialize_result.capabilities.tools
        return tools is not None and bool(tools.list_changed)

    async def _live(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                read_timeout = max(300.0, self._options.call_timeout + 30)
                streams = await open_transport(stack, self._server, self._target, self._evidence, read_timeout)
                dispatcher = _Dispatcher(*streams, self._over.set)
                me = types.Implementation(name="recollect", version=metadata.version("recollect"))
                session = ClientSession(dispatcher=dispatcher, message_handler=self._heard, client_info=me)
                await stack.enter_async_context(session)
                await _negotiate(session)
                self._session, self._dispatcher = session, dispatcher
                self._opened.set()
                await self._over.wait()
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001
            # A transport may fail with anything; whoever waits is told, and later failures are logged.
            self._failure = error
            if self._session is not None:
                log.warning("MCP server %r: the connection broke: %s", self._server, _reason(error))
        finally:
            self._over.set()
            self._opened.set()

    async def _heard(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._changed = True

    async def _list(self) -> Listing:
        session, dispatcher = self._ready()
        dispatcher.refused = []
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
            dropped = set(dispatcher.kept) - {tool.name for tool in page.tools}
            dispatcher.refused += [Refused(name, "its x-mcp-header annotations are wrong") for name in sorted(dropped)]
            cursor = page.next_cursor
            if not cursor:
                return Listing(tuple(tools), tuple(dispatcher.refused))
            if len(tools) > MAX_TOOLS:
                raise self._error(f"it lists more than {MAX_TOOLS} tools.")
        raise self._error(f"its list of tools does not end: it was stopped after {MAX_PAGES} pages.")

    async def _call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        session, _ = self._ready()
        request = types.CallToolRequest(params=types.CallToolRequestParams(name=tool, arguments=arguments))
        try:
            answer = await session.send_request(request, _ANSWER)
        except MCPError as error:
            if error.code != types.HEADER_MISMATCH:
                raise
            await self._list()  # the server did nothing, as its list has changed since we read it
            answer = await session.send_request(request, _ANSWER)
        if isinstance(answer, types.InputRequiredResult):
            raise self._error(f"{tool} asks for more than its arguments, which cannot be given here.")
        return answer.model_dump(mode="json", by_alias=True, exclude_none=True)

    async def _answered(
        self, request: Coroutine[Any, Any, T], seconds: float, what: str, *, repeatable: bool = False
    ) -> T:
        """The outcome of a request, with the SDK's errors as ours."""
        try:
            return await self._in_time(request, seconds)
        except TimeoutError:
            doubt = "" if repeatable else " It may still take effect."
            raise self._error(f"{what} was not answered within {seconds:g} seconds.{doubt}") from None
        except MCPError as error:
            if self._evidence.session_gone and "session" in error.message.lower():
                raise SessionGone from error
            if not self._over.is_set() and not error.message.startswith(_BROKEN_OFF):
                refusal = f"{what} was refused: {error.message[:1_000]} (code {error.code})."
                raise self._error(refusal + self._evidence.explain()) from error
            if repeatable:
                raise SessionGone from error
            raise self._error(
                f"the connection broke while {what} was running. It may or may not have taken effect,"
                " and was not repeated; the next call connects again."
            ) from error
        except ValidationError as error:
            raise self._error(f"the answer to {what} cannot be read: {error.errors()[0]['msg']:.200}.") from error

    async def _in_time(self, request: Coroutine[Any, Any, T], seconds: float) -> T:
        """Run a request in a task that can be left behind: telling the server to stop may itself take a while."""
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
        return task.result()

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._requests.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited may be gone

    def _ready(self) -> tuple[ClientSession, _Dispatcher]:
        if self._session is None or self._dispatcher is None:
            raise self._error("it is not connected.")
        return self._session, self._dispatcher

    def _error(self, problem: str) -> McpError:
        return McpError(self._server, problem)


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
    return f"{type(error).__name__}: {error}"[:1_000].rstrip(".: ")
