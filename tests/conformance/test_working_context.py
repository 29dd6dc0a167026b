"""The working context on every store, with real conversations and a real memory."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tellback import Tellback
from tellback.chat.history import is_valid_history
from tellback.chat.options import count_tokens_heuristic
from tellback.errors import NotFoundError
from tellback.memory.working_context import WorkingContextBuilder
from tellback.testing import ScriptedModel, says
from tellback.user import User

FACT: Mapping[str, Any] = {"name": "fact", "kind": "FACT"}
IDENTITY: Mapping[str, Any] = {"name": "identity", "kind": "FACT"}
PREFERENCE: Mapping[str, Any] = {"name": "preference", "kind": "PREFERENCE"}
START_DATE, END_DATE = datetime(2025, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)


def context_builder(user: User) -> WorkingContextBuilder:
    return WorkingContextBuilder(user.conversations, user.memory)


async def test_memories_of_other_conversations_are_in_a_new_context(tb: Tellback) -> None:
    maya = tb.user("maya")
    space = await maya.memory.create_space("default")
    await maya.memory.add_atom(space.id, "Is called Maya.", IDENTITY)
    await maya.memory.add_atom(space.id, "Eats no meat and no fish.", PREFERENCE, valid_from="2026-03-01T00:00:00Z")
    await maya.memory.add_atom(space.id, "Drives an old van.", FACT)
    conversation = await maya.conversations.create("dinner")
    await maya.conversations.append_user_message(conversation.id, "Where can we eat without meat tonight?")
    context = await context_builder(maya).build(
        conversation.id, space.id, recall_limit=1, always_on_category_names=["identity"], template_id="messages"
    )
    assert [atom.text for atom in context.atoms_used] == ["Is called Maya.", "Eats no meat and no fish."]
    assert "- 2026-03-01 (preference): Eats no meat and no fish." in context.context_block
    assert [message.role for message in context.messages] == ["system", "user"]


async def test_verbatim_memories_of_recent_turns_are_not_repeated(tb: Tellback) -> None:
    maya = tb.user("maya")
    space = await maya.memory.create_space("default")
    earlier = await maya.conversations.create("chat")
    await maya.conversations.append_user_message(earlier.id, "My boat is called Heron.")
    new_conversation = await maya.conversations.create("chat")
    await maya.conversations.append_user_message(new_conversation.id, "What is my boat called?")
    for conversation in (earlier, new_conversation):
        await maya.memory.remember_conversation(space.id, conversation.id)
    context = await context_builder(maya).build(new_conversation.id, space.id)
    assert len(context.hits) == 1
    assert "Heron" in context.hits[0].atom.text
    assert context.context_block.count("What is my boat called?") == 1


async def test_ended_memories_are_excluded_except_at_their_time(tb: Tellback) -> None:
    maya = tb.user("maya")
    space = await maya.memory.create_space("default")
    old = await maya.memory.add_atom(space.id, "Lives in Porto.", IDENTITY, valid_from="2024-01-01T00:00:00Z")
    await maya.memory.supersede_atom(old.id, "Lives in Lisbon.", valid_from="2026-03-01T00:00:00Z")
    conversation = await maya.conversations.create("chat")
    today = await context_builder(maya).build(
        conversation.id, space.id, "Where does she live?", always_on_category_names=["identity"]
    )
    past_context = await context_builder(maya).build(
        conversation.id,
        space.id,
        "Where does she live?",
        always_on_category_names=["identity"],
        now=datetime(2025, 1, 1, tzinfo=UTC),
    )
    assert [atom.text for atom in today.atoms_used] == ["Lives in Lisbon."]
    assert [atom.text for atom in past_context.atoms_used] == ["Lives in Porto."]
    assert "2024-01-01 to 2026-03-01 (identity): Lives in Porto." in past_context.context_block


async def test_a_now_near_the_clock_gives_the_same_context(tb: Tellback) -> None:
    maya = tb.user("maya")
    space = await maya.memory.create_space("default")
    next_month = datetime.now(UTC) + timedelta(days=30)
    await maya.memory.add_atom(space.id, "Moves to Faro.", IDENTITY, valid_from=next_month)
    await maya.memory.add_atom(space.id, "Is moving house.", FACT, valid_from=next_month)
    await maya.memory.add_atom(space.id, "Was packing to move.", FACT, valid_from=START_DATE, valid_to=END_DATE)
    conversation = await maya.conversations.create("chat")
    kwargs: Mapping[str, Any] = {"recall_query": "Where does she move?", "always_on_category_names": ["identity"]}
    default_context = await context_builder(maya).build(conversation.id, space.id, **kwargs)
    explicit_context = await context_builder(maya).build(conversation.id, space.id, **kwargs, now=datetime.now(UTC))
    earlier = await context_builder(maya).build(
        conversation.id, space.id, **kwargs, now=datetime.now(UTC) - timedelta(days=1)
    )
    assert [atom.text for atom in default_context.atoms_used] == ["Moves to Faro.", "Is moving house."]
    assert explicit_context.atoms_used == default_context.atoms_used
    assert earlier.atoms_used == ()


async def test_a_large_tool_result_stays_within_the_budget(tb: Tellback) -> None:
    maya = tb.user("maya")
    conversation = await maya.conversations.create("chat")
    turn: list[Mapping[str, Any]] = [
        {"role": "user", "content": "Read it."},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "read", "arguments": {}}]},
        {"role": "tool", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "word " * 40_000}]},
        {"role": "assistant", "content": "It is long."},
    ]
    await maya.conversations.append_messages(conversation.id, turn)
    context = await context_builder(maya).build(conversation.id, token_budget=1_000)
    assert context.turns_used == 1
    assert "(198000 more characters)" in context.context_block
    assert "(198000 more characters)" in context.messages[3].content
    assert count_tokens_heuristic(context.messages) <= 1_000
    assert is_valid_history(context.messages)


async def test_the_context_never_contains_archived_and_forgotten_memories(tb: Tellback) -> None:
    maya = tb.user("maya")
    space = await maya.memory.create_space("default")
    archived_atom = await maya.memory.add_atom(space.id, "Likes green tea.", IDENTITY)
    forgotten_atom = await maya.memory.add_atom(space.id, "Likes black tea.", IDENTITY)
    await maya.memory.archive_atom(archived_atom.id)
    await maya.memory.delete_atom(forgotten_atom.id)
    conversation = await maya.conversations.create("chat")
    context = await context_builder(maya).build(conversation.id, space.id, "tea", always_on_category_names=["identity"])
    assert context.atoms_used == ()


async def test_the_context_contains_the_rolling_summary_and_the_tools_of_a_turn(tb: Tellback) -> None:
    maya = tb.user("maya")
    conversation = await maya.conversations.create("chat")
    await maya.conversations.append_messages(
        conversation.id,
        [
            {"role": "user", "content": "Where is parcel 7?"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "find", "arguments": {"n": 7}}]},
            {"role": "tool", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "at the harbour"}]},
            {"role": "assistant", "content": "At the harbour."},
        ],
    )
    await maya.conversations.refresh_rolling_summary(conversation.id, ScriptedModel([says("They look for parcel 7.")]))
    context = await context_builder(maya).build(conversation.id)
    assert "# The conversation so far\n  They look for parcel 7.\n" in context.context_block
    assert '[calls find({"n":7})]' in context.context_block
    assert [message.role for message in context.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert is_valid_history(context.messages)


async def test_a_long_conversation_is_cut_to_the_budget_by_whole_turns(tb: Tellback) -> None:
    maya = tb.user("maya")
    conversation = await maya.conversations.create("chat")
    messages = [
        {"role": role, "content": f"{role} {n} {'word ' * 50}"} for n in range(60) for role in ("user", "assistant")
    ]
    await maya.conversations.append_messages(conversation.id, messages)
    context = await context_builder(maya).build(conversation.id, recent_turns=40, token_budget=1_000)
    assert context.tokens_estimated <= 1_000
    assert context.turns_used + context.turns_dropped == 40
    assert len(context.messages) == 1 + 2 * context.turns_used
    assert context.messages[-1].content.startswith("assistant 59")
    assert context.messages[1].content.startswith(f"user {60 - context.turns_used} ")


async def test_a_context_can_be_built_for_a_closed_conversation(tb: Tellback) -> None:
    maya = tb.user("maya")
    conversation = await maya.conversations.create("chat")
    await maya.conversations.append_user_message(conversation.id, "Goodbye")
    await maya.conversations.close(conversation.id)
    assert "user: Goodbye" in (await context_builder(maya).build(conversation.id)).context_block


async def test_another_users_conversation_and_space_are_not_found(tb: Tellback) -> None:
    maya, ben = tb.user("maya"), tb.user("ben")
    space = await maya.memory.create_space("default")
    other_conversation, own_conversation = (
        await maya.conversations.create("chat"),
        await ben.conversations.create("chat"),
    )
    with pytest.raises(NotFoundError, match="conversation"):
        await context_builder(ben).build(other_conversation.id)
    option_sets: list[dict[str, Any]] = [{}, {"recall_query": "tea"}, {"always_on_category_names": ["identity"]}]
    for arguments in option_sets:
        with pytest.raises(NotFoundError, match="space"):
            await context_builder(ben).build(own_conversation.id, space.id, **arguments)
