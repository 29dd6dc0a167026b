"""The next state of a conversation: states that speak, skipping, branches, loops, the end, and route changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel, Field

from tellback.agent.definitions.route import Route
from tellback.agent.definitions.state import END_ROUTE
from tellback.agent.flow.move import Interpretation, MoveResult, RejectedValue, move
from tellback.agent.sessions.session import CurrentRoute, CurrentState, create_session
from tellback.errors import FlowError
from tests.unit.agent.flow.route_strategies import NOW, FlowConversation

DAY = date(2026, 12, 1)


class Flight(BaseModel):
    to: str
    day: date
    seats: int = Field(ge=1, le=9)
    meal: str | None = None


def search(to: str, day: date, seats: int) -> list[str]:
    """Find flights."""
    return [f"{to} {day} {seats}"]


def make_booking_route() -> Route:
    route = Route("Book a flight", conditions=["the user wants to fly"], gather_schema=Flight)
    (
        route.initial_state.transition_to(chat_state="Ask where to", gather=["to"], skip_if=lambda data: "to" in data)
        .transition_to(chat_state="Ask when and how many", gather=["day", "seats"], required_data=["to"])
        .transition_to(tool_state=search)
        .transition_to(chat_state="Offer the flights")
        .transition_to(state=END_ROUTE)
    )
    return route


def make_weather_route() -> Route:
    route = Route(
        "Tell the weather",
        conditions=["the user asks about the weather"],
        gather_schema={"type": "object", "properties": {"city": {"type": "string"}}},
    )
    route.initial_state.transition_to(chat_state="Ask for the city", gather=["city"]).transition_to(
        chat_state="Tell the weather"
    ).transition_to(state=END_ROUTE)
    return route


def actions(result: MoveResult) -> list[tuple[str, str]]:
    return [(step.action, step.state) for step in result.walked]


def test_fields_stated_in_one_message_are_not_asked_for() -> None:
    route = make_booking_route()
    conversation = FlowConversation(route)
    result = conversation.take_turn(route, to="Rome", day=DAY, seats=2)
    assert actions(result) == [
        ("skipped", "Ask where to"),
        ("skipped", "Ask when and how many"),
        ("ran", "search"),
        ("speaks", "Offer the flights"),
    ]
    assert conversation.ran == [("search", {"to": "Rome", "day": "2026-12-01", "seats": 2})]
    assert result.missing == ()


def test_a_state_speaks_until_all_its_fields_are_known() -> None:
    route = make_booking_route()
    conversation = FlowConversation(route)
    conversation.take_turn(route, to="Rome")
    assert conversation.take_turn(day=DAY).missing == ("seats",)
    assert conversation.take_turn().missing == ("seats",)
    assert conversation.state_title == "Ask when and how many"
    conversation.take_turn(seats=2)
    assert conversation.state_title == "Offer the flights"


def test_a_field_of_a_later_state_can_be_stated_early() -> None:
    route = make_booking_route()
    conversation = FlowConversation(route)
    assert conversation.take_turn(route, seats=2).missing == ("to",)
    assert conversation.take_turn(to="Rome").missing == ("day",)


def test_an_optional_field_is_asked_for_once() -> None:
    route = Route("Book", gather_schema=Flight)
    ask = route.initial_state.transition_to(chat_state="Ask for the meal", gather=["meal"])
    ask.transition_to(chat_state="Say thanks")
    conversation = FlowConversation(route)
    assert conversation.take_turn().missing == ("meal",)
    conversation.take_turn()
    assert conversation.state_title == "Say thanks"


def test_only_the_required_field_is_asked_for_again() -> None:
    route = Route("Book", gather_schema=Flight)
    route.initial_state.transition_to(chat_state="Ask for seats and meal", gather=["seats", "meal"])
    conversation = FlowConversation(route)
    assert conversation.take_turn().missing == ("seats", "meal")
    assert conversation.take_turn().missing == ("seats",)


def test_a_state_is_skipped_if_skip_if_is_true_or_its_fields_are_known() -> None:
    route = Route("Book", gather_schema=Flight)
    first = route.initial_state.transition_to(chat_state="Ask where to", gather=["to"], skip_if=lambda data: False)
    first.transition_to(chat_state="Ask", gather=["day"], skip_if=lambda data: True).transition_to(chat_state="Thank")
    conversation = FlowConversation(route)
    conversation.take_turn()
    assert conversation.state_title == "Ask where to"
    conversation.take_turn(to="Rome")
    assert conversation.state_title == "Thank"


def test_a_chain_of_skipped_states_is_walked_in_one_turn() -> None:
    route = Route("Book", gather_schema=Flight)
    state = route.initial_state
    for number in range(50):
        state = state.transition_to(chat_state=f"Step {number}", skip_if=lambda data: True)
    state.transition_to(chat_state="Arrived")
    conversation = FlowConversation(route)
    assert len(conversation.take_turn().walked) == 51
    assert conversation.state_title == "Arrived"


def test_missing_required_data_keeps_the_previous_state_current() -> None:
    route = Route("Book", gather_schema=Flight)
    first = route.initial_state.transition_to(chat_state="Greet")
    first.transition_to(chat_state="Ask when", gather=["day"], required_data=["to"])
    conversation = FlowConversation(route)
    conversation.take_turn()
    result = conversation.take_turn()
    assert conversation.state_title == "Greet"
    assert "to" in result.walked[-1].why
    conversation.take_turn(to="Rome")
    assert conversation.state_title == "Ask when"


def test_transitions_with_a_condition_are_tried_first_and_in_order() -> None:
    route = Route("Book", gather_schema=Flight)
    ask = route.initial_state.transition_to(chat_state="Ask", gather=["seats"])
    ask.transition_to(chat_state="Plain")
    ask.transition_to(chat_state="Group", condition=lambda data: data["seats"] > 5)
    ask.transition_to(chat_state="Business", condition="the user flies for work")
    places = []
    for seats, holds in ((2, []), (6, []), (2, ["the user flies for work"]), (6, ["the user flies for work"])):
        conversation = FlowConversation(route)
        conversation.take_turn(holds=holds, seats=seats)
        places.append(conversation.state_title)
    assert places == ["Plain", "Group", "Business", "Group"]


def test_a_transition_whose_target_lacks_data_is_not_taken() -> None:
    route = Route("Book", gather_schema=Flight)
    route.initial_state.transition_to(chat_state="Ready", required_data=["to"])
    route.initial_state.transition_to(chat_state="Not ready")
    conversation = FlowConversation(route)
    conversation.take_turn()
    assert conversation.state_title == "Not ready"


def test_a_state_without_a_true_condition_speaks_again() -> None:
    route = Route("Book", gather_schema=Flight)
    ask = route.initial_state.transition_to(chat_state="Ask whether it is right")
    ask.transition_to(state=END_ROUTE, condition="the user agrees")
    conversation = FlowConversation(route)
    conversation.take_turn()
    assert actions(conversation.take_turn()) == [("speaks", "Ask whether it is right")]
    assert conversation.take_turn(holds=["the user agrees"]).ended


def test_a_state_that_the_user_has_not_answered_speaks_again() -> None:
    route = Route("Book", gather_schema=Flight)
    route.initial_state.transition_to(chat_state="Greet").transition_to(state=END_ROUTE)
    conversation = FlowConversation(route)
    conversation.take_turn()
    with pytest.raises(StopIteration) as stop:
        next(move(conversation.routes, conversation.session, Interpretation(user_spoke=False), NOW))
    assert stop.value.value.state.title == "Greet"


def test_a_rejected_value_keeps_the_state_current() -> None:
    route = Route("Book", gather_schema=Flight)
    route.initial_state.transition_to(chat_state="Greet").transition_to(state=END_ROUTE)
    conversation = FlowConversation(route)
    conversation.take_turn()
    interpretation = Interpretation(rejected=(RejectedValue("seats", 99, "it is too many", route.id),))
    with pytest.raises(StopIteration) as stop:
        next(move(conversation.routes, conversation.session, interpretation, NOW))
    assert stop.value.value.state.title == "Greet"


def test_a_transition_back_makes_its_states_ask_again() -> None:
    route = Route("Search", gather_schema=Flight)
    ask = route.initial_state.transition_to(chat_state="Ask where to", gather=["to"])
    find = ask.transition_to(tool_state=search, arguments=lambda data: {"to": data["to"]})
    offer = find.transition_to(chat_state="Offer")
    offer.transition_to(state=find, condition="the user wants to see more")
    offer.transition_to(state=ask, condition="the user wants to go elsewhere")
    offer.transition_to(state=END_ROUTE, condition="the user is done")
    conversation = FlowConversation(route)
    conversation.take_turn(to="Rome")
    conversation.take_turn(holds=["the user wants to see more"])
    assert (conversation.state_title, len(conversation.ran)) == ("Offer", 2)
    conversation.take_turn(holds=["the user wants to go elsewhere"], forget=["to"])
    assert conversation.state_title == "Ask where to"


def test_a_cycle_of_tools_stops_when_a_state_repeats() -> None:
    route = Route("Search", gather_schema=Flight)
    first = route.initial_state.transition_to(tool_state=search, arguments=lambda _: {})
    second = first.transition_to(tool_state=search, arguments=lambda _: {}, id="second")
    second.transition_to(state=first)
    conversation = FlowConversation(route)
    result = conversation.take_turn()
    assert actions(result) == [("ran", "search"), ("ran", "search"), ("speaks", "search")]
    assert "already passed in this turn" in result.walked[-1].why


def test_the_end_completes_the_route_and_keeps_its_data() -> None:
    route = make_booking_route()
    conversation = FlowConversation(route)
    conversation.take_turn(route, to="Rome", day=DAY, seats=2)
    result = conversation.take_turn()
    assert result.ended
    assert result.route is route
    assert conversation.session.current_route is None
    assert conversation.session.extracted["to"] == "Rome"
    assert conversation.take_turn(scores={route: 74}).route is None
    assert conversation.take_turn(scores={route: 75}).missing == ("to",)


def test_a_detour_leaves_a_route_unchanged_and_returns_to_it() -> None:
    book, tell = make_booking_route(), make_weather_route()
    conversation = FlowConversation(book, tell)
    conversation.take_turn(book, to="Rome", day=DAY, seats=2)
    assert conversation.take_turn(tell, city="Rome").route is tell
    assert conversation.session.extracted == {"city": "Rome"}
    result = conversation.take_turn(book)
    assert actions(result) == [("speaks", "Offer the flights")]
    assert "the route is resumed" in result.walked[-1].why
    assert conversation.session.extracted["day"] == DAY
    assert len(conversation.ran) == 1


def test_a_value_stated_during_a_detour_is_known_on_return() -> None:
    book, tell = make_booking_route(), make_weather_route()
    conversation = FlowConversation(book, tell)
    conversation.take_turn(book, to="Rome", day=DAY)
    conversation.take_turn(tell)
    interpretation = Interpretation(scores={tell.id: 90}, data={book.id: {"seats": 2}, tell.id: {"city": "Rome"}})
    with pytest.raises(StopIteration) as stop:
        next(move(conversation.routes, conversation.session, interpretation, NOW))
    conversation.session = stop.value.value.session
    conversation.take_turn(book)
    assert conversation.state_title == "Offer the flights"


def test_a_completed_route_starts_again_without_progress() -> None:
    book, tell = make_booking_route(), make_weather_route()
    conversation = FlowConversation(book, tell)
    conversation.take_turn(tell, city="Rome")
    conversation.take_turn(tell)
    assert conversation.take_turn(tell).missing == ("city",)
    assert conversation.session.progress.runs == {}


def test_initial_data_is_known_from_the_start_and_never_modified() -> None:
    route = Route("Book", gather_schema=Flight, initial_data={"to": "Rome", "seats": "2"})
    ask = route.initial_state.transition_to(chat_state="Ask", gather=["to", "seats"])
    ask.transition_to(chat_state="Go on")
    conversation = FlowConversation(route)
    conversation.take_turn(seats=3)
    assert (conversation.state_title, conversation.session.extracted["seats"]) == ("Go on", 3)
    assert route.initial_data["seats"] == 2


def test_a_session_leaves_a_route_that_no_longer_exists() -> None:
    route = make_booking_route()
    session = replace(create_session("web-42"), current_route=CurrentRoute("gone", "Gone", NOW), extracted={"x": 1})
    conversation = FlowConversation(route)
    conversation.session = session
    result = conversation.take_turn(scores={})
    assert (result.route, conversation.session.current_route) == (None, None)
    assert conversation.session.paused_routes["gone"].extracted == {"x": 1}
    assert conversation.take_turn(route).missing == ("to",)


def test_a_removed_current_state_restarts_the_route_with_its_data() -> None:
    route = make_booking_route()
    conversation = FlowConversation(route)
    conversation.take_turn(route, to="Rome")
    conversation.session = replace(conversation.session, current_state=CurrentState("gone", "Gone", NOW))
    assert conversation.take_turn().missing == ("day", "seats")


@pytest.mark.parametrize("option", ["skip_if", "condition"])
def test_an_exception_in_application_code_is_reported_with_its_state(option: str) -> None:
    def broken(data: Mapping[str, Any]) -> bool:
        return bool(data["nothing"])

    route = Route("Book", gather_schema=Flight)
    code: Any = {option: broken}
    route.initial_state.transition_to(chat_state="Ask where to", **code)
    with pytest.raises(FlowError, match="nothing") as caught:
        FlowConversation(route).take_turn()
    assert "'Book'" in caught.value.place
    assert option != "skip_if" or "'Ask where to'" in caught.value.place


def test_application_code_cannot_change_the_data() -> None:
    def greedy(data: Any) -> bool:
        data["to"] = "Oslo"
        return True

    route = Route("Book", gather_schema=Flight)
    route.initial_state.transition_to(chat_state="Ask", skip_if=greedy)
    with pytest.raises(FlowError, match="TypeError"):
        FlowConversation(route).take_turn()


def test_a_route_without_states_speaks_at_its_start() -> None:
    route = Route("Listen")
    result = FlowConversation(route).take_turn()
    assert result.state is route.initial_state


def test_without_routes_the_move_has_no_state() -> None:
    with pytest.raises(StopIteration) as stop:
        next(move({}, create_session("web-42"), Interpretation(scores={}), NOW))
    result: MoveResult = stop.value.value
    assert (result.route, result.state, result.walked) == (None, None, ())
