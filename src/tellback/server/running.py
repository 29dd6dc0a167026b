"""Running the server: from options to a process that answers, and to its orderly end."""

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
from typing import TYPE_CHECKING

import uvicorn
from fastapi import FastAPI
from uvicorn.server import HANDLED_SIGNALS

from tellback.agent_sources import load_agents
from tellback.app import Tellback
from tellback.chat import ChatOptions, choose_model, resolve_registration
from tellback.errors import ConfigurationError
from tellback.memory.extraction.choice import ExtractorLike
from tellback.server.app import create_app
from tellback.server.metrics import is_loopback
from tellback.server.protocol import BoundedProtocol
from tellback.server.serve_options import ServeOptions
from tellback.server.stopping import ShutdownSignal

if TYPE_CHECKING:
    from tellback.agent import Agent

log = logging.getLogger("tellback.server")

BACKLOG = 2_048
KEEP_ALIVE_SECONDS = 15
MAX_WEBSOCKET_BYTES = 1_000_000
CANCEL_SECONDS = 5.0
"""How long requests that were cut off have to come to an end, before the store is closed."""


async def check_options(options: ServeOptions) -> ServeOptions:
    """The options, if a server can run by them: its store is there and migrated, its agents and models are known.

    Where no model is named it is the best at hand. Where there has never been a credential the server is open, which
    only this machine may use. Raises `TellbackError` that says what to do.
    """
    options = replace(options, model=(await asyncio.to_thread(choose_model, options.model)).name)
    for model in filter(None, (options.model, *options.models)):
        resolve_registration(ChatOptions(model=model))
    rc, _ = build_tellback(replace(options, runs_jobs=False))
    async with rc:
        keys = await rc.keys.list()
        if options.jwt is not None or any(key.is_valid(rc.clock()) for key in keys):
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
        from tellback.memory.extraction.llm import LlmExtractor

        extractor = LlmExtractor(prompts=Path(options.prompts))
    rc = Tellback(options.url, model=options.model, extractor=extractor, worker=options.runs_jobs)
    return rc, load_agents(rc, options.agents)


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
    rc, agents = build_tellback(options)
    async with rc:
        await rc.warm_up()
        app = create_app(
            rc,
            options.settings,
            agents=agents,
            opens=False,
            web_uis=[build_web_ui() for build_web_ui in options.web_uis],
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
        """Begin to answer."""
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
        """A signal came."""
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
