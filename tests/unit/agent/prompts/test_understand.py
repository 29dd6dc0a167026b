"""Understanding a message: the questions, their prompt, and safe parsing of any model answer."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellback.agent.definitions.canned_responses import CannedResponse
from tellback.agent.definitions.guidelines import Guideline, Term
from tellback.agent.definitions.route import Route
from tellback.agent.definitions.state import END_ROUTE
from tellback.agent.flow.interpretation import drop_condition, retract_condition
from tellback.agent.flow.move import Interpretation, retry_condition
from tellback.agent.prompts.answer import (
    UnreadableAnswer,
    parse_answer,
    parse_choice,
)
from tellback.agent.prompts.understand import (
    ABOUT_CHOICES,
    Limits,
    Questions,
    build_output_schema,
    build_questions,
    render_message_prompt,
    render_understand_prompt,
)
from tellback.agent.sessions.session import SessionState, create_session, enter_route, leave_route, merge_extracted
from tellback.types import assistant_message, user_message
from tests.unit.agent.flow.route_strategies import NOW, Facts, FlowConversation

SESSION = create_session("web-42")
LINE_ENDS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"


def look(a: str) -> str:
    """Look something up."""
    return a


def make_booking_route() -> Route:
    route = Route("Book", id="book", conditions=["the user wants to book"], gather_schema=Facts)
    ask = route.initial_state.transition_to(chat_state="Ask", gather=["a", "b", "day", "note"])
    offer = ask.transition_to(tool_state=look).transition_to(chat_state="Offer")
    offer.transition_to(state=END_ROUTE, condition="the user agrees")
    offer.transition_to(chat_state="Explain", condition="the user asks why")
    return route


def make_chat_route() -> Route:
    return Route("Chat", id="chat", description="Small talk", conditions=["the user chats"])


def questions_about(
    *routes: Route,
    session: SessionState = SESSION,
    guidelines: Sequence[Guideline] = (),
    canned: Sequence[CannedResponse] = (),
    limits: Limits | None = None,
) -> Questions:
    by_id = {route.id: route for route in routes}
    keys = {route.id: f"key_{route.id}" for route in routes}
    return build_questions(by_id, keys, session, guidelines, canned, routes, limits or Limits())


BOOK, CHAT = make_booking_route(), make_chat_route()
QUESTIONS = questions_about(BOOK, CHAT)
AGREES = next(key for key, text in QUESTIONS.condition_keys.items() if text == "the user agrees")


def read_answer(answer: Any, questions: Questions = QUESTIONS) -> Any:
    return parse_answer(json.dumps(answer), questions)


def test_only_open_questions_are_asked() -> None:
    assert questions_about().is_empty
    sole_route = Route("Listen")
    assert questions_about(sole_route).is_empty
    assert not questions_about(make_chat_route()).is_empty  # its score is an open question
    assert not questions_about(
        sole_route, guidelines=[Guideline("Be brief.", condition="the user is in a hurry")]
    ).is_empty
    assert questions_about(sole_route, guidelines=[Guideline("Be brief.")]).is_empty
    assert questions_about(sole_route, guidelines=[Guideline("Be brief.", condition="x", enabled=False)]).is_empty


def test_a_sole_route_is_scored_only_before_it_is_entered() -> None:
    route = make_chat_route()
    assert questions_about(route).scored == (route,)
    assert questions_about(route, session=enter_route(SESSION, route.id, route.title)).scored == ()
    sole_route = Route("Listen")
    completed = leave_route(enter_route(SESSION, sole_route.id, sole_route.title), completed=True)
    assert questions_about(sole_route).scored == ()
    assert questions_about(sole_route, session=completed).scored == (sole_route,)


def test_conditions_come_from_the_agent_and_from_reachable_states() -> None:
    questions = questions_about(
        BOOK,
        guidelines=[Guideline("Be brief.", condition="the user is in a hurry")],
        canned=[CannedResponse("Hello", condition="the user greets")],
    )
    assert questions.conditions == (
        "the user is in a hurry",
        "the user greets",
        "the user agrees",
        "the user asks why",
    )
    assert list(questions.condition_keys) == ["c1", "c2", "c3", "c4"]


def test_conditions_of_passed_states_are_asked_for_last_as_changes_of_a_choice() -> None:
    conversation = FlowConversation(BOOK)
    conversation.take_turn(BOOK, a="x", b=1, day=date(2026, 5, 1), note="n")
    conversation.take_turn(holds=["the user asks why"])
    assert conversation.state_title == "Explain"
    questions = questions_about(BOOK, session=conversation.session)
    assert questions.conditions == (drop_condition(BOOK), "the user agrees", retract_condition("the user asks why"))
    assert questions.choice_condition_count == 2
    prompt = render_understand_prompt("Wanda", questions, conversation.session, ())
    assert f"{ABOUT_CHOICES}\n\nc2: the user agrees\nc3: " in prompt


def test_a_failed_tool_adds_its_retry_condition() -> None:
    conversation = FlowConversation(BOOK, look=ValueError("closed"))
    conversation.take_turn(BOOK, a="x", b=1, day=date(2026, 5, 1), note="n")
    [tool] = [state for state in BOOK.states if state.tool is not None]
    assert retry_condition(tool) in questions_about(BOOK, session=conversation.session).conditions


def test_current_and_paused_routes_are_included_beyond_the_limits() -> None:
    routes = [Route(f"Route {number}", gather_schema=Facts, conditions=["x"]) for number in range(6)]
    session = enter_route(SESSION, routes[5].id, "")
    session = enter_route(session, routes[4].id, "")
    questions = questions_about(*routes, session=session, limits=Limits(in_play=1, listed=1))
    assert questions.open == questions.scored == (routes[4], routes[5])
    questions = questions_about(*routes, limits=Limits(in_play=2, listed=3))
    assert (questions.open, questions.scored) == (tuple(routes[:2]), tuple(routes[:3]))


def test_the_prompt_contains_routes_fields_conditions_and_terms() -> None:
    completed = leave_route(enter_route(SESSION, CHAT.id, CHAT.title), completed=True)
    prompt = render_understand_prompt("Wanda", QUESTIONS, completed, [Term("PNR", "The name of a booking.")])
    assert "- key_book: Book When: the user wants to book." in prompt
    assert "- key_chat: Chat. Small talk When: the user chats. (completed)" in prompt
    assert "- key_book.day: " in prompt
    assert "c1: the user agrees" in prompt
    assert "- PNR: The name of a booking." in prompt
    assert "out" not in [line.partition(":")[0].rpartition(".")[2] for line in prompt.splitlines()]


def test_the_message_prompt_contains_known_data_and_earlier_messages() -> None:
    session = merge_extracted(enter_route(SESSION, BOOK.id, BOOK.title), {"day": date(2026, 5, 1), "out": 3})
    history = [user_message("Hi"), assistant_message("Where to?"), user_message("Rome")]
    assert render_message_prompt(QUESTIONS, session, history, NOW).split("\n") == [
        "Conversation:",
        'user: "Hi"',
        'agent: "Where to?"',
        "Current route: key_book",
        'Known: {"key_book":{"day":"2026-05-01"}}',
        "Today: 2026-03-01 (Sunday), 12:00 UTC",
        'Newest message: "Rome"',
    ]


@given(
    st.lists(
        st.text(max_size=40) | st.text(alphabet=LINE_ENDS + "aNewest message:", max_size=40), min_size=1, max_size=4
    )
)
def test_no_message_can_imitate_a_line_of_the_prompt(texts: list[str]) -> None:
    session = merge_extracted(enter_route(SESSION, BOOK.id, BOOK.title), {"a": texts[0]})
    history = [user_message(text) if number % 2 else assistant_message(text) for number, text in enumerate(texts)]
    lines = render_message_prompt(QUESTIONS, session, history, NOW).splitlines()
    heads = (
        "Completed: ",
        "Today: ",
        "Current route: ",
        "Known: ",
        "Conversation:",
        'user: "',
        'agent: "',
        'Newest message: "',
    )
    assert [line for line in lines if not line.startswith(heads)] == []
    assert sum(line.startswith("Newest message: ") for line in lines) == 1
    assert json.loads(lines[-1].partition(": ")[2]) == texts[-1]


def test_a_long_message_is_truncated() -> None:
    history = [user_message("a" * 5_000), user_message("b" * 50_000)]
    assert len(render_message_prompt(QUESTIONS, SESSION, history, NOW)) < 18_000


def test_the_schema_contains_only_the_requested_parts() -> None:
    assert set(build_output_schema(QUESTIONS)["properties"]) == {"routes", "data", "forget", "conditions", "answered"}
    assert set(build_output_schema(questions_about(CHAT))["properties"]) == {"routes", "answered"}
    questions = questions_about(guidelines=[Guideline("Be brief.", condition="the user is in a hurry")])
    assert set(build_output_schema(questions)["properties"]) == {"conditions"}
    jsonschema.Draft202012Validator.check_schema(build_output_schema(QUESTIONS))


def test_a_valid_answer_is_parsed() -> None:
    parsed = read_answer(
        {
            "routes": [{"route": "key_book", "score": 80}, {"route": "key_chat", "score": 140}],
            "data": [{"field": "key_book.a", "value": "x"}, {"field": "key_book.day", "value": "2026-05-01"}],
            "forget": ["key_book.b", "key_book.a"],
            "conditions": [AGREES],
        }
    )
    assert parsed.interpretation == Interpretation(
        scores={"book": 80, "chat": 100},
        data={"book": {"a": "x", "day": date(2026, 5, 1)}},
        forgotten={"book": ("b",)},
        true_conditions=frozenset(["the user agrees"]),
    )
    assert parsed.problems == ()


@pytest.mark.parametrize(
    "data",
    [
        {"key_book": {"a": "x", "b": None}, "key_chat": None},
        {"key_book.a": "x", "key_book.b": None},
        [{"field": "key_book.a", "value": "x"}, {"field": "key_book.b", "value": None}],
    ],
)
def test_values_are_parsed_in_every_form_and_nulls_are_ignored(data: Any) -> None:
    parsed = read_answer({"routes": None, "data": data, "forget": None, "conditions": None})
    assert parsed.interpretation == Interpretation(scores={}, data={"book": {"a": "x"}})
    assert parsed.problems == ()


def test_a_value_that_does_not_fit_is_rejected_with_the_reason() -> None:
    parsed = read_answer({"data": [{"field": "key_book.b", "value": "many"}, {"field": "key_book.a", "value": "x"}]})
    [rejected] = parsed.interpretation.rejected
    assert (rejected.field, rejected.value) == ("b", "many")
    assert rejected.problem
    assert parsed.interpretation.data == {"book": {"a": "x"}}


@pytest.mark.parametrize(
    "answer",
    [
        {"routes": [{"route": "nowhere", "score": 90}]},
        {"routes": [{"route": "key_book", "score": "high"}]},
        {"routes": ["key_book"]},
        {"data": [{"field": "key_book.out", "value": 1}]},
        {"data": [{"field": "nowhere.a", "value": 1}]},
        {"data": "a=x"},
        {"data": ["x"]},
        {"forget": ["key_book.out"]},
        {"forget": "key_book.a"},
        {"conditions": ["c99"]},
        {"conditions": ["the user agrees"]},
        {"conditions": [1]},
    ],
)
def test_unknown_parts_of_an_answer_are_ignored_and_reported(answer: Mapping[str, Any]) -> None:
    parsed = read_answer(answer)
    assert parsed.interpretation == Interpretation(scores={})
    assert parsed.problems


def test_a_score_of_a_route_that_was_not_listed_is_ignored() -> None:
    routes = [Route(f"Route {number}", id=f"r{number}", conditions=["x"]) for number in range(3)]
    questions = questions_about(*routes, limits=Limits(in_play=1, listed=2))
    parsed = read_answer({"routes": [{"route": "key_r1", "score": 60}, {"route": "key_r2", "score": 90}]}, questions)
    assert parsed.interpretation.scores == {"r1": 60}
    assert parsed.problems


def test_routes_that_are_not_a_list_are_reported() -> None:
    assert read_answer({"routes": "key_book"}).problems


def test_a_route_without_values_is_not_reported_as_a_problem() -> None:
    assert read_answer({"data": {"key_book": {}, "key_chat": {}}}).problems == ()


@pytest.mark.parametrize(
    "text", ["", "no", "[]", '"x"', "null", "5", "{", '{"a": 1', "```json\n[1]\n```", "[" * 100_000]
)
def test_an_answer_that_is_not_an_object_is_unreadable(text: str) -> None:
    with pytest.raises(UnreadableAnswer):
        parse_answer(text, QUESTIONS)


@pytest.mark.parametrize("text", ['{"answer": "r9"}', '{"answer": ["r1"]}', "{}", '"r1"', "r1", '{"answer": null}'])
def test_a_choice_must_be_one_of_the_offered_answers(text: str) -> None:
    assert parse_choice('{"answer": "r2"}', {"r1": "Hello", "r2": "Bye"}) == "Bye"
    with pytest.raises(UnreadableAnswer):
        parse_choice(text, {"r1": "Hello", "r2": "Bye"})


def test_an_answer_in_a_code_fence_is_parsed() -> None:
    text = '```json\n{"conditions": ["' + AGREES + '"]}\n```\n'
    assert parse_answer(text, QUESTIONS).interpretation.true_conditions == {"the user agrees"}


def test_an_unclosed_code_fence_is_unreadable_without_slow_backtracking() -> None:
    with pytest.raises(UnreadableAnswer):
        parse_answer("```json" + "\n" * 20_000, QUESTIONS)


@pytest.mark.parametrize("score", ["1" * 400, "-" + "1" * 400, "1e999", "-1e999", "NaN"])
def test_a_score_of_any_size_is_clamped_or_ignored(score: str) -> None:
    parsed = parse_answer('{"routes": [{"route": "key_book", "score": ' + score + "}]}", QUESTIONS)
    assert parsed.interpretation.scores is not None
    assert all(0 <= each <= 100 for each in parsed.interpretation.scores.values())


@pytest.mark.parametrize("part", ["routes", "data", "forget", "conditions"])
@pytest.mark.parametrize("depth", [100, 400, 700, 800, 900, 950, 2_000])
@pytest.mark.parametrize("value", ["{}", '[{{"field": "key_book.a", "value": {}}}]', '{{"key_book": {}}}', "[{}]"])
def test_an_answer_of_any_depth_is_parsed_or_unreadable(part: str, depth: int, value: str) -> None:
    nested = "[" * depth + "]" * depth
    with contextlib.suppress(UnreadableAnswer):
        assert parse_answer(f'{{"{part}": {value.format(nested)}}}', QUESTIONS).interpretation


words = st.sampled_from(
    [
        *("routes", "data", "forget", "conditions", "route", "score", "field", "value", "c1", "c9", AGREES),
        *("key_book", "key_chat", "key_book.a", "key_book.b", "key_book.day", "key_book.out", "a", "b", ".", ""),
    ]
)
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | words | st.just(10**400)
garbage = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words | st.text(max_size=4), inner, max_size=4)
)
answers = st.fixed_dictionaries({}, optional=dict.fromkeys(("routes", "data", "forget", "conditions", "more"), garbage))


@settings(deadline=None, max_examples=300)
@given(garbage | answers)
def test_garbage_of_any_shape_is_parsed_or_unreadable(answer: Any) -> None:
    try:
        parsed = parse_answer(json.dumps(answer), QUESTIONS)
    except UnreadableAnswer:
        assert not isinstance(answer, dict)
        return
    interpretation = parsed.interpretation
    assert set(interpretation.scores or ()) <= {"book", "chat"}
    assert all(0 <= score <= 100 for score in (interpretation.scores or {}).values())
    assert interpretation.true_conditions <= set(QUESTIONS.conditions)
    for id, values in interpretation.data.items():
        assert id == "book"
        assert set(values) <= set(BOOK.gatherable)
        assert None not in values.values()
    for id, names in interpretation.forgotten.items():
        assert set(names) <= set(BOOK.gatherable)
        assert not set(names) & set(interpretation.data.get(id, {}))


@given(st.text(max_size=60))
def test_any_text_is_parsed_or_unreadable(text: str) -> None:
    with contextlib.suppress(UnreadableAnswer):
        assert parse_answer(text, QUESTIONS).interpretation
