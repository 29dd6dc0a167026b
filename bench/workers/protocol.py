"""Shared code of all workers: the question and the answer, and the protocol with the parent process.

A worker reads one JSON request per line and writes one JSON answer per line. Everything is checked after the clock has
stopped, so that no contender pays for the checks. The fake model's replies are created before the clock starts, unless
the framework modifies them.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

QUESTION = "What is 17 plus 25?"
ANSWER = "Good morning."
SUM_PREFIX = "The sum is "
SUM_ANSWER = "The sum is 42."
TOOL = "add"
CALL_ID = "call_1"
ARGUMENTS = {"x": 17, "y": 25}
ARGUMENTS_JSON = '{"x": 17, "y": 25}'
PIECES = tuple(f"word{index} " for index in range(1_000))
STREAMED_TEXT = "".join(PIECES)

WARM_UP_SECONDS = 0.25
WARM_UP_MIN_COUNT = 4
SETTLE_EVERY = 20
"""An instant model never yields to the event loop; a real one would, at every call."""
SETTLE_PASSES = 3
"""Iterations for a callback that starts a task, the task, and its done callbacks."""


@dataclass
class CallCounter:
    """Counts the calls of the fake model and of the tool."""

    model_calls: int = 0
    tool_runs: int = 0
    longest_history: int = 0

    def record_call(self, history: int) -> None:
        self.model_calls += 1
        if history > self.longest_history:
            self.longest_history = history


@dataclass(frozen=True)
class Operation:
    """One measured operation: `run` returns the final text, or the streamed pieces."""

    run: Callable[[], Awaitable[Any]]
    expected: str
    model_calls: int = 1
    tool_runs: int = 0
    history: int = 1


def plain_operation(run: Callable[[], Awaitable[str]]) -> Operation:
    return Operation(run, ANSWER)


def tool_operation(run: Callable[[], Awaitable[str]]) -> Operation:
    """Build an operation with a tool call: the second model call sees question, call and result."""
    return Operation(run, SUM_ANSWER, model_calls=2, tool_runs=1, history=3)


def stream_operation(run: Callable[[], Awaitable[list[str]]]) -> Operation:
    return Operation(run, STREAMED_TEXT)


def serve(operations: dict[str, Operation], counter: CallCounter, packages: Sequence[str]) -> None:
    """Answer the parent's requests for these operations until it closes the pipe."""

    async def handle_request(request: dict[str, Any]) -> dict[str, Any]:
        operation = operations[request["kind"]]
        if request["count"] is None:
            return {"estimate_ms": await _warm_up(operation, counter)}
        cpu_ms, wall_ms = await _time_batch(operation, counter, request["count"])
        return {"cpu_ms": cpu_ms, "wall_ms": wall_ms}

    answer_requests(handle_request, list(operations), packages)


def answer_requests(
    handle_request: Callable[[dict[str, Any]], Coroutine[Any, Any, dict[str, Any]]],
    kinds: Sequence[str],
    packages: Sequence[str],
) -> None:
    """Answer each request with the result of `handle_request`, on one event loop, until the pipe is closed."""
    # Frameworks may print: only answers go to the pipe, and all other output goes to stderr.
    output = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def respond(**values: Any) -> None:
        output.write(json.dumps(values) + "\n")
        output.flush()

    respond(kinds=kinds, versions={name: version(name) for name in packages})
    with asyncio.Runner() as runner:
        for line in sys.stdin:
            try:
                respond(**runner.run(handle_request(json.loads(line))))
            except Exception as error:  # noqa: BLE001
                # The parent reports every exception of a framework.
                traceback.print_exc()
                respond(error=f"{type(error).__name__}: {error}")


async def _warm_up(operation: Operation, counter: CallCounter) -> float:
    """Run until caches are filled; return a rough estimate of the CPU time of one operation."""
    total_seconds = 0.0
    count = 1
    while True:
        cpu_ms, _ = await _time_batch(operation, counter, count)
        total_seconds += cpu_ms * count / 1000
        if count >= WARM_UP_MIN_COUNT and total_seconds >= WARM_UP_SECONDS:
            return cpu_ms
        count *= 2


async def _time_batch(operation: Operation, counter: CallCounter, count: int) -> tuple[float, float]:
    calls_before = (counter.model_calls, counter.tool_runs)
    counter.longest_history = 0
    outcomes: list[Any] = []
    gc.collect()
    wall = time.perf_counter()
    cpu = time.process_time()
    for index in range(1, count + 1):
        outcomes.append(await operation.run())
        if index % SETTLE_EVERY == 0 or index == count:
            await settle()
    cpu = time.process_time() - cpu
    wall = time.perf_counter() - wall

    for outcome in outcomes:
        _check(operation, outcome)
    expect("model calls", counter.model_calls - calls_before[0], count * operation.model_calls)
    expect("tool runs", counter.tool_runs - calls_before[1], count * operation.tool_runs)
    expect("messages sent to the model", counter.longest_history, operation.history)
    return 1000 * cpu / count, 1000 * wall / count


async def settle() -> None:
    """Let the event loop finish pending work, such as closing generators: it is part of the cost."""
    for _ in range(SETTLE_PASSES):
        await asyncio.sleep(0)


def _check(operation: Operation, outcome: Any) -> None:
    if isinstance(outcome, list):
        expect("deltas", len(outcome), len(PIECES))
        outcome = "".join(outcome)
    expect("text", outcome, operation.expected)


def expect(what: str, actual: Any, expected: Any) -> None:
    if actual != expected:
        raise AssertionError(f"{what}: {actual!r:.80} instead of {expected!r:.80}")
