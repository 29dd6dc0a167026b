"""`transition_to`: what it makes, and what it refuses with the place named."""

from __future__ import annotations

import copy
import pickle
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
    """The error of a way that cannot be made; nothing is left of it."""
    states, transitions = source.route.states, list(source.transitions)
    with pytest.raises(FlowError, match=pattern) as caught:
        source.transition_to(**spec)
    assert source.route.states == states
    assert source.transitions == transitions
    assert "'Book'" in caught.value.place
    return caught.value


def test_a_chain_gives_each_state_in_turn() -> None:
    first = make_start_state().transition_to(
        chat_state="Ask", gather=["a"], required_data=["b"], skip_if=lambda data: False
    )
    second = first.transition_to(tool_state=look, save_as="out", repeat=False)
    assert (first.kind, first.title, first.gather, first.required_data) == ("chat", "Ask", ("a",), ("b",))
    assert (second.kind, second.title, second.save_as, second.repeat) == ("tool", "look", "out", False)
    assert [*first.next_states()] == [second]
    assert second.transition_to(state=END_ROUTE) is END_ROUTE  # type: ignore[comparison-overlap]


def test_a_way_leads_to_a_state_by_itself_its_ref_or_its_id() -> None:
    ask = make_start_state().transition_to(chat_state="Ask", id="ask")
    targets: list[State | StateRef | str] = [ask, ask.ref, StateRef("ask", ask.route_id), "ask"]
    for number, target in enumerate(targets):
        state = ask.transition_to(chat_state="More", condition=f"the user wants more for the time {number}")
        assert state.transition_to(state=target) is ask


def test_a_state_may_be_named_before_it_is_made() -> None:
    first = make_start_state().transition_to(chat_state="First")
    awaited = first.transition_to(state="later", condition="the user waits")
    with pytest.raises(FlowError, match="not made yet"):
        awaited.transition_to(chat_state="More")
    later = first.transition_to(chat_state="Later", id="later")
    assert first.transitions[0].resolve_target() is later


def test_states_of_one_description_have_ids_of_their_own() -> None:
    first = make_start_state().transition_to(chat_state="Ask")
    second = first.transition_to(chat_state="Ask")
    third = second.transition_to(tool_state=look).transition_to(tool_state=look)
    assert len({state.id for state in third.route.states}) == 5
    other_ask = make_start_state().transition_to(chat_state="Ask")
    assert other_ask.id == first.id


def test_nothing_follows_the_end() -> None:
    with pytest.raises(FlowError, match="END_ROUTE"):
        END_ROUTE.transition_to(chat_state="More")
    with pytest.raises(FlowError, match="ended"):
        make_start_state().transition_to(state=END_ROUTE).transition_to(chat_state="More")


def test_the_end_stays_itself_when_it_is_copied() -> None:
    assert copy.deepcopy(END_ROUTE) is END_ROUTE
    assert pickle.loads(pickle.dumps(END_ROUTE)) is END_ROUTE


@pytest.mark.parametrize(
    ("spec", "pattern"),
    [
        ({}, "nothing"),
        ({"chat_state": "Ask", "tool_state": look}, "chat_state and tool_state"),
        ({"chat_state": "Ask", "state": END_ROUTE}, "chat_state and state"),
        ({"chat_state": "  "}, "in words"),
        ({"chat_state": 5}, "in words"),
        ({"tool_state": 5}, "tool_state"),
        ({"state": 5}, "END_ROUTE"),
        ({"chat_state": "Ask", "condition": 5}, "condition"),
        ({"chat_state": "Ask", "condition": " "}, "empty"),
        ({"chat_state": "Ask", "on_error": True}, "on_error"),
        ({"chat_state": "Ask", "skip_if": True}, "skip_if"),
        ({"chat_state": "Ask", "arguments": {"a": "a"}}, "arguments"),
        ({"chat_state": "Ask", "save_as": "out"}, "save_as"),
        ({"chat_state": "Ask", "gather": "a"}, r"gather=\[...\]"),
        ({"chat_state": "Ask", "gather": ["nope"]}, "gather names the field 'nope'.*a, b"),
        ({"chat_state": "Ask", "gather": ["a", "a"]}, "twice"),
        ({"chat_state": "Ask", "gather": [["a"]]}, "gather"),
        ({"chat_state": "Ask", "gather": 5}, "gather"),
        ({"chat_state": "Ask", "required_data": ["nope"]}, "required_data names the field 'nope'"),
        ({"chat_state": "Ask", "id": ""}, "id"),
        ({"chat_state": "Ask", "id": "END_ROUTE"}, "END_ROUTE"),
        ({"tool_state": look, "gather": ["a"]}, "gather"),
        ({"tool_state": look, "save_as": "nope"}, "save_as names the field 'nope'"),
        ({"tool_state": look, "arguments": {"a": "nope"}}, "arguments names the field 'nope'"),
        ({"tool_state": look, "arguments": {"a": ["a"]}}, "arguments"),
        ({"tool_state": look, "arguments": {"c": "a"}}, "'c', which look does not take"),
        ({"tool_state": look, "arguments": 5}, "arguments"),
        ({"state": END_ROUTE, "gather": ["a"]}, "gather"),
        ({"state": END_ROUTE, "required_data": ["a"]}, "required_data"),
        ({"state": END_ROUTE, "skip_if": lambda data: True}, "skip_if"),
    ],
)
def test_what_makes_no_way_is_refused_and_leaves_nothing_behind(spec: dict[str, Any], pattern: str) -> None:
    catch_flow_error(make_start_state(), pattern, **spec)


def test_an_id_is_of_one_state() -> None:
    ask = make_start_state().transition_to(chat_state="Ask", id="ask")
    catch_flow_error(ask, "'ask' is another state's", chat_state="More", id="ask")


def test_a_state_of_another_route_is_refused() -> None:
    other = make_start_state("Pay").transition_to(chat_state="Pay")
    catch_flow_error(make_start_state(), "another route", state=other)
    catch_flow_error(make_start_state(), "another route", state=other.ref)


def test_a_state_of_another_route_of_the_same_title_is_refused() -> None:
    catch_flow_error(make_start_state(), "another route", state=make_start_state().transition_to(chat_state="Pay"))


def test_a_guideline_can_be_added() -> None:
    ask = make_start_state().transition_to(chat_state="Ask", guidelines=[{"action": "Be brief."}])
    assert [each.action for each in ask.add_guideline(action="Be kind.").guidelines] == ["Be brief.", "Be kind."]
