"""Turns: one at a time, given up and taken over."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from tellback.errors import ConversationClosedError
from tellback.stores import Store, TurnBusy, TurnDraft, TurnStarted
from tellback.testing.stores.making import (
    MAYA,
    append_message,
    make_claim,
    make_conversation,
    make_draft,
)
from tellback.types import user_message
from tellback.types.blocks import ToolUseBlock
from tellback.types.ids import new_id
from tellback.types.times import utc_now


class TurnContract:
    """`ConversationLog`, as far as turns go."""

    async def test_a_turn_is_begun_once_until_it_ends(self, store: Store) -> None:
        conversation = await make_conversation(store)
        begin = store.conversations.begin_turn
        claim = make_claim("me")
        started = await begin(MAYA, conversation.id, claim, make_draft("Hi"), tail_limit=5, now=utc_now())
        assert isinstance(started, TurnStarted)
        assert started.user_message is not None
        assert started.turn_id == started.user_message.turn_id == claim.turn_id
        assert started.history == (user_message("Hi"),)
        busy = await begin(MAYA, conversation.id, make_claim("you"), make_draft("Me too"), tail_limit=5, now=utc_now())
        assert busy == TurnBusy(claim.turn_id, "me")
        assert len(await store.conversations.messages(MAYA, conversation.id)) == 1
        await store.conversations.end_turn(MAYA, conversation.id, "somebody else")
        assert await begin(MAYA, conversation.id, make_claim("you"), None, tail_limit=5, now=utc_now()) == busy
        await store.conversations.end_turn(MAYA, conversation.id, "me")
        again = await begin(MAYA, conversation.id, make_claim("you"), make_draft("Now me"), tail_limit=1, now=utc_now())
        assert isinstance(again, TurnStarted)
        assert again.history == (user_message("Now me"),)

    async def test_a_claim_can_be_evicted_runs_out_and_is_extended(self, store: Store) -> None:
        conversation = await make_conversation(store)
        begin = store.conversations.begin_turn
        first = make_claim("gone")
        await begin(MAYA, conversation.id, first, None, tail_limit=5, now=utc_now())
        evicting = await begin(
            MAYA, conversation.id, make_claim("me", 0, evict="gone"), None, tail_limit=5, now=utc_now()
        )
        assert isinstance(evicting, TurnStarted)
        over = make_claim("you")
        taken = await begin(MAYA, conversation.id, over, None, tail_limit=5, now=utc_now())
        assert isinstance(taken, TurnStarted)
        later = replace(make_claim("third"), now=time.time() + 60)
        await store.conversations.extend_turn(MAYA, conversation.id, "you", time.time() + 120)
        assert isinstance(await begin(MAYA, conversation.id, later, None, tail_limit=5, now=utc_now()), TurnBusy)

    async def test_the_last_message_of_a_turn_ends_it_in_the_same_step(self, store: Store) -> None:
        conversation = await make_conversation(store)
        claim = make_claim("me")
        await store.conversations.begin_turn(MAYA, conversation.id, claim, make_draft(), tail_limit=5, now=utc_now())
        answer = [TurnDraft(claim.turn_id, [make_draft("Hello!", "assistant")])]
        appended = await store.conversations.append(MAYA, conversation.id, answer, now=utc_now(), release_owner="me")
        assert (appended.messages[0].turn_id, appended.turns) == (claim.turn_id, 1)
        next_turn = await store.conversations.begin_turn(
            MAYA, conversation.id, make_claim("you"), make_draft(), tail_limit=9, now=utc_now()
        )
        assert isinstance(next_turn, TurnStarted)
        assert [message.role for message in next_turn.history] == ["user", "assistant", "user"]

    async def test_a_turn_begun_again_with_its_key_finds_what_it_had_stored(self, store: Store) -> None:
        conversation = await make_conversation(store)
        begin = store.conversations.begin_turn
        keyed = {"idempotency_key": "k"}
        first = await begin(
            MAYA, conversation.id, make_claim("a", 0), make_draft("Book it", **keyed), tail_limit=9, now=utc_now()
        )
        assert isinstance(first, TurnStarted)
        calling = make_draft(role="assistant", content=(ToolUseBlock("tu_1", "book", {}),))
        await store.conversations.append(MAYA, conversation.id, [TurnDraft(first.turn_id, [calling])], now=utc_now())
        again = await begin(
            MAYA, conversation.id, make_claim("b"), make_draft("Book it", **keyed), tail_limit=9, now=utc_now()
        )
        assert isinstance(again, TurnStarted)
        assert again.turn_id == first.turn_id
        assert again.user_message == first.user_message
        assert [message.role for message in again.later_messages] == ["assistant"]
        assert len(await store.conversations.messages(MAYA, conversation.id)) == 2

    async def test_a_closed_conversation_begins_no_turn(self, store: Store) -> None:
        conversation = await make_conversation(store)
        await store.conversations.close(MAYA, conversation.id, now=utc_now())
        with pytest.raises(ConversationClosedError):
            await store.conversations.begin_turn(
                MAYA, conversation.id, make_claim("me"), make_draft(), tail_limit=5, now=utc_now()
            )

    async def test_a_turn_that_waited_may_go_on_after_closing(self, store: Store) -> None:
        conversation = await make_conversation(store)
        await append_message(store, conversation.id, "Pay!")
        await store.conversations.close(MAYA, conversation.id, now=utc_now())
        begun = await store.conversations.begin_turn(
            MAYA, conversation.id, make_claim("me"), None, tail_limit=5, now=utc_now()
        )
        assert isinstance(begun, TurnStarted)
        late = [TurnDraft(begun.turn_id, [make_draft("Paid.", "assistant")])]
        appended = await store.conversations.append(MAYA, conversation.id, late, now=utc_now(), release_owner="me")
        assert [message.seq for message in appended.messages] == [2]
        with pytest.raises(ConversationClosedError):
            await store.conversations.append(MAYA, conversation.id, late, now=utc_now())

    async def test_a_turn_that_was_running_may_finish_after_closing(self, store: Store) -> None:
        conversation = await make_conversation(store)
        claim = make_claim("me")
        await store.conversations.begin_turn(MAYA, conversation.id, claim, make_draft(), tail_limit=5, now=utc_now())
        await store.conversations.close(MAYA, conversation.id, now=utc_now())
        late = [TurnDraft(claim.turn_id, [make_draft("Hello!", "assistant")])]
        for outsider in (
            [TurnDraft(new_id("turn"), [make_draft()], starts=True)],
            [TurnDraft(new_id("turn"), [make_draft()], joins=True)],
        ):
            with pytest.raises(ConversationClosedError):
                await store.conversations.append(MAYA, conversation.id, outsider, now=utc_now())
        await store.conversations.append(MAYA, conversation.id, late, now=utc_now(), release_owner="me")
        with pytest.raises(ConversationClosedError):
            await store.conversations.append(MAYA, conversation.id, late, now=utc_now())
        assert [m.text for m in await store.conversations.messages(MAYA, conversation.id)] == ["Hello", "Hello!"]

    async def test_an_owner_is_known_to_be_alive(self, store: Store, second: Store) -> None:
        assert store.owner != second.owner
        conversation = await make_conversation(store)
        await store.conversations.begin_turn(
            MAYA, conversation.id, make_claim(store.owner), None, tail_limit=5, now=utc_now()
        )
        assert await second.is_alive(store.owner) is not False
        assert await second.is_alive("nobody we know") is None
