"""Tool states: their arguments, their results, and the transitions after a failure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import BaseModel

from tellback.agent.definitions.route import Route
from tellback.agent.definitions.state import State
from tellback.agent.flow.move import MoveResult, ToolRunResult, retry_condition
from tellback.agent.sessions.session import ToolRun
from tellback.errors import FlowError
from tests.unit.agent.flow.route_strategies import WAITS, FlowConversation


class Order(BaseModel):
    item: str
    count: int
    total: float | None = None
    code: str | None = None


def price(item: str, count: int) -> float:
    """Work out a price."""
    return len(item) * float(count)


def make_order_route(**options: Any) -> tuple[Route, State]:
    """Return a route that computes a price, and its tool state."""
    route = Route("Order", gather_schema=Order)
    ask = route.initial_state.transition_to(chat_state="Ask", gather=["item", "count"])
    return route, ask.transition_to(tool_state=price, **options)


def actions(result: MoveResult) -> list[tuple[str, str]]:
    return [(step.action, step.state) for step in result.walked]


def test_save_as_stores_the_result_in_its_field() -> None:
    route, found = make_order_route(save_as="total")
    found.transition_to(chat_state="Tell the price")
    conversation = FlowConversation(route, price="12.50")
    conversation.take_turn(item="tea", count=2)
    assert conversation.session.extracted["total"] == 12.5
    assert conversation.session.progress.runs[found.id].content == "12.50"


def test_a_result_that_does_not_fit_its_field_fails_and_stores_no_values() -> None:
    def gives(run: ToolRun) -> ToolRunResult:
        return ToolRunResult(run, "a lot", {"code": "A1"}, {"shop": 3})

    route, found = make_order_route(save_as="total")
    found.transition_to(chat_state="Tell the price")
    conversation = FlowConversation(route, price=gives)
    result = conversation.take_turn(item="tea", count=2)
    assert actions(result)[-2:] == [("failed", "price"), ("speaks", "price")]
    assert conversation.session.extracted == {"item": "tea", "count": 2}
    assert conversation.session.context == {}
    error = conversation.session.progress.runs[found.id].error
    assert error is not None
    assert "total" in error


@pytest.mark.parametrize("data", [{"count": "many"}, {"nowhere": 1}])
def test_an_update_that_does_not_fit_makes_the_tool_fail(data: Mapping[str, Any]) -> None:
    route, found = make_order_route()
    found.transition_to(chat_state="Sorry", on_error=True)
    conversation = FlowConversation(route, price=lambda run: ToolRunResult(run, 1, data))
    conversation.take_turn(item="tea", count=2)
    assert (conversation.state_title, conversation.session.extracted) == ("Sorry", {"item": "tea", "count": 2})


def test_an_update_changes_data_and_context_and_none_removes_a_field() -> None:
    route, found = make_order_route(save_as="total")
    found.transition_to(chat_state="Tell")
    conversation = FlowConversation(
        route, price=lambda run: ToolRunResult(run, 3, {"code": "A1", "count": None}, {"shop": 3})
    )
    conversation.take_turn(item="tea", count=2)
    assert conversation.session.extracted == {"item": "tea", "code": "A1", "total": 3.0}
    assert conversation.session.context == {"shop": 3}


def test_an_update_of_the_saved_field_takes_precedence() -> None:
    route, found = make_order_route(save_as="total")
    found.transition_to(chat_state="Tell")
    conversation = FlowConversation(route, price=lambda run: ToolRunResult(run, 3, {"total": 4}))
    conversation.take_turn(item="tea", count=2)
    assert conversation.session.extracted["total"] == 4.0


def test_arguments_are_mapped_from_fields_or_built_by_a_function() -> None:
    route, found = make_order_route(arguments={"item": "code", "count": "count"})
    found.transition_to(tool_state=price, arguments=lambda data: {"item": data["item"] * 2}, id="again")
    conversation = FlowConversation(route)
    conversation.take_turn(item="tea", count=2, code="A1")
    assert conversation.ran == [("price", {"item": "A1", "count": 2}), ("price", {"item": "teatea"})]


@pytest.mark.parametrize("broken", [lambda data: data["nothing"], lambda data: 5, lambda data: None])
def test_a_failing_argument_function_is_reported_with_its_state(broken: Any) -> None:
    route, found = make_order_route(arguments=broken)
    with pytest.raises(FlowError, match="arguments") as caught:
        FlowConversation(route).take_turn(item="tea", count=2)
    assert caught.value.place == found.place


def test_a_failure_takes_the_on_error_transition() -> None:
    route, found = make_order_route()
    found.transition_to(chat_state="Tell")
    found.transition_to(chat_state="Sorry", on_error=True)
    assert actions(FlowConversation(route, price=ValueError("closed")).take_turn(item="tea", count=2))[-2:] == [
        ("failed", "price"),
        ("speaks", "Sorry"),
    ]
    conversation = FlowConversation(route)
    conversation.take_turn(item="tea", count=2)
    assert conversation.state_title == "Tell"


def test_on_error_transitions_may_have_conditions() -> None:
    route, found = make_order_route()
    found.transition_to(chat_state="Sorry", on_error=True)
    found.transition_to(chat_state="Call us", on_error=True, condition=lambda data: data["count"] > 5)
    conversation = FlowConversation(route, price=ValueError("closed"))
    conversation.take_turn(item="tea", count=6)
    assert conversation.state_title == "Call us"


def test_a_failed_tool_runs_again_only_with_new_arguments_or_on_request() -> None:
    route, found = make_order_route()
    found.transition_to(chat_state="Tell")
    conversation = FlowConversation(route, price=ValueError("closed"))
    conversation.take_turn(item="tea", count=2)
    assert conversation.state_title == "price"
    assert actions(conversation.take_turn()) == [("speaks", "price")]
    assert len(conversation.ran) == 1
    conversation.take_turn(holds=[retry_condition(found)])
    assert len(conversation.ran) == 2
    conversation.take_turn(count=3)
    assert conversation.ran[-1] == ("price", {"item": "tea", "count": 3})
    conversation.tools.clear()
    conversation.take_turn(holds=[retry_condition(found)])
    assert (conversation.state_title, len(conversation.ran)) == ("Tell", 4)


def test_a_retry_request_works_together_with_another_correction() -> None:
    route, found = make_order_route()
    found.transition_to(chat_state="Tell")
    conversation = FlowConversation(route, price=ValueError("closed"))
    conversation.take_turn(item="tea", count=2, code="A1")
    conversation.tools.clear()
    conversation.take_turn(code="B2", holds=[retry_condition(found)])
    assert (conversation.state_title, len(conversation.ran)) == ("Tell", 2)


def test_a_failed_tool_runs_again_when_a_missing_value_is_stated() -> None:
    route = Route("Order", gather_schema=Order)
    route.initial_state.transition_to(tool_state=price).transition_to(chat_state="Tell")
    conversation = FlowConversation(route, price=ValueError("which item?"))
    conversation.take_turn()
    conversation.tools.clear()
    conversation.take_turn(item="tea", count=2)
    assert (conversation.state_title, conversation.ran[-1]) == ("Tell", ("price", {"item": "tea", "count": 2}))


def test_a_tool_without_an_applicable_transition_runs_once() -> None:
    route, found = make_order_route()
    found.transition_to(chat_state="Tell", condition="the user wants to know")
    conversation = FlowConversation(route)
    conversation.take_turn(item="tea", count=2)
    conversation.take_turn()
    assert (conversation.state_title, len(conversation.ran)) == ("price", 1)
    conversation.take_turn(holds=["the user wants to know"])
    assert (conversation.state_title, len(conversation.ran)) == ("Tell", 1)


def test_a_waiting_call_speaks_until_it_is_decided() -> None:
    route, found = make_order_route()
    found.transition_to(chat_state="Tell")
    conversation = FlowConversation(route, price=WAITS)
    result = conversation.take_turn(item="tea", count=2)
    assert actions(result)[-2:] == [("waits", "price"), ("speaks", "price")]
    assert [each.state_id for each in conversation.session.pending_calls] == [found.id]
    assert actions(conversation.take_turn()) == [("speaks", "price")]
    conversation.tools.clear()
    conversation.take_turn(decides=True)
    assert (conversation.state_title, conversation.session.pending_calls) == ("Tell", ())
    assert conversation.ran == [("price", {"item": "tea", "count": 2})]


def test_a_denied_call_is_a_failure() -> None:
    route, found = make_order_route()
    found.transition_to(chat_state="Tell")
    conversation = FlowConversation(route, price=WAITS)
    conversation.take_turn(item="tea", count=2)
    conversation.tools["price"] = PermissionError("denied")
    result = conversation.take_turn(decides=True)
    assert actions(result) == [("failed", "price"), ("speaks", "price")]
    assert conversation.session.pending_calls == ()
    conversation.tools["price"] = WAITS
    conversation.take_turn(holds=[retry_condition(found)])
    assert conversation.session.pending_calls


def test_a_waiting_call_is_restored_after_a_detour() -> None:
    route, found = make_order_route()
    found.transition_to(chat_state="Tell")
    other = Route("Chat", conditions=["the user chats"])
    conversation = FlowConversation(route, other, price=WAITS)
    conversation.take_turn(route, item="tea", count=2)
    waiting = conversation.session.pending_calls
    conversation.take_turn(other)
    assert conversation.session.pending_calls == ()
    assert actions(conversation.take_turn(route)) == [("speaks", "price")]
    assert conversation.session.pending_calls == waiting


def test_a_skipped_tool_does_not_run() -> None:
    route, found = make_order_route(skip_if=lambda data: data["count"] == 0)
    found.transition_to(chat_state="Tell")
    conversation = FlowConversation(route)
    conversation.take_turn(item="tea", count=0)
    assert (conversation.state_title, conversation.ran) == ("Tell", [])
