"""Abandoned branches leave no data behind, and valid tool runs are not repeated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from pydantic import BaseModel, Field

from tellback.agent import Agent
from tellback.agent.definitions.route import Route
from tellback.agent.definitions.state import END_ROUTE
from tellback.agent.flow.interpretation import drop_condition
from tellback.agent.flow.move import ToolRunResult, retry_condition
from tellback.agent.sessions.session import ToolRun
from tellback.testing import Dialogue, says, understands
from tests.unit.agent.flow.route_strategies import WAITS, FlowConversation

ANOTHER = "the user wants another one"


class Sale(BaseModel):
    kind: str
    to: str
    name: str
    day: str
    coupon: str = ""
    vip: bool = False
    price: int = 0
    discount: int = 0
    count: int = 0


def by_kind() -> int:
    return 20


def by_person() -> int:
    return 5


def price(discount: int = 0) -> int:
    return 100 - discount


def quote(to: str, coupon: str = "") -> int:
    return 100


def charge(price: int = 0) -> str:
    return "charged"


def book(to: str) -> str:
    return "booked"


def inform() -> str:
    return "informed"


def is_firm(data: Mapping[str, Any]) -> bool:
    return bool(data["kind"] == "firm")


def return_result(make: Callable[[Mapping[str, Any]], Any]) -> Callable[[ToolRun], ToolRunResult]:
    """Return a tool whose value is computed from its arguments."""
    return lambda run: ToolRunResult(run, make(run.arguments))


def make_sale_route() -> Route:
    return Route("Sell", gather_schema=Sale)


def make_discount_conversation(*, for_people: bool) -> FlowConversation:
    """Return a route with a branch whose tool sets a discount, and a price computed from it."""
    route = make_sale_route()
    ask = route.initial_state.transition_to(chat_state="Ask what kind", gather=["kind"])
    firm = ask.transition_to(tool_state=by_kind, save_as="discount", condition=is_firm)
    price_state = firm.transition_to(tool_state=price)
    if for_people:
        ask.transition_to(tool_state=by_person, save_as="discount").transition_to(state=price_state)
    else:
        ask.transition_to(state=price_state)
    price_state.transition_to(chat_state="Say the price").transition_to(state=END_ROUTE)
    return FlowConversation(route, by_kind=20, by_person=5)


def test_values_set_by_a_tool_of_an_abandoned_branch_are_removed() -> None:
    conversation = make_discount_conversation(for_people=False)
    conversation.take_turn(kind="firm")
    assert conversation.session.extracted == {"kind": "firm", "discount": 20}
    conversation.take_turn(kind="person")
    assert conversation.session.extracted == {"kind": "person"}
    assert conversation.ran == [("by_kind", {}), ("price", {"discount": 20}), ("price", {})]
    assert conversation.state_title == "Say the price"


def test_two_branches_that_set_the_same_field_do_not_mix() -> None:
    conversation = make_discount_conversation(for_people=True)
    for kind, discount in (("firm", 20), ("person", 5), ("firm", 20), ("person", 5)):
        conversation.take_turn(kind=kind)
        assert conversation.session.extracted == {"kind": kind, "discount": discount}
        assert conversation.ran[-1] == ("price", {"discount": discount})
        assert conversation.state_title == "Say the price"
    assert [name for name, _ in conversation.ran].count("by_kind") == 1
    assert [name for name, _ in conversation.ran].count("by_person") == 1


def test_a_failed_second_run_removes_the_values_of_the_first_run() -> None:
    route = make_sale_route()
    ask = route.initial_state.transition_to(chat_state="Ask where to", gather=["to"])
    quote_state = ask.transition_to(tool_state=quote, save_as="price")
    charge_state = quote_state.transition_to(chat_state="Say the price").transition_to(tool_state=charge)
    charge_state.transition_to(chat_state="Thank")
    quote_state.transition_to(chat_state="Reserve without a price?", on_error=True).transition_to(state=charge_state)
    conversation = FlowConversation(route, quote=100)
    conversation.take_turn(to="Rome")
    assert conversation.session.extracted["price"] == 100
    conversation.tools["quote"] = ValueError("no flights")
    conversation.take_turn(to="Oslo")
    assert conversation.session.extracted == {"to": "Oslo"}
    assert conversation.state_title == "Reserve without a price?"
    conversation.take_turn()
    assert conversation.ran[-1] == ("charge", {})


def test_a_value_of_an_earlier_run_is_removed_while_its_tool_is_unreachable() -> None:
    route = make_sale_route()
    ask = route.initial_state.transition_to(chat_state="Ask where to", gather=["to"])
    ask_when = ask.transition_to(chat_state="Ask when", gather=["day"])
    ask_when.transition_to(tool_state=quote, save_as="price").transition_to(chat_state="Say the price")
    conversation = FlowConversation(route, quote=100)
    conversation.take_turn(to="Rome", day="Monday")
    conversation.take_turn(to="Oslo", forget=["day"])
    assert (conversation.state_title, conversation.session.extracted) == ("Ask when", {"to": "Oslo"})


def test_a_late_optional_value_reruns_the_quote_before_the_charge() -> None:
    route = make_sale_route()
    ask = route.initial_state.transition_to(chat_state="Ask where to", gather=["to", "coupon"])
    say_price = ask.transition_to(tool_state=quote, save_as="price").transition_to(chat_state="Say the price")
    say_price.transition_to(tool_state=charge).transition_to(chat_state="Thank")
    conversation = FlowConversation(
        route, quote=return_result(lambda arguments: 50 if arguments.get("coupon") else 100)
    )
    conversation.take_turn()
    conversation.take_turn(to="Rome")
    conversation.take_turn(coupon="X10")
    assert conversation.ran == [("quote", {"to": "Rome"}), ("quote", {"to": "Rome", "coupon": "X10"})]
    assert (conversation.state_title, conversation.session.extracted["price"]) == ("Say the price", 50)
    conversation.take_turn()
    assert conversation.ran[-1] == ("charge", {"price": 50})


def test_a_late_value_makes_code_choose_another_branch() -> None:
    route = make_sale_route()
    ask = route.initial_state.transition_to(chat_state="Ask who", gather=["name", "vip"])
    informed = ask.transition_to(tool_state=inform, condition=lambda data: data.get("vip", False))
    confirm = informed.transition_to(chat_state="Confirm")
    ask.transition_to(state=confirm)
    confirm.transition_to(state=END_ROUTE)
    conversation = FlowConversation(route)
    conversation.take_turn()
    conversation.take_turn(name="Bo")
    assert (conversation.state_title, conversation.ran) == ("Confirm", [])
    result = conversation.take_turn(vip=True)
    assert (conversation.state_title, conversation.ran, result.ended) == ("Confirm", [("inform", {})], False)


def test_a_speaking_state_is_skipped_once_skip_if_becomes_true() -> None:
    route = make_sale_route()
    ask = route.initial_state.transition_to(chat_state="Ask who", gather=["name", "vip"])
    number = ask.transition_to(chat_state="Ask which kind", gather=["kind"], skip_if=lambda data: data.get("vip"))
    number.transition_to(chat_state="Say goodbye").transition_to(state=END_ROUTE)
    conversation = FlowConversation(route)
    conversation.take_turn()
    conversation.take_turn(name="Bo")
    assert conversation.state_title == "Ask which kind"
    conversation.take_turn(vip=True)
    assert conversation.state_title == "Say goodbye"


def with_terms() -> FlowConversation:
    route = make_sale_route()
    ask = route.initial_state.transition_to(chat_state="Ask where to", gather=["to"])
    ask_who = ask.transition_to(chat_state="Ask who", gather=["name"])
    booked = ask_who.transition_to(chat_state="Ask whether the terms are right").transition_to(tool_state=book)
    confirm = booked.transition_to(chat_state="Confirm")
    confirm.transition_to(chat_state="Say goodbye").transition_to(state=END_ROUTE)
    return FlowConversation(route)


def test_taking_back_an_unrelated_value_repeats_no_tool_or_state() -> None:
    conversation = with_terms()
    conversation.take_turn(to="Rome", name="Bo")
    conversation.take_turn()
    assert (conversation.state_title, conversation.ran) == ("Confirm", [("book", {"to": "Rome"})])
    conversation.take_turn(forget=["name"])
    assert conversation.state_title == "Ask who"
    conversation.take_turn(name="Mia")
    assert (conversation.state_title, conversation.ran) == ("Confirm", [("book", {"to": "Rome"})])


@pytest.mark.parametrize("takes_back_first", [False, True])
def test_states_after_a_tool_that_ran_again_speak_again(takes_back_first: bool) -> None:
    conversation = with_terms()
    conversation.take_turn(to="Rome", name="Bo")
    conversation.take_turn()
    conversation.take_turn()
    assert conversation.state_title == "Say goodbye"
    if takes_back_first:
        conversation.take_turn(forget=["to"])
        assert conversation.state_title == "Ask where to"
    result = conversation.take_turn(to="Oslo")
    assert conversation.ran == [("book", {"to": "Rome"}), ("book", {"to": "Oslo"})]
    assert (conversation.state_title, result.ended) == ("Confirm", False)


def make_lap_conversation(*, repeat: bool = True, forgets: tuple[str, ...] = ()) -> FlowConversation:
    """Return a route that books, and starts over if the user wants another one."""
    route = make_sale_route()
    ask = route.initial_state.transition_to(chat_state="Ask where to", gather=["to"])
    booked = ask.transition_to(tool_state=book, repeat=repeat).transition_to(chat_state="Another one?")
    booked.transition_to(state=ask, condition=ANOTHER, forgets=list(forgets))
    booked.transition_to(state=END_ROUTE)
    return FlowConversation(route)


@pytest.mark.parametrize("repeat", [False, True])
def test_a_tool_runs_again_after_the_route_loops(repeat: bool) -> None:
    conversation = make_lap_conversation(repeat=repeat, forgets=("to",))
    conversation.take_turn(to="Rome")
    conversation.take_turn(holds=[ANOTHER])
    assert (conversation.state_title, conversation.session.extracted) == ("Ask where to", {})
    conversation.take_turn(to="Rome")
    conversation.take_turn(holds=[ANOTHER], to="Oslo")
    assert [arguments["to"] for _, arguments in conversation.ran] == ["Rome", "Rome", "Oslo"]
    assert conversation.state_title == "Another one?"
    assert conversation.take_turn().ended


def test_a_tool_with_repeat_false_runs_once_per_loop() -> None:
    conversation = make_lap_conversation(repeat=False, forgets=("to",))
    conversation.take_turn(to="Rome")
    conversation.take_turn(holds=[ANOTHER], to="Oslo")
    conversation.take_turn(to="Bonn")
    assert [arguments["to"] for _, arguments in conversation.ran] == ["Rome", "Oslo"]


def test_forgets_clears_only_its_fields_and_keeps_newly_stated_values() -> None:
    conversation = make_lap_conversation(forgets=("to",))
    conversation.take_turn(to="Rome", name="Bo")
    conversation.take_turn(holds=[ANOTHER], to="Oslo")
    assert conversation.session.extracted == {"to": "Oslo", "name": "Bo"}


def test_each_pass_of_a_loop_has_its_own_data() -> None:
    conversation = make_lap_conversation()
    conversation.take_turn(to="Rome", name="Bo")
    conversation.take_turn(holds=[ANOTHER])
    assert (conversation.state_title, conversation.session.extracted) == ("Ask where to", {"name": "Bo"})


def test_a_counting_tool_continues_from_its_last_value_in_each_loop() -> None:
    def tally(count: int = 0) -> int:
        return count + 1

    route = make_sale_route()
    ask = route.initial_state.transition_to(chat_state="Ask where to", gather=["to"])
    count_state = ask.transition_to(tool_state=tally, save_as="count").transition_to(chat_state="Another one?")
    count_state.transition_to(state=ask, condition=ANOTHER, forgets=["to"])
    count_state.transition_to(state=END_ROUTE)
    conversation = FlowConversation(route, tally=return_result(lambda arguments: arguments.get("count", 0) + 1))
    conversation.take_turn(to="Rome")
    for lap, place in enumerate(("Oslo", "Bonn", "Paris"), 2):
        conversation.take_turn(holds=[ANOTHER], to=place)
        assert conversation.session.extracted == {"to": place, "count": lap}
    conversation.take_turn(name="Bo")
    assert len(conversation.ran) == 4


def test_a_tool_that_acted_is_not_retried_when_its_value_does_not_fit() -> None:
    route = make_sale_route()
    ask = route.initial_state.transition_to(chat_state="Ask where to", gather=["to"])
    booked = ask.transition_to(tool_state=book, save_as="price", repeat=False)
    booked.transition_to(chat_state="Thank").transition_to(state=END_ROUTE)
    conversation = FlowConversation(route, book="R-77")
    result = conversation.take_turn(to="Rome")
    assert "does not fit" in (result.tool_runs[0][1].error or "")
    conversation.take_turn(holds=[retry_condition(booked)])
    conversation.take_turn(to="Oslo")
    assert conversation.ran == [("book", {"to": "Rome"})]
    assert "price" not in conversation.session.extracted


class Party(BaseModel):
    seats: int = Field(ge=1, le=9)
    day: str
    age: int = Field(0, ge=10)


async def test_no_tool_runs_on_a_value_whose_correction_was_rejected() -> None:
    booked: list[int] = []

    def reserve(seats: int, day: str) -> str:
        """Reserve."""
        booked.append(seats)
        return "reserved"

    agent = Agent("Desk")
    route = agent.create_route(title="Reserve", gather_schema=Party)
    ask = route.initial_state.transition_to(chat_state="Ask how many", gather=["seats"])
    ask_when = ask.transition_to(chat_state="Ask when", gather=["day"])
    ask_when.transition_to(tool_state=reserve).transition_to(chat_state="Thank").transition_to(state=END_ROUTE)
    conversation = Dialogue(agent)
    await conversation.says("Two", understands(seats=2), says("When?"))
    await conversation.says("Monday, but we are twelve now", understands(seats=12, day="Monday"), says("Nine at most"))
    conversation.expect(tools=[], completed=False, data={"seats": 2, "day": "Monday"})
    assert booked == []
    await conversation.says("Nine then", understands(seats=9), says("Reserved"))
    conversation.expect(state="Thank", tools=["reserve"])
    assert booked == [9]


async def test_a_route_does_not_end_on_a_value_that_was_rejected() -> None:
    agent = Agent("Desk")
    route = agent.create_route(title="Reserve", gather_schema=Party)
    ask = route.initial_state.transition_to(chat_state="Ask how many", gather=["seats"])
    ask.transition_to(chat_state="Confirm").transition_to(state=END_ROUTE)
    conversation = Dialogue(agent)
    await conversation.says("Two", understands(seats=2), says("Right?"))
    await conversation.says("No, twelve", understands(seats=12), says("Nine at most"))
    conversation.expect(state="Confirm", completed=False, data={"seats": 2})
    await conversation.says("Two is right", understands(), says("Done"))
    conversation.expect(completed=True)


async def test_a_rejected_optional_value_is_asked_for_again() -> None:
    agent = Agent("Desk")
    route = agent.create_route(title="Ask around", gather_schema=Party)
    ask = route.initial_state.transition_to(chat_state="Ask how many", gather=["seats"])
    ask.transition_to(chat_state="Ask how old", gather=["age"]).transition_to(state=END_ROUTE)
    conversation = Dialogue(agent)
    await conversation.says("Two", understands(seats=2), says("How old are you?"))
    await conversation.says("Five", understands(age=5), says("Really?"))
    conversation.expect(state="Ask how old", asks=["age"], completed=False)
    await conversation.says("Sorry, fifty", understands(age=50), says("Thanks"))
    conversation.expect(completed=True, data={"age": 50})


def waiting_in_a_left_route() -> tuple[FlowConversation, Route, Route]:
    pay, chat = make_sale_route(), Route("Chat", conditions=["the user chats"])
    ask = pay.initial_state.transition_to(chat_state="Ask where to", gather=["to"])
    ask.transition_to(tool_state=book).transition_to(chat_state="Thank")
    chat.initial_state.transition_to(chat_state="Chat").transition_to(chat_state="Chat more")
    conversation = FlowConversation(pay, chat, book=WAITS)
    conversation.take_turn(pay, to="Rome")
    assert conversation.session.pending_calls
    return conversation, pay, chat


def test_correcting_a_paused_route_drops_its_waiting_call() -> None:
    conversation, pay, chat = waiting_in_a_left_route()
    conversation.take_turn(chat)
    waiting = conversation.session.paused_routes[pay.id].pending_calls
    conversation.take_turn(pay, scores={chat: 100}, to="Rome")
    assert waiting
    assert conversation.session.paused_routes[pay.id].pending_calls == waiting
    conversation.take_turn(pay, scores={chat: 100}, to="Oslo")
    assert conversation.state_title == "Chat more"
    assert conversation.session.paused_routes[pay.id].pending_calls == ()


def test_a_call_with_corrected_arguments_replaces_the_waiting_one() -> None:
    conversation, pay, chat = waiting_in_a_left_route()
    conversation.take_turn(chat)
    conversation.take_turn(pay, scores={chat: 100}, to="Oslo")
    conversation.take_turn(pay)
    assert [each.call.input for each in conversation.session.pending_calls] == [{"to": "Oslo"}]
    conversation.tools["book"] = "booked"
    conversation.take_turn(decides=True)
    assert (conversation.state_title, conversation.ran) == ("Thank", [("book", {"to": "Oslo"})])


def test_dropping_a_route_drops_its_waiting_call() -> None:
    conversation, pay, _ = waiting_in_a_left_route()
    result = conversation.take_turn(scores={}, holds=[drop_condition(pay)])
    assert result.route is None
    assert conversation.session.pending_calls == ()
    assert conversation.session.paused_routes[pay.id].pending_calls == ()
    assert conversation.session.paused_routes[pay.id].dropped


def test_required_data_of_the_next_state_is_asked_for_where_it_can_be_gathered() -> None:
    route = make_sale_route()
    ask = route.initial_state.transition_to(chat_state="Ask who", gather=["name"])
    send = ask.transition_to(chat_state="Welcome").transition_to(chat_state="Send it", required_data=["to", "price"])
    send.transition_to(chat_state="Correct the place", gather=["to"])
    conversation = FlowConversation(route)
    assert conversation.take_turn(name="Bo").missing == ()
    result = conversation.take_turn()
    assert (conversation.state_title, result.missing) == ("Welcome", ("to",))
