"""What every store must do, as tests: run them on a store of your own.

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def make_store(self, tmp_path):
            return lambda: MyStore(tmp_path / "data")

Each call of `make_store` is another opening of the same storage, which is empty when a test begins. The tests need
pytest and pytest-asyncio. `shared = False` leaves out those that open it twice at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from recollect.app import Recollect
from recollect.errors import ConversationClosedError, NotFoundError, StoreClosedError, StoreError
from recollect.stores import Store, TurnBusy, TurnClaim, TurnDraft, TurnStarted
from recollect.types import ChatUsage, user_message
from recollect.types.blocks import MediaBlock, TextBlock, ToolResultBlock, ToolUseBlock
from recollect.types.conversations import Conversation, Event, MessageDraft
from recollect.types.ids import new_id
from recollect.types.scope import Scope
from recollect.types.times import utc_now

MakeStore = Callable[[], Store]

MAYA = Scope("acme", "support", "maya")
OTHERS = (Scope("acme", "support", "omar"), Scope("acme", "sales", "maya"), Scope("globex", "support", "maya"))

AWKWARD = (
    "plain",
    "",
    "née Ωmega 你好 🦜 e\u0301",
    "quote ' double \" backslash \\ percent % colon :name $1 ?",
    "nul \x00 and bell \x07 and line\r\nbreaks\u2028",
    "lone surrogate \ud83d here",
    "'; DROP TABLE messages; --",
    "long " * 50_000,
)


def _draft(text: str = "Hello", role: str = "user", **fields: Any) -> MessageDraft:
    return MessageDraft(
        **{"id": new_id("msg"), "role": role, "content": (TextBlock(text),), "created_at": utc_now(), **fields}
    )


def _turn(*drafts: MessageDraft) -> list[TurnDraft]:
    return [TurnDraft(new_id("turn"), drafts, starts=True)]


async def _conversation(store: Store, scope: Scope = MAYA, **fields: Any) -> Conversation:
    now = utc_now()
    given = {"id": new_id("conv"), "scope": scope, "namespace": "chat", "status": "open", "created_at": now, **fields}
    return await store.conversations.create(scope, Conversation(**{"updated_at": now, **given}))


async def _say(store: Store, id: str, text: str, scope: Scope = MAYA) -> int:
    appended = await store.conversations.append(scope, id, _turn(_draft(text)), now=utc_now())
    return appended.messages[0].seq


def _claim(owner: str, seconds: float = 30, evict: str | None = None) -> TurnClaim:
    return TurnClaim(new_id("turn"), owner, time.time(), time.time() + seconds, evict)


@pytest.mark.asyncio
class StoreConformance:
    """The contract of `recollect.stores.Store`."""

    shared = True

    @pytest.fixture
    def make_store(self) -> MakeStore:
        """Opens the storage under test."""
        raise NotImplementedError("give your test class a fixture make_store")

    @pytest.fixture
    async def store(self, make_store: MakeStore) -> AsyncIterator[Store]:
        """The storage, opened."""
        store = make_store()
        await store.open()
        yield store
        await store.close()

    @pytest.fixture
    async def second(self, make_store: MakeStore, store: Store) -> AsyncIterator[Store]:
        """The same storage, opened again: another process, as it were."""
        if not self.shared:
            pytest.skip("this storage can be opened only once")
        second = make_store()
        await second.open()
        yield second
        await second.close()

    # Opening

    async def test_opening_and_closing_twice_is_harmless(self, make_store: MakeStore) -> None:
        store = make_store()
        await store.open()
        await store.open()
        await store.close()
        await store.close()
        with pytest.raises(StoreClosedError):
            await store.conversations.get(MAYA, "conv_x")
        with pytest.raises(StoreClosedError):
            await _conversation(store)

    async def test_what_was_stored_is_there_after_reopening(self, make_store: MakeStore) -> None:
        if not self.shared:
            pytest.skip("this storage lives as long as it is open")
        store = make_store()
        await store.open()
        talk = await _conversation(store, title="Kept", metadata={"source": ["web", 1, None, {"a": 1.5}]})
        await _say(store, talk.id, "Remember me")
        await store.close()
        await store.open()
        assert [message.text for message in await store.conversations.messages(MAYA, talk.id)] == ["Remember me"]
        kept = await store.conversations.get(MAYA, talk.id)
        assert kept is not None
        assert kept.metadata == {"source": ["web", 1, None, {"a": 1.5}]}
        assert (kept.title, kept.last_seq, kept.turns) == ("Kept", 1, 1)
        await store.close()

    async def test_many_openings_of_empty_storage_at_once_agree_on_the_schema(self, make_store: MakeStore) -> None:
        if not self.shared:
            pytest.skip("this storage can be opened only once")
        stores = [make_store() for _ in range(6)]
        await asyncio.gather(*(store.open() for store in stores))
        talk = await _conversation(stores[0])
        for store in stores:
            assert await store.conversations.get(MAYA, talk.id) is not None
            await store.close()

    # Conversations

    async def test_a_conversation_reads_back_as_it_was_made(self, store: Store) -> None:
        made = await _conversation(
            store, namespace="support-chat", title="Ünïcode 🦜", session_id="s-1", metadata={"k": ["v", {"n": None}]}
        )
        assert await store.conversations.get(MAYA, made.id) == made
        assert made.is_open
        assert await store.conversations.get(MAYA, "conv_unknown") is None

    async def test_listing_gives_the_newest_first_in_pages(self, store: Store) -> None:
        made = [await _conversation(store, namespace="a" if n % 2 else "b") for n in range(7)]
        await store.conversations.close(MAYA, made[3].id, now=utc_now())
        ids = [talk.id for talk in made]

        async def listed(**given: Any) -> list[str]:
            asked = {"namespace": None, "status": None, "limit": None, "before": None, **given}
            return [talk.id for talk in await store.conversations.listed(MAYA, **asked)]

        assert await listed() == ids[::-1]
        assert await listed(limit=3) == ids[:3:-1]
        assert await listed(limit=3, before=ids[4]) == ids[3:0:-1]
        assert await listed(namespace="a") == [ids[5], ids[3], ids[1]]
        assert await listed(namespace="a", status="open", before=ids[5]) == [ids[1]]
        assert await listed(status="closed") == [ids[3]]
        assert await listed(limit=0) == []

    async def test_closing_twice_changes_nothing_and_tells_once(self, store: Store) -> None:
        talk = await _conversation(store)
        moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
        closed = await store.conversations.close(MAYA, talk.id, now=moment)
        again = await store.conversations.close(MAYA, talk.id, now=utc_now())
        assert (closed.status, closed.closed_at) == ("closed", moment)
        assert again == closed
        assert [event.type for event in await _all(store)].count("conversation.closed") == 1
        with pytest.raises(NotFoundError):
            await store.conversations.close(MAYA, "conv_unknown", now=utc_now())

    async def test_stale_conversations_are_closed_unless_a_turn_runs(self, store: Store) -> None:
        now = utc_now()
        old = now - timedelta(hours=2)
        stale = await _conversation(store, created_at=old, updated_at=old)
        foreign = await _conversation(store, OTHERS[0], created_at=old, updated_at=old)
        running = await _conversation(store, created_at=old, updated_at=old)
        fresh = await _conversation(store)
        started = await store.conversations.begin_turn(
            MAYA, running.id, _claim(store.owner), None, tail_limit=5, now=old
        )
        assert isinstance(started, TurnStarted)
        idle = {"idle_since": now - timedelta(hours=1), "now": now}
        assert [talk.id for talk in await store.conversations.close_stale(MAYA, **idle)] == [stale.id]
        assert [talk.id for talk in await store.conversations.close_stale(None, **idle)] == [foreign.id]
        assert await store.conversations.close_stale(None, **idle) == []
        still = await store.conversations.get(MAYA, fresh.id)
        assert still is not None
        assert still.is_open

    # Messages

    async def test_seq_is_dense_under_concurrent_writers(self, store: Store) -> None:
        talks = [await _conversation(store) for _ in range(3)]

        async def write(worker: int) -> list[tuple[str, int]]:
            given = []
            for n in range(20):
                talk = talks[(worker + n) % 3]
                given.append((talk.id, await _say(store, talk.id, f"{worker}.{n}")))
            return given

        given = [pair for pairs in await asyncio.gather(*map(write, range(9))) for pair in pairs]
        for talk in talks:
            messages = await store.conversations.messages(MAYA, talk.id)
            assert [message.seq for message in messages] == list(range(1, 61))
            assert sorted(seq for id, seq in given if id == talk.id) == list(range(1, 61))
            current = await store.conversations.get(MAYA, talk.id)
            assert current is not None
            assert current.last_seq == current.turns == 60

    async def test_seq_is_dense_when_two_openings_write(self, store: Store, second: Store) -> None:
        talk = await _conversation(store)

        async def write(where: Store, name: str) -> list[int]:
            return [await _say(where, talk.id, f"{name}{n}") for n in range(40)]

        given = await asyncio.gather(write(store, "a"), write(second, "b"), write(store, "c"))
        assert sorted(seq for seqs in given for seq in seqs) == list(range(1, 121))
        assert all(seqs == sorted(seqs) for seqs in given)
        texts = [message.text for message in await second.conversations.messages(MAYA, talk.id)]
        assert sorted(texts) == sorted(f"{name}{n}" for name in "abc" for n in range(40))

    @pytest.mark.parametrize("text", AWKWARD, ids=range(len(AWKWARD)))
    async def test_text_comes_back_exactly(self, store: Store, text: str) -> None:
        talk = await _conversation(store)
        draft = _draft(text, meta={"state": text[:100], "signed": [1, {"deep": None}]})
        await store.conversations.append(MAYA, talk.id, _turn(draft), now=utc_now())
        [read] = await store.conversations.messages(MAYA, talk.id)
        assert read.text == text
        assert read.meta == draft.meta

    async def test_every_field_and_block_comes_back(self, store: Store) -> None:
        talk = await _conversation(store)
        moment = datetime(1999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
        draft = MessageDraft(
            id=new_id("msg"),
            role="assistant",
            content=(
                TextBlock("Look:", {"cache_control": {"type": "ephemeral"}}),
                MediaBlock("image", url="https://example.com/cat.png", mime_type="image/png", name="cat"),
                MediaBlock("file", data="JVBERg==", mime_type="application/pdf", meta={"pages": 3}),
                ToolUseBlock("tu_1", "look", {"at": ["cat", {"how": "closely"}]}, meta={"signature": "x"}),
                ToolUseBlock("tu_2", "broken", {}, invalid_input='{"cut'),
                ToolResultBlock("tu_1", "seen", True, "look", (TextBlock("seen"), MediaBlock("image", data="eA=="))),
            ),
            created_at=moment,
            visibility="internal",
            stop_reason="tool_use",
            model="claude-sonnet-5",
            provider="anthropic",
            usage=ChatUsage(10, 2, 12, 0.0001234, 350, "anthropic", "claude-sonnet-5", 5, 1, 0),
            trace_id="trace-1",
            idempotency_key="key-1",
            meta={"thinking": ["signed"]},
        )
        appended = await store.conversations.append(MAYA, talk.id, _turn(draft), now=utc_now())
        [read] = await store.conversations.messages(MAYA, talk.id, internal=True)
        assert read == appended.messages[0]
        assert read.meta == draft.meta
        assert read.created_at == moment
        assert [dict(block) for block in read.content] == [dict(block) for block in draft.content]
        assert read.messages[-1].tool_calls[0].meta == {"signature": "x"}
        assert await store.conversations.message(MAYA, draft.id) == read
        assert await store.conversations.message(MAYA, "msg_unknown") is None

    async def test_a_block_of_an_unknown_kind_is_kept_and_read(self, store: Store) -> None:
        talk = await _conversation(store)
        odd = MediaBlock("hologram", url="https://example.com/h", name="Leia")
        result = ToolResultBlock("tu_1", "[hologram]", parts=(odd,))
        drafts = [_draft(content=(odd,)), _draft(role="tool", content=(result,))]
        await store.conversations.append(MAYA, talk.id, _turn(*drafts), now=utc_now())
        read = await store.conversations.messages(MAYA, talk.id)
        assert [message.content for message in read] == [(odd,), (result,)]
        begun = await store.conversations.begin_turn(MAYA, talk.id, _claim("me"), None, tail_limit=9, now=utc_now())
        assert isinstance(begun, TurnStarted)
        assert [message.role for message in begun.history] == ["user", "tool"]

    async def test_messages_are_read_by_visibility_and_place(self, store: Store) -> None:
        talk = await _conversation(store)
        kinds = ["user", "internal", "hidden", "user", "internal", "user"]
        for kind in kinds:
            await store.conversations.append(MAYA, talk.id, _turn(_draft(visibility=kind)), now=utc_now())

        async def seqs(**given: Any) -> list[int]:
            return [message.seq for message in await store.conversations.messages(MAYA, talk.id, **given)]

        assert await seqs() == [1, 4, 6]
        assert await seqs(internal=True) == [1, 2, 4, 5, 6]
        assert await seqs(internal=True, hidden=True) == [1, 2, 3, 4, 5, 6]
        assert await seqs(limit=2) == [4, 6]
        assert await seqs(internal=True, limit=2, before=5) == [2, 4]
        assert await seqs(internal=True, limit=2, after=1, from_start=True) == [2, 4]
        assert await seqs(after=6) == []
        assert await seqs(limit=0) == []
        with pytest.raises(NotFoundError):
            await store.conversations.messages(MAYA, "conv_unknown")

    async def test_turns_are_shared_joined_and_counted(self, store: Store) -> None:
        talk = await _conversation(store)
        append = store.conversations.append
        first = await append(MAYA, talk.id, [TurnDraft("turn_0", [_draft(role="system")], joins=True)], now=utc_now())
        both = [_draft(), _draft(role="assistant")]
        second = await append(MAYA, talk.id, [TurnDraft("turn_1", both, starts=True)], now=utc_now())
        joined = [TurnDraft("turn_2", [_draft(role="tool")], joins=True)]
        third = await append(MAYA, talk.id, joined, now=utc_now())
        several = [TurnDraft("turn_3", [_draft()], starts=True), TurnDraft("turn_4", _both(), starts=True)]
        fourth = await append(MAYA, talk.id, several, now=utc_now())
        turns = [m.turn_id for m in (*first.messages, *second.messages, *third.messages, *fourth.messages)]
        assert turns == ["turn_0", "turn_1", "turn_1", "turn_1", "turn_3", "turn_4", "turn_4"]
        assert [first.turns, second.turns, third.turns, fourth.turns] == [1, 2, 2, 4]

    async def test_an_idempotency_key_stores_a_message_once(self, store: Store) -> None:
        talk, other = await _conversation(store), await _conversation(store)

        async def attempt(id: str, text: str) -> tuple[str, str, str]:
            drafts = [_draft(text, idempotency_key="k"), _draft(f"re: {text}", "assistant")]
            appended = await store.conversations.append(MAYA, id, _turn(*drafts), now=utc_now())
            said, answered = appended.messages
            assert said.turn_id == answered.turn_id
            return said.id, said.text, answered.text

        first = await attempt(talk.id, "one")
        second = await attempt(talk.id, "two")
        assert second == (first[0], "one", "re: two")
        assert (await attempt(other.id, "three"))[1] == "three"
        messages = await store.conversations.messages(MAYA, talk.id)
        assert [(m.seq, m.text) for m in messages] == [(1, "one"), (2, "re: one"), (3, "re: two")]
        await store.conversations.close(MAYA, talk.id, now=utc_now())
        retried = _turn(_draft("late", idempotency_key="k"))
        assert (await store.conversations.append(MAYA, talk.id, retried, now=utc_now())).messages[0].id == first[0]

    async def test_a_key_used_twice_in_one_step_stores_one_message(self, store: Store) -> None:
        talk = await _conversation(store)
        drafts = [_draft("a", idempotency_key="k"), _draft("b", idempotency_key="k"), _draft("c")]
        turns = [*_turn(*drafts), *_turn(_draft("d", idempotency_key="k"))]
        appended = await store.conversations.append(MAYA, talk.id, turns, now=utc_now())
        assert [message.text for message in appended.messages] == ["a", "a", "c", "a"]
        assert [m.text for m in await store.conversations.messages(MAYA, talk.id)] == ["a", "c"]

    async def test_one_key_used_by_many_at_once_stores_one_message(self, store: Store, second: Store) -> None:
        talk = await _conversation(store)

        async def attempt(n: int) -> str:
            where = (store, second)[n % 2]
            drafts = _turn(_draft(str(n), idempotency_key="once"))
            return (await where.conversations.append(MAYA, talk.id, drafts, now=utc_now())).messages[0].id

        assert len(set(await asyncio.gather(*map(attempt, range(12))))) == 1
        assert len(await store.conversations.messages(MAYA, talk.id)) == 1

    async def test_a_closed_or_unknown_conversation_takes_no_messages(self, store: Store) -> None:
        talk = await _conversation(store)
        await _say(store, talk.id, "in time")
        await store.conversations.close(MAYA, talk.id, now=utc_now())
        with pytest.raises(ConversationClosedError):
            await _say(store, talk.id, "too late")
        with pytest.raises(NotFoundError):
            await _say(store, "conv_unknown", "nowhere")
        assert len(await store.conversations.messages(MAYA, talk.id)) == 1
        assert len(await _all(store)) == 3

    async def test_a_change_that_fails_leaves_no_trace_and_disturbs_no_other(self, store: Store) -> None:
        talk = await _conversation(store)
        await _say(store, talk.id, "first")
        taken = (await store.conversations.messages(MAYA, talk.id))[0].id

        async def bad() -> None:
            drafts = [_draft("half"), replace(_draft("twin"), id=taken)]
            with pytest.raises(StoreError):
                await store.conversations.append(MAYA, talk.id, _turn(*drafts), now=utc_now())

        await asyncio.gather(*(bad() if n % 3 == 0 else _say(store, talk.id, f"good {n}") for n in range(12)))
        messages = await store.conversations.messages(MAYA, talk.id)
        assert [message.seq for message in messages] == list(range(1, 10))
        assert sorted(message.text for message in messages[1:]) == sorted(f"good {n}" for n in range(12) if n % 3)
        appended = [event for event in await _all(store) if event.type == "message.appended"]
        assert [event.data["seq"] for event in appended] == list(range(1, 10))

    async def test_a_cancelled_append_is_stored_whole_or_not_at_all(self, store: Store) -> None:
        talk = await _conversation(store)
        for n in range(30):
            work = asyncio.ensure_future(
                store.conversations.append(MAYA, talk.id, _turn(_draft("a"), _draft("b", "assistant")), now=utc_now())
            )
            for _ in range(n % 6):
                await asyncio.sleep(0)
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
        last = await _say(store, talk.id, "after")
        messages = await store.conversations.messages(MAYA, talk.id)
        assert [message.seq for message in messages] == list(range(1, last + 1))
        assert [message.text for message in messages] == ["a", "b"] * (last // 2) + ["after"]

    # Scope

    async def test_ids_of_another_scope_do_not_exist(self, store: Store) -> None:
        talk = await _conversation(store)
        await _say(store, talk.id, "private")
        [message] = await store.conversations.messages(MAYA, talk.id)
        log = store.conversations
        for other in OTHERS:
            assert await log.get(other, talk.id) is None
            assert await log.message(other, message.id) is None
            assert await log.listed(other, namespace=None, status=None, limit=None, before=None) == []
            attempts = (
                log.messages(other, talk.id, internal=True, hidden=True),
                log.close(other, talk.id, now=utc_now()),
                log.append(other, talk.id, _turn(_draft()), now=utc_now()),
                log.append(other, talk.id, _turn(_draft(idempotency_key="k")), now=utc_now()),
                log.begin_turn(other, talk.id, _claim(store.owner), _draft(), tail_limit=5, now=utc_now()),
                log.begin_turn(other, talk.id, _claim(store.owner), None, tail_limit=5, now=utc_now()),
            )
            for attempt in attempts:
                with pytest.raises(NotFoundError):
                    await attempt
            stolen = log.save_summary(other, talk.id, "stolen", until_seq=1, turns=1, expected_seq=0, now=utc_now())
            assert await stolen is None
        unchanged = await log.get(MAYA, talk.id)
        assert unchanged is not None
        assert (unchanged.status, unchanged.last_seq, unchanged.rolling_summary) == ("open", 1, None)

    async def test_awkward_names_in_a_scope_stay_apart(self, store: Store) -> None:
        scopes = [
            Scope("a", "b", "c"),
            Scope("a'b", 'x"y', "back\\slash"),
            Scope("a", "b", "c "),
            Scope("A", "b", "c"),
            Scope("ä", "b", "%"),
            Scope("a", "b", "_"),
            Scope("$1", ":app_id", "?"),
        ]
        made = [await _conversation(store, scope) for scope in scopes]
        for scope, talk in zip(scopes, made, strict=True):
            listed = await store.conversations.listed(scope, namespace=None, status=None, limit=None, before=None)
            assert [found.id for found in listed] == [talk.id]
            assert listed[0].scope == scope

    # Events

    async def test_every_change_tells_one_event_in_order(self, store: Store) -> None:
        talk = await _conversation(store)
        drafts = [_draft(), _draft("Hi!", "assistant", visibility="internal")]
        appended = await store.conversations.append(MAYA, talk.id, _turn(*drafts), now=utc_now())
        await store.conversations.save_summary(
            MAYA, talk.id, "They met.", until_seq=2, turns=1, expected_seq=0, now=utc_now()
        )
        await store.conversations.close(MAYA, talk.id, now=utc_now())
        events = await _all(store)
        assert [event.type for event in events] == [
            *("conversation.created", "message.appended", "message.appended"),
            *("conversation.summarized", "conversation.closed"),
        ]
        assert all(event.subject_id == talk.id and event.scope == MAYA for event in events)
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
        for scope in (MAYA, *OTHERS, MAYA):
            await _conversation(store, scope)
        events = await _all(store)
        assert len(events) == 5
        last = events[-1].position
        assert await store.events.read(after=events[2].position, limit=10) == (events[3:], last)
        assert await store.events.read(after=0, limit=2) == (events[:2], events[1].position)
        theirs, reached = await store.events.read(after=0, limit=9, tenant_id="globex")
        assert ([event.scope for event in theirs], reached) == ([OTHERS[2]], last)
        by_user = await store.events.read(after=0, limit=9, tenant_id="acme", app_id="support", user_id="maya")
        assert by_user == ([events[0], events[4]], last)
        assert await store.events.read(after=last + 7, limit=9) == ([], last + 7)

    async def test_subscribers_hear_of_changes_and_go_on_where_they_stopped(self, store: Store) -> None:
        async with AsyncExitStack() as stack:
            rc = Recollect(store)
            seen: list[Event] = []

            async def follow(after: int | None, until: int) -> None:
                events = rc.events.subscribe(after=after)
                stack.push_async_callback(events.aclose)  # type: ignore[attr-defined]
                async for event in events:
                    seen.append(event)
                    if len(seen) == until:
                        return

            follower = asyncio.create_task(follow(None, 3))
            talk = await _conversation(store)
            await _say(store, talk.id, "one")
            await _say(store, talk.id, "two")
            await asyncio.wait_for(follower, 10)
            await _say(store, talk.id, "three")
            follower = asyncio.create_task(follow(seen[-1].position, 5))
            await _say(store, talk.id, "four")
            await asyncio.wait_for(follower, 10)
            assert seen == await _all(store)

    async def test_subscribers_hear_of_what_another_opening_changes(self, store: Store, second: Store) -> None:
        talk = await _conversation(store)
        events = Recollect(second).events.subscribe()
        try:
            assert (await asyncio.wait_for(anext(events), 10)).type == "conversation.created"
            waiting = asyncio.ensure_future(anext(events))
            await asyncio.sleep(0.05)
            await _say(store, talk.id, "hello over there")
            assert (await asyncio.wait_for(waiting, 10)).type == "message.appended"
        finally:
            await events.aclose()  # type: ignore[attr-defined]

    async def test_a_subscriber_with_nothing_to_hear_reads_nothing(self, store: Store) -> None:
        await _conversation(store)
        reads = 0
        read = store.events.read

        async def counted(**given: Any) -> Any:
            nonlocal reads
            reads += 1
            return await read(**given)

        store.events.read = counted  # type: ignore[method-assign]
        events = Recollect(store).events.subscribe()
        try:
            await anext(events)
            waiting = asyncio.ensure_future(anext(events))
            await asyncio.sleep(0.3)  # what it was told at the start has been dealt with by now
            before = reads
            await asyncio.sleep(0.7)
            assert reads - before <= 1
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        finally:
            await events.aclose()  # type: ignore[attr-defined]

    async def test_a_cursor_misses_nothing_while_many_write(self, store: Store, second: Store) -> None:
        talks = [await _conversation(store) for _ in range(4)]
        seen: list[Event] = []

        async def follow() -> None:
            after = 0
            while len(seen) < 4 + 4 * 30:
                events, after = await second.events.read(after=after, limit=7)
                seen.extend(events)
                await asyncio.sleep(0)

        async def write(n: int) -> None:
            for m in range(30):
                await _say((store, second)[m % 2], talks[n].id, str(m))

        await asyncio.wait_for(asyncio.gather(follow(), *map(write, range(4))), 30)
        assert seen == await _all(store)
        for talk in talks:
            seqs = [e.data["seq"] for e in seen if e.subject_id == talk.id and e.type == "message.appended"]
            assert seqs == list(range(1, 31))

    # Turns

    async def test_a_turn_is_begun_once_until_it_ends(self, store: Store) -> None:
        talk = await _conversation(store)
        begin = store.conversations.begin_turn
        claim = _claim("me")
        started = await begin(MAYA, talk.id, claim, _draft("Hi"), tail_limit=5, now=utc_now())
        assert isinstance(started, TurnStarted)
        assert started.user_message is not None
        assert started.turn_id == started.user_message.turn_id == claim.turn_id
        assert started.history == (user_message("Hi"),)
        busy = await begin(MAYA, talk.id, _claim("you"), _draft("Me too"), tail_limit=5, now=utc_now())
        assert busy == TurnBusy(claim.turn_id, "me")
        assert len(await store.conversations.messages(MAYA, talk.id)) == 1
        await store.conversations.end_turn(MAYA, talk.id, "somebody else")
        assert await begin(MAYA, talk.id, _claim("you"), None, tail_limit=5, now=utc_now()) == busy
        await store.conversations.end_turn(MAYA, talk.id, "me")
        again = await begin(MAYA, talk.id, _claim("you"), _draft("Now me"), tail_limit=1, now=utc_now())
        assert isinstance(again, TurnStarted)
        assert again.history == (user_message("Now me"),)

    async def test_a_claim_can_be_evicted_runs_out_and_is_extended(self, store: Store) -> None:
        talk = await _conversation(store)
        begin = store.conversations.begin_turn
        first = _claim("gone")
        await begin(MAYA, talk.id, first, None, tail_limit=5, now=utc_now())
        evicting = await begin(MAYA, talk.id, _claim("me", 0, evict="gone"), None, tail_limit=5, now=utc_now())
        assert isinstance(evicting, TurnStarted)
        over = _claim("you")
        taken = await begin(MAYA, talk.id, over, None, tail_limit=5, now=utc_now())
        assert isinstance(taken, TurnStarted)
        later = replace(_claim("third"), now=time.time() + 60)
        await store.conversations.extend_turn(MAYA, talk.id, "you", time.time() + 120)
        assert isinstance(await begin(MAYA, talk.id, later, None, tail_limit=5, now=utc_now()), TurnBusy)

    async def test_the_last_message_of_a_turn_ends_it_in_the_same_step(self, store: Store) -> None:
        talk = await _conversation(store)
        claim = _claim("me")
        await store.conversations.begin_turn(MAYA, talk.id, claim, _draft(), tail_limit=5, now=utc_now())
        answer = [TurnDraft(claim.turn_id, [_draft("Hello!", "assistant")])]
        appended = await store.conversations.append(MAYA, talk.id, answer, now=utc_now(), release="me")
        assert (appended.messages[0].turn_id, appended.turns) == (claim.turn_id, 1)
        next_turn = await store.conversations.begin_turn(
            MAYA, talk.id, _claim("you"), _draft(), tail_limit=9, now=utc_now()
        )
        assert isinstance(next_turn, TurnStarted)
        assert [message.role for message in next_turn.history] == ["user", "assistant", "user"]

    async def test_a_turn_begun_again_with_its_key_finds_what_it_had_stored(self, store: Store) -> None:
        talk = await _conversation(store)
        begin = store.conversations.begin_turn
        keyed = {"idempotency_key": "k"}
        first = await begin(MAYA, talk.id, _claim("a", 0), _draft("Book it", **keyed), tail_limit=9, now=utc_now())
        assert isinstance(first, TurnStarted)
        calling = _draft(role="assistant", content=(ToolUseBlock("tu_1", "book", {}),))
        await store.conversations.append(MAYA, talk.id, [TurnDraft(first.turn_id, [calling])], now=utc_now())
        again = await begin(MAYA, talk.id, _claim("b"), _draft("Book it", **keyed), tail_limit=9, now=utc_now())
        assert isinstance(again, TurnStarted)
        assert again.turn_id == first.turn_id
        assert again.user_message == first.user_message
        assert [message.role for message in again.later] == ["assistant"]
        assert len(await store.conversations.messages(MAYA, talk.id)) == 2

    async def test_a_closed_conversation_begins_no_turn(self, store: Store) -> None:
        talk = await _conversation(store)
        await store.conversations.close(MAYA, talk.id, now=utc_now())
        with pytest.raises(ConversationClosedError):
            await store.conversations.begin_turn(MAYA, talk.id, _claim("me"), _draft(), tail_limit=5, now=utc_now())

    async def test_a_turn_that_was_running_may_finish_after_closing(self, store: Store) -> None:
        talk = await _conversation(store)
        claim = _claim("me")
        await store.conversations.begin_turn(MAYA, talk.id, claim, _draft(), tail_limit=5, now=utc_now())
        await store.conversations.close(MAYA, talk.id, now=utc_now())
        late = [TurnDraft(claim.turn_id, [_draft("Hello!", "assistant")])]
        for outsider in (
            [TurnDraft(new_id("turn"), [_draft()], starts=True)],
            [TurnDraft(new_id("turn"), [_draft()], joins=True)],
        ):
            with pytest.raises(ConversationClosedError):
                await store.conversations.append(MAYA, talk.id, outsider, now=utc_now())
        await store.conversations.append(MAYA, talk.id, late, now=utc_now(), release="me")
        with pytest.raises(ConversationClosedError):
            await store.conversations.append(MAYA, talk.id, late, now=utc_now())
        assert [m.text for m in await store.conversations.messages(MAYA, talk.id)] == ["Hello", "Hello!"]

    async def test_an_owner_is_known_to_be_alive(self, store: Store, second: Store) -> None:
        assert store.owner != second.owner
        talk = await _conversation(store)
        await store.conversations.begin_turn(MAYA, talk.id, _claim(store.owner), None, tail_limit=5, now=utc_now())
        assert await second.is_alive(store.owner) is not False
        assert await second.is_alive("nobody we know") is None

    # Summary

    async def test_a_summary_is_replaced_only_where_it_was_read(self, store: Store) -> None:
        talk = await _conversation(store)
        for n in range(4):
            await _say(store, talk.id, str(n))
        save = store.conversations.save_summary
        first = await save(MAYA, talk.id, "Two", until_seq=2, turns=2, expected_seq=0, now=utc_now())
        assert first is not None
        assert (first.rolling_summary, first.rolling_summary_until_seq, first.summarized_turns) == ("Two", 2, 2)
        assert await save(MAYA, talk.id, "Lost", until_seq=3, turns=3, expected_seq=0, now=utc_now()) is None
        assert await save(MAYA, talk.id, "Four", until_seq=4, turns=4, expected_seq=2, now=utc_now()) is not None
        final = await store.conversations.get(MAYA, talk.id)
        assert final is not None
        assert final.rolling_summary == "Four"


def _both() -> list[MessageDraft]:
    """A turn's two messages, with new ids."""
    return [_draft(), _draft(role="assistant")]


async def _all(store: Store) -> list[Event]:
    return (await store.events.read(after=0, limit=1_000))[0]
