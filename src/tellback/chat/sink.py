"""Where the deltas of a run go."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections import deque
from collections.abc import Callable, Generator
from typing import Any

from tellback import events
from tellback.chat.options import ChatOptions
from tellback.types import ReplyDelta

log = logging.getLogger("tellback.chat")

OnDelta = Callable[[ReplyDelta], Any]


class DeltaSink:
    """Where deltas go: the caller's callback, sync or async, and the run's event stream.

    What an async callback has to do is done by one task, in order, while the stream goes on. Calling the sink returns
    it, and it can be awaited, so that stream functions may write `on_delta(d)` or `await on_delta(d)`. It may be called
    from another thread; the callback runs on the event loop all the same. As a context manager it sees to it that the
    callback has caught up when the block ends, or stops it when the block is cancelled.
    """

    __slots__ = ("_event_name", "_loop", "_on_delta", "_pending", "_task", "_thread_id")

    def __init__(self, opts: ChatOptions, on_delta: OnDelta | None) -> None:
        self._on_delta = on_delta
        self._event_name = opts.delta_data_type if opts.emit_stream_deltas else None
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._pending: deque[Any] = deque()
        self._task: asyncio.Task[None] | None = None

    def __call__(self, delta: ReplyDelta) -> DeltaSink:
        if threading.get_ident() != self._thread_id:
            self._loop.call_soon_threadsafe(self, delta)
            return self
        if self._event_name is not None:
            events.emit(self._event_name, delta)
        if self._on_delta is not None:
            outcome = self._on_delta(delta)
            if outcome is not None and inspect.isawaitable(outcome):
                self._pending.append(outcome)
                if self._task is None or self._task.done():
                    if self._task is not None:
                        self._task.result()  # raises what the callback raised before
                    self._task = asyncio.ensure_future(self._run_pending())
        return self

    def __await__(self) -> Generator[Any, Any, None]:
        if self._task is not None:
            yield from self.flush().__await__()

    async def __aenter__(self) -> DeltaSink:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is None:
            await self
        elif isinstance(error, Exception):
            try:
                await self
            except Exception as callback_error:
                if callback_error is not error:  # the first failure is the one to tell
                    log.warning("on_delta failed as well", exc_info=callback_error)
        else:
            self._cancel()

    @property
    def has_pending(self) -> bool:
        """Whether an async callback still has something to do."""
        return self._task is not None

    async def flush(self) -> None:
        """Wait until it has caught up; what the callback raises is raised here."""
        try:
            while self._task is not None:
                task, self._task = self._task, None
                await task
                if self._pending:
                    self._task = asyncio.ensure_future(self._run_pending())
        except BaseException:
            self._cancel()
            raise

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        while self._pending:  # nobody will await them now
            close = getattr(self._pending.popleft(), "close", None)
            if close is not None:
                close()

    async def _run_pending(self) -> None:
        while self._pending:
            await self._pending.popleft()
