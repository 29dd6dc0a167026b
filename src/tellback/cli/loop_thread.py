"""An event loop beside the prompt: what runs in the background goes on while somebody types."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")

WAKEUP_SECONDS = 0.5
"""How often the waiting thread looks up: on some systems a signal does not wake it."""


class LoopThread:
    """Runs coroutines in a thread of its own. Ctrl-C cancels the one that is waited for, and waits until it is over."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tellback-chat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run(self._loop.shutdown_asyncgens())
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What the coroutine gives. A second Ctrl-C gives up waiting for its end."""
        finished = threading.Event()
        tasks: list[asyncio.Task[T]] = []

        def start() -> None:
            task = self._loop.create_task(coroutine)
            tasks.append(task)
            task.add_done_callback(lambda _: finished.set())

        self._loop.call_soon_threadsafe(start)
        try:
            _wait_interruptibly(finished)
        except KeyboardInterrupt:
            self._loop.call_soon_threadsafe(lambda: tasks[0].cancel())
            _wait_interruptibly(finished)
            if not tasks[0].cancelled():
                tasks[0].exception()  # it is told of the interruption, not of what came of it
            raise
        return tasks[0].result()


def _wait_interruptibly(finished: threading.Event) -> None:
    while not finished.wait(WAKEUP_SECONDS):
        pass
