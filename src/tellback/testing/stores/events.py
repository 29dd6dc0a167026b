"""The contract of the event log: one event for every change, in order, none missed."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from itertools import pairwise
from typing import Any

from tellback.app import Tellback
from tellback.stores import Store
from tellback.testing.stores.factories import (
    MAYA,
    OTHER_SCOPES,
    append_drafts,
    append_message,
    make_conversation,
    make_draft,
    read_all_events,
)
from tellback.types.conversations import Conversation, Event
from tellback.types.ids import utc_now


class EventContract:
    """Tests of `EventLog`."""

    async def test_every_change_writes_one_event_in_order(self, store: Store, conversation: Conversation) -> None:
        drafts = [make_draft(), make_draft("Hi!", "assistant", visibility="internal")]
        appended = await append_drafts(store, conversation.id, *drafts)
        await store.conversations.save_summary(
            MAYA, conversation.id, "They met.", until_seq=2, turns=1, expected_seq=0, now=utc_now()
        )
        await store.conversations.close(MAYA, conversation.id, now=utc_now())
        events = await read_all_events(store)
        assert [event.type for event in events] == [
            *("conversation.created", "message.appended", "message.appended"),
            *("conversation.summarized", "conversation.closed"),
        ]
        assert all(event.subject_id == conversation.id and event.scope == MAYA for event in events)
        assert all(before.position < after.position for before, after in pairwise(events))
        second = appended.messages[1]
        assert events[2].data == {
            "message_id": second.id,
            "seq": 2,
            "role": "assistant",
            "turn_id": second.turn_id,
            "visibility": "internal",
        }
        assert await store.events.latest() == events[-1].position

    async def test_events_are_read_from_a_cursor_and_by_scope(self, store: Store) -> None:
        assert await store.events.latest() == 0
        for scope in (MAYA, *OTHER_SCOPES, MAYA):
            await make_conversation(store, scope)
        events = await read_all_events(store)
        assert len(events) == 5
        last = events[-1].position
        assert await store.events.read(after=events[2].position, limit=10) == (events[3:], last)
        assert await store.events.read(after=0, limit=2) == (events[:2], events[1].position)
        theirs, reached = await store.events.read(after=0, limit=9, tenant_id="globex")
        assert ([event.scope for event in theirs], reached) == ([OTHER_SCOPES[2]], last)
        by_user = await store.events.read(after=0, limit=9, tenant_id="acme", app_id="support", user_id="maya")
        assert by_user == ([events[0], events[4]], last)
        assert await store.events.read(after=last + 7, limit=9) == ([], last + 7)

    async def test_subscribers_receive_changes_and_resume_where_they_stopped(self, store: Store) -> None:
        async with AsyncExitStack() as stack:
            tb = Tellback(store)
            seen: list[Event] = []

            async def follow(after: int | None, until: int) -> None:
                events = tb.events.subscribe(after=after)
                stack.push_async_callback(events.aclose)
                async for event in events:
                    seen.append(event)
                    if len(seen) == until:
                        return

            follower = asyncio.create_task(follow(None, 3))
            conversation = await make_conversation(store)
            await append_message(store, conversation.id, "one")
            await append_message(store, conversation.id, "two")
            await asyncio.wait_for(follower, 10)
            await append_message(store, conversation.id, "three")
            follower = asyncio.create_task(follow(seen[-1].position, 5))
            await append_message(store, conversation.id, "four")
            await asyncio.wait_for(follower, 10)
            assert seen == await read_all_events(store)

    async def test_subscribers_receive_changes_of_another_open_store(self, store: Store, second: Store) -> None:
        conversation = await make_conversation(store)
        events = Tellback(second).events.subscribe()
        try:
            assert (await asyncio.wait_for(anext(events), 10)).type == "conversation.created"
            waiting = asyncio.ensure_future(anext(events))
            await asyncio.sleep(0.05)
            await append_message(store, conversation.id, "hello over there")
            assert (await asyncio.wait_for(waiting, 10)).type == "message.appended"
        finally:
            await events.aclose()

    async def test_an_idle_subscriber_does_not_read(self, store: Store) -> None:
        await make_conversation(store)
        reads = 0
        read = store.events.read

        async def counting_read(**options: Any) -> Any:
            nonlocal reads
            reads += 1
            return await read(**options)

        store.events.read = counting_read  # type: ignore[method-assign]
        events = Tellback(store).events.subscribe()
        try:
            await anext(events)
            waiting = asyncio.ensure_future(anext(events))
            await asyncio.sleep(0.3)  # enough time for the notification at the start
            before = reads
            await asyncio.sleep(0.7)
            assert reads - before <= 1
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        finally:
            await events.aclose()

    async def test_a_reader_misses_no_events_of_concurrent_writers(self, store: Store, second: Store) -> None:
        conversations = [await make_conversation(store) for _ in range(4)]
        seen: list[Event] = []

        async def follow() -> None:
            after = 0
            while len(seen) < 4 + 4 * 30:
                events, after = await second.events.read(after=after, limit=7)
                seen.extend(events)
                await asyncio.sleep(0)

        async def write(n: int) -> None:
            for m in range(30):
                await append_message((store, second)[m % 2], conversations[n].id, str(m))

        await asyncio.wait_for(asyncio.gather(follow(), *map(write, range(4))), 30)
        assert seen == await read_all_events(store)
        for conversation in conversations:
            seqs = [e.data["seq"] for e in seen if e.subject_id == conversation.id and e.type == "message.appended"]
            assert seqs == list(range(1, 31))
