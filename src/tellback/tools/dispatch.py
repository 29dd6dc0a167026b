"""Running tool calls: checked input, off the event loop where needed, in time, failures as results."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tellback.telemetry import ToolSpan, tool_span, tracer
from tellback.tools.context import ToolUpdate, bind_call, current_tool_host
from tellback.tools.schema import InvalidInput
from tellback.tools.threads import run_in_thread
from tellback.tools.tool import Tool, tools_by_name
from tellback.types import MessagePart, ToolCall, ToolResult, as_tool_call, flatten_parts
from tellback.types.jsontext import dump_json

log = logging.getLogger("tellback.tools")

Tools = Mapping[str, Tool] | Iterable[Tool | Callable[..., Any]]
OnResult = Callable[[ToolResult], Awaitable[None]]


def dispatch(call: ToolCall | Mapping[str, Any], tools: Tools) -> Coroutine[Any, Any, ToolResult]:
    """Run one call. Whatever goes wrong comes back as a result with `is_error`, for the model to read.

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


async def _run_call(call: ToolCall, tools: Mapping[str, Tool], span: ToolSpan | None = None) -> ToolResult:
    tool = tools.get(call.name)
    if tool is None:
        known_names = ", ".join(sorted(tools)) or "none"
        _set_span_error(span, "unknown_tool")
        return _error_result(call, f"There is no tool called {call.name!r}. Available tools: {known_names}.")
    if call.invalid_input is not None:
        _set_span_error(span, "invalid_arguments")
        return _error_result(
            call, f"The arguments are not a whole JSON object: {call.invalid_input[:200]!r}. Call {call.name} again."
        )
    limit: asyncio.Timeout | None = None
    try:
        args, kwargs = tool.bind(call.input)
        with bind_call(call):
            if tool.timeout is None:
                value = await _invoke(tool, args, kwargs)
            else:
                async with asyncio.timeout(tool.timeout) as limit:
                    value = await _invoke(tool, args, kwargs)
        return _render_result(call, value)
    except InvalidInput as problem:
        _set_span_error(span, "invalid_arguments")
        return _error_result(call, f"Invalid arguments for {call.name}: {problem}. Correct them and call it again.")
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return _error_result(
            call, _log_and_describe(call, error, span)
        )  # nobody cancelled us: something inside the tool was
    except TimeoutError as error:
        if limit is not None and limit.expired():
            _set_span_error(span, "timeout")
            return _error_result(call, f"{call.name} did not finish within {tool.timeout:g} seconds.")
        return _error_result(call, _log_and_describe(call, error, span))
    except Exception as error:  # noqa: BLE001
        # A tool may raise anything; the model is told, the developer finds the traceback in the log.
        return _error_result(call, _log_and_describe(call, error, span))


async def dispatch_all(calls: Sequence[ToolCall], tools: Tools, on_result: OnResult | None = None) -> list[ToolResult]:
    """Run calls at the same time; results come in the calls' order. Cancelling cancels them all.

    `on_result` is awaited with each result as it comes. What it raises is raised once every call has ended: a tool that
    is changing something is not stopped because the result of another could not be kept.
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


async def _invoke(tool: Tool, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if tool.is_async:
        return await tool.fn(*args, **kwargs)
    value = await run_in_thread(tool.fn, *args, **kwargs)
    return await value if inspect.isawaitable(value) else value


def _set_span_error(span: ToolSpan | None, kind: str, error: BaseException | None = None) -> None:
    if span is not None:
        span.record_error(kind, error)


def _log_and_describe(call: ToolCall, error: BaseException, span: ToolSpan | None) -> str:
    log.warning("tool %s failed", call.name, exc_info=error)
    _set_span_error(span, type(error).__name__, error)
    try:
        message = str(error)
    except Exception:  # noqa: BLE001
        message = "(it cannot even say how)"
    return f"{call.name} failed: {type(error).__name__}: {message}"


def _error_result(call: ToolCall, content: str) -> ToolResult:
    return ToolResult(id=call.id, content=content, is_error=True, name=call.name)


def _render_result(call: ToolCall, value: Any) -> ToolResult:
    if isinstance(value, str):
        return ToolResult(call.id, value, False, call.name, None, value)
    if isinstance(value, ToolUpdate):
        host = current_tool_host()
        if host is not None:
            host.update(value)
        value = value.value
        if isinstance(value, str):
            return ToolResult(call.id, value, False, call.name, None, value)
    if isinstance(value, ToolResult):
        return replace(value, id=call.id, name=call.name)
    if isinstance(value, MessagePart):
        value = [value]
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, MessagePart) for item in value):
        parts = tuple(value)
        return ToolResult(call.id, flatten_parts(parts), False, call.name, parts, value)
    try:
        content = dump_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        return _error_result(call, f"{call.name} returned a {type(value).__name__} that is not JSON: {error}")
    return ToolResult(call.id, content, False, call.name, None, value)
