"""Messages other than answers: adding a wish late, skipping a question, and dropping a route."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from tellback.agent.definitions.route import Route
from tellback.agent.flow.interpretation import drop_condition
from tellback.errors import FlowError
from tests.unit.agent.flow.route_strategies import FlowConversation


class Trip(BaseModel):
    to: str
    cabin: str | None = None
    name: str | None = None
    anonymous: bool | None = None


def search(to: str, cabin: str | None = None) -> str:
    """Find flights."""
    return f"{to} {cabin}"


def make_trip_route(*, repeat: bool = True) -> Route:
    route = Route("Trip", gather_schema=Trip, conditions=["the user wants to travel"])
    ask = route.initial_state.transition_to(chat_state="Ask", gather=["to"])
    found = ask.transition_to(tool_state=search, repeat=repeat)
    offer = found.transition_to(chat_state="Offer")
    offer.transition_to(chat_state="Ask the cabin", gather=["cabin"], condition="the user takes one")
    return route


def test_a_late_optional_argument_makes_a_tool_run_again() -> None:
    route = make_trip_route()
    conversation = FlowConversation(route)
    conversation.take_turn(route, to="Rome")
    result = conversation.take_turn(cabin="business")
    assert conversation.ran == [("search", {"to": "Rome"}), ("search", {"to": "Rome", "cabin": "business"})]
    assert (conversation.state_title, result.changed) == ("Offer", ())
    conversation.take_turn()
    assert len(conversation.ran) == 2


def test_a_late_optional_argument_does_not_rerun_a_tool_with_repeat_false() -> None:
    route = make_trip_route(repeat=False)
    conversation = FlowConversation(route)
    conversation.take_turn(route, to="Rome")
    conversation.take_turn(cabin="business", holds=["the user takes one"])
    assert len(conversation.ran) == 1


def test_a_state_is_left_once_skip_if_is_true() -> None:
    route = Route("Join", gather_schema={**Trip.model_json_schema(), "required": ["name"]})
    ask = route.initial_state.transition_to(
        chat_state="Ask who", gather=["name", "anonymous"], skip_if=lambda data: bool(data.get("anonymous"))
    )
    ask.transition_to(chat_state="Welcome")
    conversation = FlowConversation(route)
    conversation.take_turn()
    assert conversation.state_title == "Ask who"
    conversation.take_turn(anonymous=True)
    assert conversation.state_title == "Welcome"


def test_a_dropped_route_is_left_and_can_be_resumed() -> None:
    route, other = make_trip_route(), Route("Weather", conditions=["the user asks about the weather"])
    other.initial_state.transition_to(chat_state="Tell the weather")
    conversation = FlowConversation(route, other)
    conversation.take_turn(route, to="Rome")
    result = conversation.take_turn(scores={route: 5}, holds=[drop_condition(route)])
    assert (result.route, conversation.session.current_route) == (None, None)
    assert conversation.session.paused_routes[route.id].dropped
    conversation.take_turn(route)
    assert (conversation.state_title, conversation.session.extracted) == ("Offer", {"to": "Rome"})


def test_another_route_replaces_a_dropped_one() -> None:
    route, other = make_trip_route(), Route("Weather", conditions=["the user asks about the weather"])
    other.initial_state.transition_to(chat_state="Tell the weather")
    conversation = FlowConversation(route, other)
    conversation.take_turn(route, to="Rome")
    assert conversation.take_turn(other, holds=[drop_condition(route)]).route is other


def test_two_transitions_with_the_same_condition_are_rejected() -> None:
    start = Route("Trip").initial_state
    start.transition_to(chat_state="One", condition="the user is a member")
    with pytest.raises(FlowError, match="two transitions have the condition 'the user is a member'"):
        start.transition_to(chat_state="Two", condition="the user is a member")


def test_repeat_is_only_accepted_for_tools() -> None:
    with pytest.raises(FlowError, match="chat_state does not accept repeat"):
        Route("Trip").initial_state.transition_to(chat_state="One", repeat=False)
