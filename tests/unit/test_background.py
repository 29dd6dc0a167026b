"""Stopping what runs in the background."""

from __future__ import annotations

import asyncio

from tellback.concurrency import BackgroundTasks, cancel_and_wait


async def stubborn(ended: list[str]) -> None:
    """Does not hear its first cancellation, as with a driver that had its answer at that very moment."""
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        ended.append("not heard")
    try:
        await asyncio.sleep(3600)
    finally:
        ended.append("ended")


async def test_what_does_not_hear_a_cancellation_is_cancelled_again() -> None:
    ended: list[str] = []
    task = asyncio.create_task(stubborn(ended))
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await cancel_and_wait(task)
    assert task.cancelled()
    assert ended == ["not heard", "ended"]


async def test_what_failed_is_stopped_without_a_word() -> None:
    async def failing() -> None:
        raise ValueError("no")

    task = asyncio.create_task(failing())
    await asyncio.sleep(0)
    await cancel_and_wait(task)
    assert task.done()
    await cancel_and_wait()


async def test_closing_ends_what_did_not_hear_of_it() -> None:
    from tellback import concurrency

    ended: list[str] = []
    running = BackgroundTasks()
    running.start(stubborn(ended), "stubborn")
    await asyncio.sleep(0)
    grace = concurrency.GRACE_SECONDS
    concurrency.GRACE_SECONDS = 0.01
    try:
        async with asyncio.timeout(30):
            await running.close()
    finally:
        concurrency.GRACE_SECONDS = grace
    assert ended == ["not heard", "ended"]
    assert running.names == []
