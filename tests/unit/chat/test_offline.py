"""The offline model: which memories it quotes, and that its answers do not become memories."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from tellback import Tellback, TextDelta, request
from tellback.chat import OfflineModel
from tellback.chat.offline import FIRST_ANSWER_NOTE, NOT_STORED, NOTHING_REMEMBERED, STORED_FOR_MEMORY
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


async def test_an_answer_quotes_memories_with_numbers_and_dates() -> None:
    reply = await ask_offline(
        "Where do I live?", make_hit("User: I moved to Lisbon.", 0.6), make_hit("Ana: So did I.", 0.4)
    )
    assert reply.text.startswith(
        'From your memory:\n[1] "I moved to Lisbon." (you, 7 March 2026)\n[2] "So did I." (Ana, 7 March 2026)'
    )


async def test_the_text_before_a_colon_in_a_fact_is_not_a_speaker() -> None:
    fact = make_hit("Maya's diet: vegetarian", 0.6, Category("food", CategoryKind.FACT))
    assert '[1] "Maya\'s diet: vegetarian" (7 March 2026)' in (await ask_offline("What do I eat?", fact)).text


async def test_the_raw_reply_lists_the_quoted_memories() -> None:
    sure = make_hit("User: I moved to Lisbon.", 0.6)
    assert (await ask_offline("Where do I live?", sure)).raw == {"cited": [sure.atom.id]}


async def test_weak_hits_have_a_heading_that_says_so() -> None:
    reply = await ask_offline("What is the capital of France?", make_hit("User: I moved to Lisbon.", 0.06))
    assert reply.text.startswith("I am not sure. The closest memories:")


async def test_hits_with_a_much_lower_score_than_the_best_are_omitted() -> None:
    reply = await ask_offline(
        "Where do I live?", make_hit("User: I moved to Lisbon.", 0.6), make_hit("User: I like trains.", 0.1)
    )
    assert "trains" not in reply.text


async def test_an_earlier_question_is_not_quoted_as_an_answer() -> None:
    reply = await ask_offline("What is Ana allergic to?", make_hit("User: What is Ana allergic to?", 0.9))
    assert reply.text.startswith(NOTHING_REMEMBERED)


async def test_the_answer_to_a_statement_quotes_only_certain_hits() -> None:
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
async def test_statements_are_not_treated_as_questions(statement: str) -> None:
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
async def test_questions_without_a_mark_and_in_other_languages_are_recognised(question: str) -> None:
    assert "I moved to Lisbon." in (await ask_offline(question, make_hit("User: I moved to Lisbon.", 0.06))).text
    assert (await ask_offline(question)).text.startswith(NOTHING_REMEMBERED)


@pytest.mark.parametrize(
    "question", ["User: what am i allergic to", "Ana: Tell me. What is it?", "User: それは何ですか\uff1f"]
)
async def test_remembered_questions_are_not_quoted_as_answers(question: str) -> None:
    assert (await ask_offline("What is Ana allergic to?", make_hit(question, 0.9))).text.startswith(NOTHING_REMEMBERED)


async def test_a_statement_followed_by_a_question_is_quoted() -> None:
    statement = "Remember that Ana is allergic to nuts. Did you know that?"
    assert statement in (await ask_offline("What is Ana allergic to?", make_hit(f"User: {statement}", 0.9))).text
    assert statement in (await ask_offline("What is Ana allergic to?", earlier=(statement,))).text


async def test_the_answer_says_whether_the_message_is_stored() -> None:
    assert (await OfflineModel().complete("I like trains.")).text.startswith(NOT_STORED)
    async with Tellback(":memory:") as tb:
        maya = tb.user("maya")
        assert (await maya.chat("I like trains.")).text.startswith(STORED_FOR_MEMORY)


async def test_earlier_messages_of_the_conversation_are_quoted() -> None:
    reply = await ask_offline(
        "What is Ana allergic to?", earlier=("My sister Ana is allergic to nuts.", "I like trains.")
    )
    assert reply.text.startswith('Earlier in this conversation you said: "My sister Ana is allergic to nuts."')
    assert "trains" not in reply.text


@pytest.mark.parametrize("text", ["Hello!", "Where do I live?", "What is Ana allergic to?"])
async def test_only_the_first_answer_of_a_conversation_says_that_no_model_is_set_up(text: str) -> None:
    hit = make_hit("User: I moved to Lisbon.", 0.6)
    assert (await ask_offline(text, hit)).text.endswith(f"\n\n{FIRST_ANSWER_NOTE}")
    assert "model" not in (await ask_offline(text, hit, earlier=("Hi.",))).text


async def test_streaming_yields_the_same_text_word_by_word() -> None:
    deltas = [delta async for delta in OfflineModel().stream("Hello there")]
    texts = [delta.text for delta in deltas if isinstance(delta, TextDelta)]
    assert len(texts) > 10
    assert "".join(texts) == (await OfflineModel().complete("Hello there")).text
    assert isinstance(deltas[-1], StreamStop)


async def test_an_output_schema_raises_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="does not support schemas"):
        await OfflineModel().complete("Hi", output_schema={"type": "object"})


async def test_options_of_real_models_raise_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="api_key"):
        OfflineModel(api_key="key")  # type: ignore[arg-type]


async def test_offline_answers_do_not_become_memories() -> None:
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


async def test_offline_answers_are_not_sent_to_another_model() -> None:
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


async def test_a_summary_without_a_model_omits_offline_answers() -> None:
    async with Tellback(":memory:") as tb:
        maya = tb.user("maya")
        reply = await maya.chat("I moved to Lisbon in March.")
        summary = await maya.conversations.refresh_rolling_summary(str(reply.conversation_id))
        assert summary.rolling_summary == "user: I moved to Lisbon in March."


async def test_none_the_name_offline_and_an_offline_model_are_equivalent() -> None:
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
