"""The contract of agent sessions in a store with a conversation log."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tellback.errors import ConversationClosedError, NotFoundError, SessionConflictError
from tellback.stores import SessionTurn, Store
from tellback.testing.stores.factories import (
    MAYA,
    NOON,
    OTHER_SCOPES,
    append_drafts,
    append_message,
    begin_turn,
    list_conversations,
    make_claim,
    make_conversation,
    make_draft,
    make_turn,
    present,
    read_all_events,
    read_event_types,
)
from tellback.types.access import Scope
from tellback.types.conversations import Conversation, MessageData, SessionData
from tellback.types.ids import new_id, utc_now


def make_session(id: str = "web-42", scope: Scope = MAYA, **fields: Any) -> SessionData:
    """Build a user's session."""
    session = SessionData(id, scope.user_id, "Wanda", created_at=NOON, updated_at=NOON, collected_data={"to": "Rome"})
    return replace(session, **fields)


def make_message(content: str, role: Any = "user", session_id: str = "web-42") -> MessageData:
    """Build a message of a session."""
    return MessageData(new_id("msg"), session_id, role, content, "maya", created_at=NOON)


def make_conversation_to_open(session_id: str = "web-42", scope: Scope = MAYA) -> Conversation:
    """Build a conversation for a session."""
    return Conversation(new_id("conv"), scope, "wanda", "open", NOON, NOON, session_id=session_id)


async def session_texts(store: Store, id: str = "web-42", scope: Scope = MAYA) -> list[str]:
    """Return the message texts of a session."""
    found = await store.sessions.messages(scope, id, limit=1_000, before=None, after=None)
    return [each.content for each in found]


class AgentSessionContract:
    """Tests of `AgentSessions`."""

    async def test_session_messages_are_in_the_log(self, store: Store) -> None:
        messages = [make_message("To Rome"), make_message("When?", "agent")]
        saved = await store.sessions.save(MAYA, make_session(version=1), messages, make_conversation_to_open())
        assert (saved.version, saved.message_count, saved.last_message_at) == (1, 2, NOON)
        assert await store.sessions.get(MAYA, "web-42") == saved
        assert await store.sessions.find_scope("acme", "support", "web-42") == MAYA
        conversation = present(await store.conversations.find_in_session(MAYA, "wanda", "web-42"))
        assert (conversation.turns, conversation.last_seq) == (1, 2)
        found = await store.conversations.messages(MAYA, conversation.id)
        assert [(each.role, each.text, each.id) for each in found] == [
            ("user", "To Rome", messages[0].id),
            ("assistant", "When?", messages[1].id),
        ]
        event_types = await read_event_types(store)
        assert event_types == ["conversation.created", "message.appended", "message.appended"]

    async def test_messages_appended_to_the_log_are_session_messages(self, store: Store) -> None:
        conversation = await make_conversation(store, session_id="web-42")
        drafts = [make_draft("Hi"), make_draft("Psst", "system", visibility="hidden"), make_draft("Hello", "assistant")]
        turn = SessionTurn(make_session(version=1), (make_message("Hi"), make_message("Hello", "agent")))
        await append_drafts(store, conversation.id, *drafts, session=turn)
        stored = present(await store.sessions.get(MAYA, "web-42"))
        assert (stored.version, stored.message_count) == (1, 2)
        assert await session_texts(store) == ["Hi", "Hello"]
        await store.sessions.add_messages(MAYA, [make_message("Still there?")], make_conversation_to_open(), at=NOON)
        assert await session_texts(store) == ["Hi", "Hello", "Still there?"]
        found = present(await store.conversations.get(MAYA, conversation.id))
        assert found.last_seq == 4

    async def test_a_session_and_its_messages_are_stored_atomically(self, store: Store) -> None:
        conversation = await make_conversation(store, session_id="web-42")
        turn = SessionTurn(make_session(version=2))
        with pytest.raises(SessionConflictError):
            await append_drafts(store, conversation.id, make_draft("lost"), session=turn)
        assert await store.conversations.messages(MAYA, conversation.id) == []
        await store.conversations.close(MAYA, conversation.id, now=utc_now())
        turn = SessionTurn(make_session(version=1))
        with pytest.raises(ConversationClosedError):
            await append_drafts(store, conversation.id, make_draft("lost"), session=turn)
        assert await store.sessions.get(MAYA, "web-42") is None

    async def test_concurrent_turns_and_notes_lose_no_message(self, store: Store) -> None:
        await store.sessions.create(MAYA, make_session())
        conversation = await make_conversation(store, session_id="web-42")

        async def log() -> None:
            for n in range(10):
                await append_message(store, conversation.id, f"log {n}")

        async def turns(name: str) -> None:
            for n in range(5):
                while True:
                    found = present(await store.sessions.get(MAYA, "web-42"))
                    turn = SessionTurn(make_session(version=found.version + 1), (make_message("x"),))
                    drafts = make_turn(make_draft(f"{name} {n}"))
                    try:
                        await store.conversations.append(MAYA, conversation.id, drafts, now=utc_now(), session=turn)
                    except SessionConflictError:
                        continue
                    break

        async def notes() -> None:
            for n in range(10):
                await store.sessions.add_messages(
                    MAYA, [make_message(f"note {n}")], make_conversation_to_open(), at=NOON
                )

        await asyncio.gather(log(), turns("a"), turns("b"), notes())
        found = present(await store.sessions.get(MAYA, "web-42"))
        assert (found.version, found.message_count) == (10, 20)
        assert len(await session_texts(store)) == 30

    async def test_completing_closes_the_conversation_and_the_next_message_opens_another(self, store: Store) -> None:
        await store.sessions.save(MAYA, make_session(version=1), [make_message("one")], make_conversation_to_open())
        done = present(await store.sessions.set_status(MAYA, "web-42", "completed", at=NOON, completed_at=NOON))
        assert done.status == "completed"
        assert (await read_all_events(store))[-1].type == "conversation.closed"
        await store.sessions.add_messages(MAYA, [make_message("two")], make_conversation_to_open(), at=NOON)
        assert await session_texts(store) == ["one", "two"]
        found = await list_conversations(store)
        assert [each.status for each in found] == ["open", "closed"]
        messages = await store.sessions.messages(MAYA, "web-42", limit=9, before=None, after=None)
        assert messages[0].position < messages[1].position
        after = await store.sessions.messages(MAYA, "web-42", limit=9, before=None, after=messages[0].position)
        before = await store.sessions.messages(MAYA, "web-42", limit=9, before=messages[1].position, after=None)
        assert (after, before) == (messages[1:], messages[:1])

    async def test_deleting_a_session_keeps_its_messages_in_the_log(self, store: Store) -> None:
        await store.sessions.save(MAYA, make_session(version=1), [make_message("one")], make_conversation_to_open())
        assert await store.sessions.delete(MAYA, "web-42", now=NOON)
        assert await store.sessions.get(MAYA, "web-42") is None
        assert not await store.sessions.delete(MAYA, "web-42", now=NOON)
        [conversation] = await list_conversations(store)
        assert conversation.status == "closed"
        assert [each.text for each in await store.conversations.messages(MAYA, conversation.id)] == ["one"]
        await store.sessions.save(MAYA, make_session(version=1), [make_message("new")], make_conversation_to_open())
        assert await session_texts(store) == ["new"]

    async def test_adding_a_note_does_not_affect_a_running_turn(self, store: Store) -> None:
        conversation = await make_conversation(store, session_id="web-42")
        await store.sessions.create(MAYA, make_session())
        claim = make_claim(store.instance_id + "/1")
        await begin_turn(store, conversation.id, claim, make_draft("Hi"))
        await store.sessions.add_messages(
            MAYA, [make_message("a note", "system")], make_conversation_to_open(), at=NOON
        )
        await append_drafts(
            store,
            conversation.id,
            make_draft("Hello", "assistant"),
            release_claim_id=claim.claim_id,
            required_claim_id=claim.claim_id,
            session=SessionTurn(make_session(version=1), (make_message("Hello", "agent"),)),
        )
        assert await session_texts(store) == ["Hi", "a note", "Hello"]

    async def test_session_ids_are_unique_in_an_app(self, store: Store) -> None:
        for scope in (MAYA, *OTHER_SCOPES[1:]):
            await store.sessions.create(scope, make_session(scope=scope))
        with pytest.raises(SessionConflictError):
            await store.sessions.create(OTHER_SCOPES[0], make_session(scope=OTHER_SCOPES[0]))
        with pytest.raises(NotFoundError):
            await store.sessions.save(
                OTHER_SCOPES[0], make_session(scope=OTHER_SCOPES[0], version=1), [], make_conversation_to_open()
            )
        assert await store.sessions.find_scope("globex", "support", "web-42") == OTHER_SCOPES[2]
        assert await store.sessions.find_scope("globex", "sales", "web-42") is None

    async def test_another_users_session_is_unknown(self, store: Store) -> None:
        await store.sessions.save(MAYA, make_session(version=1), [make_message("secret")], make_conversation_to_open())
        for scope in OTHER_SCOPES:
            assert await store.sessions.get(scope, "web-42") is None
            assert await session_texts(store, scope=scope) == []
            assert await store.sessions.find_active(scope, None) is None
            assert await store.sessions.list_sessions(scope, limit=9, before=None) == []
            assert await store.sessions.set_status(scope, "web-42", "completed", at=NOON, completed_at=NOON) is None
            assert not await store.sessions.delete(scope, "web-42", now=NOON)
            with pytest.raises(NotFoundError):
                await store.sessions.add_messages(
                    scope, [make_message("mine")], make_conversation_to_open(scope=scope), at=NOON
                )
            with pytest.raises(SessionConflictError):
                await store.sessions.save(scope, make_session(version=2), [], make_conversation_to_open(scope=scope))
        assert await session_texts(store) == ["secret"]
