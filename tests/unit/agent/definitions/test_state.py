"""`transition_to`: the states it creates, and the arguments it rejects with the place in the error."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import pytest

from tellback.agent.definitions.route import Route
from tellback.agent.definitions.state import END_ROUTE, State, StateRef
from tellback.errors import FlowError
from tests.unit.agent.flow.route_strategies import Facts


def look(a: str, b: int = 0) -> str:
    """Look something up."""
    return f"{a}{b}"


def make_start_state(title: str = "Book") -> State:
    return Route(title, gather_schema=Facts).initial_state


def catch_flow_error(source: State, pattern: str, /, **spec: Any) -> FlowError:
    """Return the error of an invalid transition; check that the route is unchanged."""
    states, transitions = source.route.states, list(source.transitions)
    with pytest.raises(FlowError, match=pattern) as caught:
        source.transition_to(**spec)
    assert source.route.states == states
    assert source.transitions == transitions
    assert "'Book'" in caught.value.place
    return caught.value


def test_chained_calls_return_each_new_state() -> None:
    first = make_start_state().transition_to(
        chat_state="Ask", gather=["a"], required_data=["b"], skip_if=lambda data: False
    )
    second = first.transition_to(tool_state=look, save_as="out", repeat=False)
    assert (first.kind, first.title, first.gather, first.required_data) == ("chat", "Ask", ("a",), ("b",))
    assert (second.kind, second.title, second.save_as, second.repeat) == ("tool", "look", "out", False)
    assert [*first.next_states()] == [second]
    assert second.transition_to(state=END_ROUTE) is END_ROUTE  # type: ignore[comparison-overlap]


def test_a_target_can_be_a_state_its_ref_or_its_id() -> None:
    ask = make_start_state().transition_to(chat_state="Ask", id="ask")
    targets: list[State | StateRef | str] = [ask, ask.ref, StateRef("ask", ask.route_id), "ask"]
    for number, target in enumerate(targets):
        state = ask.transition_to(chat_state="More", condition=f"the user wants more for the time {number}")
        assert state.transition_to(state=target) is ask


def test_a_state_may_be_referred_to_before_it_exists() -> None:
    first = make_start_state().transition_to(chat_state="First")
    awaited = first.transition_to(state="later", condition="the user waits")
    with pytest.raises(FlowError, match="does not exist yet"):
        awaited.transition_to(chat_state="More")
    later = first.transition_to(chat_state="Later", id="later")
    assert first.transitions[0].resolve_target() is later


def test_states_with_the_same_description_have_different_ids() -> None:
    first = make_start_state().transition_to(chat_state="Ask")
    second = first.transition_to(chat_state="Ask")
    third = second.transition_to(tool_state=look).transition_to(tool_state=look)
    assert len({state.id for state in third.route.states}) == 5
    other_ask = make_start_state().transition_to(chat_state="Ask")
    assert other_ask.id == first.id


def test_no_state_can_follow_the_end() -> None:
    with pytest.raises(FlowError, match="END_ROUTE"):
        END_ROUTE.transition_to(chat_state="More")
    with pytest.raises(FlowError, match="no state can follow"):
        make_start_state().transition_to(state=END_ROUTE).transition_to(chat_state="More")


def test_copies_of_the_end_are_the_same_object() -> None:
    assert copy.deepcopy(END_ROUTE) is END_ROUTE
    assert pickle.loads(pickle.dumps(END_ROUTE)) is END_ROUTE


@pytest.mark.parametrize(
    ("spec", "pattern"),
    [
        ({}, "nothing"),
        ({"chat_state": "Ask", "tool_state": look}, "chat_state and tool_state"),
        ({"chat_state": "Ask", "state": END_ROUTE}, "chat_state and state"),
        ({"chat_state": "  "}, "chat_state must be"),
        ({"chat_state": 5}, "chat_state must be"),
        ({"tool_state": 5}, "tool_state"),
        ({"state": 5}, "END_ROUTE"),
        ({"chat_state": "Ask", "condition": 5}, "condition"),
        ({"chat_state": "Ask", "condition": " "}, "empty"),
        ({"chat_state": "Ask", "on_error": True}, "on_error"),
        ({"chat_state": "Ask", "skip_if": True}, "skip_if"),
        ({"chat_state": "Ask", "arguments": {"a": "a"}}, "arguments"),
        ({"chat_state": "Ask", "save_as": "out"}, "save_as"),
        ({"chat_state": "Ask", "gather": "a"}, r"gather=\[...\]"),
        ({"chat_state": "Ask", "gather": ["nope"]}, "gather contains the field 'nope'.*a, b"),
        ({"chat_state": "Ask", "gather": ["a", "a"]}, "twice"),
        ({"chat_state": "Ask", "gather": [["a"]]}, "gather"),
        ({"chat_state": "Ask", "gather": 5}, "gather"),
        ({"chat_state": "Ask", "required_data": ["nope"]}, "required_data contains the field 'nope'"),
        ({"chat_state": "Ask", "id": ""}, "id"),
        ({"chat_state": "Ask", "id": "END_ROUTE"}, "END_ROUTE"),
        ({"tool_state": look, "gather": ["a"]}, "gather"),
        ({"tool_state": look, "save_as": "nope"}, "save_as contains the field 'nope'"),
        ({"tool_state": look, "arguments": {"a": "nope"}}, "arguments contains the field 'nope'"),
        ({"tool_state": look, "arguments": {"a": ["a"]}}, "arguments"),
        ({"tool_state": look, "arguments": {"c": "a"}}, "'c', which is not a parameter of look"),
        ({"tool_state": look, "arguments": 5}, "arguments"),
        ({"state": END_ROUTE, "gather": ["a"]}, "gather"),
        ({"state": END_ROUTE, "required_data": ["a"]}, "required_data"),
        ({"state": END_ROUTE, "skip_if": lambda data: True}, "skip_if"),
    ],
)
def test_an_invalid_transition_is_rejected_and_changes_nothing(spec: dict[str, Any], pattern: str) -> None:
    catch_flow_error(make_start_state(), pattern, **spec)


@pytest.mark.parametrize(
    ("schema", "arguments", "problem"),
    [
        (Facts, {"b": "b"}, "arguments does not set it: gather_schema has a, b, day, note, out."),
        (Facts, {}, "arguments does not set it: gather_schema has a, b, day, note, out."),
        ({"properties": {"city": {}}}, None, "no field has this name: gather_schema has city."),
        (None, None, "no field has this name: gather_schema has no fields."),
    ],
    ids=["other arguments", "empty arguments", "other fields", "no fields"],
)
def test_a_missing_tool_argument_is_reported_with_its_reason_and_remedy(
    schema: Any, arguments: dict[str, str] | None, problem: str
) -> None:
    start = Route("Book", gather_schema=schema).initial_state
    remedy = "Set arguments={'a': <field>}, or a function of the data."
    catch_flow_error(start, re.escape(f"look needs 'a', but {problem} {remedy}"), tool_state=look, arguments=arguments)


def test_a_duplicate_state_id_is_rejected() -> None:
    ask = make_start_state().transition_to(chat_state="Ask", id="ask")
    catch_flow_error(ask, "'ask' is already used", chat_state="More", id="ask")


def test_a_state_of_another_route_is_rejected() -> None:
    other = make_start_state("Pay").transition_to(chat_state="Pay")
    catch_flow_error(make_start_state(), "another route", state=other)
    catch_flow_error(make_start_state(), "another route", state=other.ref)


def test_a_state_of_another_route_with_the_same_title_is_rejected() -> None:
    catch_flow_error(make_start_state(), "another route", state=make_start_state().transition_to(chat_state="Pay"))


def test_guidelines_can_be_passed_and_added() -> None:
    ask = make_start_state().transition_to(chat_state="Ask", guidelines=[{"action": "Be brief."}])
    assert [each.action for each in ask.add_guideline(action="Be kind.").guidelines] == ["Be brief.", "Be kind."]
