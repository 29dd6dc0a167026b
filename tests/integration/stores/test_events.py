"""The event feed across processes: prompt, ordered, without gaps or duplicates."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, cast

import asyncpg
import pytest

from tellback import Tellback
from tellback.types.conversations import Event
from tests.integration.stores.assertions import EventRecorder, acknowledged_outputs, conversations_of, load_messages
from tests.support.subprocesses import child_process, child_processes

PROMPT = 1.5
"""Less than the interval at which PostgreSQL's events are polled without a notification."""


def subscription(tb: Tellback, after: int = 0, **filters: Any) -> Any:
    """A subscription that ends with the block; `subscribe` is an async generator."""
    return aclosing(cast("Any", tb.events.subscribe(after, **filters)))


async def take_events(events: AsyncIterator[Event], count: int, seconds: float = 20) -> list[Event]:
    found: list[Event] = []
    async with asyncio.timeout(seconds):
        while len(found) < count:
            found.append(await anext(events))
    return found


async def test_events_of_another_process_arrive_promptly_and_in_order(url: str) -> None:
    async with Tellback(url, worker=False) as tb:
        conversation = await conversations_of(tb).create("chat")
        start = await tb.events.latest()
        arrival_times: dict[str, float] = {}
        event_recorder = EventRecorder()
        async with (
            subscription(tb, start) as events,
            child_process("append", url=url, conversations=[conversation.id], tag="x", count=20, rest=0.05) as writer,
        ):
            for _ in range(20):
                [event] = await take_events(events, 1)
                arrival_times[event.data["message_id"]] = time.time()
                event_recorder.record(event)
            outputs = acknowledged_outputs(await writer.wait())
        event_recorder.assert_covers(conversation.id, await load_messages(tb, conversation.id))
        assert max(arrival_times[line["id"]] - line["at"] for line in outputs) < PROMPT


async def test_a_subscriber_resumes_from_its_cursor_after_a_restart(url: str) -> None:
    event_recorder = EventRecorder()
    async with Tellback(url, worker=False) as tb, child_processes("append", 2) as [first_writer, second_writer]:
        conversation = await conversations_of(tb).create("chat")
        async with subscription(tb) as events:
            await first_writer.send(url=url, conversations=[conversation.id], tag="before", count=30)
            for event in await take_events(events, 15):  # a part of them
                event_recorder.record(event)
        await first_writer.wait()
        await second_writer.send(url=url, conversations=[conversation.id], tag="between", count=30)
        await second_writer.wait()
    async with Tellback(url, worker=False) as tb, subscription(tb, event_recorder.position) as events:
        for event in await take_events(events, 1 + 60 - 15):
            event_recorder.record(event)
        await conversations_of(tb).append_user_message(conversation.id, "after")
        for event in await take_events(events, 1, PROMPT):
            event_recorder.record(event)
        event_recorder.assert_covers(conversation.id, await load_messages(tb, conversation.id))


async def test_a_reconnecting_subscriber_misses_no_events_of_many_writers(url: str) -> None:
    writers, conversations, count = 4, 3, 120
    async with (
        Tellback(url, worker=False) as tb,
        Tellback(url, worker=False) as other,
        child_processes("append", writers) as processes,
    ):
        ids = [(await conversations_of(tb).create("chat")).id for _ in range(conversations)]
        expected_count = writers * count + conversations
        for index, process in enumerate(processes):
            await process.send(url=url, conversations=ids, tag=f"process {index}", count=count)

        async def read_in_batches(tb: Tellback, batch_size: int) -> list[int]:
            event_recorder = EventRecorder()
            positions: list[int] = []
            while len(positions) < expected_count:
                async with subscription(tb, event_recorder.position) as events:
                    for event in await take_events(events, min(batch_size, expected_count - len(positions))):
                        event_recorder.record(event)
                        positions.append(event.position)
            for id in ids:
                event_recorder.assert_covers(id, await load_messages(tb, id))
            return positions

        # Both may assign positions at the same time; they must agree on them.
        first_seqs, second_seqs = await asyncio.gather(read_in_batches(tb, 7), read_in_batches(other, 50))
        assert first_seqs == second_seqs
        for process in processes:
            await process.wait()
        assert await tb.events.read(first_seqs[-1]) == []


async def test_an_event_that_commits_late_is_not_skipped(ready_postgres_url: str) -> None:
    """Its transaction inserted the row early, and others committed before it."""
    async with Tellback(ready_postgres_url, worker=False) as tb, subscription(tb) as events:
        conversation = await conversations_of(tb).create("chat")
        await take_events(events, 1)
        late_connection = await asyncpg.connect(ready_postgres_url)
        try:
            transaction = late_connection.transaction()
            await transaction.start()
            await late_connection.execute(
                "INSERT INTO tellback.events (tenant_id, app_id, user_id, type, subject_id, data, created_at)"
                " VALUES ('default', 'default', 'maya', 'late', $1, '{}', 0)",
                conversation.id,
            )
            await conversations_of(tb).append_user_message(conversation.id, "early")
            [early] = await take_events(events, 1)
            assert early.type == "message.appended"
            await transaction.commit()
        finally:
            await late_connection.close()
        await conversations_of(tb).append_user_message(conversation.id, "last")
        seen = await take_events(events, 2)
        assert [event.type for event in seen] == ["late", "message.appended"]
        assert early.position < seen[0].position < seen[1].position


async def test_events_are_in_write_order_even_with_outdated_statistics(postgres_url: str) -> None:
    """The planner reads a table that was empty when it was analyzed from its start for each event."""
    async with Tellback(postgres_url, worker=False, summary_every=None) as tb:
        conversation = await conversations_of(tb).create("chat")
        for number in range(20):
            await conversations_of(tb).append_user_message(conversation.id, f"before {number}")
            last_seq = await tb.events.latest()
        admin = await asyncpg.connect(postgres_url)
        try:
            await admin.execute("DELETE FROM tellback.events")
            await admin.execute("VACUUM ANALYZE tellback.events")
        finally:
            await admin.close()
        for number in range(20):
            await conversations_of(tb).append_user_message(conversation.id, f"after {number}")
        events = await tb.events.read(last_seq)
        assert [event.data["seq"] for event in events] == list(range(21, 41))
        assert [event.position for event in events] == list(range(last_seq + 1, last_seq + 21))


@pytest.mark.parametrize("stop_method", ["closed", "cancelled"])
async def test_a_stopped_subscriber_leaves_no_task_running(url: str, stop_method: str) -> None:
    async with Tellback(url, worker=False) as tb:
        conversation = await conversations_of(tb).create("chat")
        before = asyncio.all_tasks()

        async def subscribe() -> None:
            async with subscription(tb) as events:
                async for _ in events:
                    pass

        if stop_method == "cancelled":
            listener = asyncio.create_task(subscribe())
            await asyncio.sleep(0.2)
            listener.cancel()
            await asyncio.gather(listener, return_exceptions=True)
        else:
            async with subscription(tb) as events:
                await take_events(events, 1)
        await conversations_of(tb).append_user_message(conversation.id, "still there")
    remaining_tasks = asyncio.all_tasks() - before
    if remaining_tasks:  # cancelled, but not finished yet
        await asyncio.wait(remaining_tasks, timeout=5)
    assert all(task.done() for task in remaining_tasks)


async def test_a_subscription_ends_when_its_store_is_closed(url: str) -> None:
    async def subscribe(tb: Tellback, started: asyncio.Event) -> None:
        async with subscription(tb) as events:
            async for _ in events:
                started.set()

    # It may be waiting for events, or reading them; the subscriber must not see a difference.
    for wait in (0.0, 0.001, 0.002, 0.005, 0.05):
        async with Tellback(url, worker=False) as tb:
            await conversations_of(tb).create("chat")
            listener = asyncio.create_task(subscribe(tb, started := asyncio.Event()))
            async with asyncio.timeout(5):
                await started.wait()
            await asyncio.sleep(wait)
        async with asyncio.timeout(5):
            await listener
