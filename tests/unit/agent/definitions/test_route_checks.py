"""Routes that can never work are rejected while they are built, with the place in the error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings

from tellback.agent import Agent
from tellback.agent.definitions.route import Route
from tellback.agent.definitions.state import END_ROUTE, State, Transition
from tellback.errors import FlowError
from tests.unit.agent.flow.route_strategies import SEEDS, Facts, RandomFlows


def yes(data: Mapping[str, Any]) -> bool:
    return True


def ping() -> str:
    """Answer."""
    return "pong"


def make_route() -> Route:
    return Route("Book", gather_schema=Facts)


def test_a_second_transition_without_a_condition_is_unreachable() -> None:
    book = make_route()
    ask = book.initial_state.transition_to(chat_state="Ask")
    ask.transition_to(chat_state="First")
    with pytest.raises(FlowError, match=r"'Second'.*unreachable.*'First'") as caught:
        ask.transition_to(chat_state="Second")
    assert caught.value.place == "route 'Book', state 'Ask'"
    assert [state.title for state in book.states] == ["start", "Ask", "First"]
    book.check()


def test_a_transition_after_end_route_is_unreachable() -> None:
    ask = make_route().initial_state.transition_to(chat_state="Ask")
    ask.transition_to(state=END_ROUTE)
    with pytest.raises(FlowError, match="unreachable"):
        ask.transition_to(chat_state="More")
    ask.transition_to(chat_state="Hurry", condition="the user is in a hurry")


def test_a_transition_with_required_data_hides_no_other() -> None:
    ask = make_route().initial_state.transition_to(chat_state="Ask")
    ask.transition_to(chat_state="Ready", required_data=["a"])
    ask.transition_to(chat_state="Not ready")
    with pytest.raises(FlowError, match="'Not ready' comes first"):
        ask.transition_to(chat_state="Never")


def test_a_tool_state_that_may_be_skipped_hides_no_other() -> None:
    ask = make_route().initial_state.transition_to(chat_state="Ask")
    ask.transition_to(tool_state=ping, skip_if=yes)
    ask.transition_to(chat_state="Without the tool")
    with pytest.raises(FlowError, match="'Without the tool' comes first"):
        ask.transition_to(tool_state=ping)


def test_error_and_success_transitions_do_not_hide_each_other() -> None:
    tool = make_route().initial_state.transition_to(tool_state=ping)
    tool.transition_to(chat_state="Sorry", on_error=True)
    tool.transition_to(chat_state="Fine")
    with pytest.raises(FlowError, match="'Sorry' comes first"):
        tool.transition_to(chat_state="Sorrier", on_error=True)


@pytest.mark.parametrize("passed", [{"gather": ["a"]}, {"skip_if": yes}])
def test_a_cycle_of_skippable_states_is_rejected(passed: dict[str, Any]) -> None:
    book = make_route()
    first = book.initial_state.transition_to(chat_state="First", **passed)
    second = first.transition_to(chat_state="Second", gather=["b"])
    with pytest.raises(FlowError, match=r"'First'.*cycle") as caught:
        second.transition_to(state=first)
    assert "'Book'" in caught.value.place
    assert not second.transitions


def test_a_state_that_leads_to_itself_must_always_speak() -> None:
    book = make_route()
    asks = book.initial_state.transition_to(chat_state="Ask", gather=["a"])
    with pytest.raises(FlowError, match="cycle"):
        asks.transition_to(state=asks)
    speaks = asks.transition_to(chat_state="Talk")
    speaks.transition_to(state=speaks)
    initial = make_route().initial_state
    with pytest.raises(FlowError, match="cycle"):
        initial.transition_to(state=initial)


@pytest.mark.parametrize("condition", [yes, "the user wants to start again"])
def test_a_cycle_with_a_condition_is_allowed(condition: Any) -> None:
    book = make_route()
    first = book.initial_state.transition_to(chat_state="First", gather=["a"])
    first.transition_to(chat_state="Second", gather=["b"]).transition_to(state=first, condition=condition)
    book.check()


def test_a_cycle_with_a_speaking_state_or_a_tool_is_allowed() -> None:
    book = make_route()
    first = book.initial_state.transition_to(chat_state="First", gather=["a"])
    first.transition_to(chat_state="Talk").transition_to(state=first)
    other = Route("Poll", gather_schema=Facts)
    poll = other.initial_state.transition_to(chat_state="Ask", gather=["a"])
    poll.transition_to(tool_state=ping).transition_to(state=poll)
    Agent("Wanda", routes=[book, other])


def test_a_cycle_through_a_state_referred_to_before_its_creation_is_rejected() -> None:
    book = make_route()
    first = book.initial_state.transition_to(chat_state="First", gather=["a"])
    first.transition_to(state="second")
    with pytest.raises(FlowError, match="cycle"):
        first.transition_to(chat_state="Second", gather=["b"], id="second", condition=yes).transition_to(state=first)


def test_an_agent_rejects_a_transition_to_a_state_that_was_never_created() -> None:
    book = make_route()
    book.initial_state.transition_to(chat_state="Ask").transition_to(state="nowhere")
    with pytest.raises(FlowError, match="'nowhere'") as caught:
        Agent("Wanda", routes=[book])
    assert caught.value.place == "route 'Book', state 'Ask'"


def test_a_long_chain_is_checked_without_deep_recursion() -> None:
    book = make_route()
    state = book.initial_state
    for number in range(1_500):
        state = state.transition_to(chat_state=f"Step {number}")
    book.check()


@settings(deadline=None)
@given(SEEDS)
def test_a_route_built_without_an_error_passes_the_check(seed: int) -> None:
    routes = RandomFlows(seed).routes()
    Agent("Wanda", routes=list(routes.values())).check()
    for each in routes.values():
        for state in each.states:
            plain = [
                transition
                for transition in state.transitions
                if transition.condition is None and not transition.on_error
            ]
            always_taken = [each for each in plain if not _may_be_passed_over(each)]
            assert not always_taken or always_taken[0] is plain[-1]


def _may_be_passed_over(transition: Transition) -> bool:
    """Whether a later transition without a condition can be taken."""
    target = transition.resolve_target()
    if not isinstance(target, State):
        return False
    return bool(target.required_data or target.gather) or target.skip_if is not None
