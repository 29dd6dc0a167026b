"""The contents of the working context, and what is dropped when it is too large."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellback.chat.history import is_valid_history
from tellback.chat.options import count_tokens_heuristic, estimate_system_tokens
from tellback.errors import InvalidArgumentError, NotFoundError
from tellback.memory.recall_service import RecallRequest
from tellback.memory.templates import Templates
from tellback.types import Message, message_text
from tellback.types.conversations import StoredMessage
from tellback.types.jsontext import dump_json
from tellback.types.memory import RecallResult, WorkingContext
from tests.unit.memory.working_context_fakes import (
    NOW,
    FakeConversations,
    FakeMemory,
    build_context,
    make_atom,
    make_builder,
    make_message,
    make_turns,
)

pytestmark = pytest.mark.slow

Counter = Callable[[str], int]


async def test_the_block_has_the_four_sections_in_order() -> None:
    fake_conversations = FakeConversations(make_turns("Where shall we eat?"), summary="The user plans a dinner.")
    memory = FakeMemory(make_atom("Is called Maya.", "identity"), make_atom("Is vegetarian.", "preference"))
    context = await build_context(fake_conversations, memory, always_on_category_names=["identity"])
    assert context.context_block.splitlines()[0] == "Today is Monday, 2026-11-16."
    record = context.context_block.partition("\n⟦record⟧\n")[2]
    assert record == (
        "# The conversation so far\n  The user plans a dinner.\n\n"
        "# Known about the user\n- 2026-03-01 (identity): Is called Maya.\n\n"
        "# Remembered, the most relevant first\n- 2026-03-01 (preference): Is vegetarian.\n\n"
        "# Recent turns, the newest last\n"
        "2026-11-16 user: Where shall we eat?\n2026-11-16 assistant: About Where shall we eat?\n\n⟦/record⟧"
    )
    assert [a.text for a in context.atoms_used] == ["Is called Maya.", "Is vegetarian."]
    assert [hit.atom.text for hit in context.hits] == ["Is vegetarian."]
    assert (context.turns_used, context.turns_dropped, context.hits_dropped) == (1, 0, 0)
    assert not context.over_budget
    assert str(context) == context.context_block


async def test_a_new_user_gets_no_empty_sections() -> None:
    context = await build_context(FakeConversations(), FakeMemory())
    assert context.context_block == "Today is Monday, 2026-11-16."
    assert context.messages == (Message("system", "Today is Monday, 2026-11-16."),)
    assert context.recall_query is None


async def test_the_summary_can_be_left_out() -> None:
    context = await build_context(FakeConversations(summary="They spoke of boats."), include_rolling_summary=False)
    assert "boats" not in context.context_block


async def test_a_memory_that_is_always_on_is_not_repeated_among_the_recalled() -> None:
    atoms = [make_atom(f"Fact {n}", "identity" if n < 3 else "fact", n) for n in range(12)]
    context = await build_context(
        FakeConversations(), FakeMemory(*atoms), recall_query="q", always_on_category_names=("identity",)
    )
    assert context.context_block.count("Fact 0") == 1
    assert [hit.atom.text for hit in context.hits] == [f"Fact {n}" for n in range(3, 11)]


async def test_many_always_on_memories_do_not_crowd_out_the_recalled() -> None:
    always = [make_atom(f"Rule {n}", "rule", n) for n in range(300)]
    context = await build_context(
        FakeConversations(),
        FakeMemory(*always, make_atom("Likes tea.")),
        recall_query="q",
        always_on_category_names=["rule"],
    )
    assert [hit.atom.text for hit in context.hits] == ["Likes tea."]


async def test_the_order_of_always_on_memories_is_deterministic() -> None:
    atoms = [
        make_atom("old", "goal", 1, importance=2),
        make_atom("new", "goal", 2, importance=2, valid_from=datetime(2026, 5, 1, tzinfo=UTC)),
        make_atom("weighty", "goal", 3, importance=5),
        make_atom("name", "identity", 4),
    ]
    for order in (atoms, atoms[::-1]):
        context = await build_context(
            FakeConversations(), FakeMemory(*order), recall_limit=0, always_on_category_names=["identity", "goal"]
        )
        assert [a.text for a in context.atoms_used] == ["name", "weighty", "new", "old"]


async def test_a_hit_from_a_shown_turn_is_skipped_and_the_next_hit_is_shown() -> None:
    cited_here = [make_atom(f"Said here {n}", number=n, source_message_ids=("msg_1", "msg_2")) for n in range(5)]
    partly = make_atom("Said here and elsewhere", number=10, source_message_ids=("msg_1", "msg_elsewhere"))
    others = [make_atom(f"From elsewhere {n}", number=20 + n) for n in range(5)]
    context = await build_context(
        FakeConversations(make_turns("Hi")), FakeMemory(*cited_here, partly, *others), recall_limit=3
    )
    assert [hit.atom.text for hit in context.hits] == [partly.text, "From elsewhere 0", "From elsewhere 1"]


async def test_a_hit_from_a_dropped_turn_is_shown() -> None:
    memory = FakeMemory(make_atom("Has a dog called Rex.", source_message_ids=("msg_1",)))
    fake_conversations = FakeConversations(make_turns("My dog is called Rex. " + "Woof. " * 400, "And now?"))
    roomy = await build_context(fake_conversations, memory)
    tight = await build_context(fake_conversations, memory, token_budget=300)
    assert (roomy.turns_used, len(roomy.hits)) == (2, 0)
    assert (tight.turns_used, len(tight.hits)) == (1, 1)


async def test_the_default_query_is_the_last_user_message() -> None:
    fake_conversations = FakeConversations(
        [
            make_message(1, 1, "user", "Do I like tea?"),
            make_message(2, 1, "assistant", "You do."),
            make_message(3, 2, "user", "(a note of the app)", visibility="internal"),
            make_message(4, 3, "user", [{"type": "image", "url": "https://example.com/cup.png"}]),
        ]
    )
    for turns in (10, 0):
        memory = FakeMemory(make_atom("Likes tea."))
        context = await build_context(fake_conversations, memory, recent_turns=turns)
        assert context.recall_query == "Do I like tea?"
        assert memory.queries[0][0] == "Do I like tea?"


@pytest.mark.parametrize("query", ["", "  \n"])
async def test_an_empty_query_recalls_nothing(query: str) -> None:
    memory = FakeMemory(make_atom("Likes tea."))
    context = await build_context(FakeConversations(make_turns("Hi")), memory, recall_query=query)
    assert memory.queries == []
    assert context.atoms_used == ()


async def test_without_a_space_there_are_no_memories() -> None:
    memory = FakeMemory(make_atom("Likes tea.", "identity"))
    context = await make_builder(FakeConversations(make_turns("Hi")), memory).build(
        "conv_1", always_on_category_names=["identity"]
    )
    assert memory.queries == []
    assert context.atoms_used == ()


async def test_now_is_passed_to_recall_and_shown() -> None:
    memory = FakeMemory(make_atom("Likes tea.", "identity"))
    context = await build_context(
        FakeConversations(),
        memory,
        recall_query="q",
        always_on_category_names=["identity"],
        now="2025-02-02T23:00:00-05:00",
    )
    moment = datetime(2025, 2, 3, 4, tzinfo=UTC)
    assert [filters["valid_at"] for _, filters in memory.queries] == [moment, moment]
    assert memory.queries[1][1]["now"] == moment
    assert "Today is Monday, 2025-02-03." in context.context_block


@pytest.mark.parametrize("now", [None, NOW, NOW - timedelta(seconds=2), NOW + timedelta(seconds=2)])
async def test_a_now_near_the_clock_means_the_present(now: datetime | None) -> None:
    memory = FakeMemory(make_atom("Moves on Friday.", "identity", valid_from=NOW + timedelta(days=4)))
    await build_context(FakeConversations(), memory, recall_query="q", always_on_category_names=["identity"], now=now)
    assert [filters["valid_at"] for _, filters in memory.queries] == [None, None]
    assert memory.queries[1][1]["now"] == NOW


async def test_a_future_now_includes_memories_that_have_not_ended_by_then() -> None:
    ends, stays = (
        make_atom(text, "identity", n, valid_to=NOW + timedelta(days=days))
        for n, (text, days) in enumerate([("Lives at her sister's.", 3), ("Studies.", 900)])
    )
    later = NOW + timedelta(days=30)
    memory = FakeMemory(ends, stays)
    context = await build_context(
        FakeConversations(), memory, recall_limit=0, always_on_category_names=["identity"], now=later
    )
    assert context.atoms_used == (stays,)
    await build_context(FakeConversations(), memory, recall_query="q", now=later)
    assert (memory.queries[1][1]["valid_at"], memory.queries[1][1]["now"]) == (None, later)


async def test_a_memory_with_an_end_shows_it() -> None:
    lent = make_atom("Lives at her sister's.", valid_to=datetime(2026, 12, 1, tzinfo=UTC))
    context = await build_context(FakeConversations(), FakeMemory(lent), recall_query="q")
    assert "- 2026-03-01 to 2026-12-01 (fact): Lives at her sister's." in context.context_block


async def test_the_turns_around_a_hit_are_shown_under_it() -> None:
    class WithContext(FakeMemory):
        async def by_topic(self, request: RecallRequest, query: str, min_score: float) -> RecallResult:
            result = await super().by_topic(request, query, min_score)
            return replace(
                result, hits=tuple(replace(hit, context=(make_atom("It rained\n# all day"),)) for hit in result)
            )

    context = await build_context(FakeConversations(), WithContext(make_atom("Went sailing.")), recall_query="q")
    assert "(fact): Went sailing.\n  next to it, 2026-03-01: It rained # all day\n" in context.context_block


async def test_the_last_turns_are_complete_regardless_of_their_length() -> None:
    calls = [
        make_message(n, 1, "assistant", [{"type": "tool_use", "id": f"c{n}", "name": "look"}])
        if n % 2 == 0
        else make_message(n, 1, "tool", [{"type": "tool_result", "tool_use_id": f"c{n - 1}", "content": "ok"}])
        for n in range(2, 402)
    ]
    fake_conversations = FakeConversations(
        [make_message(1, 1, "user", "Go"), *calls, make_message(402, 2, "user", "Again")]
    )
    context = await build_context(fake_conversations, recent_turns=2, token_budget=100_000)
    assert context.turns_used == 2
    assert len(context.messages) == 1 + 402
    assert is_valid_history(context.messages)


async def test_only_the_end_of_a_long_conversation_is_loaded() -> None:
    fake_conversations = FakeConversations(make_turns(*(f"Question {n}" for n in range(5_000))))
    context = await build_context(fake_conversations, recent_turns=10)
    assert fake_conversations.reads == 1
    assert [m.content for m in context.messages if m.role == "user"] == [f"Question {n}" for n in range(4_990, 5_000)]


async def test_interleaved_turns_stay_in_order() -> None:
    fake_conversations = FakeConversations(
        [
            make_message(1, 1, "user", "one"),
            make_message(2, 2, "user", "two"),
            make_message(3, 1, "assistant", "to one"),
            make_message(4, 2, "assistant", "to two"),
        ]
    )
    context = await build_context(fake_conversations)
    assert [m.content for m in context.messages[1:]] == ["one", "two", "to one", "to two"]
    assert [
        line.partition(": ")[2] for line in context.context_block.splitlines() if re.match(r"2026\S+ \w", line)
    ] == [
        "one",
        "two",
        "to one",
        "to two",
    ]


async def test_internal_messages_are_included_and_hidden_ones_are_not() -> None:
    fake_conversations = FakeConversations(
        [
            make_message(1, 1, "system", "Answer in French.", visibility="internal"),
            make_message(2, 1, "user", "A secret", visibility="hidden"),
            make_message(3, 1, "user", "Hello"),
        ]
    )
    context = await build_context(fake_conversations)
    assert "secret" not in context.context_block + repr(context.messages)
    assert "system: Answer in French." in context.context_block


def tool_turn(*, result: Any = "ok", arguments: Mapping[str, Any] | None = None) -> FakeConversations:
    """A turn with a tool call."""
    call = {"type": "tool_use", "id": "c1", "name": "see", "arguments": arguments or {"n": 1}}
    answer = {"type": "tool_result", "tool_use_id": "c1", "tool_name": "see", "content": result}
    answer = answer if isinstance(result, str) else {**answer, "content": "", "parts": result}
    return FakeConversations(
        [
            make_message(1, 1, "user", ["Look:", {"type": "image", "url": "https://example.com/cat.png"}]),
            make_message(2, 1, "assistant", ["Wait.", call], meta={"vendor": {"content": [arguments]}}),
            make_message(3, 1, "tool", [answer]),
            make_message(4, 1, "assistant", "A cat."),
        ]
    )


async def test_long_tool_results_are_cut_in_transcript_and_messages() -> None:
    context = await build_context(tool_turn(result="x" * 9_000))
    lines = context.context_block.partition("newest last\n")[2]
    assert lines.startswith(
        "2026-11-16 user: Look:\n  \n  [image: https://example.com/cat.png]\n"
        '2026-11-16 assistant: Wait.\n  [calls see({"n":1})]\n2026-11-16 tool see: xxx'
    )
    assert "(7000 more characters)\n" in lines
    _, user, call, result, answer = context.messages
    assert user.parts is not None
    assert call.tool_calls[0].input == {"n": 1}
    assert call.meta is not None
    assert result.content == "x" * 2_000 + "… (7000 more characters)"
    assert answer.content == "A cat."


async def test_a_messages_template_does_not_cut_tool_results() -> None:
    arguments = {"text": "y" * 9_000}
    context = await build_context(tool_turn(result="x" * 9_000, arguments=arguments), template_id="messages")
    _, _, call, result, _ = context.messages
    assert call.tool_calls[0].input == arguments
    assert result.content == "x" * 9_000


async def test_each_argument_is_cut_and_the_provider_state_is_removed() -> None:
    arguments = {"path": "a.txt", "text": "y" * 9_000, "tags": ["z" * 50] * 90, "deep": {"n": 1}}
    context = await build_context(tool_turn(arguments=arguments))
    call = context.messages[2]
    input_values = call.tool_calls[0].input
    assert (input_values["path"], input_values["deep"]) == ("a.txt", {"n": 1})
    assert input_values["text"] == "y" * 500 + "… (8500 more characters)"
    assert input_values["tags"].startswith('["zzz')
    assert len(input_values["tags"]) < 600
    assert call.meta is None
    assert call.content == "Wait."


async def test_a_result_of_several_parts_is_cut_as_one_and_keeps_its_images() -> None:
    image = {"type": "image", "url": "https://example.com/cat.png"}
    parts = [{"type": "text", "text": "x" * 1_500}, image, *({"type": "text", "text": "x" * 1_000} for _ in range(2))]
    result = (await build_context(tool_turn(result=parts))).messages[3]
    assert result.parts is not None
    assert [part.kind for part in result.parts] == ["text", "image", "text", "text"]
    assert [len(part.text or "") for part in result.parts][:3] == [1_500, 0, 500 + len("… (500 more characters)")]
    assert result.parts[3].text == "… (1000 more characters)"


async def test_a_result_without_its_call_is_cut_before_it_becomes_a_note() -> None:
    late = [{"type": "tool_result", "tool_use_id": "gone", "content": "x" * 9_000}]
    context = await build_context(
        FakeConversations([make_message(1, 1, "tool", late), make_message(2, 1, "user", "Hi")])
    )
    assert len(context.messages[1].content) < 2_200


async def test_images_count_in_the_messages_of_a_block() -> None:
    picture = {"type": "image", "url": "https://example.com/cat.png"}
    fake_conversations = FakeConversations([make_message(n, n, "user", ["Look", picture]) for n in range(1, 9)])
    for counter in (None, lambda text: len(text) // 4):
        context = await build_context(fake_conversations, token_budget=4_000, count_tokens=counter)
        assert context.turns_used == 3
        assert count_tokens_heuristic(context.messages) <= 4_000
        assert context.tokens_estimated < 500


async def test_a_block_that_leaves_the_turns_out_keeps_its_messages_within_the_budget() -> None:
    templates = Templates()
    templates.register("brief", "Today is {{now}}.")
    builder = make_builder(FakeConversations(make_turns(*("x" * 400 for _ in range(10)))), templates=templates)
    context = await builder.build("conv_1", template_id="brief", token_budget=1_000)
    assert 0 < context.turns_used < 10
    assert count_tokens_heuristic(context.messages) <= 1_000
    assert (context.tokens_estimated, context.over_budget) == (5, False)


@pytest.mark.parametrize("template", ["default", "xml", "messages"])
async def test_an_incomplete_call_does_not_break_the_messages(template: str) -> None:
    fake_conversations = FakeConversations(
        [
            make_message(1, 1, "tool", [{"type": "tool_result", "tool_use_id": "gone", "content": "late"}]),
            make_message(2, 2, "user", "Go"),
            make_message(3, 2, "assistant", [{"type": "tool_use", "id": "c1", "name": "look"}]),
            make_message(4, 3, "user", "Well?"),
            make_message(5, 3, "tool", [{"type": "tool_result", "tool_use_id": "c1", "content": "found"}]),
        ]
    )
    for turns in range(4):
        assert is_valid_history(
            (await build_context(fake_conversations, recent_turns=turns, template_id=template)).messages
        )


def turns_of(context: WorkingContext) -> list[Any]:
    return [m.content for m in context.messages if m.role == "user"]


async def test_the_oldest_turns_are_dropped_first_then_the_weakest_hits() -> None:
    fake_conversations = FakeConversations(
        make_turns(*(f"Turn {n} {'x' * 50}" for n in range(8))), summary="The summary."
    )
    memory = FakeMemory(
        make_atom("Always", "identity", 0), *(make_atom(f"Hit {n} {'y' * 50}", number=n) for n in range(1, 9))
    )
    seen = set()
    for budget in range(1_500, 0, -5):
        context = await build_context(
            fake_conversations, memory, token_budget=budget, always_on_category_names=["identity"], count_tokens=len
        )
        turns, hits = turns_of(context), [hit.atom.text[:5] for hit in context.hits]
        assert turns == [f"Turn {n} {'x' * 50}" for n in range(8 - len(turns), 8)]
        assert hits == [f"Hit {n}" for n in range(1, len(hits) + 1)]
        assert len(hits) == 8 or not turns
        assert (context.turns_dropped, context.hits_dropped) == (8 - len(turns), 8 - len(hits))
        assert "The summary." in context.context_block
        assert "Always" in context.context_block
        assert context.over_budget == (context.tokens_estimated > budget)
        seen.add((len(turns), len(hits)))
    assert {hits for turns, hits in seen if not turns} == set(range(9))


async def test_a_context_of_exactly_the_budget_is_not_cut() -> None:
    fake_conversations, memory = (
        FakeConversations(make_turns("One", "Two"), summary="The summary."),
        FakeMemory(make_atom("Likes tea.")),
    )
    full_context = await build_context(fake_conversations, memory, count_tokens=len)
    exact = await build_context(
        fake_conversations, memory, count_tokens=len, token_budget=full_context.tokens_estimated
    )
    less = await build_context(
        fake_conversations, memory, count_tokens=len, token_budget=full_context.tokens_estimated - 1
    )
    assert exact == full_context
    assert less.turns_dropped == 1


async def test_a_summary_larger_than_the_budget_stays_and_is_reported() -> None:
    fake_conversations = FakeConversations(make_turns("Hi"), summary="word " * 1_000)
    context = await build_context(fake_conversations, FakeMemory(make_atom("Likes tea.")), token_budget=100)
    assert context.over_budget
    assert "word word" in context.context_block
    assert (context.turns_used, context.hits, context.turns_dropped, context.hits_dropped) == (0, (), 1, 1)
    assert [m.role for m in context.messages] == ["system"]


async def test_async_and_custom_counters_are_used() -> None:
    async def by_words(text: str) -> int:
        return len(text.split())

    fake_conversations = FakeConversations(make_turns("Hi"))
    builder = make_builder(fake_conversations, count_tokens=by_words)
    assert (context := await builder.build("conv_1")).tokens_estimated == len(context.context_block.split())
    assert (await builder.build("conv_1", count_tokens=lambda _: 7)).tokens_estimated == 7


@pytest.mark.parametrize("template", ["default", "xml"])
async def test_the_default_counter_counts_the_block(template: str) -> None:
    context = await build_context(FakeConversations(make_turns("Hi")), template_id=template)
    assert context.tokens_estimated == estimate_system_tokens(context.context_block)


async def test_with_a_messages_template_the_messages_are_counted() -> None:
    fake_conversations = FakeConversations(
        [*make_turns("Hi"), make_message(3, 2, "user", [{"type": "image", "url": "https://example.com/cat.png"}])]
    )
    context = await build_context(fake_conversations, template_id="messages")
    assert context.tokens_estimated == count_tokens_heuristic(context.messages)
    messages_only = await build_context(fake_conversations, template_id="messages", count_tokens=len)
    assert messages_only.tokens_estimated > 1_000, "an image costs more than its placeholder"
    assert (await build_context(fake_conversations, template_id="messages", token_budget=500)).turns_used == 0


@pytest.mark.parametrize("wrong", [-1, 2.5, None, "7", True])
async def test_a_counter_that_returns_no_integer_raises_an_error(wrong: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="count_tokens must return"):
        await build_context(FakeConversations(), count_tokens=lambda _: wrong)


async def test_a_counter_is_called_only_a_few_times() -> None:
    fake_conversations = FakeConversations(make_turns(*("x" * 40 for _ in range(1_000))))
    memory = FakeMemory(*(make_atom("y" * 40, number=n) for n in range(200)))
    for budget in (0, 500, 3_000, 20_000, 50_000, 10**9):
        counted_texts = []
        await build_context(
            fake_conversations,
            memory,
            recent_turns=1_000,
            recall_limit=200,
            token_budget=budget,
            count_tokens=lambda text: counted_texts.append(text) or len(text),  # type: ignore[func-returns-value]  # noqa: B023
        )
        assert len(counted_texts) <= 2 + math.ceil(math.log2(1_001)) + math.ceil(math.log2(201))
        assert budget < 10**9 or len(counted_texts) == 1


texts = st.one_of(st.text(max_size=40), st.integers(0, 300).map(lambda n: "word " * n))
tool_texts = st.one_of(texts, st.integers(1_900, 9_000).map(lambda n: "data " * (n // 5)))
counters: st.SearchStrategy[Counter] = st.sampled_from(
    [
        len,
        lambda text: len(text.split()),
        lambda text: -(-len(text.encode()) // 3),
        lambda text: text.count("\n"),
        lambda text: 5,
        lambda text: len(text) - text.count("a") * 3 if len(text) > text.count("a") * 3 else 0,
        lambda text: sum(map(ord, text)) % 997,
    ]
)


@st.composite
def materials(draw: st.DrawFn) -> tuple[FakeConversations, FakeMemory]:
    messages: list[StoredMessage] = []
    for turn in range(draw(st.integers(0, 6))):
        for role in draw(st.lists(st.sampled_from(["user", "assistant", "call", "tool"]), min_size=1, max_size=4)):
            seq = len(messages) + 1
            call = f"c{draw(st.integers(0, 2))}"
            content: Any = draw(texts)
            if role == "call":
                arguments = draw(st.dictionaries(st.sampled_from(["a", "b"]), tool_texts))
                role, content = "assistant", [{"type": "tool_use", "id": call, "name": "look", "arguments": arguments}]
            elif role == "tool":
                content = [{"type": "tool_result", "tool_use_id": call, "content": draw(tool_texts)}]
            elif draw(st.integers(0, 9)) == 0:
                content = [content, {"type": "image", "url": "https://example.com/cat.png"}]
            messages.append(make_message(seq, turn, role, content))
    ids = st.lists(st.sampled_from([m.id for m in messages] or ["msg_0"]), max_size=2)
    atoms = [
        make_atom(
            draw(texts), draw(st.sampled_from(["identity", "fact", "goal"])), n, source_message_ids=tuple(draw(ids))
        )
        for n in range(draw(st.integers(0, 12)))
    ]
    return FakeConversations(messages, draw(st.none() | texts)), FakeMemory(*atoms)


@settings(max_examples=150, deadline=None)
@given(
    materials(),
    st.one_of(st.integers(0, 600), st.integers(0, 10_000)),
    counters,
    st.sampled_from(["default", "xml", "messages"]),
    st.integers(0, 8),
    st.integers(0, 8),
)
async def test_the_budget_is_respected_or_only_required_sections_are_left(
    material: tuple[FakeConversations, FakeMemory], budget: int, counter: Counter, template: str, turns: int, limit: int
) -> None:
    fake_conversations, memory = material
    context = await build_context(
        fake_conversations,
        memory,
        recall_query="q",
        recent_turns=turns,
        recall_limit=limit,
        token_budget=budget,
        count_tokens=counter,
        template_id=template,
        always_on_category_names=["identity"],
    )
    if template != "messages":
        assert context.tokens_estimated == counter(context.context_block)
    assert context.over_budget == (context.tokens_estimated > budget)
    if context.over_budget:
        assert (context.turns_used, context.hits) == (0, ())
    always = {a.id for a in memory.atoms if a.category.name == "identity"}
    used = [a.id for a in context.atoms_used]
    assert always <= set(used)
    assert len(used) == len(set(used))
    assert len(context.hits) <= limit
    assert context.turns_used + context.turns_dropped == min(turns, len({m.turn_id for m in fake_conversations.stored}))
    assert is_valid_history(context.messages)
    assert context.turns_used == 0 or context.hits_dropped == 0


@settings(max_examples=150, deadline=None)
@given(
    materials(),
    st.one_of(st.integers(100, 1_000), st.integers(500, 8_000)),
    st.sampled_from([None, len, lambda text: -(-len(text.encode(errors="replace")) // 4)]),
    st.sampled_from(["default", "xml", "messages"]),
)
async def test_the_budget_is_also_respected_for_the_messages(
    material: tuple[FakeConversations, FakeMemory], budget: int, counter: Counter | None, template: str
) -> None:
    fake_conversations, memory = material
    context = await build_context(
        fake_conversations, memory, recall_query="q", token_budget=budget, count_tokens=counter, template_id=template
    )
    if not context.turns_used:
        assert [m.content for m in context.messages] == [context.context_block]
        return
    media = 1_100 * sum(part.kind == "image" for m in context.messages for part in m.parts or ())
    words = [message_text(m) + "".join(f"{c.name}{dump_json(c.input)}" for c in m.tool_calls) for m in context.messages]
    token_count = count_tokens_heuristic(context.messages) if counter is None else counter("".join(words)) + media
    assert token_count <= budget
    assert not context.over_budget


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 200), max_size=10), st.integers(0, 2_500))
async def test_no_turn_that_fits_is_dropped(lengths: list[int], budget: int) -> None:
    fake_conversations = FakeConversations(make_turns(*("x" * length for length in lengths)))
    context = await build_context(fake_conversations, token_budget=budget, count_tokens=len)
    if context.turns_dropped:
        larger = await build_context(
            fake_conversations, recent_turns=context.turns_used + 1, token_budget=10**9, count_tokens=len
        )
        assert larger.tokens_estimated > budget


async def test_unknown_ids_raise_not_found_error() -> None:
    builder = make_builder(FakeConversations(make_turns("Hi")))
    for id in ("conv_2", "\x00"):
        with pytest.raises(NotFoundError, match="conversation"):
            await builder.build(id)
    option_sets: list[dict[str, Any]] = [
        {},
        {"recall_query": ""},
        {"recall_limit": 0},
        {"always_on_category_names": ["a"]},
    ]
    for arguments in option_sets:
        for space_id in ("ms_2", "\x00"):
            with pytest.raises(NotFoundError, match="space"):
                await builder.build("conv_1", space_id, **arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"recent_turns": -1},
        {"recent_turns": 1.5},
        {"recall_limit": True},
        {"token_budget": -1},
        {"always_on_category_names": "identity"},
        {"always_on_category_names": [""]},
        {"always_on_category_names": [7]},
        {"recall_query": 7},
        {"recall_query": "\ud800"},
        {"now": "yesterday"},
        {"now": datetime(2026, 1, 1)},
        {"count_tokens": 4},
    ],
)
async def test_invalid_arguments_raise_invalid_argument_error(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        await build_context(FakeConversations(), FakeMemory(), **arguments)


async def test_only_a_part_of_a_pasted_document_is_the_query() -> None:
    memory = FakeMemory()
    await build_context(FakeConversations([make_message(1, 1, "user", "words " * 100_000)]), memory)
    assert len(memory.queries[0][0]) == 4_000


async def test_very_early_and_late_dates_can_be_shown() -> None:
    early, late = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)
    far = make_atom("Was long ago.", "identity", valid_from=early, valid_to=late)
    context = await build_context(FakeConversations(), FakeMemory(far), always_on_category_names=["identity"])
    assert "- 0001-01-01 to 9999-12-31 (identity): Was long ago." in context.context_block
