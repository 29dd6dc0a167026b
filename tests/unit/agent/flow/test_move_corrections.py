"""Corrections: affected states are walked again, and the rest stays unchanged."""

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
    """Return a route, and its state that asks for all fields."""
    route = Route("Plan a trip", gather_schema=Trip)
    return route, route.initial_state.transition_to(chat_state="Ask", gather=["to", "day", "seats", "kind", "name"])


def test_only_the_tool_with_the_corrected_argument_runs_again() -> None:
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


def test_repeating_the_same_value_is_not_a_correction() -> None:
    route, ask = make_trip_route()
    ask.transition_to(tool_state=search).transition_to(chat_state="Offer").transition_to(state=END_ROUTE)
    conversation = FlowConversation(route)
    conversation.take_turn(**ALL)
    result = conversation.take_turn(to="Rome")
    assert (result.changed, result.ended) == ((), True)


def test_an_unused_correction_makes_the_current_state_speak_again() -> None:
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


def test_a_correction_changes_the_branch_that_code_chooses() -> None:
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


def test_a_correction_keeps_a_branch_whose_condition_is_a_text() -> None:
    route, ask = make_trip_route()
    ask.transition_to(chat_state="Hurry", condition="the user is in a hurry")
    ask.transition_to(chat_state="Leisure")
    conversation = FlowConversation(route)
    conversation.take_turn(holds=["the user is in a hurry"], **ALL)
    conversation.take_turn(to="Oslo")
    assert conversation.state_title == "Hurry"


def test_a_branch_whose_condition_is_a_text_is_kept_when_an_earlier_tool_runs_again() -> None:
    route, ask = make_trip_route()
    found = ask.transition_to(tool_state=search)
    found.transition_to(chat_state="Offer the fastest", condition="the user is in a hurry")
    found.transition_to(chat_state="Offer the cheapest")
    conversation = FlowConversation(route)
    conversation.take_turn(holds=["the user is in a hurry"], **ALL)
    conversation.take_turn(to="Oslo")
    assert (conversation.state_title, len(conversation.ran)) == ("Offer the fastest", 2)


def test_a_condition_that_becomes_true_does_not_change_an_earlier_branch() -> None:
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


def test_a_transition_whose_condition_is_a_text_keeps_its_target_after_a_correction() -> None:
    route, ask = make_trip_route()
    group = ask.transition_to(chat_state="Offer a group price", condition=lambda data: data["seats"] > 5)
    ask.transition_to(state=group, condition="the user is a member")
    ask.transition_to(chat_state="Offer the price")
    conversation = FlowConversation(route)
    conversation.take_turn(holds=["the user is a member"], **ALL)
    conversation.take_turn(name="Leo")
    assert conversation.state_title == "Offer a group price"


def test_a_branch_with_missing_data_does_not_restart_the_walk() -> None:
    route, ask = make_trip_route()
    ask.transition_to(chat_state="Read the note", condition=lambda data: True, required_data=["note"])
    ask.transition_to(chat_state="First").transition_to(chat_state="Second")
    conversation = FlowConversation(route)
    conversation.take_turn(**ALL)
    conversation.take_turn()
    conversation.take_turn(name="Leo")
    assert conversation.state_title == "Second"


def test_a_skipped_state_with_a_missing_field_does_not_restart_the_walk() -> None:
    route = Route("Plan a trip", gather_schema=Trip)
    ask = route.initial_state.transition_to(chat_state="Ask", gather=["to", "kind"])
    name = ask.transition_to(chat_state="Ask who", gather=["name"], skip_if=lambda data: data["kind"] == "anonymous")
    name.transition_to(chat_state="First").transition_to(chat_state="Second")
    conversation = FlowConversation(route)
    conversation.take_turn(to="Rome", kind="anonymous")
    conversation.take_turn()
    conversation.take_turn(to="Oslo")
    assert conversation.state_title == "Second"


def test_a_skipped_state_asks_after_a_correction_makes_skip_if_false() -> None:
    route = Route("Plan a trip", gather_schema=Trip)
    ask = route.initial_state.transition_to(chat_state="Ask", gather=["to", "kind"])
    name = ask.transition_to(chat_state="Ask who", gather=["name"], skip_if=lambda data: data["kind"] == "anonymous")
    name.transition_to(chat_state="First")
    conversation = FlowConversation(route)
    conversation.take_turn(to="Rome", kind="anonymous")
    assert conversation.take_turn(kind="private").missing == ("name",)


def test_a_skipped_tool_runs_after_a_correction_makes_skip_if_false() -> None:
    route, ask = make_trip_route()
    price_state = ask.transition_to(tool_state=price, skip_if=lambda data: data["seats"] < 5)
    price_state.transition_to(chat_state="Offer")
    conversation = FlowConversation(route)
    conversation.take_turn(**ALL)
    conversation.take_turn(seats=6)
    assert conversation.ran == [("price", {"seats": 6})]


def test_a_tool_that_is_skipped_now_is_not_on_the_path() -> None:
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


def test_a_tool_skipped_for_a_while_runs_with_the_current_data_later() -> None:
    route, ask = make_trip_route()
    price_state = ask.transition_to(tool_state=price, skip_if=lambda data: data["kind"] == "free")
    price_state.transition_to(chat_state="Offer")
    conversation = FlowConversation(route)
    conversation.take_turn(**ALL)
    conversation.take_turn(kind="free", seats=6)
    conversation.take_turn(kind="private")
    assert conversation.ran == [("price", {"seats": 2}), ("price", {"seats": 6})]


def test_a_correction_during_a_detour_is_applied_on_return() -> None:
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


def test_a_correction_does_not_rerun_a_tool_with_repeat_false() -> None:
    route, ask = make_trip_route()
    ask.transition_to(tool_state=charge, repeat=False).transition_to(chat_state="Thank")
    conversation = FlowConversation(route)
    conversation.take_turn(**ALL)
    conversation.take_turn(name="Leo")
    assert conversation.ran == [("charge", {"name": "Maya"})]


def test_a_charge_is_not_repeated_when_a_correction_returns_to_an_earlier_question() -> None:
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


def test_a_charge_is_not_repeated_when_the_current_state_was_removed() -> None:
    route, ask = make_trip_route()
    ask.transition_to(tool_state=charge, repeat=False).transition_to(chat_state="Thank")
    conversation = FlowConversation(route)
    conversation.take_turn(**ALL)
    conversation.session = replace(conversation.session, current_state=CurrentState("gone", "Gone", NOW))
    conversation.take_turn()
    assert (conversation.state_title, len(conversation.ran)) == ("Thank", 1)


def test_a_waiting_call_still_waits_after_a_correction() -> None:
    route, ask = make_trip_route()
    ask.transition_to(tool_state=search).transition_to(tool_state=charge).transition_to(chat_state="Thank")
    conversation = FlowConversation(route, charge=WAITS)
    conversation.take_turn(**ALL)
    assert conversation.session.pending_calls
    result = conversation.take_turn(to="Oslo")
    assert [(step.action, step.state) for step in result.walked][-3:-1] == [("ran", "search"), ("waits", "charge")]
    assert conversation.session.pending_calls


def test_a_correction_replaces_the_waiting_call() -> None:
    route, ask = make_trip_route()
    ask.transition_to(tool_state=charge, repeat=False).transition_to(chat_state="Thank")
    conversation = FlowConversation(route, charge=WAITS)
    conversation.take_turn(**ALL)
    conversation.take_turn(name="Leo")
    assert [each.call.input for each in conversation.session.pending_calls] == [{"name": "Leo"}]


def test_a_tool_that_changes_its_own_argument_is_not_run_again() -> None:
    def normalised(run: ToolRun) -> ToolRunResult:
        return ToolRunResult(run, data={"to": "FCO"})

    route, ask = make_trip_route()
    ask.transition_to(tool_state=search).transition_to(chat_state="First").transition_to(chat_state="Second")
    conversation = FlowConversation(route, search=normalised)
    conversation.take_turn(**ALL)
    conversation.take_turn()
    conversation.take_turn(name="Leo")
    assert (conversation.state_title, len(conversation.ran)) == ("Second", 1)


def test_a_tool_runs_again_with_the_new_result_of_another_tool() -> None:
    def record_run(run: ToolRun) -> ToolRunResult:
        return ToolRunResult(run, f"for {run.arguments['to']}")

    route, ask = make_trip_route()
    found = ask.transition_to(tool_state=search, save_as="note")
    found.transition_to(tool_state=charge, arguments={"name": "note"}).transition_to(chat_state="Thank")
    conversation = FlowConversation(route, search=record_run)
    conversation.take_turn(**ALL)
    conversation.take_turn(to="Oslo")
    assert [arguments["name"] for name, arguments in conversation.ran if name == "charge"] == ["for Rome", "for Oslo"]


def test_a_tool_does_not_run_again_without_its_required_data() -> None:
    route = Route("Plan a trip", gather_schema=Trip, initial_data={"to": "Rome"})
    found = route.initial_state.transition_to(chat_state="Greet").transition_to(tool_state=search, required_data=["to"])
    found.transition_to(chat_state="Offer", gather=["note"]).transition_to(chat_state="Thank")
    conversation = FlowConversation(route)
    conversation.take_turn()
    conversation.take_turn()
    conversation.take_turn(forget=["to"])
    assert conversation.ran == [("search", {"to": "Rome"})]


def test_a_tool_runs_again_when_its_argument_function_returns_more() -> None:
    def arguments(data: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"seats": data["seats"]} if data["kind"] == "group" else {}

    route, ask = make_trip_route()
    ask.transition_to(tool_state=price, arguments=arguments).transition_to(chat_state="Offer")
    conversation = FlowConversation(route)
    conversation.take_turn(**ALL)
    conversation.take_turn(kind="group")
    assert conversation.ran == [("price", {}), ("price", {"seats": 2})]
