"""Conversations: opened, listed, closed, summarised, and each in its scope."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tellback.errors import NotFoundError
from tellback.stores import Store, TurnStarted
from tellback.testing.stores.making import (
    MAYA,
    OTHER_SCOPES,
    append_message,
    make_claim,
    make_conversation,
    make_draft,
    make_turn,
    read_all_events,
)
from tellback.types.conversations import Conversation
from tellback.types.ids import new_id
from tellback.types.scope import Scope
from tellback.types.times import utc_now


class ConversationContract:
    """`ConversationLog`, as far as conversations go."""

    async def test_a_conversation_reads_back_as_it_was_made(self, store: Store) -> None:
        made = await make_conversation(
            store, namespace="support-chat", title="Ünïcode 🦜", session_id="s-1", metadata={"k": ["v", {"n": None}]}
        )
        assert await store.conversations.get(MAYA, made.id) == made
        assert made.is_open
        assert await store.conversations.get(MAYA, "conv_unknown") is None

    async def test_a_session_goes_on_with_its_newest_open_conversation(self, store: Store) -> None:
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

    async def test_of_those_who_ask_for_a_session_at_once_one_opens_it(self, store: Store) -> None:
        now = utc_now()
        wanted = [Conversation(new_id("conv"), MAYA, "chat", "open", now, now, session_id="tab") for _ in range(20)]
        found = await asyncio.gather(*(store.conversations.find_or_create(MAYA, one) for one in wanted))
        assert len({conversation.id for conversation in found}) == 1
        assert (
            len(
                await store.conversations.list_conversations(MAYA, namespace=None, status=None, limit=None, before=None)
            )
            == 1
        )
        assert [event.type for event in await read_all_events(store)] == ["conversation.created"]

    async def test_a_conversation_closes_when_its_own_time_is_past(self, store: Store) -> None:
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

    async def test_listing_gives_the_newest_first_in_pages(self, store: Store) -> None:
        made = [await make_conversation(store, namespace="a" if n % 2 else "b") for n in range(7)]
        await store.conversations.close(MAYA, made[3].id, now=utc_now())
        ids = [conversation.id for conversation in made]

        async def listed(**given: Any) -> list[str]:
            asked = {"namespace": None, "status": None, "limit": None, "before": None, **given}
            return [conversation.id for conversation in await store.conversations.list_conversations(MAYA, **asked)]

        assert await listed() == ids[::-1]
        assert await listed(limit=3) == ids[:3:-1]
        assert await listed(limit=3, before=ids[4]) == ids[3:0:-1]
        assert await listed(namespace="a") == [ids[5], ids[3], ids[1]]
        assert await listed(namespace="a", status="open", before=ids[5]) == [ids[1]]
        assert await listed(status="closed") == [ids[3]]
        assert await listed(limit=0) == []

    async def test_closing_twice_changes_nothing_and_tells_once(self, store: Store) -> None:
        conversation = await make_conversation(store)
        moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
        closed = await store.conversations.close(MAYA, conversation.id, now=moment)
        again = await store.conversations.close(MAYA, conversation.id, now=utc_now())
        assert (closed.status, closed.closed_at) == ("closed", moment)
        assert again == closed
        assert [event.type for event in await read_all_events(store)].count("conversation.closed") == 1
        with pytest.raises(NotFoundError):
            await store.conversations.close(MAYA, "conv_unknown", now=utc_now())

    async def test_stale_conversations_are_closed_unless_a_turn_runs(self, store: Store) -> None:
        now = utc_now()
        old = now - timedelta(hours=2)
        stale = await make_conversation(store, created_at=old, updated_at=old)
        foreign = await make_conversation(store, OTHER_SCOPES[0], created_at=old, updated_at=old)
        running = await make_conversation(store, created_at=old, updated_at=old)
        fresh = await make_conversation(store)
        started = await store.conversations.begin_turn(
            MAYA, running.id, make_claim(store.owner), None, tail_limit=5, now=old
        )
        assert isinstance(started, TurnStarted)
        idle = {"idle_since": now - timedelta(hours=1), "now": now}
        assert [conversation.id for conversation in await store.conversations.close_stale(MAYA, **idle)] == [stale.id]
        assert [conversation.id for conversation in await store.conversations.close_stale(None, **idle)] == [foreign.id]
        assert await store.conversations.close_stale(None, **idle) == []
        still = await store.conversations.get(MAYA, fresh.id)
        assert still is not None
        assert still.is_open

    async def test_ids_of_another_scope_do_not_exist(self, store: Store) -> None:
        conversation = await make_conversation(store)
        await append_message(store, conversation.id, "private")
        [message] = await store.conversations.messages(MAYA, conversation.id)
        log = store.conversations
        for other in OTHER_SCOPES:
            assert await log.get(other, conversation.id) is None
            assert await log.message(other, message.id) is None
            assert await log.list_conversations(other, namespace=None, status=None, limit=None, before=None) == []
            attempts = (
                log.messages(other, conversation.id, include_internal=True, include_hidden=True),
                log.close(other, conversation.id, now=utc_now()),
                log.append(other, conversation.id, make_turn(make_draft()), now=utc_now()),
                log.append(other, conversation.id, make_turn(make_draft(idempotency_key="k")), now=utc_now()),
                log.begin_turn(
                    other, conversation.id, make_claim(store.owner), make_draft(), tail_limit=5, now=utc_now()
                ),
                log.begin_turn(other, conversation.id, make_claim(store.owner), None, tail_limit=5, now=utc_now()),
            )
            for attempt in attempts:
                with pytest.raises(NotFoundError):
                    await attempt
            stolen = log.save_summary(
                other, conversation.id, "stolen", until_seq=1, turns=1, expected_seq=0, now=utc_now()
            )
            assert await stolen is None
        unchanged = await log.get(MAYA, conversation.id)
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
        made = [await make_conversation(store, scope) for scope in scopes]
        for scope, conversation in zip(scopes, made, strict=True):
            listed = await store.conversations.list_conversations(
                scope, namespace=None, status=None, limit=None, before=None
            )
            assert [found.id for found in listed] == [conversation.id]
            assert listed[0].scope == scope

    async def test_a_summary_is_replaced_only_where_it_was_read(self, store: Store) -> None:
        conversation = await make_conversation(store)
        for n in range(4):
            await append_message(store, conversation.id, str(n))
        save = store.conversations.save_summary
        first = await save(MAYA, conversation.id, "Two", until_seq=2, turns=2, expected_seq=0, now=utc_now())
        assert first is not None
        assert (first.rolling_summary, first.rolling_summary_until_seq, first.summarized_turns) == ("Two", 2, 2)
        assert await save(MAYA, conversation.id, "Lost", until_seq=3, turns=3, expected_seq=0, now=utc_now()) is None
        assert (
            await save(MAYA, conversation.id, "Four", until_seq=4, turns=4, expected_seq=2, now=utc_now()) is not None
        )
        final = await store.conversations.get(MAYA, conversation.id)
        assert final is not None
        assert final.rolling_summary == "Four"
