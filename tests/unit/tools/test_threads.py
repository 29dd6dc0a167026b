"""Running functions in threads: concurrency, hanging functions, errors and memory."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellback import ToolCall, tool
from tellback.tools import dispatch, dispatch_all
from tellback.tools.dispatch import ThreadPool


async def wait_until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_so():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.005)


@settings(max_examples=20, deadline=None)
@given(most=st.integers(1, 5), calls=st.integers(1, 25))
async def test_every_call_returns_and_concurrency_is_limited(most: int, calls: int) -> None:
    threads, lock = ThreadPool(most, idle_seconds=0.01), threading.Lock()
    running = peak = 0

    def work(number: int) -> int:
        nonlocal running, peak
        with lock:
            running += 1
            peak = max(peak, running)
        time.sleep(0.0005)
        with lock:
            running -= 1
        return number

    assert await asyncio.gather(*(threads.run(work, number) for number in range(calls))) == list(range(calls))
    assert peak <= most


async def test_a_thread_is_reused_and_ends_after_the_idle_timeout() -> None:
    threads = ThreadPool(idle_seconds=0.05)
    found = {await threads.run(threading.current_thread) for _ in range(20)}
    assert len(found) == 1
    [thread] = found
    assert thread.daemon
    await wait_until(lambda: not thread.is_alive())
    assert await threads.run(threading.current_thread) is not thread


async def test_abandoned_hanging_functions_free_their_slots() -> None:
    threads, release = ThreadPool(max_threads=2, idle_seconds=0.01), threading.Event()
    hanging = [asyncio.create_task(threads.run(release.wait)) for _ in range(2)]
    queued = asyncio.create_task(threads.run(int, "7"))
    await asyncio.sleep(0.02)
    assert not queued.done()
    hanging[0].cancel()
    assert await asyncio.wait_for(queued, 20) == 7
    hanging[1].cancel()
    assert await asyncio.gather(*(threads.run(int, str(number)) for number in range(10))) == list(range(10))
    release.set()


async def test_a_call_cancelled_in_the_queue_never_runs() -> None:
    threads, release = ThreadPool(max_threads=1, idle_seconds=0.01), threading.Event()
    called: list[int] = []
    went_on = threading.Event()
    first = asyncio.create_task(threads.run(release.wait))
    second = asyncio.create_task(threads.run(called.append, 2))
    third = asyncio.create_task(threads.run(called.append, 3))
    last = asyncio.create_task(threads.run(went_on.set))
    await asyncio.sleep(0)
    second.cancel()
    release.set()
    assert went_on.wait(20)  # the thread continues before the cancelled task runs again
    await last
    await first
    await third
    assert called == [3]


class Odd(BaseException):
    pass


@pytest.mark.parametrize("error", [ValueError("no"), Odd(), asyncio.CancelledError()])
async def test_exceptions_are_raised_in_the_waiting_task(error: BaseException) -> None:
    def work() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        await ThreadPool(idle_seconds=0.01).run(work)
    assert caught.value is error or isinstance(error, asyncio.CancelledError)


async def test_the_error_of_an_abandoned_function_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    threads, release = ThreadPool(idle_seconds=0.01), threading.Event()

    def work() -> None:
        release.wait()
        raise ValueError("too late")

    task = asyncio.create_task(threads.run(work))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    release.set()
    await wait_until(lambda: bool(caplog.records))
    [record] = caplog.records
    assert (record.name, record.levelno) == ("tellback.tools", logging.WARNING)
    assert record.exc_info is not None
    assert "too late" in str(record.exc_info[1])


async def test_finished_calls_release_arguments_results_and_errors() -> None:
    class Thing:
        def fail(self) -> None:
            raise ValueError(self)

    threads = ThreadPool()
    gc.disable()  # they are freed without the cycle collector
    try:
        thing = Thing()
        references = weakref.ref(thing)
        assert await threads.run(lambda value: value, thing) is thing
        with contextlib.suppress(ValueError):
            await threads.run(thing.fail)
        del thing
        await wait_until(lambda: references() is None)
    finally:
        gc.enable()


async def test_a_failure_to_start_a_thread_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    threads = ThreadPool(max_threads=1, idle_seconds=0.01)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        outcomes = await asyncio.gather(*(threads.run(int, "1") for _ in range(3)), return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["can't start new thread"] * 3
    assert await threads.run(int, "1") == 1


async def test_hanging_sync_tools_do_not_block_other_tools() -> None:
    release = threading.Event()

    @tool(timeout=0.01)
    def hang() -> None:
        release.wait()

    def work(n: int) -> int:
        return n

    stuck = await dispatch_all([ToolCall(str(n), "hang") for n in range(60)], [hang])
    assert {result.content for result in stuck} == {"hang did not finish within 0.01 seconds."}
    assert (await asyncio.wait_for(dispatch(ToolCall("c", "work", {"n": 1}), [work]), 20)).content == "1"
    release.set()


def run_script(code: str) -> str:
    process = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=40)
    assert process.returncode == 0, process.stderr
    assert not process.stderr
    return process.stdout


HANGS = """
import asyncio, threading
from tellback import ToolCall, tool
from tellback.tools import dispatch

@tool(timeout=0.05)
def hang() -> None:
    threading.Event().wait()

print(asyncio.run(dispatch(ToolCall("c", "hang"), [hang])).content)
"""


def test_a_hanging_tool_does_not_keep_the_process_alive() -> None:
    assert run_script(HANGS).strip() == "hang did not finish within 0.05 seconds."


WRITES = """
import asyncio, sys, time
from tellback.tools.dispatch import run_in_thread

def write() -> None:
    time.sleep(0.1)
    print("written", flush=True)

async def main() -> None:
    task = asyncio.create_task(run_in_thread(write))
    await asyncio.sleep(0.01)
    task.cancel()

asyncio.run(main())
"""


def test_running_functions_get_a_grace_period_at_exit() -> None:
    assert run_script(WRITES).strip() == "written"


FORKS = """
import asyncio, os
from tellback.tools.dispatch import run_in_thread

assert asyncio.run(run_in_thread(int, "1")) == 1
child = os.fork()
if child == 0:
    os._exit(asyncio.run(asyncio.wait_for(run_in_thread(int, "7"), 20)))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_gets_a_new_thread_pool() -> None:
    code = FORKS if sys.version_info < (3, 12) else "import warnings\nwarnings.simplefilter('ignore')\n" + FORKS
    assert run_script(code).strip() == "7"


def test_the_pool_works_with_consecutive_event_loops() -> None:
    threads = ThreadPool()

    async def main() -> Any:
        return await threads.run(threading.get_ident)

    assert asyncio.run(main()) == asyncio.run(main()) != threading.get_ident()
