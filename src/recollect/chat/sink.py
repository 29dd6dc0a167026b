"""Where the deltas of a run go."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Generator
from typing import Any

from recollect import events
from recollect.chat.options import ChatOptions
from recollect.types import ReplyDelta

OnDelta = Callable[[ReplyDelta], Any]


class DeltaSink:
    """Where deltas go: the caller's callback, sync or async, and the run's event stream.

    What an async callback has to do is done by one task, in order, while the stream goes on. Calling the sink returns
    it, and it can be awaited, so that stream functions may write `on_delta(d)` or `await on_delta(d)`.
    """

    __slots__ = ("_label", "_on_delta", "_task", "_waiting")

    def __init__(self, opts: ChatOptions, on_delta: OnDelta | None) -> None:
        self._on_delta = on_delta
        self._label = opts.delta_data_type if opts.emit_stream_deltas else None
        self._waiting: deque[Any] = deque()
        self._task: asyncio.Task[None] | None = None

    def __call__(self, delta: ReplyDelta) -> DeltaSink:
        if self._label is not None:
            events.emit(self._label, delta)
        if self._on_delta is not None:
            outcome = self._on_delta(delta)
            if outcome is not None and inspect.isawaitable(outcome):
                self._waiting.append(outcome)
                if self._task is None or self._task.done():
                    if self._task is not None:
                        self._task.result()  # raises what the callback raised before
                    self._task = asyncio.ensure_future(self._work())
        return self

    def __await__(self) -> Generator[Any, Any, None]:
        if self._task is not None:
            yield from self.settle().__await__()

    @property
    def is_behind(self) -> bool:
        """Whether an async callback still has something to do."""
        return self._task is not None

    async def settle(self) -> None:
        """Wait until it has caught up; what the callback raises is raised here."""
        try:
            while self._task is not None:
                task, self._task = self._task, None
                await task
                if self._waiting:
                    self._task = asyncio.ensure_future(self._work())
        finally:
            while self._waiting:  # after a failure nobody will await the rest
                close = getattr(self._waiting.popleft(), "close", None)
                if close is not None:
                    close()

    async def _work(self) -> None:
        while self._waiting:
            await self._waiting.popleft()
