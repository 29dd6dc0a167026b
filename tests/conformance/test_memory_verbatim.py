"""Conversations stored verbatim, on every store."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tellback import Tellback
from tellback.errors import ConversationClosedError, InvalidArgumentError, NotFoundError
from tellback.types.memory import CategoryKind
from tests.integration.memory.helpers import DAY, NOON, Clock, texts


async def test_visible_messages_become_dated_and_cited_atoms(tb: Tellback) -> None:
    clock = Clock()
    tb.clock = clock
    maya = tb.user("maya")
    log, memory = maya.conversations, maya.memory
    space = await memory.create_space()
    conversation = await log.create(
        "chat", metadata={"speakers": {"user": "Maya", "assistant": "Wanda", "tool": "Hammer"}}
    )
    await log.append_messages(
        conversation.id,
        [
            {"role": "system", "content": "Secret instructions.", "visibility": "internal"},
            {"role": "system", "content": "Be kind.", "visibility": "user"},
            {"role": "user", "content": "Where is my parcel?", "created_at": NOON - DAY},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "find", "arguments": {}}]},
            {"role": "tool", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "In the harbour."}]},
            {"role": "assistant", "content": "It waits in the harbour.", "created_at": NOON},
            {"role": "assistant", "content": "Thinking about harbours.", "visibility": "internal"},
            {"role": "user", "content": "Hidden harbour.", "visibility": "hidden"},
            {"role": "user", "content": " \n "},
            {"role": "user", "content": "lone \ud800 surrogate and \x00 NUL"},
        ],
    )
    stored = await memory.remember_conversation(space.id, conversation.id)
    assert texts(stored) == [
        "Maya: Where is my parcel?",
        "Wanda: It waits in the harbour.",
        "Maya: lone  surrogate and  NUL",
    ]
    messages = {message.text: message for message in await log.messages(conversation.id)}
    for atom, text in zip(stored[:2], ("Where is my parcel?", "It waits in the harbour."), strict=True):
        assert (atom.source_conversation_id, atom.source_message_ids) == (conversation.id, (messages[text].id,))
        assert (atom.valid_from, atom.created_at) == (messages[text].created_at, NOON)
        assert (atom.category.name, atom.category.kind) == ("turn", CategoryKind.EPISODE)
        cited = await log.message(atom.source_message_ids[0])
        assert cited is not None
        assert cited.text == text
    found = texts(await memory.recall_by_topic(space.id, "harbour secret instructions hidden kind", 100))
    assert sorted(found) == sorted(texts(stored))
    assert texts(await memory.recall_by_entity(space.id, "Wanda")) == ["Wanda: It waits in the harbour."]


async def test_remembering_again_adds_only_new_messages(tb: Tellback) -> None:
    maya = tb.user("maya")
    log, memory = maya.conversations, maya.memory
    space, other = await memory.create_space(), await memory.create_space("other")
    conversation = await log.create("chat")
    assert await memory.remember_conversation(space.id, conversation.id) == []
    await log.append_user_message(conversation.id, "One.")
    first = await memory.remember_conversation(space.id, conversation.id)
    await memory.archive_atom(first[0].id)
    for _ in range(3):
        await memory.remember_conversation(space.id, conversation.id)
    assert await memory.list_atoms(space.id) == []
    await log.append_assistant_turn(conversation.id, "Two.")
    await log.append_user_message(conversation.id, "Three.")
    await log.close(conversation.id)
    with pytest.raises(ConversationClosedError):
        await log.append_user_message(conversation.id, "Four.")
    repeated = await asyncio.gather(*(memory.remember_conversation(space.id, conversation.id) for _ in range(5)))
    assert len({tuple(atom.id for atom in each) for each in repeated}) == 1
    assert texts(await memory.list_atoms(space.id)) == ["User: Three.", "Assistant: Two."]
    assert texts(await memory.remember_conversation(other.id, conversation.id)) == [
        "User: One.",
        "Assistant: Two.",
        "User: Three.",
    ]
    added_events = [event for event in await tb.events.read(limit=1000) if event.type == "atom.added"]
    assert len(added_events) == 6
    with pytest.raises(NotFoundError):
        await tb.user("ben").memory.remember_conversation(space.id, conversation.id)
    bens = await tb.user("ben").memory.create_space()
    with pytest.raises(NotFoundError):
        await tb.user("ben").memory.remember_conversation(bens.id, conversation.id)


@pytest.mark.parametrize(
    "speakers",
    [None, "Maya", ["Maya"], {}, {"user": None}, {"user": 5}, {"user": ""}, {"user": " "}, {"user": ["Maya"]}],
)
async def test_invalid_speaker_names_are_ignored(speakers: Any) -> None:
    async with Tellback(":memory:") as tb:
        maya = tb.user("maya")
        conversation = await maya.conversations.create("chat", metadata={"speakers": speakers})
        await maya.conversations.append_user_message(conversation.id, "Hello there.")
        space = await maya.memory.create_space()
        assert texts(await maya.memory.remember_conversation(space.id, conversation.id)) == ["User: Hello there."]


async def test_unusual_speaker_names_and_long_messages_are_stored(tb: Tellback) -> None:
    maya = tb.user("maya")
    conversation = await maya.conversations.create(
        "chat", metadata={"speakers": {"user": "Ma\ud800ya\x00\n: the  Great"}}
    )
    await maya.conversations.append_user_message(conversation.id, "Hello there.")
    await maya.conversations.append_user_message(conversation.id, "word " * 30_000)
    space = await maya.memory.create_space()
    short, long = await maya.memory.remember_conversation(space.id, conversation.id)
    assert short.text.endswith(": Hello there.")
    assert "\n" not in short.text
    assert len(long.text) <= 50_000
    assert long.text.endswith("[…]")
    assert len(await maya.memory.recall_by_topic(space.id, "word")) == 2


async def test_a_long_conversation_is_stored_completely_and_in_order(tb: Tellback) -> None:
    maya = tb.user("maya")
    conversation = await maya.conversations.create("chat")
    messages = [
        {"role": role, "content": f"{role} says {n}", "visibility": "internal" if n % 7 == 3 else "user"}
        for n in range(600)
        for role in ("user", "assistant")
    ]
    await maya.conversations.append_messages(conversation.id, messages)
    space = await maya.memory.create_space()
    stored = await maya.memory.remember_conversation(space.id, conversation.id)
    expected = [f"{each['role'].title()}: {each['content']}" for each in messages if each["visibility"] == "user"]
    assert texts(stored) == expected
    assert texts(await maya.memory.list_atoms(space.id)) == expected[::-1]
    hits = await maya.memory.recall_by_topic(space.id, "user says 300", neighbours=1)
    assert hits.total_candidates == len(expected)
    with pytest.raises(InvalidArgumentError):
        await maya.memory.recall_by_topic(space.id, "user", limit=-1)
