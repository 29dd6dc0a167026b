"""The offline model: what it quotes, what it says of itself, and that nobody remembers its answers."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from tellback import Tellback, TextDelta, request
from tellback.chat import OfflineModel
from tellback.chat.offline import NOT_STORED, NOTHING_REMEMBERED, SETUP_HINT, STORED_FOR_MEMORY
from tellback.errors import ConfigurationError
from tellback.request import Request
from tellback.testing import ScriptedModel, says
from tellback.types import ChatReply, StreamStop, assistant_message, user_message
from tellback.types.access import Scope
from tellback.types.memory import TURN_CATEGORY, Atom, Category, CategoryKind, RecallHit, WorkingContext

STATED_AT = datetime(2026, 3, 7, tzinfo=UTC)


def make_hit(text: str, score: float, category: Category = TURN_CATEGORY) -> RecallHit:
    atom = Atom(
        id=f"atom_{abs(hash(text))}",
        memory_space_id="ms_1",
        scope=Scope("default", "default", "maya"),
        text=text,
        category=category,
        valid_from=STATED_AT,
        created_at=STATED_AT,
        updated_at=STATED_AT,
    )
    return RecallHit(atom, score)


async def ask_offline(text: str, *hits: RecallHit, earlier: tuple[str, ...] = ()) -> ChatReply:
    context = WorkingContext("", messages=(), atoms_used=(), tokens_estimated=0, hits=hits)
    history = [each for text in earlier for each in (user_message(text), assistant_message("Noted."))]
    with request.bind_request(Request(conversation_id="conv_1", remembered=context)):
        return await OfflineModel().complete([*history, user_message(text)])


async def test_a_question_is_answered_with_what_is_remembered_numbered_and_dated() -> None:
    reply = await ask_offline(
        "Where do I live?", make_hit("User: I moved to Lisbon.", 0.6), make_hit("Ana: So did I.", 0.4)
    )
    assert reply.text.startswith(
        'From memory, word for word:\n[1] "I moved to Lisbon." (you, 7 March 2026)\n[2] "So did I." (Ana, 7 March 2026)'
    )
    assert "No model is set up" in reply.text


async def test_a_colon_in_a_fact_names_nobody() -> None:
    fact = make_hit("Maya's diet: vegetarian", 0.6, Category("food", CategoryKind.FACT))
    assert '[1] "Maya\'s diet: vegetarian" (7 March 2026)' in (await ask_offline("What do I eat?", fact)).text


async def test_which_memories_are_quoted_can_be_told_from_the_reply() -> None:
    sure = make_hit("User: I moved to Lisbon.", 0.6)
    assert (await ask_offline("Where do I live?", sure)).raw == {"cited": [sure.atom.id]}


async def test_what_is_weak_is_not_presented_as_known() -> None:
    reply = await ask_offline("What is the capital of France?", make_hit("User: I moved to Lisbon.", 0.06))
    assert reply.text.startswith("I am not sure that I know. What comes closest in memory:")


async def test_hits_far_behind_the_best_one_are_left_out() -> None:
    reply = await ask_offline(
        "Where do I live?", make_hit("User: I moved to Lisbon.", 0.6), make_hit("User: I like trains.", 0.1)
    )
    assert "trains" not in reply.text


async def test_what_was_only_asked_before_is_no_answer() -> None:
    reply = await ask_offline("What is Ana allergic to?", make_hit("User: What is Ana allergic to?", 0.9))
    assert reply.text.startswith(NOTHING_REMEMBERED)


async def test_a_statement_is_kept_and_brings_up_only_what_is_surely_about_it() -> None:
    assert (await ask_offline("I like trains.", make_hit("User: I moved to Lisbon.", 0.06))).text.startswith(
        STORED_FOR_MEMORY
    )
    assert "I moved to Lisbon." in (await ask_offline("Lisbon is hot.", make_hit("User: I moved to Lisbon.", 0.4))).text


@pytest.mark.parametrize(
    "statement",
    [
        "Remember that I am allergic to nuts.",
        "Do not call me on Sundays",
        "Will is my brother",
        "Have a nice day!",
        "When I was young, I lived in Rome.",
        "👍",
        "",
    ],
)
async def test_what_is_told_is_not_taken_for_a_question(statement: str) -> None:
    assert (await ask_offline(statement, make_hit("User: I moved to Lisbon.", 0.06))).text.startswith(STORED_FOR_MEMORY)


@pytest.mark.parametrize(
    "question",
    [
        "where do i live",
        "do i live in Lisbon",
        "Tell me where I live.",
        "我住在哪里\uff1f",
        "أين أسكن؟",
        "I forgot. Where?",
    ],
)
async def test_a_question_is_known_without_its_mark_and_by_the_marks_of_other_languages(question: str) -> None:
    assert "I moved to Lisbon." in (await ask_offline(question, make_hit("User: I moved to Lisbon.", 0.06))).text
    assert (await ask_offline(question)).text.startswith(NOTHING_REMEMBERED)


@pytest.mark.parametrize(
    "question", ["User: what am i allergic to", "Ana: Tell me. What is it?", "User: それは何ですか\uff1f"]
)
async def test_what_was_asked_in_any_way_is_no_answer(question: str) -> None:
    assert (await ask_offline("What is Ana allergic to?", make_hit(question, 0.9))).text.startswith(NOTHING_REMEMBERED)


async def test_what_was_told_is_quoted_also_where_a_question_followed() -> None:
    statement = "Remember that Ana is allergic to nuts. Did you know that?"
    assert statement in (await ask_offline("What is Ana allergic to?", make_hit(f"User: {statement}", 0.9))).text
    assert statement in (await ask_offline("What is Ana allergic to?", earlier=(statement,))).text


async def test_only_what_is_kept_is_said_to_be() -> None:
    assert (await OfflineModel().complete("I like trains.")).text.startswith(NOT_STORED)
    async with Tellback(":memory:") as tb:
        maya = tb.user("maya")
        assert (await maya.chat("I like trains.")).text.startswith(STORED_FOR_MEMORY)


async def test_what_was_said_in_the_same_conversation_is_quoted_too() -> None:
    reply = await ask_offline(
        "What is Ana allergic to?", earlier=("My sister Ana is allergic to nuts.", "I like trains.")
    )
    assert reply.text.startswith('Earlier in this conversation you said: "My sister Ana is allergic to nuts."')
    assert "trains" not in reply.text


async def test_how_to_set_a_model_up_is_said_once_in_a_conversation() -> None:
    assert SETUP_HINT in (await ask_offline("Hello!")).text
    assert SETUP_HINT not in (await ask_offline("Hello!", earlier=("Hi.",))).text


async def test_it_streams_word_by_word_and_says_the_same() -> None:
    deltas = [delta async for delta in OfflineModel().stream("Hello there")]
    texts = [delta.text for delta in deltas if isinstance(delta, TextDelta)]
    assert len(texts) > 10
    assert "".join(texts) == (await OfflineModel().complete("Hello there")).text
    assert isinstance(deltas[-1], StreamStop)


async def test_it_fills_in_no_schema() -> None:
    with pytest.raises(ConfigurationError, match="fills in no schema"):
        await OfflineModel().complete("Hi", output_schema={"type": "object"})


async def test_options_of_real_models_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="api_key"):
        OfflineModel(api_key="key")  # type: ignore[arg-type]


async def test_its_answers_become_no_memories_so_that_nothing_is_quoted_twice() -> None:
    async with Tellback(":memory:", model="offline") as tb:
        maya = tb.user("maya")
        for text in ("I moved to Lisbon in March.", "Where did I move to?", "Where did I move to?"):
            reply = await maya.chat(text)
            await maya.conversations.close(str(reply.conversation_id))
            await tb.jobs.drain()
        [space] = await maya.memory.list_spaces()
        texts = sorted(atom.text for atom in await maya.memory.list_atoms(space.id))
        assert texts == [
            "User: I moved to Lisbon in March.",
            "User: Where did I move to?",
            "User: Where did I move to?",
        ]
        assert [line for line in reply.text.splitlines() if line.startswith("[")] == [
            f'[1] "I moved to Lisbon in March." (you, {tb.clock().day} {tb.clock():%B %Y})'
        ]


async def test_a_model_that_comes_later_reads_none_of_its_answers() -> None:
    model = ScriptedModel([says("Maya moved to Lisbon."), says('{"facts": []}')])
    async with Tellback(":memory:", model=model, extractor="llm") as tb:
        maya = tb.user("maya")
        reply = await maya.chat("I moved to Lisbon in March.", model="offline")
        await maya.conversations.refresh_rolling_summary(str(reply.conversation_id))
        await maya.conversations.close(str(reply.conversation_id))
        await tb.jobs.drain()
    assert len(model.requests) == 2
    for question in map(repr, model.requests):
        assert "I moved to Lisbon in March" in question
        assert "No model is set up" not in question


async def test_a_summary_without_a_model_has_what_was_said_and_not_its_answers() -> None:
    async with Tellback(":memory:") as tb:
        maya = tb.user("maya")
        reply = await maya.chat("I moved to Lisbon in March.")
        summary = await maya.conversations.refresh_rolling_summary(str(reply.conversation_id))
        assert summary.rolling_summary == "user: I moved to Lisbon in March."


async def test_no_model_the_name_and_the_object_mean_the_same() -> None:
    for model in (None, "offline", "Offline", OfflineModel()):
        async with Tellback(":memory:", model=model) as tb:
            assert tb.model is None
            assert (await tb.user("maya").chat("Hello")).text.startswith(STORED_FOR_MEMORY)


async def test_concurrent_turns_quote_their_own_users_memories() -> None:
    async with Tellback(":memory:") as tb:
        names = [f"user{number}" for number in range(8)]

        async def recalled_answer(name: str) -> str:
            user = tb.user(name)
            reply = await user.chat(f"My secret word is zebra{name}.")
            await user.conversations.close(str(reply.conversation_id))
            return (await user.chat("What is my secret word?")).text

        for name, text in zip(names, await asyncio.gather(*map(recalled_answer, names)), strict=True):
            assert f"zebra{name}." in text
            assert not any(f"zebra{other}." in text for other in names if other != name)
