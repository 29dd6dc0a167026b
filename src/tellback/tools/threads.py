"""Threads for functions that block.

They are daemons, and not the event loop's own: a function that never returns keeps neither others from running nor the
process from ending. Threads are reused, and end when nobody has needed them for a while.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import inspect
import itertools
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from enum import Enum
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

log = logging.getLogger("tellback.tools")

MAX_THREADS = 40
"""How many functions run at once. One that nobody waits for any more does not count."""

IDLE_SECONDS = 10.0
GRACE_SECONDS = 1.0
"""How long the process waits at its end for functions that are still at it, since they may be changing something."""

P = ParamSpec("P")
R = TypeVar("R")

_thread_numbers = itertools.count(1)


class _CallState(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    ABANDONED = "left"
    DONE = "done"


class _ThreadCall:
    """A function to call, and who waits for it."""

    __slots__ = ("_future", "_loop", "error", "state", "value", "work")

    def __init__(self, work: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        self.work = work
        self._future = future
        self._loop = future.get_loop()
        self.state = _CallState.WAITING
        self.value: Any = None
        self.error: BaseException | None = None

    @property
    def is_awaited(self) -> bool:
        """Whether somebody still waits. A cancelled wait shows here before its task has run again."""
        return not self._future.done()

    def deliver(self) -> None:
        """Hand over what came of it."""
        with contextlib.suppress(RuntimeError):  # the event loop is closed: nobody waits
            self._loop.call_soon_threadsafe(self._resolve_future)

    def _resolve_future(self) -> None:
        if self._future.done():
            return
        if self.error is None:
            self._future.set_result(self.value)
        else:
            self._future.set_exception(self.error)


def _run_and_capture(work: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return work(), None
    except StopIteration as error:  # a future cannot carry it, and whoever waits would wait for ever
        failure = RuntimeError(f"StopIteration: {error.value}")
        failure.__cause__ = error
        return None, failure
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is for whoever waits
        return None, error


class ThreadPool:
    """Runs functions in threads of its own, up to `most` at once; more wait for their turn."""

    def __init__(self, max_threads: int = MAX_THREADS, idle_seconds: float = IDLE_SECONDS) -> None:
        self._max_threads = max_threads
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._idle: list[SimpleQueue[_ThreadCall]] = []
        self._queue: deque[_ThreadCall] = deque()
        self._awaited_count = 0
        self._running_count = 0

    async def run(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """What the function gives, called with the caller's context variables.

        Cancelling stops the wait, not the function: nothing can. What it does from then on nobody learns, but if it
        raises, that is logged.
        """
        context = copy_context()
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        call = _ThreadCall(lambda: context.run(fn, *args, **kwargs), future)
        self._enqueue(call)
        try:
            return await future
        finally:
            if call.state is not _CallState.DONE:
                self._abandon(call)
            del call, future  # an error must not hold itself, by way of its traceback

    def wait_idle(self, seconds: float) -> None:
        """Wait so long for functions that are still running."""
        deadline = time.monotonic() + seconds
        while self._running_count and time.monotonic() < deadline:
            time.sleep(0.005)

    def _enqueue(self, call: _ThreadCall) -> None:
        with self._lock:
            self._queue.append(call)
            next_call = self._take_next()
        self._start(next_call)

    def _abandon(self, call: _ThreadCall) -> None:
        """Nobody waits for it any more, so its place is free."""
        with self._lock:
            if call.state is _CallState.WAITING:
                self._queue.remove(call)
            elif call.state is _CallState.RUNNING:
                call.state = _CallState.ABANDONED
                self._awaited_count -= 1
            next_call = self._take_next()
        self._start(next_call)

    def _take_next(self) -> _ThreadCall | None:
        """The next call to run, if there is one and room for it."""
        while self._queue and self._awaited_count < self._max_threads:
            call = self._queue.popleft()
            if not call.is_awaited:
                call.state = _CallState.ABANDONED
                continue
            call.state = _CallState.RUNNING
            self._awaited_count += 1
            self._running_count += 1
            return call
        return None

    def _start(self, call: _ThreadCall | None) -> None:
        """Give it to a thread that has nothing to do, or to a new one."""
        while call is not None:
            try:
                self._get_inbox().put(call)
                return
            except RuntimeError as error:  # the machine has no more threads, or the process is ending
                call.error = error
                next_call = self._finish_call(call)
                call.deliver()
                call = next_call

    def _get_inbox(self) -> SimpleQueue[_ThreadCall]:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        inbox: SimpleQueue[_ThreadCall] = SimpleQueue()
        name = f"tellback-call-{next(_thread_numbers)}"
        threading.Thread(target=self._run_thread, args=(inbox,), name=name, daemon=True).start()
        return inbox

    def _run_thread(self, inbox: SimpleQueue[_ThreadCall]) -> None:
        while self._serve_inbox(inbox):
            pass

    def _serve_inbox(self, inbox: SimpleQueue[_ThreadCall]) -> bool:
        """Run what comes, and all that waits; False when nothing has come for long enough."""
        try:
            call: _ThreadCall | None = inbox.get(timeout=self._idle_seconds)
        except Empty:
            with self._lock:
                if inbox in self._idle:
                    self._idle.remove(inbox)
                    return False
            call = inbox.get()  # somebody has just chosen this thread
        while call is not None:
            call.value, call.error = _run_and_capture(call.work)
            next_call = self._finish_call(call, inbox)
            if call.state is _CallState.DONE:
                call.deliver()
            elif call.error is not None:
                log.warning("a function that nobody waited for any more has failed", exc_info=call.error)
            call = next_call
        return True

    def _finish_call(self, call: _ThreadCall, inbox: SimpleQueue[_ThreadCall] | None = None) -> _ThreadCall | None:
        """Note that it is over; the next call is for the thread of `inbox`, which is idle if there is none."""
        with self._lock:
            self._running_count -= 1
            if call.state is _CallState.RUNNING:
                self._awaited_count -= 1
                call.state = _CallState.DONE
            next_call = self._take_next()
            if next_call is None and inbox is not None:
                self._idle.append(inbox)
            return next_call


_pool = ThreadPool()


async def run_in_thread(fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function that may block in a thread, with the caller's context variables.

    >>> import asyncio
    >>> asyncio.run(run_in_thread(sum, [1, 2]))
    3
    """
    return await _pool.run(fn, *args, **kwargs)


def _reset_after_fork() -> None:
    """A child process has none of its parent's threads."""
    global _pool
    _pool = ThreadPool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
atexit.register(lambda: _pool.wait_idle(GRACE_SECONDS))


async def call_function(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """The function's result; a sync one runs in a thread, with the caller's context variables."""
    if _is_async_callable(fn):
        return await fn(*args, **kwargs)
    value = await run_in_thread(fn, *args, **kwargs)
    return await value if inspect.isawaitable(value) else value


def _is_async_callable(fn: Any) -> bool:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return inspect.iscoroutinefunction(fn if inspect.isroutine(fn) else getattr(fn, "__call__", fn))  # noqa: B004
