"""A change of mind: what it concerns is walked again, what it does not concern stays as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel

from tellback.agent.definitions.route import Route
from tellback.agent.definitions.state import END_ROUTE, State
from tellback.agent.flow.move import Interpretation, ToolRunResult, move
from tellback.agent.sessions.session import CurrentState, ToolRun
from tests.unit.agent.flow.route_strategies import NOW, WAITS, FlowConversation


class Trip(BaseModel):
    to: str
    day: date
    seats: int
    kind: str
    name: str
    note: str | None = None


ALL: Mapping[str, Any] = {"to": "Rome", "day": date(2026, 12, 1), "seats": 2, "kind": "private", "name": "Maya"}


def search(to: str) -> str:
    """Find flights."""
    return to


def price(seats: int) -> str:
    """Work out the price."""
    return str(seats)


def charge(name: str) -> str:
    """Charge a card."""
    return name


def make_trip_route() -> tuple[Route, State]:
    """A route, and its state that asks for everything."""
    route = Route("Plan a trip", gather_schema=Trip)
    return route, route.initial_state.transition_to(chat_state="Ask", gather=["to", "day", "seats", "kind", "name"])


def test_a_tool_whose_value_was_corrected_runs_again_and_the_others_are_kept() -> None:
    route, ask = make_trip_route()
    ask.transition_to(tool_state=search).transition_to(tool_state=price).transition_to(chat_state="Offer")
    conversation = FlowConversation(route)
    conversation.take_turn(**ALL)
    result = conversation.take_turn(to="Oslo")
    assert [(step.action, step.state) for step in result.walked][-3:] == [
        ("ran", "search"),
        ("kept", "price"),
        ("speaks", "Offer"),
    ]
    assert conversation.ran == [("search", {"to": "Rome"}), ("price", {"seats": 2}), ("search", {"to": "Oslo"})]
    assert result.changed == ("to",)


def test_the_same_value_again_is_no_correction() -> None:
    route, ask = make_trip_route()
    ask.transition_to(tool_state=search).transition_to(chat_state="Offer").transition_to(state=END_ROUTE)
    conversation = FlowConversation(route)
    conversation.take_turn(**ALL)
    result = conversation.take_turn(to="Rome")
    assert (result.changed, result.ended) == ((), True)


def test_a_correction_that_concerns_no_state_makes_the_current_one_speak_again() -> None:
    route, ask = make_trip_route()
    ask.transition_to(tool_state=search).transition_to(chat_state="Offer").transition_to(state=END_ROUTE)
    conversation = FlowConversation(route)
    conversation.take_turn(**ALL)
    result = conversation.take_turn(name="Leo")
    assert (conversation.state_title, result.ended, len(conversation.ran)) == ("Offer", False, 1)


def test_a_forgotten_field_is_asked_for_again() -> None:
    route, ask = make_trip_route()
    ask.transition_to(tool_state=search).transition_to(chat_state="Offer")
    conversation = FlowConversation(route)
    conversation.take_turn(**ALL)
    assert conversation.take_turn(forget=["to"]).missing == ("to",)
    assert (conversation.state_title, len(conversation.ran)) == ("Ask", 1)
    conversation.take_turn(to="Oslo")
    assert (conversation.state_title, conversation.ran[-1]) == ("Offer", ("search", {"to": "Oslo"}))


def test_a_branch_that_code_would_now_decide_otherwise_is_taken_anew() -> None:
    route, ask = make_trip_route()
    ask.transition_to(chat_state="Company", condition=lambda data: data["kind"] == "business")
    ask.transition_to(chat_state="Person")
    conversation = FlowConversation(route)
    conversation.take_turn(**ALL)
    assert conversation.state_title == "Person"
    conversation.take_turn(kind="business")
    assert conversation.state_title == "Company"
    conversation.take_turn(kind="private")
    assert conversation.state_title == "Person"


def test_a_branch_chosen_in_words_is_not_undone_by_a_correction() -> None:
    route, ask = make_trip_route()
    ask.transition_to(chat_state="Hurry", condition="the user is in a hurry")
    ask.transition_to(chat_state="Leisure")
    conversation = FlowConversation(route)
    conversation.take_turn(holds=["the user is in a hurry"], **ALL)
    conversation.take_turn(to="Oslo")
    assert conversation.state_title == "Hurry"


def test_a_branch_chosen_in_words_is_kept_when_a_tool_before_it_runs_again() -> None:
    route, ask = make_trip_route()
    found = ask.transition_to(tool_state=search)
    found.transition_to(chat_state="Offer the fastest", condition="the user is in a hurry")
    found.transition_to(chat_state="Offer the cheapest")
    conversation = FlowConversation(route)
    conversation.take_turn(holds=["the user is in a hurry"], **ALL)
    conversation.take_turn(to="Oslo")
    assert (conversation.state_title, len(conversation.ran)) == ("Offer the fastest", 2)


def test_what_holds_now_does_not_redo_a_branch_that_was_taken_before() -> None:
    route, ask = make_trip_route()
    insure = ask.transition_to(chat_state="Offer insurance")
    insure.transition_to(chat_state="Insure", condition="the user agrees")
    insure.transition_to(chat_state="Confirm").transition_to(state=END_ROUTE, condition="the user agrees")
    conversation = FlowConversation(route)
    conversation.take_turn(**ALL)
    conversation.take_turn()
    assert conversation.state_title == "Confirm"
    conversation.take_turn(to="Oslo", holds=["the user agrees"])
    assert conversation.state_title == "Confirm"


def test_of_two_ways_to_one_state_the_one_in_words_holds_it() -> None:
    route, ask = make_trip_route()
    group = ask.transition_to(chat_state="Offer a group price", condition=lambda data: data["seats"] > 5)
    ask.transition_to(state=group, condition="the user is a member")
    ask.transition_to(chat_state="Offer the price")
    conversation = FlowConversation(route)
    conversation.take_turn(holds=["the user is a member"], **ALL)
    conversation.take_turn(name="Leo")
    assert conversation.state_title == "Offer a group price"


def test_a_branch_whose_target_lacked_data_is_no_reason_to_go_back() -> None:
    route, ask = make_trip_route()
    ask.transition_to(chat_state="Read the note", condition=lambda data: True, required_data=["note"])
    ask.transition_to(chat_state="First").transition_to(chat_state="Second")
    conversation = FlowConversation(route)
    conversation.take_turn(**ALL)
    conversation.take_turn()
    conversation.take_turn(name="Leo")
    assert conversation.state_title == "Second"


def test_a_state_that_code_passed_without_its_field_is_no_reason_to_go_back() -> None:
    route = Route("Plan a trip", gather_schema=Trip)
    ask = route.initial_state.transition_to(chat_state="Ask", gather=["to", "kind"])
    name = ask.transition_to(chat_state="Ask who", gather=["name"], skip_if=lambda data: data["kind"] == "anonymous")
    name.transition_to(chat_state="First").transition_to(chat_state="Second")
    conversation = FlowConversation(route)
    conversation.take_turn(to="Rome", kind="anonymous")
    conversation.take_turn()
    conversation.take_turn(to="Oslo")
    assert conversation.state_title == "Second"


def test_a_state_that_code_passed_asks_when_a_correction_undoes_that() -> None:
    route = Route("Plan a trip", gather_schema=Trip)
    ask = route.initial_state.transition_to(chat_state="Ask", gather=["to", "kind"])
    name = ask.transition_to(chat_state="Ask who", gather=["name"], skip_if=lambda data: data["kind"] == "anonymous")
    name.transition_to(chat_state="First")
    conversation = FlowConversation(route)
    conversation.take_turn(to="Rome", kind="anonymous")
    assert conversation.take_turn(kind="private").missing == ("name",)


def test_a_tool_that_code_passed_runs_when_a_correction_undoes_that() -> None:
    route, ask = make_trip_route()
    price_state = ask.transition_to(tool_state=price, skip_if=lambda data: data["seats"] < 5)
    price_state.transition_to(chat_state="Offer")
    conversation = FlowConversation(route)
    conversation.take_turn(**ALL)
    conversation.take_turn(seats=6)
    assert conversation.ran == [("price", {"seats": 6})]


def test_the_result_of_a_tool_that_code_passes_now_is_not_on_the_path() -> None:
    route, ask = make_trip_route()
    price_state = ask.transition_to(tool_state=search).transition_to(
        tool_state=price, skip_if=lambda data: data["seats"] < 5
    )
    offer = price_state.transition_to(chat_state="Offer")
    conversation = FlowConversation(route)
    conversation.take_turn(**{**ALL, "seats": 6})
    conversation.take_turn(to="Oslo", seats=2)
    path, runs = conversation.session.progress.path, conversation.session.progress.runs
    assert conversation.state_title == "Offer"
    assert offer.id in path
    assert [runs[id].tool for id in path if id in runs] == ["search"]


def test_a_tool_that_code_passed_for_a_while_runs_with_what_is_known_when_it_is_reached_again() -> None:
    route, ask = make_trip_route()
    price_state = ask.transition_to(tool_state=price, skip_if=lambda data: data["kind"] == "free")
    price_state.transition_to(chat_state="Offer")
    conversation = FlowConversation(route)
    conversation.take_turn(**ALL)
    conversation.take_turn(kind="free", seats=6)
    conversation.take_turn(kind="private")
    assert conversation.ran == [("price", {"seats": 2}), ("price", {"seats": 6})]


def test_a_correction_made_on_a_detour_is_followed_on_coming_back() -> None:
    route, ask = make_trip_route()
    ask.transition_to(tool_state=search).transition_to(chat_state="Offer")
    other = Route("Chat", conditions=["the user chats"])
    conversation = FlowConversation(route, other)
    conversation.take_turn(route, **ALL)
    conversation.take_turn(other)
    interpretation = Interpretation(scores={other.id: 90}, data={route.id: {"to": "Oslo"}})
    with pytest.raises(StopIteration) as stop:
        next(move(conversation.routes, conversation.session, interpretation, NOW))
    conversation.session = stop.value.value.session
    conversation.take_turn(route)
    assert conversation.ran == [("search", {"to": "Rome"}), ("search", {"to": "Oslo"})]


def test_a_tool_that_may_not_repeat_is_not_run_again_by_a_correction() -> None:
    route, ask = make_trip_route()
    ask.transition_to(tool_state=charge, repeat=False).transition_to(chat_state="Thank")
    conversation = FlowConversation(route)
    conversation.take_turn(**ALL)
    conversation.take_turn(name="Leo")
    assert conversation.ran == [("charge", {"name": "Maya"})]


def test_a_charge_is_not_repeated_when_a_correction_goes_back_to_a_question_before_it() -> None:
    route, ask = make_trip_route()
    offer = ask.transition_to(tool_state=search).transition_to(chat_state="Offer")
    offer.transition_to(tool_state=charge, repeat=False).transition_to(chat_state="Thank")
    conversation = FlowConversation(route)
    conversation.take_turn(**ALL)
    conversation.take_turn()
    conversation.take_turn(to="Oslo")
    assert conversation.state_title == "Offer"
    conversation.take_turn()
    assert conversation.state_title == "Thank"
    assert [name for name, _ in conversation.ran] == ["search", "charge", "search"]


def test_a_charge_is_not_repeated_when_the_current_state_is_gone() -> None:
    route, ask = make_trip_route()
    ask.transition_to(tool_state=charge, repeat=False).transition_to(chat_state="Thank")
    conversation = FlowConversation(route)
    conversation.take_turn(**ALL)
    conversation.session = replace(conversation.session, current_state=CurrentState("gone", "Gone", NOW))
    conversation.take_turn()
    assert (conversation.state_title, len(conversation.ran)) == ("Thank", 1)


def test_a_call_that_waits_is_not_taken_for_done_when_a_correction_goes_back() -> None:
    route, ask = make_trip_route()
    ask.transition_to(tool_state=search).transition_to(tool_state=charge).transition_to(chat_state="Thank")
    conversation = FlowConversation(route, charge=WAITS)
    conversation.take_turn(**ALL)
    assert conversation.session.pending_calls
    result = conversation.take_turn(to="Oslo")
    assert [(step.action, step.state) for step in result.walked][-3:-1] == [("ran", "search"), ("waits", "charge")]
    assert conversation.session.pending_calls


def test_a_call_that_waits_is_made_anew_when_its_value_is_corrected() -> None:
    route, ask = make_trip_route()
    ask.transition_to(tool_state=charge, repeat=False).transition_to(chat_state="Thank")
    conversation = FlowConversation(route, charge=WAITS)
    conversation.take_turn(**ALL)
    conversation.take_turn(name="Leo")
    assert [each.call.input for each in conversation.session.pending_calls] == [{"name": "Leo"}]


def test_a_tool_that_rewrites_its_own_value_is_not_run_again_by_another_correction() -> None:
    def normalised(run: ToolRun) -> ToolRunResult:
        return ToolRunResult(run, data={"to": "FCO"})

    route, ask = make_trip_route()
    ask.transition_to(tool_state=search).transition_to(chat_state="First").transition_to(chat_state="Second")
    conversation = FlowConversation(route, search=normalised)
    conversation.take_turn(**ALL)
    conversation.take_turn()
    conversation.take_turn(name="Leo")
    assert (conversation.state_title, len(conversation.ran)) == ("Second", 1)


def test_a_tool_fed_by_another_runs_again_with_what_that_one_gives_now() -> None:
    def record_run(run: ToolRun) -> ToolRunResult:
        return ToolRunResult(run, f"for {run.arguments['to']}")

    route, ask = make_trip_route()
    found = ask.transition_to(tool_state=search, save_as="note")
    found.transition_to(tool_state=charge, arguments={"name": "note"}).transition_to(chat_state="Thank")
    conversation = FlowConversation(route, search=record_run)
    conversation.take_turn(**ALL)
    conversation.take_turn(to="Oslo")
    assert [arguments["name"] for name, arguments in conversation.ran if name == "charge"] == ["for Rome", "for Oslo"]


def test_a_tool_is_not_run_again_without_the_data_it_requires() -> None:
    route = Route("Plan a trip", gather_schema=Trip, initial_data={"to": "Rome"})
    found = route.initial_state.transition_to(chat_state="Greet").transition_to(tool_state=search, required_data=["to"])
    found.transition_to(chat_state="Offer", gather=["note"]).transition_to(chat_state="Thank")
    conversation = FlowConversation(route)
    conversation.take_turn()
    conversation.take_turn()
    conversation.take_turn(forget=["to"])
    assert conversation.ran == [("search", {"to": "Rome"})]


def test_arguments_that_a_function_makes_are_seen_to_grow_with_a_correction() -> None:
    def arguments(data: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"seats": data["seats"]} if data["kind"] == "group" else {}

    route, ask = make_trip_route()
    ask.transition_to(tool_state=price, arguments=arguments).transition_to(chat_state="Offer")
    conversation = FlowConversation(route)
    conversation.take_turn(**ALL)
    conversation.take_turn(kind="group")
    assert conversation.ran == [("price", {}), ("price", {"seats": 2})]
