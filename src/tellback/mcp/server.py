"""The MCP server: `build_server`, and how it is served over standard input and output or over HTTP."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import anyio
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
)
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

import tellback
from tellback.errors import ChatError, ConfigurationError, EmbeddingError, StoreError, TellbackError
from tellback.mcp.schemas import parse_arguments, replace_surrogates
from tellback.mcp.tools import INSTRUCTIONS, READ_ONLY_INSTRUCTIONS, McpTool, select_tools
from tellback.memory.tools import DEFAULT_TIMEOUT
from tellback.tools.dispatch import ThreadPool
from tellback.tools.schema import InvalidInput
from tellback.user import User

if TYPE_CHECKING:
    from tellback.app import Tellback

log = logging.getLogger("tellback.mcp")

UserOf: TypeAlias = Callable[[Mapping[str, Any]], User | Awaitable[User]]
"""Gives the handle a call works on, from the ASGI scope of its request; over other transports that is empty."""

INTERNAL_ERRORS = (StoreError, EmbeddingError, ConfigurationError, ChatError)
"""Errors that speak of the machine: they go to the log, and whoever called learns only that it failed."""

CALL_FAILED = "The memory could not do this now. It is not about your arguments: try again in a moment."

MAX_MESSAGE_BYTES = 1024 * 1024
CHUNK_BYTES = 64 * 1024
MAX_BODY_BYTES = 1024 * 1024
GRACE_SECONDS = 5.0
LOOPBACK_HOSTS = tuple(f"{host}{port}" for host in ("127.0.0.1", "localhost", "[::1]") for port in ("", ":*"))
LOOPBACK_ORIGINS = tuple(f"http://{host}" for host in LOOPBACK_HOSTS)


def build_server(
    user_of: UserOf,
    *,
    read_only: bool = False,
    name: str = "tellback",
    instructions: str | None = None,
    timeout: float = DEFAULT_TIMEOUT,
) -> Server[Any]:
    """An MCP server whose tools work on the memory and the conversations of the user that `user_of` gives.

    `read_only` leaves out the tools that change something. `instructions` are what hosts tell their models of the
    server, in the place of ours. A call that takes longer than `timeout` seconds is stopped.

    >>> from tellback import Tellback
    >>> maya = Tellback(":memory:").user("maya")
    >>> build_server(lambda scope: maya).name
    'tellback'
    """
    return _ToolDispatcher(user_of, select_tools(read_only=read_only), timeout).build(
        name, (READ_ONLY_INSTRUCTIONS if read_only else INSTRUCTIONS) if instructions is None else instructions
    )


class _ToolDispatcher:
    """Answers the two requests that there are: for the list of tools, and for a call."""

    def __init__(self, user_of: UserOf, tools: Mapping[str, McpTool], timeout: float) -> None:
        self._user_of = user_of
        self._tools = tools
        self._timeout = timeout

    def build(self, name: str, instructions: str) -> Server[Any]:
        return Server(
            name,
            version=tellback.__version__,
            title="Tellback",
            instructions=instructions,
            get_tool_input_schema=self._input_schema,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )

    def _input_schema(self, name: str) -> Mapping[str, Any] | None:
        tool = self._tools.get(name)
        return None if tool is None else tool.definition.input_schema

    async def _list_tools(
        self, context: ServerRequestContext[Any], params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        return ListToolsResult(tools=[tool.definition for tool in self._tools.values()])

    async def _call_tool(self, context: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        tool = self._tools.get(params.name)
        if tool is None:
            raise MCPError(
                INVALID_PARAMS, f"There is no tool {params.name[:80]!a}. There are: {', '.join(self._tools)}."
            )
        scope = {} if context.request is None else context.request.scope
        try:
            async with asyncio.timeout(self._timeout):
                arguments = parse_arguments(tool.input_model, params.arguments)
                output = await tool.run(await self._resolve_user(scope), **arguments)
            return CallToolResult(content=[TextContent(text=output.to_text())], structured_content=output.to_json())
        except TimeoutError:
            log.warning("%s took longer than %g seconds", tool.name, self._timeout)
            return _error_result(f"This took longer than {self._timeout:g} seconds and was stopped. Ask for less.")
        except INTERNAL_ERRORS:
            log.exception("%s failed", tool.name)
            return _error_result(CALL_FAILED)
        except (InvalidInput, TellbackError) as error:
            return _error_result(str(error))
        except Exception:  # whatever it was, its words may be about the machine or about somebody else
            log.exception("%s failed", tool.name)
            return _error_result(CALL_FAILED)

    async def _resolve_user(self, scope: Mapping[str, Any]) -> User:
        found = self._user_of(scope)
        return await found if inspect.isawaitable(found) else found


def _error_result(message: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=replace_surrogates(message))], is_error=True)


async def serve_stdio(
    tb: Tellback,
    user_id: str,
    tenant_id: str = "default",
    app_id: str = "default",
    *,
    read_only: bool = False,
) -> None:
    """Serve one user's memory over standard input and output, until the input ends.

    While it runs, what the process prints goes to standard error: the output is the protocol's alone. Cancelling it
    ends it at once, also while it waits for input. A message of more than `MAX_MESSAGE_BYTES` ends it too.
    """
    user = tb.user(user_id, tenant_id, app_id)
    server = build_server(lambda scope: user, read_only=read_only)
    # Threads of its own: a pipe may keep one waiting for ever, which must not keep the process from ending.
    threads = ThreadPool(max_threads=2)
    with _stdout_redirected() as descriptor:
        lines = cast("anyio.AsyncFile[str]", _PipeReader(threads, sys.stdin.fileno()))
        output = cast("anyio.AsyncFile[str]", _PipeWriter(threads, descriptor))
        with _broken_streams_ignored():
            async with stdio_server(lines, output) as (read, write):
                await server.run(read, write, server.create_initialization_options())


@contextmanager
def _broken_streams_ignored() -> Iterator[None]:
    """A stream that breaks is the end of the connection, no failure: the client is gone, or this was cancelled and the
    SDK's tasks have closed each other's streams."""
    try:
        yield
    except BaseExceptionGroup as error:
        if error.split((anyio.BrokenResourceError, anyio.ClosedResourceError))[1] is not None:
            raise
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError from error
        log.info("the client is gone")


class _PipeReader:
    """The lines of a pipe: what the SDK asks of a file to read."""

    def __init__(self, threads: ThreadPool, descriptor: int) -> None:
        self._threads = threads
        self._descriptor = descriptor

    async def __aiter__(self) -> AsyncIterator[str]:
        rest = b""
        while chunk := await self._threads.run(os.read, self._descriptor, CHUNK_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield line.decode(errors="replace")
            if len(rest) > MAX_MESSAGE_BYTES:
                log.error("a message has more than %d bytes: the connection ends", MAX_MESSAGE_BYTES)
                return


class _PipeWriter:
    """The writing end of a pipe: what the SDK asks of a file to write."""

    def __init__(self, threads: ThreadPool, descriptor: int) -> None:
        self._threads = threads
        self._descriptor = descriptor

    async def write(self, text: str) -> int:
        try:
            await self._threads.run(_write_all, self._descriptor, text.encode(errors="replace"))
        except BrokenPipeError:  # nobody reads any more, so this is the end
            raise anyio.ClosedResourceError from None
        return len(text)

    async def flush(self) -> None:
        """Nothing is held back."""


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


@contextmanager
def _stdout_redirected() -> Iterator[int]:
    """The standard output as it was; meanwhile, what anybody else writes there goes to standard error."""
    sys.stdout.flush()
    stdout_descriptor = sys.stdout.fileno()
    protocol_descriptor = os.dup(stdout_descriptor)
    os.dup2(sys.stderr.fileno(), stdout_descriptor)
    try:
        yield protocol_descriptor
    finally:
        sys.stdout.flush()
        # It is not closed: a thread may still be writing, and its number would be given to another file.
        os.dup2(protocol_descriptor, stdout_descriptor)


def http_app(
    user_of_scope: UserOf,
    *,
    read_only: bool = False,
    allowed_hosts: Sequence[str] | None = LOOPBACK_HOSTS,
    allowed_origins: Sequence[str] = LOOPBACK_ORIGINS,
    max_body_bytes: int = MAX_BODY_BYTES,
    timeout: float = DEFAULT_TIMEOUT,
) -> McpApp:
    """An MCP server as an ASGI application, for the users that `user_of_scope` finds in each request's scope.

    No session is kept: any process may answer any request, so several workers behave as one. Requests for other hosts
    than `allowed_hosts` and from web pages of other origins than `allowed_origins` are refused, which keeps a web page
    from reaching a server on its reader's machine; "name:*" is a name with any port. `allowed_hosts=None` takes any
    host: for servers that are reached by many names, and ask for a key.
    """
    server = build_server(user_of_scope, read_only=read_only, timeout=timeout)
    return McpApp(server, allowed_hosts, allowed_origins, max_body_bytes)


class McpApp:
    """The ASGI application. It answers while `running()` is entered, which belongs into the lifespan of its server."""

    def __init__(
        self,
        server: Server[Any],
        allowed_hosts: Sequence[str] | None = LOOPBACK_HOSTS,
        allowed_origins: Sequence[str] = LOOPBACK_ORIGINS,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        for name, value in (("allowed_hosts", allowed_hosts), ("allowed_origins", allowed_origins)):
            if isinstance(value, str):
                raise ConfigurationError(f"{name} is a list of names, not the text {value!r:.80}.")
        self._server = server
        self._security = TransportSecuritySettings(
            enable_dns_rebinding_protection=allowed_hosts is not None,
            allowed_hosts=list(allowed_hosts or ()),
            allowed_origins=list(allowed_origins),
        )
        self._max_body_bytes = max_body_bytes
        self._manager: StreamableHTTPSessionManager | None = None
        self._calls: set[anyio.CancelScope] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answer requests; at the end, calls that are still running are stopped."""
        if self._manager is not None:
            raise ConfigurationError("This MCP application is running already: enter running() once.")
        manager = StreamableHTTPSessionManager(
            self._server,
            stateless=True,
            security_settings=self._security,
            max_request_body_size=self._max_body_bytes,
        )
        async with manager.run():
            self._manager = manager
            try:
                yield
            finally:
                self._manager = None
                await self._cancel_calls()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise ConfigurationError(f"The MCP application answers HTTP requests, not {scope['type']!r}.")
        rejection = self._reject(scope)
        if rejection is not None:
            await rejection(scope, receive, send)
            return
        assert self._manager is not None
        with anyio.CancelScope() as call:
            self._calls.add(call)
            try:
                await self._manager.handle_request(scope, receive, send)
            finally:
                self._calls.discard(call)

    def _reject(self, scope: Scope) -> PlainTextResponse | None:
        origin = Headers(scope=scope).get("origin")
        # With hosts to check, the SDK looks at both; without, it would look at neither.
        if (
            not self._security.enable_dns_rebinding_protection
            and origin is not None
            and not self._is_allowed_origin(origin)
        ):
            return PlainTextResponse("Invalid Origin header", 403)
        if scope["method"] != "POST":  # without sessions there is nothing to listen to, and nothing to end
            return PlainTextResponse("Method Not Allowed", 405, {"Allow": "POST"})
        if self._manager is None:
            return PlainTextResponse("Service Unavailable", 503)
        return None

    def _is_allowed_origin(self, origin: str) -> bool:
        return any(
            origin == allowed or (allowed.endswith(":*") and origin.startswith(allowed[:-1]))
            for allowed in self._security.allowed_origins
        )

    async def _cancel_calls(self) -> None:
        for call in self._calls:
            call.cancel()
        with anyio.move_on_after(GRACE_SECONDS, shield=True):
            while self._calls:  # noqa: ASYNC110 - each leaves by itself
                await anyio.sleep(0.01)
