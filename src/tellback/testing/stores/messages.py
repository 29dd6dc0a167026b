"""Messages: dense, exact, stored once, whole or not at all."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tellback.errors import ConversationClosedError, NotFoundError, StoreError
from tellback.stores import Store, TurnDraft, TurnStarted
from tellback.testing.stores.making import (
    MAYA,
    append_message,
    make_claim,
    make_conversation,
    make_draft,
    make_exchange,
    make_turn,
    read_all_events,
)
from tellback.types import ChatUsage
from tellback.types.blocks import MediaBlock, TextBlock, ToolResultBlock, ToolUseBlock
from tellback.types.conversations import MessageDraft
from tellback.types.ids import new_id
from tellback.types.times import utc_now

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


class MessageContract:
    """`ConversationLog`, as far as messages go."""

    async def test_seq_is_dense_under_concurrent_writers(self, store: Store) -> None:
        conversations = [await make_conversation(store) for _ in range(3)]

        async def write(worker: int) -> list[tuple[str, int]]:
            given = []
            for n in range(20):
                conversation = conversations[(worker + n) % 3]
                given.append((conversation.id, await append_message(store, conversation.id, f"{worker}.{n}")))
            return given

        given = [pair for pairs in await asyncio.gather(*map(write, range(9))) for pair in pairs]
        for conversation in conversations:
            messages = await store.conversations.messages(MAYA, conversation.id)
            assert [message.seq for message in messages] == list(range(1, 61))
            assert sorted(seq for id, seq in given if id == conversation.id) == list(range(1, 61))
            current = await store.conversations.get(MAYA, conversation.id)
            assert current is not None
            assert current.last_seq == current.turns == 60

    async def test_seq_is_dense_when_two_openings_write(self, store: Store, second: Store) -> None:
        conversation = await make_conversation(store)

        async def write(where: Store, name: str) -> list[int]:
            return [await append_message(where, conversation.id, f"{name}{n}") for n in range(40)]

        given = await asyncio.gather(write(store, "a"), write(second, "b"), write(store, "c"))
        assert sorted(seq for seqs in given for seq in seqs) == list(range(1, 121))
        assert all(seqs == sorted(seqs) for seqs in given)
        texts = [message.text for message in await second.conversations.messages(MAYA, conversation.id)]
        assert sorted(texts) == sorted(f"{name}{n}" for name in "abc" for n in range(40))

    @pytest.mark.parametrize("text", AWKWARD_TEXTS, ids=range(len(AWKWARD_TEXTS)))
    async def test_text_comes_back_exactly(self, store: Store, text: str) -> None:
        conversation = await make_conversation(store)
        draft = make_draft(text, meta={"state": text[:100], "signed": [1, {"deep": None}]})
        await store.conversations.append(MAYA, conversation.id, make_turn(draft), now=utc_now())
        [read] = await store.conversations.messages(MAYA, conversation.id)
        assert read.text == text
        assert (read.meta, read.metadata) == (draft.meta, draft.metadata)

    async def test_every_field_and_block_comes_back(self, store: Store) -> None:
        conversation = await make_conversation(store)
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
        appended = await store.conversations.append(MAYA, conversation.id, make_turn(draft), now=utc_now())
        [read] = await store.conversations.messages(MAYA, conversation.id, include_internal=True)
        assert read == appended.messages[0]
        assert (read.meta, read.metadata) == (draft.meta, draft.metadata)
        assert read.created_at == moment
        assert [dict(block) for block in read.content] == [dict(block) for block in draft.content]
        assert read.messages[-1].tool_calls[0].meta == {"signature": "x"}
        assert await store.conversations.message(MAYA, draft.id) == read
        assert await store.conversations.message(MAYA, "msg_unknown") is None

    async def test_a_block_of_an_unknown_kind_is_kept_and_read(self, store: Store) -> None:
        conversation = await make_conversation(store)
        odd = MediaBlock("hologram", url="https://example.com/h", name="Leia")
        result = ToolResultBlock("tu_1", "[hologram]", parts=(odd,))
        drafts = [make_draft(content=(odd,)), make_draft(role="tool", content=(result,))]
        await store.conversations.append(MAYA, conversation.id, make_turn(*drafts), now=utc_now())
        read = await store.conversations.messages(MAYA, conversation.id)
        assert [message.content for message in read] == [(odd,), (result,)]
        begun = await store.conversations.begin_turn(
            MAYA, conversation.id, make_claim("me"), None, tail_limit=9, now=utc_now()
        )
        assert isinstance(begun, TurnStarted)
        assert [message.role for message in begun.history] == ["user", "tool"]

    async def test_messages_are_read_by_visibility_and_place(self, store: Store) -> None:
        conversation = await make_conversation(store)
        kinds = ["user", "internal", "hidden", "user", "internal", "user"]
        for kind in kinds:
            await store.conversations.append(
                MAYA, conversation.id, make_turn(make_draft(visibility=kind)), now=utc_now()
            )

        async def seqs(**given: Any) -> list[int]:
            return [message.seq for message in await store.conversations.messages(MAYA, conversation.id, **given)]

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
        conversation = await make_conversation(store)
        append = store.conversations.append
        first = await append(
            MAYA, conversation.id, [TurnDraft("turn_0", [make_draft(role="system")], joins=True)], now=utc_now()
        )
        both = [make_draft(), make_draft(role="assistant")]
        second = await append(MAYA, conversation.id, [TurnDraft("turn_1", both, starts=True)], now=utc_now())
        joined = [TurnDraft("turn_2", [make_draft(role="tool")], joins=True)]
        third = await append(MAYA, conversation.id, joined, now=utc_now())
        several = [TurnDraft("turn_3", [make_draft()], starts=True), TurnDraft("turn_4", make_exchange(), starts=True)]
        fourth = await append(MAYA, conversation.id, several, now=utc_now())
        turns = [m.turn_id for m in (*first.messages, *second.messages, *third.messages, *fourth.messages)]
        assert turns == ["turn_0", "turn_1", "turn_1", "turn_1", "turn_3", "turn_4", "turn_4"]
        assert [first.turns, second.turns, third.turns, fourth.turns] == [1, 2, 2, 4]

    async def test_an_idempotency_key_stores_a_message_once(self, store: Store) -> None:
        conversation, other = await make_conversation(store), await make_conversation(store)

        async def attempt(id: str, text: str) -> tuple[str, str, str]:
            drafts = [make_draft(text, idempotency_key="k"), make_draft(f"re: {text}", "assistant")]
            appended = await store.conversations.append(MAYA, id, make_turn(*drafts), now=utc_now())
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

    async def test_a_key_used_twice_in_one_step_stores_one_message(self, store: Store) -> None:
        conversation = await make_conversation(store)
        drafts = [make_draft("a", idempotency_key="k"), make_draft("b", idempotency_key="k"), make_draft("c")]
        turns = [*make_turn(*drafts), *make_turn(make_draft("d", idempotency_key="k"))]
        appended = await store.conversations.append(MAYA, conversation.id, turns, now=utc_now())
        assert [message.text for message in appended.messages] == ["a", "a", "c", "a"]
        assert [m.text for m in await store.conversations.messages(MAYA, conversation.id)] == ["a", "c"]

    async def test_one_key_used_by_many_at_once_stores_one_message(self, store: Store, second: Store) -> None:
        conversation = await make_conversation(store)

        async def attempt(n: int) -> str:
            where = (store, second)[n % 2]
            drafts = make_turn(make_draft(str(n), idempotency_key="once"))
            return (await where.conversations.append(MAYA, conversation.id, drafts, now=utc_now())).messages[0].id

        assert len(set(await asyncio.gather(*map(attempt, range(12))))) == 1
        assert len(await store.conversations.messages(MAYA, conversation.id)) == 1

    async def test_a_closed_or_unknown_conversation_takes_no_messages(self, store: Store) -> None:
        conversation = await make_conversation(store)
        await append_message(store, conversation.id, "in time")
        await store.conversations.close(MAYA, conversation.id, now=utc_now())
        with pytest.raises(ConversationClosedError):
            await append_message(store, conversation.id, "too late")
        with pytest.raises(NotFoundError):
            await append_message(store, "conv_unknown", "nowhere")
        assert len(await store.conversations.messages(MAYA, conversation.id)) == 1
        assert len(await read_all_events(store)) == 3

    async def test_a_change_that_fails_leaves_no_trace_and_disturbs_no_other(self, store: Store) -> None:
        conversation = await make_conversation(store)
        await append_message(store, conversation.id, "first")
        taken = (await store.conversations.messages(MAYA, conversation.id))[0].id

        async def bad() -> None:
            drafts = [make_draft("half"), replace(make_draft("twin"), id=taken)]
            with pytest.raises(StoreError):
                await store.conversations.append(MAYA, conversation.id, make_turn(*drafts), now=utc_now())

        await asyncio.gather(
            *(bad() if n % 3 == 0 else append_message(store, conversation.id, f"good {n}") for n in range(12))
        )
        messages = await store.conversations.messages(MAYA, conversation.id)
        assert [message.seq for message in messages] == list(range(1, 10))
        assert sorted(message.text for message in messages[1:]) == sorted(f"good {n}" for n in range(12) if n % 3)
        appended = [event for event in await read_all_events(store) if event.type == "message.appended"]
        assert [event.data["seq"] for event in appended] == list(range(1, 10))

    async def test_a_cancelled_append_is_stored_whole_or_not_at_all(self, store: Store) -> None:
        conversation = await make_conversation(store)
        for n in range(30):
            work = asyncio.ensure_future(
                store.conversations.append(
                    MAYA, conversation.id, make_turn(make_draft("a"), make_draft("b", "assistant")), now=utc_now()
                )
            )
            for _ in range(n % 6):
                await asyncio.sleep(0)
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
        last = await append_message(store, conversation.id, "after")
        messages = await store.conversations.messages(MAYA, conversation.id)
        assert [message.seq for message in messages] == list(range(1, last + 1))
        assert [message.text for message in messages] == ["a", "b"] * (last // 2) + ["after"]
