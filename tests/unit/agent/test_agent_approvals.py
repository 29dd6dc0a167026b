"""Tool calls that need approval: waiting, approval with and without changed arguments, and denial."""

from __future__ import annotations

from typing import Any

import pytest

from tellback.agent import Agent
from tellback.chat.approval import Approval
from tellback.errors import AlreadyDecidedError, FlowError, InvalidArgumentError
from tellback.testing import ScriptedModel, says, understands
from tellback.tools import tool
from tests.unit.agent.order_shop import build_order_agent
from tests.unit.agent.travel_setup import reply_prompt, respond


def make_refund_agent(paid: list[Any], **fields: Any) -> Agent:
    @tool(requires_approval=True)
    def refund(order: str) -> str:
        """Pay back."""
        paid.append(order)
        return "paid back"

    return build_order_agent(refund, **fields)[0]


async def test_a_call_that_needs_approval_waits() -> None:
    paid: list[Any] = []
    agent = make_refund_agent(paid)
    response = await respond(agent, "A1", None, understands(order="A1"), says("I have asked"))
    assert paid == []
    [pending] = response.pending
    assert (pending.name, pending.input) == ("refund", {"order": "A1"})
    assert "waits for a person's approval" in reply_prompt(agent)
    assert response.tool_calls == ()
    later = await respond(agent, "And?", response.session, understands(), says("Still waiting"))
    assert paid == []
    assert [call.id for call in later.pending] == [pending.id]


async def test_an_approved_call_runs_and_the_route_continues() -> None:
    paid: list[Any] = []
    agent = make_refund_agent(paid)
    first = await respond(agent, "A1", None, understands(order="A1"), says("I have asked"))
    [pending] = first.pending
    second = await respond(agent, None, first.session, says("It is paid back"), approvals={pending.id: True})
    assert paid == ["A1"]
    assert second.pending == ()
    assert second.state is not None
    assert second.state.description == "Tell the outcome"
    assert second.trace.model_calls == 1
    assert [call.id for call in second.tool_calls] == [pending.id]


async def test_an_approval_can_be_used_only_once() -> None:
    paid: list[Any] = []
    agent = make_refund_agent(paid)
    first = await respond(agent, "A1", None, understands(order="A1"), says("I have asked"))
    [pending] = first.pending
    second = await respond(agent, None, first.session, says("Paid back"), approvals={pending.id: True})
    agent.model = model = ScriptedModel([])
    for session in (second.session, first.session):
        with pytest.raises(AlreadyDecidedError):
            await agent.respond(session=session, approvals={pending.id: True})
    assert paid == ["A1"]
    assert model.requests == []


async def test_a_denied_call_does_not_run_and_the_reason_is_in_the_prompt() -> None:
    paid: list[Any] = []
    agent = make_refund_agent(paid)
    first = await respond(agent, "A1", None, understands(order="A1"), says("I have asked"))
    decision = {first.pending[0].id: Approval(False, reason="too old")}
    second = await respond(agent, None, first.session, says("It was denied"), approvals=decision)
    assert paid == []
    assert second.tool_calls[0].is_error
    assert "too old" in reply_prompt(agent)
    assert second.pending == ()


async def test_an_approval_with_changed_arguments_runs_with_them() -> None:
    paid: list[Any] = []
    agent = make_refund_agent(paid)
    first = await respond(agent, "A1", None, understands(order="A1"), says("I have asked"))
    decision = {first.pending[0].id: Approval(True, input={"order": "B2"})}
    second = await respond(agent, None, first.session, says("Paid"), approvals=decision)
    assert paid == ["B2"]
    assert second.tool_calls[0].arguments == {"order": "B2"}
    assert 'refund({"order":"B2"}) returned: paid back' in reply_prompt(agent)


async def test_a_correction_replaces_the_waiting_call() -> None:
    paid: list[Any] = []
    agent = make_refund_agent(paid)
    first = await respond(agent, "A1", None, understands(order="A1"), says("I have asked"))
    second = await respond(agent, "I mean B2", first.session, understands(order="B2"), says("I have asked for B2"))
    [pending] = second.pending
    assert pending.input == {"order": "B2"}
    with pytest.raises(InvalidArgumentError):
        await agent.respond(session=second.session, approvals={first.pending[0].id: True})
    await respond(agent, None, second.session, says("Paid"), approvals={pending.id: True})
    assert paid == ["B2"]


async def test_a_call_that_cannot_run_is_not_submitted_for_approval() -> None:
    @tool(requires_approval=True)
    def pay(order: str, note: str) -> str:
        """Pay."""
        return "paid"

    agent, _ = build_order_agent(pay)
    response = await respond(agent, "A1", None, understands(order="A1"), says("I have no note"))
    assert response.pending == ()
    assert "note" in reply_prompt(agent)


async def test_a_waiting_call_of_a_paused_route_can_be_decided() -> None:
    paid: list[Any] = []
    agent = make_refund_agent(paid)
    other = agent.create_route(title="Chat", conditions=["the user chats"])
    other.initial_state.transition_to(chat_state="Chat")
    order = next(route for route in agent.routes if route.title == "Order")
    first = await respond(agent, "A1", None, understands(route=order, order="A1"), says("I have asked"))
    detour = await respond(agent, "Nice day", first.session, understands(route=other), says("Yes"))
    assert detour.route is not None
    assert detour.route.title == "Chat"
    approved = await respond(agent, None, detour.session, says("Paid back"), approvals={first.pending[0].id: True})
    assert paid == ["A1"]
    assert approved.route is not None
    assert approved.route.title == "Order"


async def test_a_model_tool_that_needs_approval_requires_a_memory() -> None:
    @tool(requires_approval=True)
    def refund(order: str) -> str:
        """Pay back."""
        return "paid back"

    agent = Agent("Shop", tools=[refund], model=ScriptedModel([]))
    with pytest.raises(FlowError, match="refund, which needs approval"):
        await agent.respond("Hi")
