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
"""How long the head of a request may take, and how large it may be. A body has as long once its request is answered."""

STALLED_SECONDS = 60.0
"""For how long a client may take nothing of an answer that waits for it."""

log = logging.getLogger("tellback.server")

BACKLOG = 2_048
KEEP_ALIVE_SECONDS = 15
MAX_WEBSOCKET_BYTES = 1_000_000
CANCEL_SECONDS = 5.0
"""How long requests that were cut off have to come to an end, before the store is closed."""


class BoundedProtocol(HttpToolsProtocol):
    """Ends connections whose request does not come, or whose answer is not taken: uvicorn waits without end."""

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
        # What ended a head or a body is no part of the next head, as far as can be told.
        self._header_size = 0 if self._has_progressed else self._header_size + len(data)
        if self._header_size > MAX_HEADER_BYTES and not self.transport.is_closing():
            self.send_400_response(f"The head of a request has at most {MAX_HEADER_BYTES} bytes here.")
        elif self._header_size and self._deadline is None:  # a connection that is idle is uvicorn's to end
            self._start_deadline()

    def on_headers_complete(self) -> None:
        self._in_headers, self._header_size, self._has_progressed = False, 0, True
        self._cancel_deadline()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The body is read, and what follows is another head."""
        self._in_headers = self._has_progressed = True
        self._cancel_deadline()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """An answer is given. Nobody reads the rest of its request's body, and uvicorn waits for that without end."""
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
        """Abort if the client takes none of the last bytes: a transport that is closed waits for that without end."""
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
            self._start_deadline()  # the request before it is still answered
        elif not self.transport.is_closing():
            self.transport.close()
            self._abort_if_stalled()


async def check_options(options: ServeOptions) -> ServeOptions:
    """The options, if a server can run by them: its store is there and migrated, its agents and models are known.

    Where no model is named it is the best at hand. Where there has never been a credential the server is open, which
    only this machine may use. Raises `TellbackError` that says what to do.
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
                "All API keys of this store have expired or were revoked, so nobody could get in. Make another one,"
                f" with {key_creation_command(options.url)}."
            )
        if not is_loopback(options.host):
            raise ConfigurationError(
                f"Nobody could be told apart on {options.host}: there is no API key, and no JWT issuer. Make a key"
                f" first, with {key_creation_command(options.url)}, or serve this machine alone with --host 127.0.0.1."
            )
    return replace(options, open=True)


def key_creation_command(url: str) -> str:
    """The command that makes an API key for this store; a URL may hold a password, and is not repeated."""
    command = "tellback keys create --role admin"
    return f"`{command}` (and the same --url)" if "://" in url else f"`{command} --url {shlex.quote(url)}`"


def build_tellback(options: ServeOptions) -> tuple[Tellback, list[Agent]]:
    """The Tellback that is served, not yet open, and its agents with routes."""
    extractor: ExtractorLike = options.extractor
    if options.prompts is not None and extractor != "verbatim":
        from tellback.memory.extraction.extractors import LlmExtractor

        extractor = LlmExtractor(prompts=Path(options.prompts))
    tb = Tellback(options.url, model=options.model, extractor=extractor, worker=options.runs_jobs)
    return tb, load_agents(tb, options.agents)


def bind_socket(host: str, port: int) -> socket.socket:
    """A socket at that address. It does not listen yet, so clients wait elsewhere until the server is ready."""
    try:
        [(family, kind, protocol, _, address), *_] = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(f"{host!r} is no address of this machine: {error}.") from error
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
    """The URL of a server on a socket."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run_server(
    options: ServeOptions, sock: socket.socket, on_ready: Callable[[], None], *, is_supervised: bool = False
) -> None:
    """Serve in this process until told to stop; `on_ready` is called when requests are answered."""
    try:
        import uvloop

        factory: Callable[[], asyncio.AbstractEventLoop] | None = uvloop.new_event_loop
    except ModuleNotFoundError:  # there is none for Windows
        factory = None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serve_app(options, sock, on_ready, is_supervised=is_supervised))


async def serve_app(
    options: ServeOptions, sock: socket.socket, on_ready: Callable[[], None], *, is_supervised: bool = False
) -> None:
    """Open the store, answer requests, and close it after the last one."""
    tb, agents = build_tellback(options)
    async with tb:
        await tb.warm_up()
        app = create_app(
            tb, options, agents=agents, opens=False, web_uis=[build_web_ui() for build_web_ui in options.web_uis]
        )
        await Server(app, options, on_ready, is_supervised=is_supervised).serve([sock])
    log.info("stopped")


class Server(uvicorn.Server):
    """Uvicorn, which tells the app first when it has to stop. A second signal ends the process at once, unless it is
    supervised: then that is for the supervisor to do, as a terminal or a service manager may signal both."""

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
        """Let what runs come to its end, for as long as it may take."""
        self._stopping.set()
        log.info("stopping; what runs has %g seconds to end", self.config.timeout_graceful_shutdown or 0)
        await super().shutdown(sockets)
        if self.server_state.tasks:  # they were cancelled, and note in the store how far they came
            await asyncio.wait(self.server_state.tasks, timeout=CANCEL_SECONDS)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Listen to signals while it serves. A worker that then closes its store is not to be interrupted by another
        one, so it leaves them ignored: its supervisor can still kill it."""
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
        # Only pages for people use WebSockets; what comes by them are clicks and texts, not files.
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
