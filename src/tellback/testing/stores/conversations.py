"""The contract of the conversation log: conversations, messages and turns."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tellback.errors import ConversationClosedError, NotFoundError, StoreError
from tellback.stores import Store, TurnBusy, TurnDraft, TurnStarted
from tellback.testing.stores.factories import (
    MAYA,
    OTHER_SCOPES,
    append_drafts,
    append_message,
    assert_not_found,
    begin_turn,
    list_conversations,
    make_claim,
    make_conversation,
    make_draft,
    make_turn,
    present,
    read_all_events,
    read_event_types,
    start_turn,
)
from tellback.types import ChatUsage, user_message
from tellback.types.access import Scope
from tellback.types.blocks import MediaBlock, TextBlock, ToolResultBlock, ToolUseBlock
from tellback.types.conversations import Conversation, MessageDraft
from tellback.types.ids import new_id, utc_now

AWKWARD_TEXTS = (
    "plain",
    "",
    "née Ωmega 你好 🦜 e\u0301",
    "quote ' double \" backslash \\ percent % colon :name $1 ?",
    "nul \x00 and bell \x07 and line\r\nbreaks\u2028",
    "lone surrogate \ud83d here",
    "'; DROP TABLE messages; --",
    "long " * 50_000,
)


class ConversationContract:
    """Tests of conversations in `ConversationLog`."""

    async def test_a_conversation_is_returned_as_created(self, store: Store) -> None:
        made = await make_conversation(
            store, namespace="support-chat", title="Ünïcode 🦜", session_id="s-1", metadata={"k": ["v", {"n": None}]}
        )
        assert await store.conversations.get(MAYA, made.id) == made
        assert made.is_open
        assert await store.conversations.get(MAYA, "conv_unknown") is None

    async def test_a_session_continues_its_newest_open_conversation(self, store: Store) -> None:
        async def found(**fields: Any) -> str:
            made = {"id": new_id("conv"), "scope": MAYA, "namespace": "chat", "status": "open", "created_at": utc_now()}
            wanted = Conversation(**{**made, "updated_at": utc_now(), **fields})
            return (await store.conversations.find_or_create(fields.get("scope", MAYA), wanted)).id

        assert await store.conversations.find_in_session(MAYA, "chat", None) is None
        first = await found()
        assert await found() == first
        other = await found(session_id="tab-2")
        assert other != first
        assert await found(session_id="tab-2") == other
        assert await found(namespace="dinner") not in (first, other)
        assert await found(scope=OTHER_SCOPES[0]) != first
        await store.conversations.close(MAYA, first, now=utc_now())
        again = await found()
        assert again not in (first, other)
        newest = await make_conversation(store)
        assert await found() == newest.id
        assert await store.conversations.find_in_session(MAYA, "chat", None) == newest
        assert await store.conversations.find_in_session(OTHER_SCOPES[1], "chat", None) is None

    async def test_concurrent_calls_create_one_conversation_for_a_session(self, store: Store) -> None:
        now = utc_now()
        wanted = [Conversation(new_id("conv"), MAYA, "chat", "open", now, now, session_id="tab") for _ in range(20)]
        found = await asyncio.gather(*(store.conversations.find_or_create(MAYA, one) for one in wanted))
        assert len({conversation.id for conversation in found}) == 1
        assert len(await list_conversations(store)) == 1
        assert await read_event_types(store) == ["conversation.created"]

    async def test_a_conversation_closes_after_its_close_after_time(self, store: Store) -> None:
        old = datetime(2026, 1, 1, tzinfo=UTC)
        of_maya = await make_conversation(store, created_at=old, updated_at=old, close_after=timedelta(hours=1))
        of_omar = await make_conversation(
            store, OTHER_SCOPES[0], created_at=old, updated_at=old, close_after=timedelta(hours=3)
        )
        await make_conversation(store, created_at=old, updated_at=old)
        assert (await store.conversations.get(MAYA, of_maya.id)) == of_maya
        assert await store.conversations.list_due(MAYA, now=old + timedelta(minutes=59)) == []
        later = old + timedelta(hours=2)
        assert await store.conversations.list_due(MAYA, now=later) == [of_maya.id]
        assert await store.conversations.list_due(OTHER_SCOPES[0], now=later) == []
        assert await store.conversations.close_stale(OTHER_SCOPES[0], idle_since=None, now=later) == []
        closed = await store.conversations.close_stale(MAYA, idle_since=None, now=later)
        assert [conversation.id for conversation in closed] == [of_maya.id]
        assert await store.conversations.list_due(MAYA, now=later) == []
        evening = old + timedelta(hours=12)
        closed = await store.conversations.close_stale(None, idle_since=None, now=evening)
        assert [conversation.id for conversation in closed] == [of_omar.id]

    async def test_conversations_are_listed_newest_first_in_pages(self, store: Store) -> None:
        made = [await make_conversation(store, namespace="a" if n % 2 else "b") for n in range(7)]
        await store.conversations.close(MAYA, made[3].id, now=utc_now())
        ids = [conversation.id for conversation in made]

        async def list_ids(**options: Any) -> list[str]:
            return [conversation.id for conversation in await list_conversations(store, **options)]

        assert await list_ids() == ids[::-1]
        assert await list_ids(limit=3) == ids[:3:-1]
        assert await list_ids(limit=3, before=ids[4]) == ids[3:0:-1]
        assert await list_ids(namespace="a") == [ids[5], ids[3], ids[1]]
        assert await list_ids(namespace="a", status="open", before=ids[5]) == [ids[1]]
        assert await list_ids(status="closed") == [ids[3]]
        assert await list_ids(limit=0) == []

    async def test_closing_twice_writes_one_event(self, store: Store, conversation: Conversation) -> None:
        moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
        closed = await store.conversations.close(MAYA, conversation.id, now=moment)
        again = await store.conversations.close(MAYA, conversation.id, now=utc_now())
        assert (closed.status, closed.closed_at) == ("closed", moment)
        assert again == closed
        assert (await read_event_types(store)).count("conversation.closed") == 1
        await assert_not_found(store.conversations.close(MAYA, "conv_unknown", now=utc_now()))

    async def test_stale_conversations_are_closed_unless_a_turn_runs(self, store: Store) -> None:
        now = utc_now()
        old = now - timedelta(hours=2)
        stale = await make_conversation(store, created_at=old, updated_at=old)
        foreign = await make_conversation(store, OTHER_SCOPES[0], created_at=old, updated_at=old)
        running = await make_conversation(store, created_at=old, updated_at=old)
        fresh = await make_conversation(store)
        started = await store.conversations.begin_turn(
            MAYA, running.id, make_claim(store.instance_id), None, tail_limit=5, now=old
        )
        assert isinstance(started, TurnStarted)
        idle = {"idle_since": now - timedelta(hours=1), "now": now}
        assert [conversation.id for conversation in await store.conversations.close_stale(MAYA, **idle)] == [stale.id]
        assert [conversation.id for conversation in await store.conversations.close_stale(None, **idle)] == [foreign.id]
        assert await store.conversations.close_stale(None, **idle) == []
        still = present(await store.conversations.get(MAYA, fresh.id))
        assert still.is_open

    async def test_ids_of_another_scope_do_not_exist(self, store: Store, conversation: Conversation) -> None:
        await append_message(store, conversation.id, "private")
        [message] = await store.conversations.messages(MAYA, conversation.id)
        log = store.conversations
        for other in OTHER_SCOPES:
            assert await log.get(other, conversation.id) is None
            assert await log.message(other, message.id) is None
            assert await list_conversations(store, other) == []
            attempts = (
                log.messages(other, conversation.id, include_internal=True, include_hidden=True),
                log.close(other, conversation.id, now=utc_now()),
                log.append(other, conversation.id, make_turn(make_draft()), now=utc_now()),
                log.append(other, conversation.id, make_turn(make_draft(idempotency_key="k")), now=utc_now()),
                log.begin_turn(
                    other, conversation.id, make_claim(store.instance_id), make_draft(), tail_limit=5, now=utc_now()
                ),
                log.begin_turn(
                    other, conversation.id, make_claim(store.instance_id), None, tail_limit=5, now=utc_now()
                ),
            )
            await assert_not_found(*attempts)
            stolen = log.save_summary(
                other, conversation.id, "stolen", until_seq=1, turns=1, expected_seq=0, now=utc_now()
            )
            assert await stolen is None
        unchanged = present(await log.get(MAYA, conversation.id))
        assert (unchanged.status, unchanged.last_seq, unchanged.rolling_summary) == ("open", 1, None)

    async def test_scopes_with_similar_names_are_separate(self, store: Store) -> None:
        scopes = [
            Scope("a", "b", "c"),
            Scope("a'b", 'x"y', "back\\slash"),
            Scope("a", "b", "c "),
            Scope("A", "b", "c"),
            Scope("ä", "b", "%"),
            Scope("a", "b", "_"),
            Scope("$1", ":app_id", "?"),
        ]
        made = [await make_conversation(store, scope) for scope in scopes]
        for scope, conversation in zip(scopes, made, strict=True):
            listed = await list_conversations(store, scope)
            assert [found.id for found in listed] == [conversation.id]
            assert listed[0].scope == scope

    async def test_a_summary_is_replaced_only_if_it_is_unchanged(
        self, store: Store, conversation: Conversation
    ) -> None:
        for n in range(4):
            await append_message(store, conversation.id, str(n))
        save = store.conversations.save_summary
        first = present(await save(MAYA, conversation.id, "Two", until_seq=2, turns=2, expected_seq=0, now=utc_now()))
        assert (first.rolling_summary, first.rolling_summary_until_seq, first.summarized_turns) == ("Two", 2, 2)
        assert await save(MAYA, conversation.id, "Lost", until_seq=3, turns=3, expected_seq=0, now=utc_now()) is None
        assert (
            await save(MAYA, conversation.id, "Four", until_seq=4, turns=4, expected_seq=2, now=utc_now()) is not None
        )
        final = present(await store.conversations.get(MAYA, conversation.id))
        assert final.rolling_summary == "Four"


class MessageContract:
    """Tests of messages in `ConversationLog`."""

    async def test_seqs_have_no_gaps_with_concurrent_writers(self, store: Store) -> None:
        conversations = [await make_conversation(store) for _ in range(3)]

        async def write(worker: int) -> list[tuple[str, int]]:
            written = []
            for n in range(20):
                conversation = conversations[(worker + n) % 3]
                written.append((conversation.id, await append_message(store, conversation.id, f"{worker}.{n}")))
            return written

        written = [pair for pairs in await asyncio.gather(*map(write, range(9))) for pair in pairs]
        for conversation in conversations:
            messages = await store.conversations.messages(MAYA, conversation.id)
            assert [message.seq for message in messages] == list(range(1, 61))
            assert sorted(seq for id, seq in written if id == conversation.id) == list(range(1, 61))
            current = present(await store.conversations.get(MAYA, conversation.id))
            assert current.last_seq == current.turns == 60

    async def test_seqs_have_no_gaps_with_two_open_stores(self, store: Store, second: Store) -> None:
        conversation = await make_conversation(store)

        async def write(where: Store, name: str) -> list[int]:
            return [await append_message(where, conversation.id, f"{name}{n}") for n in range(40)]

        written = await asyncio.gather(write(store, "a"), write(second, "b"), write(store, "c"))
        assert sorted(seq for seqs in written for seq in seqs) == list(range(1, 121))
        assert all(seqs == sorted(seqs) for seqs in written)
        texts = [message.text for message in await second.conversations.messages(MAYA, conversation.id)]
        assert sorted(texts) == sorted(f"{name}{n}" for name in "abc" for n in range(40))

    @pytest.mark.parametrize("text", AWKWARD_TEXTS, ids=range(len(AWKWARD_TEXTS)))
    async def test_text_is_returned_unchanged(self, store: Store, text: str, conversation: Conversation) -> None:
        draft = make_draft(text, meta={"state": text[:100], "signed": [1, {"deep": None}]})
        await append_drafts(store, conversation.id, draft)
        [read] = await store.conversations.messages(MAYA, conversation.id)
        assert read.text == text
        assert (read.meta, read.metadata) == (draft.meta, draft.metadata)

    async def test_every_field_and_block_is_returned_unchanged(self, store: Store, conversation: Conversation) -> None:
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
            metadata={"source": "web", "näme": [1, None]},
        )
        appended = await append_drafts(store, conversation.id, draft)
        [read] = await store.conversations.messages(MAYA, conversation.id, include_internal=True)
        assert read == appended.messages[0]
        assert (read.meta, read.metadata) == (draft.meta, draft.metadata)
        assert read.created_at == moment
        assert [dict(block) for block in read.content] == [dict(block) for block in draft.content]
        assert read.messages[-1].tool_calls[0].meta == {"signature": "x"}
        assert await store.conversations.message(MAYA, draft.id) == read
        assert await store.conversations.message(MAYA, "msg_unknown") is None

    async def test_a_block_of_an_unknown_kind_is_stored_and_returned(
        self, store: Store, conversation: Conversation
    ) -> None:
        odd = MediaBlock("hologram", url="https://example.com/h", name="Leia")
        result = ToolResultBlock("tu_1", "[hologram]", parts=(odd,))
        drafts = [make_draft(content=(odd,)), make_draft(role="tool", content=(result,))]
        await append_drafts(store, conversation.id, *drafts)
        read = await store.conversations.messages(MAYA, conversation.id)
        assert [message.content for message in read] == [(odd,), (result,)]
        started = await start_turn(store, conversation.id, make_claim("me"))
        assert [message.role for message in started.history] == ["user", "tool"]

    async def test_messages_are_filtered_by_visibility_and_position(
        self, store: Store, conversation: Conversation
    ) -> None:
        kinds = ["user", "internal", "hidden", "user", "internal", "user"]
        for kind in kinds:
            await append_drafts(store, conversation.id, make_draft(visibility=kind))

        async def seqs(**options: Any) -> list[int]:
            return [message.seq for message in await store.conversations.messages(MAYA, conversation.id, **options)]

        assert await seqs() == [1, 4, 6]
        assert await seqs(include_internal=True) == [1, 2, 4, 5, 6]
        assert await seqs(include_internal=True, include_hidden=True) == [1, 2, 3, 4, 5, 6]
        assert await seqs(limit=2) == [4, 6]
        assert await seqs(include_internal=True, limit=2, before=5) == [2, 4]
        assert await seqs(include_internal=True, limit=2, after=1, from_start=True) == [2, 4]
        assert await seqs(after=6) == []
        assert await seqs(limit=0) == []
        with pytest.raises(NotFoundError):
            await store.conversations.messages(MAYA, "conv_unknown")

    async def test_messages_share_or_join_turns_and_turns_are_counted(
        self, store: Store, conversation: Conversation
    ) -> None:
        append = store.conversations.append
        first = await append(
            MAYA, conversation.id, [TurnDraft("turn_0", [make_draft(role="system")], joins=True)], now=utc_now()
        )
        both = [make_draft(), make_draft(role="assistant")]
        second = await append(MAYA, conversation.id, [TurnDraft("turn_1", both, starts=True)], now=utc_now())
        joined = [TurnDraft("turn_2", [make_draft(role="tool")], joins=True)]
        third = await append(MAYA, conversation.id, joined, now=utc_now())
        exchange = [make_draft(), make_draft(role="assistant")]
        several = [TurnDraft("turn_3", [make_draft()], starts=True), TurnDraft("turn_4", exchange, starts=True)]
        fourth = await append(MAYA, conversation.id, several, now=utc_now())
        turns = [m.turn_id for m in (*first.messages, *second.messages, *third.messages, *fourth.messages)]
        assert turns == ["turn_0", "turn_1", "turn_1", "turn_1", "turn_3", "turn_4", "turn_4"]
        assert [first.turns, second.turns, third.turns, fourth.turns] == [1, 2, 2, 4]

    async def test_an_idempotency_key_stores_a_message_once(self, store: Store) -> None:
        conversation, other = await make_conversation(store), await make_conversation(store)

        async def attempt(id: str, text: str) -> tuple[str, str, str]:
            drafts = [make_draft(text, idempotency_key="k"), make_draft(f"re: {text}", "assistant")]
            appended = await append_drafts(store, id, *drafts)
            said, answered = appended.messages
            assert said.turn_id == answered.turn_id
            return said.id, said.text, answered.text

        first = await attempt(conversation.id, "one")
        second = await attempt(conversation.id, "two")
        assert second == (first[0], "one", "re: two")
        assert (await attempt(other.id, "three"))[1] == "three"
        messages = await store.conversations.messages(MAYA, conversation.id)
        assert [(m.seq, m.text) for m in messages] == [(1, "one"), (2, "re: one"), (3, "re: two")]
        await store.conversations.close(MAYA, conversation.id, now=utc_now())
        retried = make_turn(make_draft("late", idempotency_key="k"))
        assert (await store.conversations.append(MAYA, conversation.id, retried, now=utc_now())).messages[
            0
        ].id == first[0]

    async def test_an_idempotency_key_used_twice_in_one_call_stores_one_message(self, store: Store) -> None:
        conversation = await make_conversation(store)
        drafts = [make_draft("a", idempotency_key="k"), make_draft("b", idempotency_key="k"), make_draft("c")]
        turns = [*make_turn(*drafts), *make_turn(make_draft("d", idempotency_key="k"))]
        appended = await store.conversations.append(MAYA, conversation.id, turns, now=utc_now())
        assert [message.text for message in appended.messages] == ["a", "a", "c", "a"]
        assert [m.text for m in await store.conversations.messages(MAYA, conversation.id)] == ["a", "c"]

    async def test_an_idempotency_key_used_concurrently_stores_one_message(self, store: Store, second: Store) -> None:
        conversation = await make_conversation(store)

        async def attempt(n: int) -> str:
            where = (store, second)[n % 2]
            drafts = make_turn(make_draft(str(n), idempotency_key="once"))
            return (await where.conversations.append(MAYA, conversation.id, drafts, now=utc_now())).messages[0].id

        assert len(set(await asyncio.gather(*map(attempt, range(12))))) == 1
        assert len(await store.conversations.messages(MAYA, conversation.id)) == 1

    async def test_a_closed_or_unknown_conversation_rejects_messages(self, store: Store) -> None:
        conversation = await make_conversation(store)
        await append_message(store, conversation.id, "in time")
        await store.conversations.close(MAYA, conversation.id, now=utc_now())
        with pytest.raises(ConversationClosedError):
            await append_message(store, conversation.id, "too late")
        with pytest.raises(NotFoundError):
            await append_message(store, "conv_unknown", "nowhere")
        assert len(await store.conversations.messages(MAYA, conversation.id)) == 1
        assert len(await read_all_events(store)) == 3

    async def test_a_failed_append_is_rolled_back_and_affects_no_other(self, store: Store) -> None:
        conversation = await make_conversation(store)
        await append_message(store, conversation.id, "first")
        taken = (await store.conversations.messages(MAYA, conversation.id))[0].id

        async def bad() -> None:
            drafts = [make_draft("half"), replace(make_draft("twin"), id=taken)]
            with pytest.raises(StoreError):
                await append_drafts(store, conversation.id, *drafts)

        await asyncio.gather(
            *(bad() if n % 3 == 0 else append_message(store, conversation.id, f"good {n}") for n in range(12))
        )
        messages = await store.conversations.messages(MAYA, conversation.id)
        assert [message.seq for message in messages] == list(range(1, 10))
        assert sorted(message.text for message in messages[1:]) == sorted(f"good {n}" for n in range(12) if n % 3)
        appended = await read_all_events(store, "message.appended")
        assert [event.data["seq"] for event in appended] == list(range(1, 10))

    async def test_a_cancelled_append_is_atomic(self, store: Store) -> None:
        conversation = await make_conversation(store)
        for n in range(30):
            work = asyncio.ensure_future(
                append_drafts(store, conversation.id, make_draft("a"), make_draft("b", "assistant"))
            )
            for _ in range(n % 6):
                await asyncio.sleep(0)
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
        last = await append_message(store, conversation.id, "after")
        messages = await store.conversations.messages(MAYA, conversation.id)
        assert [message.seq for message in messages] == list(range(1, last + 1))
        assert [message.text for message in messages] == ["a", "b"] * (last // 2) + ["after"]


class TurnContract:
    """Tests of turns in `ConversationLog`."""

    async def test_a_second_turn_is_busy_until_the_first_ends(self, store: Store, conversation: Conversation) -> None:
        claim = make_claim("me")
        started = await start_turn(store, conversation.id, claim, make_draft("Hi"))
        assert started.user_message is not None
        assert started.turn_id == started.user_message.turn_id == claim.turn_id
        assert started.history == (user_message("Hi"),)
        busy = await begin_turn(store, conversation.id, make_claim("you"), make_draft("Me too"))
        assert busy == TurnBusy(claim.turn_id, "me")
        assert len(await store.conversations.messages(MAYA, conversation.id)) == 1
        await store.conversations.end_turn(MAYA, conversation.id, "another-claim")
        assert await begin_turn(store, conversation.id, make_claim("you")) == busy
        await store.conversations.end_turn(MAYA, conversation.id, "me")
        again = await start_turn(store, conversation.id, make_claim("you"), make_draft("Now me"), tail_limit=1)
        assert again.history == (user_message("Now me"),)

    async def test_a_claim_can_be_evicted_expire_and_be_extended(self, store: Store) -> None:
        conversation = await make_conversation(store)
        first = make_claim("gone")
        await begin_turn(store, conversation.id, first)
        await start_turn(store, conversation.id, make_claim("me", 0, evict="gone"))
        over = make_claim("you")
        await start_turn(store, conversation.id, over)
        later = replace(make_claim("third"), now=time.time() + 60)
        await store.conversations.extend_turn(MAYA, conversation.id, "you", time.time() + 120)
        assert isinstance(await begin_turn(store, conversation.id, later), TurnBusy)

    async def test_appending_the_last_message_can_release_the_claim(self, store: Store) -> None:
        conversation = await make_conversation(store)
        claim = make_claim("me")
        await begin_turn(store, conversation.id, claim, make_draft())
        answer = [TurnDraft(claim.turn_id, [make_draft("Hello!", "assistant")])]
        appended = await store.conversations.append(MAYA, conversation.id, answer, now=utc_now(), release_claim_id="me")
        assert (appended.messages[0].turn_id, appended.turns) == (claim.turn_id, 1)
        next_turn = await start_turn(store, conversation.id, make_claim("you"), make_draft())
        assert [message.role for message in next_turn.history] == ["user", "assistant", "user"]

    async def test_a_retried_turn_returns_its_stored_messages(self, store: Store) -> None:
        conversation = await make_conversation(store)
        keyed = {"idempotency_key": "k"}
        first = await start_turn(store, conversation.id, make_claim("a", 0), make_draft("Book it", **keyed))
        calling = make_draft(role="assistant", content=(ToolUseBlock("tu_1", "book", {}),))
        await store.conversations.append(MAYA, conversation.id, [TurnDraft(first.turn_id, [calling])], now=utc_now())
        again = await start_turn(store, conversation.id, make_claim("b"), make_draft("Book it", **keyed))
        assert again.turn_id == first.turn_id
        assert again.user_message == first.user_message
        assert [message.role for message in again.later_messages] == ["assistant"]
        assert len(await store.conversations.messages(MAYA, conversation.id)) == 2

    async def test_a_closed_conversation_rejects_new_turns(self, store: Store, conversation: Conversation) -> None:
        await store.conversations.close(MAYA, conversation.id, now=utc_now())
        with pytest.raises(ConversationClosedError):
            await begin_turn(store, conversation.id, make_claim("me"), make_draft())

    async def test_a_waiting_turn_can_resume_after_closing(self, store: Store, conversation: Conversation) -> None:
        await append_message(store, conversation.id, "Pay!")
        await store.conversations.close(MAYA, conversation.id, now=utc_now())
        started = await start_turn(store, conversation.id, make_claim("me"))
        late = [TurnDraft(started.turn_id, [make_draft("Paid.", "assistant")])]
        appended = await store.conversations.append(MAYA, conversation.id, late, now=utc_now(), release_claim_id="me")
        assert [message.seq for message in appended.messages] == [2]
        with pytest.raises(ConversationClosedError):
            await store.conversations.append(MAYA, conversation.id, late, now=utc_now())

    async def test_a_running_turn_can_finish_after_closing(self, store: Store) -> None:
        conversation = await make_conversation(store)
        claim = make_claim("me")
        await begin_turn(store, conversation.id, claim, make_draft())
        await store.conversations.close(MAYA, conversation.id, now=utc_now())
        late = [TurnDraft(claim.turn_id, [make_draft("Hello!", "assistant")])]
        for outsider in (
            [TurnDraft(new_id("turn"), [make_draft()], starts=True)],
            [TurnDraft(new_id("turn"), [make_draft()], joins=True)],
        ):
            with pytest.raises(ConversationClosedError):
                await store.conversations.append(MAYA, conversation.id, outsider, now=utc_now())
        await store.conversations.append(MAYA, conversation.id, late, now=utc_now(), release_claim_id="me")
        with pytest.raises(ConversationClosedError):
            await store.conversations.append(MAYA, conversation.id, late, now=utc_now())
        assert [m.text for m in await store.conversations.messages(MAYA, conversation.id)] == ["Hello", "Hello!"]

    async def test_an_open_instance_is_alive(self, store: Store, second: Store) -> None:
        assert store.instance_id != second.instance_id
        conversation = await make_conversation(store)
        await begin_turn(store, conversation.id, make_claim(store.instance_id))
        assert await second.is_instance_alive(store.instance_id) is not False
        assert await second.is_instance_alive("unknown-instance") is None
