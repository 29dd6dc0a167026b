"""Threads for functions that block.

They are daemons, and not the event loop's own: a function that never returns keeps neither others from running nor the
process from ending. Threads are reused, and end when nobody has needed them for a while.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
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

MOST = 40
"""How many functions run at once. One that nobody waits for any more does not count."""

IDLE_SECONDS = 10.0
GRACE_SECONDS = 1.0
"""How long the process waits at its end for functions that are still at it, since they may be changing something."""

P = ParamSpec("P")
R = TypeVar("R")

_numbers = itertools.count(1)


class _State(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    LEFT = "left"
    DONE = "done"


class _Call:
    """A function to call, and who waits for it."""

    __slots__ = ("_future", "_loop", "error", "state", "value", "work")

    def __init__(self, work: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        self.work = work
        self._future = future
        self._loop = future.get_loop()
        self.state = _State.WAITING
        self.value: Any = None
        self.error: BaseException | None = None

    @property
    def wanted(self) -> bool:
        """Whether somebody still waits. A cancelled wait shows here before its task has run again."""
        return not self._future.done()

    def tell(self) -> None:
        """Hand over what came of it."""
        with contextlib.suppress(RuntimeError):  # the event loop is closed: nobody waits
            self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        if self._future.done():
            return
        if self.error is None:
            self._future.set_result(self.value)
        else:
            self._future.set_exception(self.error)


def _outcome(work: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return work(), None
    except StopIteration as error:  # a future cannot carry it, and whoever waits would wait for ever
        failure = RuntimeError(f"StopIteration: {error.value}")
        failure.__cause__ = error
        return None, failure
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is for whoever waits
        return None, error


class Threads:
    """Runs functions in threads of its own, up to `most` at once; more wait for their turn."""

    def __init__(self, most: int = MOST, idle_seconds: float = IDLE_SECONDS) -> None:
        self._most = most
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._idle: list[SimpleQueue[_Call]] = []
        self._waiting: deque[_Call] = deque()
        self._awaited = 0
        self._running = 0

    async def run(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """What the function gives, called with the caller's context variables.

        Cancelling stops the wait, not the function: nothing can. What it does from then on nobody learns, but if it
        raises, that is logged.
        """
        context = copy_context()
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        call = _Call(lambda: context.run(fn, *args, **kwargs), future)
        self._accept(call)
        try:
            return await future
        finally:
            if call.state is not _State.DONE:
                self._leave(call)
            del call, future  # an error must not hold itself, by way of its traceback

    def finish(self, seconds: float) -> None:
        """Wait so long for functions that are still running."""
        until = time.monotonic() + seconds
        while self._running and time.monotonic() < until:
            time.sleep(0.005)

    def _accept(self, call: _Call) -> None:
        with self._lock:
            self._waiting.append(call)
            ready = self._next()
        self._begin(ready)

    def _leave(self, call: _Call) -> None:
        """Nobody waits for it any more, so its place is free."""
        with self._lock:
            if call.state is _State.WAITING:
                self._waiting.remove(call)
            elif call.state is _State.RUNNING:
                call.state = _State.LEFT
                self._awaited -= 1
            ready = self._next()
        self._begin(ready)

    def _next(self) -> _Call | None:
        """The next call to run, if there is one and room for it."""
        while self._waiting and self._awaited < self._most:
            call = self._waiting.popleft()
            if not call.wanted:
                call.state = _State.LEFT
                continue
            call.state = _State.RUNNING
            self._awaited += 1
            self._running += 1
            return call
        return None

    def _begin(self, call: _Call | None) -> None:
        """Give it to a thread that has nothing to do, or to a new one."""
        while call is not None:
            try:
                self._inbox().put(call)
                return
            except RuntimeError as error:  # the machine has no more threads, or the process is ending
                call.error = error
                after = self._end(call)
                call.tell()
                call = after

    def _inbox(self) -> SimpleQueue[_Call]:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        inbox: SimpleQueue[_Call] = SimpleQueue()
        name = f"tellback-call-{next(_numbers)}"
        threading.Thread(target=self._work, args=(inbox,), name=name, daemon=True).start()
        return inbox

    def _work(self, inbox: SimpleQueue[_Call]) -> None:
        while self._serve(inbox):
            pass

    def _serve(self, inbox: SimpleQueue[_Call]) -> bool:
        """Run what comes, and all that waits; False when nothing has come for long enough."""
        try:
            call: _Call | None = inbox.get(timeout=self._idle_seconds)
        except Empty:
            with self._lock:
                if inbox in self._idle:
                    self._idle.remove(inbox)
                    return False
            call = inbox.get()  # somebody has just chosen this thread
        while call is not None:
            call.value, call.error = _outcome(call.work)
            after = self._end(call, inbox)
            if call.state is _State.DONE:
                call.tell()
            elif call.error is not None:
                log.warning("a function that nobody waited for any more has failed", exc_info=call.error)
            call = after
        return True

    def _end(self, call: _Call, inbox: SimpleQueue[_Call] | None = None) -> _Call | None:
        """Note that it is over; the next call is for the thread of `inbox`, which is idle if there is none."""
        with self._lock:
            self._running -= 1
            if call.state is _State.RUNNING:
                self._awaited -= 1
                call.state = _State.DONE
            after = self._next()
            if after is None and inbox is not None:
                self._idle.append(inbox)
            return after


_threads = Threads()


async def run_in_thread(fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function that may block in a thread, with the caller's context variables.

    >>> import asyncio
    >>> asyncio.run(run_in_thread(sum, [1, 2]))
    3
    """
    return await _threads.run(fn, *args, **kwargs)


def _renew() -> None:
    """A child process has none of its parent's threads."""
    global _threads
    _threads = Threads()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
atexit.register(lambda: _threads.finish(GRACE_SECONDS))
