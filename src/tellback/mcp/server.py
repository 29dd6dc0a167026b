"""The MCP server: `build_server`, and serving it over standard input and output or over HTTP."""

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
"""Returns the user of a call from the ASGI scope of its request. The scope is empty over other transports."""

INTERNAL_ERRORS = (StoreError, EmbeddingError, ConfigurationError, ChatError)
"""Errors whose messages may contain internal details: they are logged, and the client gets a general message."""

CALL_FAILED = "The memory is temporarily unavailable. Your arguments are not the cause: try again in a moment."

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
    """Build an MCP server whose tools use the memory and conversations of the user that `user_of` returns.

    `read_only` omits the tools that change data. `instructions` replace the default instructions, which clients pass
    to their models. A call that takes longer than `timeout` seconds is cancelled.

    >>> from tellback import Tellback
    >>> maya = Tellback(":memory:").user("maya")
    >>> build_server(lambda scope: maya).name
    'tellback'
    """
    return _ToolDispatcher(user_of, select_tools(read_only=read_only), timeout).build(
        name, (READ_ONLY_INSTRUCTIONS if read_only else INSTRUCTIONS) if instructions is None else instructions
    )


class _ToolDispatcher:
    """Answers the two supported requests: listing the tools and calling a tool."""

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
                INVALID_PARAMS, f"There is no tool {params.name[:80]!a}. Available tools: {', '.join(self._tools)}."
            )
        scope = {} if context.request is None else context.request.scope
        try:
            async with asyncio.timeout(self._timeout):
                arguments = parse_arguments(tool.input_model, params.arguments)
                output = await tool.run(await self._resolve_user(scope), **arguments)
            return CallToolResult(content=[TextContent(text=output.to_text())], structured_content=output.to_json())
        except TimeoutError:
            log.warning("%s took longer than %g seconds", tool.name, self._timeout)
            return _error_result(f"The call was cancelled after {self._timeout:g} seconds. Request fewer results.")
        except INTERNAL_ERRORS:
            log.exception("%s failed", tool.name)
            return _error_result(CALL_FAILED)
        except (InvalidInput, TellbackError) as error:
            return _error_result(str(error))
        except Exception:  # the message may contain internal details or another user's data
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

    While it runs, other output of the process goes to standard error, because standard output is reserved for the
    protocol. Cancellation takes effect immediately, even while waiting for input. A message of more than
    `MAX_MESSAGE_BYTES` ends the connection.

    An MCP host starts a program like this one, which ends with `asyncio.run(main())`:

    >>> from tellback import Tellback
    >>> async def main() -> None:
    ...     async with Tellback("tellback.db", worker=False) as tb:
    ...         await serve_stdio(tb, "maya", read_only=True)
    """
    user = tb.user(user_id, tenant_id, app_id)
    server = build_server(lambda scope: user, read_only=read_only)
    # A separate thread pool: a thread can block on a pipe forever, and must not prevent the process from exiting.
    threads = ThreadPool(max_threads=2)
    with _stdout_redirected() as descriptor:
        lines = cast("anyio.AsyncFile[str]", _PipeReader(threads, sys.stdin.fileno()))
        output = cast("anyio.AsyncFile[str]", _PipeWriter(threads, descriptor))
        with _broken_streams_ignored():
            async with stdio_server(lines, output) as (read, write):
                await server.run(read, write, server.create_initialization_options())


@contextmanager
def _broken_streams_ignored() -> Iterator[None]:
    """Treat a broken stream as the end of the connection, not as an error: the client has disconnected, or the server
    was cancelled and the SDK's tasks have closed each other's streams."""
    try:
        yield
    except BaseExceptionGroup as error:
        if error.split((anyio.BrokenResourceError, anyio.ClosedResourceError))[1] is not None:
            raise
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError from error
        log.info("The MCP client has disconnected")


class _PipeReader:
    """Iterates over the lines of a pipe, with the interface that the SDK expects of an input file."""

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
                log.error("Closing the MCP connection: a message has more than %d bytes", MAX_MESSAGE_BYTES)
                return


class _PipeWriter:
    """Writes to a pipe, with the interface that the SDK expects of an output file."""

    def __init__(self, threads: ThreadPool, descriptor: int) -> None:
        self._threads = threads
        self._descriptor = descriptor

    async def write(self, text: str) -> int:
        try:
            await self._threads.run(_write_all, self._descriptor, text.encode(errors="replace"))
        except BrokenPipeError:  # the client has closed its end
            raise anyio.ClosedResourceError from None
        return len(text)

    async def flush(self) -> None:
        """Do nothing: `write` does not buffer."""


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


@contextmanager
def _stdout_redirected() -> Iterator[int]:
    """Yield a descriptor of the real standard output; meanwhile, other writes to it go to standard error."""
    sys.stdout.flush()
    stdout_descriptor = sys.stdout.fileno()
    protocol_descriptor = os.dup(stdout_descriptor)
    os.dup2(sys.stderr.fileno(), stdout_descriptor)
    try:
        yield protocol_descriptor
    finally:
        sys.stdout.flush()
        # Do not close it: a thread may still be writing, and another file could get the same descriptor.
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
    """Build an MCP server as an ASGI application, for the users that `user_of_scope` returns for each request.

    The server is stateless: any process can answer any request, so several workers behave as one. Requests for hosts
    not in `allowed_hosts`, and from web pages with origins not in `allowed_origins`, are rejected. This prevents web
    pages from reaching a server on the visitor's machine. "name:*" matches any port. `allowed_hosts=None` accepts any
    host, for servers that have several names and require a key.

    >>> import httpx2
    >>> from mcp import Client
    >>> from mcp.client.streamable_http import streamable_http_client
    >>> from tellback import Tellback
    >>> async def main():
    ...     async with Tellback(":memory:") as tb:
    ...         app = http_app(lambda scope: tb.user("maya"), read_only=True)
    ...         async with app.running(), httpx2.AsyncClient(transport=httpx2.ASGITransport(app)) as http:
    ...             async with Client(streamable_http_client("http://127.0.0.1/mcp", http_client=http)) as client:
    ...                 print([tool.name for tool in (await client.list_tools()).tools])
    >>> asyncio.run(main())
    ['recall', 'timeline', 'entities', 'conversations']
    """
    server = build_server(user_of_scope, read_only=read_only, timeout=timeout)
    return McpApp(server, allowed_hosts, allowed_origins, max_body_bytes)


class McpApp:
    """The ASGI application. It answers only inside `running()`, which belongs in the server's lifespan.

    >>> from starlette.applications import Starlette
    >>> from starlette.routing import Route
    >>> from tellback import Tellback
    >>> tb = Tellback(":memory:")
    >>> memory = http_app(lambda scope: tb.user(scope["state"]["user_id"]))
    >>> @asynccontextmanager
    ... async def lifespan(app):
    ...     async with tb, memory.running():
    ...         yield
    >>> app = Starlette(routes=[Route("/mcp", endpoint=memory)], lifespan=lifespan)
    >>> isinstance(memory, McpApp), app.routes[0].path
    (True, '/mcp')
    """

    def __init__(
        self,
        server: Server[Any],
        allowed_hosts: Sequence[str] | None = LOOPBACK_HOSTS,
        allowed_origins: Sequence[str] = LOOPBACK_ORIGINS,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        for name, value in (("allowed_hosts", allowed_hosts), ("allowed_origins", allowed_origins)):
            if isinstance(value, str):
                raise ConfigurationError(f"{name} must be a list of strings, got {value!r:.80}.")
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
        """Answer requests; on exit, cancel calls that are still running."""
        if self._manager is not None:
            raise ConfigurationError("This MCP application is already running: enter running() only once.")
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
            raise ConfigurationError(f"The MCP application only supports HTTP requests, got {scope['type']!r}.")
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
        # The SDK checks the origin only if it also checks hosts.
        if (
            not self._security.enable_dns_rebinding_protection
            and origin is not None
            and not self._is_allowed_origin(origin)
        ):
            return PlainTextResponse("Invalid Origin header", 403)
        if scope["method"] != "POST":  # GET and DELETE are for sessions, which a stateless server does not have
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
            while self._calls:  # noqa: ASYNC110 - each call removes itself
                await anyio.sleep(0.01)
