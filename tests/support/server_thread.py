"""A server in its own thread, for synchronous clients."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from tellback import Tellback
from tellback.server import ServerSettings, create_app
from tests.support.http_server import running_server
from tests.support.rest_data import flight_agent, open_tellback

T = TypeVar("T")

SECONDS = 60.0

UNLIMITED = ServerSettings(rate_limit=None, failure_limit=None)


class ServerThread:
    """A Tellback in memory on a local port: `with ServerThread() as server: server.url`."""

    tb: Tellback
    app: Any
    url: str

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="server", daemon=True)
        self._ready = threading.Event()
        self._done = asyncio.Event()
        self._running: Any = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._running = asyncio.run_coroutine_threadsafe(self._serve(), self._loop)
        while not self._ready.wait(0.05):
            if self._running.done():
                self._running.result()
        return self

    async def _serve(self) -> None:
        async with open_tellback(":memory:") as self.tb:
            self.app = create_app(self.tb, UNLIMITED, agents=[flight_agent()], opens=False)
            async with running_server(self.app, loop="none") as self.url:
                self._ready.set()
                await self._done.wait()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the server's loop and wait for its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(SECONDS)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._done.set)
        try:
            self._running.result(SECONDS)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(SECONDS)
            self._loop.close()
