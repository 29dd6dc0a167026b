"""Run the HTTP server in this process: check options, bind a socket, serve with uvicorn, and shut down in order."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import shlex
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import HANDLED_SIGNALS

from tellback.agent_sources import load_agents
from tellback.app import Tellback
from tellback.chat import ChatOptions, choose_model, resolve_registration
from tellback.errors import ConfigurationError
from tellback.memory.extraction.extractors import ExtractorLike
from tellback.server.app import create_app
from tellback.server.lifecycle import ShutdownSignal
from tellback.server.settings import ServeOptions, is_loopback

if TYPE_CHECKING:
    from tellback.agent import Agent

HEADER_SECONDS = 20.0
MAX_HEADER_BYTES = 64 * 1024
"""Limits of a request's headers. After a response, the rest of an unread body must arrive in the same time."""

STALLED_SECONDS = 60.0
"""How long a client may stop reading a response before it is disconnected."""

log = logging.getLogger("tellback.server")

BACKLOG = 2_048
KEEP_ALIVE_SECONDS = 15
MAX_WEBSOCKET_BYTES = 1_000_000
CANCEL_SECONDS = 5.0
"""How long cancelled requests have to finish before the store is closed."""


class BoundedProtocol(HttpToolsProtocol):
    """Closes connections that send or read too slowly, for which uvicorn has no limits."""

    header_seconds = HEADER_SECONDS
    stalled_seconds = STALLED_SECONDS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_headers = True
        self._header_size = 0
        self._has_progressed = False
        self._deadline: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        self._set_stall_timer(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._has_progressed = False
        super().data_received(data)
        if not self._in_headers:
            return
        # Data that completed headers or a body does not count towards the next headers.
        self._header_size = 0 if self._has_progressed else self._header_size + len(data)
        if self._header_size > MAX_HEADER_BYTES and not self.transport.is_closing():
            self.send_400_response(f"Request headers may have at most {MAX_HEADER_BYTES} bytes.")
        elif self._header_size and self._deadline is None:  # uvicorn closes idle connections
            self._start_deadline()

    def on_headers_complete(self) -> None:
        self._in_headers, self._header_size, self._has_progressed = False, 0, True
        self._cancel_deadline()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Expect the headers of the next request, because the body is complete."""
        self._in_headers = self._has_progressed = True
        self._cancel_deadline()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Limit the wait for the rest of an unread body, for which uvicorn waits without limit."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._abort_if_stalled()
        elif not self._in_headers and self.cycle.response_complete:
            self._start_deadline()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._set_stall_timer(self.loop.call_later(self.stalled_seconds, self.transport.abort))

    def resume_writing(self) -> None:
        self._set_stall_timer(None)
        super().resume_writing()
        if self.transport.is_closing():
            self._abort_if_stalled()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._abort_if_stalled()

    def _abort_if_stalled(self, previous_size: int | None = None) -> None:
        """Abort if the client reads none of the remaining bytes; a closing transport would wait without limit."""
        size = self.transport.get_write_buffer_size()
        if size and size == previous_size:
            self.transport.abort()
        elif size:
            self._set_stall_timer(self.loop.call_later(self.stalled_seconds, self._abort_if_stalled, size))

    def _set_stall_timer(self, timer: asyncio.TimerHandle | None) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
        self._stall_timer = timer

    def _start_deadline(self) -> None:
        self._deadline = self.loop.call_later(self.header_seconds, self._close_on_deadline)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close_on_deadline(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._start_deadline()  # the previous request is still running
        elif not self.transport.is_closing():
            self.transport.close()
            self._abort_if_stalled()


async def check_options(options: ServeOptions) -> ServeOptions:
    """Validate and complete the options: the store must open, and its models and agents must be known.

    If no model is set, the first available one is used. If the store has no API keys and there is no JWT issuer, the
    server is open, but only to this machine. Raises `TellbackError` with the reason.
    """
    options = replace(options, model=(await asyncio.to_thread(choose_model, options.model)).name)
    for model in filter(None, (options.model, *options.models)):
        resolve_registration(ChatOptions(model=model))
    tb, _ = build_tellback(replace(options, runs_jobs=False))
    async with tb:
        keys = await tb.keys.list()
        if options.jwt is not None or any(key.is_valid(tb.clock()) for key in keys):
            return options
        if keys:
            raise ConfigurationError(
                "All API keys of this store have expired or were revoked. Create a new one"
                f" with {key_creation_command(options.url)}."
            )
        if not is_loopback(options.host):
            raise ConfigurationError(
                f"Serving on {options.host} needs an API key or a JWT issuer. Create a key"
                f" with {key_creation_command(options.url)}, or serve this machine only with --host 127.0.0.1."
            )
    return replace(options, open=True)


def key_creation_command(url: str) -> str:
    """Return the command that creates an API key. The URL is not repeated, as it may contain a password."""
    command = "tellback keys create --role admin"
    return f"`{command}` (and the same --url)" if "://" in url else f"`{command} --url {shlex.quote(url)}`"


def build_tellback(options: ServeOptions) -> tuple[Tellback, list[Agent]]:
    """Build the Tellback to serve, not yet open, and its agents with routes."""
    extractor: ExtractorLike = options.extractor
    if options.prompts is not None and extractor != "verbatim":
        from tellback.memory.extraction.extractors import LlmExtractor

        extractor = LlmExtractor(prompts=Path(options.prompts))
    tb = Tellback(options.url, model=options.model, extractor=extractor, worker=options.runs_jobs)
    return tb, load_agents(tb, options.agents)


def bind_socket(host: str, port: int) -> socket.socket:
    """Bind a socket without listening, so clients cannot connect before the server is ready."""
    try:
        [(family, kind, protocol, _, address), *_] = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(f"Cannot resolve the address {host!r} on this machine: {error}.") from error
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(address)
    except OSError as error:
        sock.close()
        raise ConfigurationError(
            f"Cannot serve on {host} port {port}: {error.strerror}. Try another --port."
        ) from error
    sock.set_inheritable(True)
    return sock


def server_url(sock: socket.socket) -> str:
    """Return the URL of a server on this socket."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run_server(
    options: ServeOptions, sock: socket.socket, on_ready: Callable[[], None], *, is_supervised: bool = False
) -> None:
    """Serve in this process until it is stopped; `on_ready` is called when the server accepts requests."""
    try:
        import uvloop

        factory: Callable[[], asyncio.AbstractEventLoop] | None = uvloop.new_event_loop
    except ModuleNotFoundError:  # uvloop does not support Windows
        factory = None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serve_app(options, sock, on_ready, is_supervised=is_supervised))


async def serve_app(
    options: ServeOptions, sock: socket.socket, on_ready: Callable[[], None], *, is_supervised: bool = False
) -> None:
    """Open the store, serve requests, and close the store after the last one."""
    tb, agents = build_tellback(options)
    async with tb:
        await tb.warm_up()
        app = create_app(
            tb, options, agents=agents, opens=False, web_uis=[build_web_ui() for build_web_ui in options.web_uis]
        )
        await Server(app, options, on_ready, is_supervised=is_supervised).serve([sock])
    log.info("Server stopped")


class Server(uvicorn.Server):
    """A uvicorn server that notifies the app before it shuts down.

    A second signal ends the process immediately. A supervised server ignores it and leaves this to the supervisor,
    because a terminal or service manager may send a signal to both.
    """

    def __init__(
        self,
        app: FastAPI,
        options: ServeOptions,
        on_ready: Callable[[], None] = lambda: None,
        *,
        is_supervised: bool = False,
    ) -> None:
        super().__init__(_uvicorn_config(app, options))
        self._is_supervised = is_supervised
        self._stopping: ShutdownSignal = app.state.stopping
        self._on_ready = on_ready
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait for running requests, up to the shutdown timeout."""
        self._stopping.set()
        log.info("Shutting down; requests have %g seconds to finish", self.config.timeout_graceful_shutdown or 0)
        await super().shutdown(sockets)
        if self.server_state.tasks:  # cancelled requests still store their progress
            await asyncio.wait(self.server_state.tasks, timeout=CANCEL_SECONDS)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while serving.

        A supervised worker ignores later signals, so that closing its store is not interrupted; the supervisor can
        still kill it.
        """
        if not self._is_supervised or threading.current_thread() is not threading.main_thread():
            with super().capture_signals():
                yield
            return
        for number in HANDLED_SIGNALS:
            signal.signal(number, self.handle_exit)
        try:
            yield
        finally:
            for number in HANDLED_SIGNALS:
                signal.signal(number, signal.SIG_IGN)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit and not self._is_supervised:
            os._exit(128 + sig)
        self.should_exit = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)


def _uvicorn_config(app: FastAPI, options: ServeOptions) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=BoundedProtocol,
        # Only web UIs use WebSockets; their messages are small.
        ws="websockets-sansio" if options.web_uis else "none",
        ws_max_size=MAX_WEBSOCKET_BYTES,
        lifespan="on",
        interface="asgi3",
        workers=1,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(options.trust_proxy),
        forwarded_allow_ips=list(options.trust_proxy),
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, math.ceil(options.shutdown_seconds)),
    )
