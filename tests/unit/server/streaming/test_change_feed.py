"""The feed without sockets: clients that are slow, start late or reconnect, and failing stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellback import Tellback
from tellback.errors import NotAuthenticatedError, StoreUnavailableError
from tellback.server.streaming import change_feed
from tellback.server.streaming.change_feed import ChangeFeed, FeedScope
from tellback.user import User
from tests.support.sse import parse_frame

WAIT_SECONDS = 10.0
MAYA: FeedScope = ("default", "default", "maya")


async def always() -> bool:
    return True


async def add_messages(user: User, times: int) -> None:
    """Append this number of events."""
    [conversation] = await user.conversations.list() or [await user.conversations.create("chat")]
    for _ in range(times):
        await user.conversations.append_user_message(conversation.id, "hello")


async def some_positions(frames: AsyncGenerator[bytes, None]) -> list[int]:
    """Return the positions of the next frames, which may be several at once."""
    async with asyncio.timeout(WAIT_SECONDS):
        pieces = (await anext(frames)).removesuffix(b"\n\n").split(b"\n\n")
    return [int(parse_frame(piece).id or 0) for piece in pieces]


async def read_position(frames: AsyncGenerator[bytes, None]) -> int:
    [found] = await some_positions(frames)
    return found


async def read_positions(frames: AsyncGenerator[bytes, None], last: int) -> list[int]:
    """Return the positions of the frames up to this one."""
    found: list[int] = []
    while not found or found[-1] < last:
        found += await some_positions(frames)
    return found


async def positions_of_user(tb: Tellback, user_id: str, after: int) -> list[int]:
    return [event.position for event in await tb.events.read(after, limit=10_000, user_id=user_id)]


@settings(max_examples=60)
@given(
    recent_limit=st.integers(1, 8),
    waiting=st.integers(1, 8),
    steps=st.lists(
        st.tuples(st.integers(0, 12), st.integers(0, 6), st.integers(0, 6), st.booleans()), min_size=1, max_size=6
    ),
)
async def test_slow_clients_get_every_event_once(
    recent_limit: int, waiting: int, steps: list[tuple[int, int, int, bool]]
) -> None:
    """In each step, other users write, the user writes, and the client reads; sometimes it reconnects."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(change_feed, "MAX_RECENT", recent_limit)
        patched.setattr(change_feed, "MAX_QUEUED", waiting)
        async with Tellback(":memory:", worker=False) as tb:
            maya, tom = tb.user("maya"), tb.user("tom")
            hub = ChangeFeed(tb)
            async with aclosing(hub.follow(("default", "default", None), None, None, always)) as other:
                await read_position(other)  # another client keeps the feed running and reads nothing
                await maya.conversations.create("chat")
                last_position, seen = 0, list[int]()
                frames = hub.follow(MAYA, last_position, None, always)
                await read_position(frames)
                for others, own_count, read_count, reconnects in steps:
                    await add_messages(tom, others)
                    await add_messages(maya, own_count)
                    expected = await positions_of_user(tb, "maya", last_position)
                    enough = len(seen) + min(read_count, len(expected))
                    while len(seen) < enough:
                        seen += await some_positions(frames)
                        last_position = seen[-1]
                    if reconnects:
                        await frames.aclose()
                        frames = hub.follow(MAYA, last_position, None, always)
                        await read_position(frames)
                await maya.conversations.create("chat")
                seen += await read_positions(frames, (await positions_of_user(tb, "maya", 0))[-1])
                await frames.aclose()
                assert seen == await positions_of_user(tb, "maya", 0)


async def test_events_read_from_the_store_are_not_repeated_by_the_feed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Tellback(":memory:", worker=False) as tb:
        subscribe, gate = tb.events.subscribe, asyncio.Event()

        async def late_subscribe(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
            async with aclosing(subscribe(*args, **kwargs)) as events:
                async for event in events:
                    await gate.wait()
                    yield event

        monkeypatch.setattr(tb.events, "subscribe", late_subscribe)
        await add_messages(tb.user("maya"), 2)
        hub = ChangeFeed(tb)
        async with aclosing(hub.follow(MAYA, None, None, always)) as other:
            await read_position(other)
            await add_messages(tb.user("maya"), 3)
            async with aclosing(hub.follow(MAYA, 0, None, always)) as frames:
                await read_position(frames)
                stored = await read_positions(frames, await tb.events.latest())
                gate.set()
                await read_positions(other, stored[-1])
                await add_messages(tb.user("maya"), 1)
                assert await read_position(frames) == stored[-1] + 1


async def test_the_feed_reads_only_while_it_has_subscribers() -> None:
    async with Tellback(":memory:", worker=False) as tb:
        before = asyncio.all_tasks()
        hub = ChangeFeed(tb)
        followers = [hub.follow(MAYA, None, None, always) for _ in range(3)]
        for frames in followers:
            await read_position(frames)
        assert len([task for task in asyncio.all_tasks() if task.get_name() == "tellback feed"]) == 1
        for frames in followers:
            await frames.aclose()
        assert asyncio.all_tasks() == before


async def test_a_quick_reconnect_needs_no_query(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Tellback(":memory:", worker=False) as tb:
        hub = ChangeFeed(tb)
        async with aclosing(hub.follow(MAYA, None, None, always)) as first:
            start = await read_position(first)
            await add_messages(tb.user("maya"), 3)
            assert await read_positions(first, await tb.events.latest()) == await positions_of_user(tb, "maya", start)

            async def refuse_read(*_: Any, **__: Any) -> Any:
                raise AssertionError("the store was read")

            expected = await positions_of_user(tb, "maya", start)
            monkeypatch.setattr(tb.events, "read", refuse_read)
            async with aclosing(hub.follow(MAYA, start, None, always)) as events:
                assert await read_position(events) == start
                assert await read_positions(events, expected[-1]) == expected


async def test_an_event_is_encoded_once_for_all_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[int] = []
    encode = change_feed.encode_event

    def count_encoded(event: Any) -> bytes:
        encoded.append(event.position)
        return encode(event)

    monkeypatch.setattr(change_feed, "encode_event", count_encoded)
    async with Tellback(":memory:", worker=False) as tb:
        hub = ChangeFeed(tb)
        followers = [hub.follow(MAYA, None, None, always) for _ in range(5)]
        for frames in followers:
            await read_position(frames)
        await add_messages(tb.user("maya"), 4)
        last = await tb.events.latest()
        for frames in followers:
            await read_positions(frames, last)
            await frames.aclose()
        assert encoded == sorted(set(encoded))


async def test_the_feed_ends_when_the_store_is_closed() -> None:
    tb = Tellback(":memory:", worker=False)
    async with tb:
        frames = ChangeFeed(tb).follow(MAYA, None, None, always)
        await read_position(frames)
    async with asyncio.timeout(WAIT_SECONDS):
        assert [frame async for frame in frames] == []


async def test_the_feed_waits_for_an_unavailable_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_feed, "RETRY_SECONDS", 0.01)
    async with Tellback(":memory:", worker=False) as tb:
        await add_messages(tb.user("maya"), 3)
        read_events, failures = tb.events.read, [StoreUnavailableError("gone")] * 3

        async def failing(*args: Any, **kwargs: Any) -> Any:
            if failures:
                raise failures.pop()
            return await read_events(*args, **kwargs)

        monkeypatch.setattr(tb.events, "read", failing)
        async with aclosing(ChangeFeed(tb).follow(MAYA, 0, None, always)) as frames:
            await read_position(frames)
            assert await read_positions(frames, await tb.events.latest()) == [1, 2, 3, 4]


async def test_the_feed_ends_when_the_credential_becomes_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_feed, "CHECK_SECONDS", 0.01)
    answers: list[bool | Exception] = [True, StoreUnavailableError("gone"), True, False]

    async def holds() -> bool:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with Tellback(":memory:", worker=False) as tb:
        frames = ChangeFeed(tb).follow(MAYA, None, None, holds)
        await read_position(frames)
        with pytest.raises(NotAuthenticatedError):
            await read_position(frames)
        assert answers == []


async def test_events_of_an_erased_user_are_dropped() -> None:
    async with Tellback(":memory:", worker=False) as tb:
        hub = ChangeFeed(tb)
        async with aclosing(hub.follow(("default", "default", None), None, None, always)) as other:
            start = await read_position(other)
            await add_messages(tb.user("maya"), 3)
            await tb.user("maya").admin.delete_user_data(confirm=True)
            erased = [event async for event in _until_erased(tb, start)]
            async with aclosing(hub.follow(("default", "default", None), start, None, always)) as late:
                await read_position(late)
                seen = await read_positions(late, erased[-1])
            assert seen == erased == await some_positions(other)


async def test_an_erasure_causes_no_queries_for_other_users(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Tellback(":memory:", worker=False) as tb:
        hub = ChangeFeed(tb)
        async with aclosing(hub.follow(MAYA, None, None, always)) as frames:
            await read_position(frames)
            await add_messages(tb.user("maya"), 1)
            await add_messages(tb.user("tom"), 2)
            assert len([await read_position(frames) for _ in range(2)]) == 2
            monkeypatch.setattr(hub, "_read_stored", None)
            await tb.user("tom").admin.delete_user_data(confirm=True)
            await add_messages(tb.user("maya"), 1)
            last = await read_position(frames)
            async with aclosing(hub.follow(MAYA, last - 1, None, always)) as late:
                await read_position(late)
                assert await read_position(late) == last, "it is still in the buffer"


async def test_a_position_of_a_deleted_log_continues_with_new_events() -> None:
    async with Tellback(":memory:", worker=False) as tb:
        await add_messages(tb.user("maya"), 2)
        latest = await tb.events.latest()
        async with aclosing(ChangeFeed(tb).follow(MAYA, 999_999, None, always)) as frames:
            assert await read_position(frames) == latest, "the start position is sent"
            await add_messages(tb.user("maya"), 1)
            assert await read_position(frames) == latest + 1


async def _until_erased(tb: Tellback, after: int) -> AsyncGenerator[int, None]:
    for event in await tb.events.read(after):
        yield event.position
