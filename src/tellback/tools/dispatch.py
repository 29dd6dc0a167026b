"""Dispatch tool calls: validate input, run synchronous functions in threads, apply timeouts, convert results."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import inspect
import itertools
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

from tellback.telemetry import NO_TOOL_SPAN, ToolSpan, tool_span, tracer
from tellback.tools.context import ToolUpdate, bind_call, current_tool_host
from tellback.tools.schema import InvalidInput
from tellback.tools.tool import Tool, is_async_function, tools_by_name
from tellback.types import MessagePart, ToolCall, ToolResult, as_tool_call, flatten_parts
from tellback.types.jsontext import dump_json

log = logging.getLogger("tellback.tools")

MAX_THREADS = 40
"""Maximum number of functions running at the same time, not counting abandoned ones."""

IDLE_SECONDS = 10.0
GRACE_SECONDS = 1.0
"""How long process exit waits for running functions, which may be changing data."""

P = ParamSpec("P")
R = TypeVar("R")

_thread_numbers = itertools.count(1)

Tools = Mapping[str, Tool] | Iterable[Tool | Callable[..., Any]]
OnResult = Callable[[ToolResult], Awaitable[None]]


class _CallState(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    ABANDONED = "abandoned"
    DONE = "done"


class _ThreadCall:
    """A function to call in a thread, and the future for its result."""

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
        """Whether a task still waits for the result. False immediately after the waiting task is cancelled."""
        return not self._future.done()

    def deliver(self) -> None:
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(self._resolve_future)

    def _resolve_future(self) -> None:
        if self._future.done():
            return
        if self.error is None:
            self._future.set_result(self.value)
        else:
            self._future.set_exception(self.error)


def _run_and_capture(work: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    # Not a method of the call: the traceback of an error would reference the call, which references the error.
    try:
        return work(), None
    except StopIteration as error:  # a future does not accept it, so the waiting task would never resume
        failure = RuntimeError(f"StopIteration: {error.value}")
        failure.__cause__ = error
        return None, failure
    except BaseException as error:  # noqa: BLE001 - the waiting task receives every error
        return None, error


class ThreadPool:
    """Runs functions in a pool of up to `max_threads` threads; further calls are queued."""

    def __init__(self, max_threads: int = MAX_THREADS, idle_seconds: float = IDLE_SECONDS) -> None:
        self._max_threads = max_threads
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._idle: list[SimpleQueue[_ThreadCall]] = []
        self._queue: deque[_ThreadCall] = deque()
        self._awaited_count = 0
        self._running_count = 0

    async def run(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function with the caller's context variables and return its result.

        Cancellation stops the wait, but not the function, because threads cannot be stopped. The later result is
        dropped, and a later error is logged.
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
            del call, future  # break the reference cycle through an error's traceback

    def wait_idle(self, seconds: float) -> None:
        """Wait up to `seconds` for running functions."""
        deadline = time.monotonic() + seconds
        while self._running_count and time.monotonic() < deadline:
            time.sleep(0.005)

    def _enqueue(self, call: _ThreadCall) -> None:
        with self._lock:
            self._queue.append(call)
            next_call = self._take_next()
        self._start(next_call)

    def _abandon(self, call: _ThreadCall) -> None:
        """Free the slot of a call that no task waits for."""
        with self._lock:
            if call.state is _CallState.WAITING:
                self._queue.remove(call)
            elif call.state is _CallState.RUNNING:
                call.state = _CallState.ABANDONED
                self._awaited_count -= 1
            next_call = self._take_next()
        self._start(next_call)

    def _take_next(self) -> _ThreadCall | None:
        """Return the next call to run, or None if the queue is empty or all slots are in use."""
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
        """Pass the call to an idle thread or a new one."""
        while call is not None:
            try:
                self._get_inbox().put(call)
                return
            except RuntimeError as error:  # the thread limit is reached, or the process is exiting
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
        """Run the next call and all queued ones; return False after the idle timeout."""
        try:
            call: _ThreadCall | None = inbox.get(timeout=self._idle_seconds)
        except Empty:
            with self._lock:
                if inbox in self._idle:
                    self._idle.remove(inbox)
                    return False
            call = inbox.get()  # another thread has just assigned a call to this one
        while call is not None:
            call.value, call.error = _run_and_capture(call.work)
            next_call = self._finish_call(call, inbox)
            if call.state is _CallState.DONE:
                call.deliver()
            elif call.error is not None:
                log.warning("An abandoned function failed", exc_info=call.error)
            call = next_call
        return True

    def _finish_call(self, call: _ThreadCall, inbox: SimpleQueue[_ThreadCall] | None = None) -> _ThreadCall | None:
        """Record the end of a call and return the next one for the thread of `inbox`, or mark the thread as idle."""
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
    """Call a blocking function in a thread, with the caller's context variables.

    >>> import asyncio
    >>> asyncio.run(run_in_thread(sum, [1, 2]))
    3
    """
    return await _pool.run(fn, *args, **kwargs)


def _reset_after_fork() -> None:
    """Replace the pool in a forked child process, which has none of its parent's threads."""
    global _pool
    _pool = ThreadPool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
atexit.register(lambda: _pool.wait_idle(GRACE_SECONDS))


async def call_function(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a function and return its result; run a sync one in a thread with the caller's context variables."""
    return await _invoke(fn, args, kwargs, is_async=is_async_function(fn))


async def _invoke(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, is_async: bool) -> Any:
    if is_async:
        return await fn(*args, **kwargs)
    value = await run_in_thread(fn, *args, **kwargs)
    return await value if inspect.isawaitable(value) else value


def dispatch(call: ToolCall | Mapping[str, Any], tools: Tools) -> Coroutine[Any, Any, ToolResult]:
    """Run one call. Errors are returned to the model as a result with `is_error`.

    >>> import asyncio
    >>> def add(x: int, y: int) -> int: return x + y
    >>> asyncio.run(dispatch(ToolCall("call_1", "add", {"x": 1, "y": 2}), [add])).content
    '3'
    """
    by_name = tools if isinstance(tools, Mapping) else tools_by_name(tools)
    return (_run_call if tracer() is None else _run_traced)(as_tool_call(call), by_name)


async def _run_traced(call: ToolCall, tools: Mapping[str, Tool]) -> ToolResult:
    with tool_span(call, is_known=call.name in tools) as span:
        return span.record_result(await _run_call(call, tools, span))


async def _run_call(call: ToolCall, tools: Mapping[str, Tool], span: ToolSpan = NO_TOOL_SPAN) -> ToolResult:
    tool = tools.get(call.name)
    if tool is None:
        known_names = ", ".join(sorted(tools)) or "none"
        span.record_error("unknown_tool")
        return _error_result(call, f"There is no tool called {call.name!r}. Available tools: {known_names}.")
    if call.invalid_input is not None:
        span.record_error("invalid_arguments")
        return _error_result(
            call, f"The arguments are not a valid JSON object: {call.invalid_input[:200]!r}. Call {call.name} again."
        )
    limit: asyncio.Timeout | None = None
    try:
        args, kwargs = tool.bind(call.input)
        with bind_call(call):
            if tool.timeout is None:
                value = await _invoke(tool.fn, args, kwargs, is_async=tool.is_async)
            else:
                async with asyncio.timeout(tool.timeout) as limit:
                    value = await _invoke(tool.fn, args, kwargs, is_async=tool.is_async)
        return _render_result(call, value)
    except InvalidInput as problem:
        span.record_error("invalid_arguments")
        return _error_result(call, f"Invalid arguments for {call.name}: {problem}. Correct them and call it again.")
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # This task was not cancelled, but something inside the tool was.
        return _error_result(call, _log_and_describe(call, error, span))
    except TimeoutError as error:
        if limit is not None and limit.expired():
            span.record_error("timeout")
            return _error_result(call, f"{call.name} did not finish within {tool.timeout:g} seconds.")
        return _error_result(call, _log_and_describe(call, error, span))
    except Exception as error:  # noqa: BLE001
        # A tool may raise anything: the model gets the message, and the traceback is logged.
        return _error_result(call, _log_and_describe(call, error, span))


async def dispatch_all(calls: Sequence[ToolCall], tools: Tools, on_result: OnResult | None = None) -> list[ToolResult]:
    """Run calls concurrently and return the results in the order of the calls. Cancellation cancels all of them.

    `on_result` is awaited with each result. Its errors are raised only after all calls have finished, so that a failed
    `on_result` does not stop a tool that is changing data.

    >>> import asyncio
    >>> def add(x: int, y: int) -> int: return x + y
    >>> calls = [ToolCall("call_1", "add", {"x": 1, "y": 2}), ToolCall("call_2", "add", {"x": 3, "y": 4})]
    >>> [result.content for result in asyncio.run(dispatch_all(calls, [add]))]
    ['3', '7']
    """
    by_name = tools if isinstance(tools, Mapping) else tools_by_name(tools)
    execute = _run_call if tracer() is None else _run_traced
    failures: list[Exception] = []

    async def run(call: ToolCall) -> ToolResult:
        result = await execute(as_tool_call(call), by_name)
        if on_result is not None:
            try:
                await on_result(result)
            except Exception as error:  # noqa: BLE001
                failures.append(error)
        return result

    if len(calls) == 1:
        results = [await run(calls[0])]
    else:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run(call)) for call in calls]
        results = [task.result() for task in tasks]
    if failures:
        raise failures[0]
    return results


def _log_and_describe(call: ToolCall, error: BaseException, span: ToolSpan) -> str:
    log.warning("Tool %s failed", call.name, exc_info=error)
    span.record_error(type(error).__name__, error)
    try:
        message = str(error)
    except Exception:  # noqa: BLE001
        message = "(no message)"
    return f"{call.name} failed: {type(error).__name__}: {message}"


def _error_result(call: ToolCall, content: str) -> ToolResult:
    return ToolResult(id=call.id, content=content, is_error=True, name=call.name)


def _render_result(call: ToolCall, value: Any) -> ToolResult:
    if isinstance(value, str):
        return ToolResult(call.id, value, False, call.name, None, value)
    if not isinstance(value, ToolUpdate):
        return _render_value(call, value)
    result = _render_value(call, value.value)
    host = current_tool_host()
    if host is not None and not result.is_error:
        host.update(value)
    return result


def _render_value(call: ToolCall, value: Any) -> ToolResult:
    if isinstance(value, str):
        return ToolResult(call.id, value, False, call.name, None, value)
    if isinstance(value, ToolResult):
        return replace(value, id=call.id, name=call.name)
    if isinstance(value, MessagePart):
        value = [value]
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, MessagePart) for item in value):
        parts = tuple(value)
        return ToolResult(call.id, flatten_parts(parts), False, call.name, parts, value)
    error = _find_error(value)
    try:
        if error is not None:
            return _error_result(call, str(error) if isinstance(error, str | Exception) else dump_json(error))
        content = dump_json(value)
    except (TypeError, ValueError, RecursionError) as problem:
        return _error_result(
            call, f"{call.name} returned a {type(value).__name__} that cannot be converted to JSON: {problem}"
        )
    return ToolResult(call.id, content, False, call.name, None, value)


def _find_error(value: Any) -> Any:
    """Return the error of a result such as `{"data": None, "error": "No seats left"}` or `{"error": ...}`, or None.

    In other mappings, `error` may be an ordinary value.
    """
    if isinstance(value, Mapping):
        found: Mapping[str, Any] = value
    elif is_dataclass(value) and not isinstance(value, type):
        found = {each.name: getattr(value, each.name) for each in fields(value)}
    else:
        return None
    return (found.get("error") or None) if "data" in found or found.keys() == {"error"} else None
