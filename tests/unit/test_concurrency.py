"""Background tasks that end correctly, and coroutines that run in a separate context."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextvars import Context, ContextVar, copy_context

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellback import Tellback, events
from tellback.concurrency import BackgroundTasks, cancel_and_wait, run_in_context
from tellback.testing import ScriptedModel, says

pytestmark = pytest.mark.slow

name: ContextVar[str] = ContextVar("name", default="nobody")


def context_with(value: str) -> Context:
    context = copy_context()
    context.run(name.set, value)
    return context


async def current_user() -> str:
    await asyncio.sleep(0)
    return name.get()


async def test_only_the_coroutine_sees_its_context() -> None:
    assert await run_in_context(context_with("maya"), current_user()) == "maya"
    assert name.get() == "nobody"


async def test_variables_set_by_the_coroutine_stay_in_its_context() -> None:
    async def rename() -> None:
        name.set("omar")
        await asyncio.sleep(0)

    context = context_with("maya")
    await run_in_context(context, rename())
    assert name.get() == "nobody"
    assert await run_in_context(context, current_user()) == "omar"


async def test_tasks_and_threads_of_the_coroutine_inherit_the_context() -> None:
    async def many() -> list[str]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(current_user())
        return [task.result(), *await asyncio.gather(current_user(), asyncio.to_thread(name.get))]

    assert await run_in_context(context_with("maya"), many()) == ["maya"] * 3


async def test_an_error_propagates() -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise LookupError(name.get())

    with pytest.raises(LookupError, match="maya"):
        await run_in_context(context_with("maya"), fails())


async def test_a_cancellation_reaches_the_coroutine_which_may_clean_up() -> None:
    started, cleaned = asyncio.Event(), []

    async def works() -> None:
        try:
            started.set()
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            cleaned.append(name.get())

    async def outer() -> None:
        await run_in_context(context_with("maya"), works())

    task = asyncio.create_task(outer())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned == ["maya"]


async def test_the_coroutine_can_handle_its_own_timeout() -> None:
    async def use_timeout() -> str:
        try:
            async with asyncio.timeout(0.001):
                await asyncio.sleep(60)
        except TimeoutError:
            return name.get()
        return "never"

    assert await run_in_context(context_with("maya"), use_timeout()) == "maya"


def test_an_abandoned_coroutine_is_closed_in_its_context() -> None:
    cleaned: list[str] = []

    async def works() -> None:
        try:
            await asyncio.Future()
        finally:
            cleaned.append(name.get())

    async def started() -> None:
        async def outer() -> None:
            await run_in_context(context_with("maya"), works())

        steps = outer()
        steps.send(None)
        steps.close()

    asyncio.run(started())
    assert cleaned == ["maya"]


async def count_from(start: str) -> AsyncGenerator[str, None]:
    name.set(start)
    while True:
        yield name.get()
        await asyncio.sleep(0)
        name.set(name.get() + "!")


@given(st.lists(st.integers(0, 2), max_size=20))
def test_generators_stepped_in_any_order_keep_their_variables(order: list[int]) -> None:
    async def step() -> None:
        contexts = [copy_context() for _ in range(3)]
        generators = [count_from(str(number)) for number in range(3)]
        seen: list[list[str]] = [[], [], []]
        for number in order:
            seen[number].append(await run_in_context(contexts[number], anext(generators[number])))
            assert name.get() == "nobody"
        for context, generator in zip(contexts, generators, strict=True):
            await run_in_context(context, generator.aclose())
        assert seen == [[str(n) + "!" * steps for steps in range(order.count(n))] for n in range(3)]

    asyncio.run(step())


async def test_events_of_a_stream_reach_the_listeners_of_its_reader() -> None:
    seen: list[str] = []
    async with Tellback(":memory:", worker=False) as tb:
        maya = tb.user("maya")
        conversation = await maya.conversations.create("chat")
        items = maya.conversations.stream_turn(conversation.id, ScriptedModel([says("Hello!")]), "Hi!")
        with events.listen(lambda event: seen.append(event.type)):
            assert [item async for item in items]
    assert seen == ["reply:start", "reply:delta", "reply:end"]


async def ignore_cancellation(log: list[str]) -> None:
    """Ignore the first cancellation, like a driver whose response arrives at that moment."""
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        log.append("ignored")
    try:
        await asyncio.sleep(3600)
    finally:
        log.append("ended")


async def test_a_task_that_ignores_a_cancellation_is_cancelled_again() -> None:
    log: list[str] = []
    task = asyncio.create_task(ignore_cancellation(log))
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await cancel_and_wait(task)
    assert task.cancelled()
    assert log == ["ignored", "ended"]


async def test_a_failed_task_is_awaited_without_a_warning() -> None:
    async def failing() -> None:
        raise ValueError("no")

    task = asyncio.create_task(failing())
    await asyncio.sleep(0)
    await cancel_and_wait(task)
    assert task.done()
    await cancel_and_wait()


async def test_closing_cancels_tasks_that_ignore_the_first_cancellation() -> None:
    from tellback import concurrency

    log: list[str] = []
    tasks = BackgroundTasks()
    tasks.start(ignore_cancellation(log), "stubborn")
    await asyncio.sleep(0)
    grace = concurrency.GRACE_SECONDS
    concurrency.GRACE_SECONDS = 0.01
    try:
        async with asyncio.timeout(30):
            await tasks.close()
    finally:
        concurrency.GRACE_SECONDS = grace
    assert log == ["ignored", "ended"]
    assert tasks.names == []
