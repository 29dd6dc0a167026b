"""Tool states: when they run, their arguments, their results, and failures."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from tellback import ToolResult
from tellback.agent import Agent, InMemorySessions, SessionState, ToolContext, ToolUpdate, create_session, define_tool
from tellback.testing import says, understands
from tests.unit.agent.order_shop import ORDER, build_order_agent, build_order_finder
from tests.unit.agent.travel_setup import reply_prompt, respond


async def test_a_tool_state_runs_with_gathered_data() -> None:
    found: list[str] = []
    agent, _ = build_order_agent(build_order_finder(found))
    first = await respond(agent, "Hi", None, understands(), says("Which order?"))
    assert found == []
    response = await respond(agent, "A1", first.session, understands(order="A1"), says("It is shipped"))
    assert found == ["A1"]
    assert [(call.name, call.arguments, call.content, call.is_error) for call in response.tool_calls] == [
        ("find", {"order": "A1"}, "shipped", False)
    ]
    assert 'find({"order":"A1"}) returned: shipped' in reply_prompt(agent)


async def test_a_tool_result_stays_in_the_prompts_of_later_turns() -> None:
    agent, route = build_order_agent(build_order_finder([]))
    first = await respond(agent, "A1", None, understands(order="A1"), says("Shipped"))
    second = await respond(agent, "Thanks", first.session, understands(), says("Bye"))
    assert second.completed
    assert second.tool_calls == ()
    assert "returned: shipped" in reply_prompt(agent)
    assert route.title in reply_prompt(agent)


async def test_async_tools_run_in_the_loop_and_sync_tools_in_a_thread() -> None:
    threads: list[int] = []

    def find(order: str) -> str:
        """Find an order."""
        threads.append(threading.get_ident())
        return "shipped"

    async def ship(order: str) -> str:
        """Ship an order."""
        threads.append(threading.get_ident())
        await asyncio.sleep(0)
        return "on its way"

    agent = Agent("Shop")
    route = agent.create_route(title="Order", gather_schema=ORDER)
    (
        route.initial_state.transition_to(chat_state="Ask which order", gather=["order"])
        .transition_to(tool_state=find)
        .transition_to(tool_state=ship)
        .transition_to(chat_state="Tell the outcome")
    )
    response = await respond(agent, "A1", None, understands(order="A1"), says("Done"))
    assert [call.name for call in response.tool_calls] == ["find", "ship"]
    assert threads[0] != threading.get_ident()
    assert threads[1] == threading.get_ident()


async def test_arguments_can_be_mapped_or_built_by_a_function() -> None:
    found: list[str] = []

    def find(number: str) -> str:
        """Find an order."""
        found.append(number)
        return "shipped"

    for arguments in ({"number": "order"}, lambda data: {"number": data["order"].lower()}):
        agent, _ = build_order_agent(find, arguments=arguments)
        await respond(agent, "A1", None, understands(order="A1"), says("Done"))
    assert found == ["A1", "a1"]


async def test_save_as_stores_the_result() -> None:
    agent, _ = build_order_agent(build_order_finder([], 250), save_as="total")
    response = await respond(agent, "A1", None, understands(order="A1"), says("Done"))
    assert response.session.extracted == {"order": "A1", "total": 250}


async def test_a_result_that_does_not_fit_makes_the_tool_fail() -> None:
    agent, route = build_order_agent(build_order_finder([], "much"), save_as="total")
    response = await respond(agent, "A1", None, understands(order="A1"), says("I cannot tell"))
    assert "total" not in response.session.extracted
    [run] = response.session.progress.runs.values()
    assert run.error is not None
    assert "total" in run.error
    assert "failed" in reply_prompt(agent)
    assert route.title in reply_prompt(agent)


async def test_a_tool_receives_context_session_data_and_domains() -> None:
    seen: list[ToolContext] = []

    def find(order: str, ctx: ToolContext) -> str:
        """Find an order."""
        seen.append(ctx)
        return "shipped"

    agent, _ = build_order_agent(
        find, agent=Agent("Shop", context={"user": "maya"}, domains={"payment": {"refund": print}})
    )
    await respond(agent, "A1", create_session("web-42"), understands(order="A1"), says("Done"))
    [ctx] = seen
    assert ctx.context == {"user": "maya"}
    assert ctx.session.id == "web-42"
    assert ctx.session.current_route.title == "Order"
    assert ctx.data == {"order": "A1"}
    assert list(ctx.domains) == ["payment"]


async def test_a_defined_tool_receives_the_context_first() -> None:
    async def handler(ctx: Any, order: str) -> dict[str, Any]:
        return {"order": order, "for": ctx.context["user"]}

    find = define_tool("find_order", handler, description="Find an order.")
    assert find.id.startswith("tool_find_order_")
    assert list(find.parameters["properties"]) == ["order"]
    agent, _ = build_order_agent(find, agent=Agent("Shop", context={"user": "maya"}))
    response = await respond(agent, "A1", None, understands(order="A1"), says("Done"))
    assert response.tool_calls[0].content == '{"order":"A1","for":"maya"}'


async def test_a_state_tool_updates_data_and_context() -> None:
    def find(order: str) -> ToolUpdate:
        """Find an order."""
        return ToolUpdate("shipped", data={"total": "250", "note": None}, context={"tier": "gold"})

    agent, _ = build_order_agent(find, agent=Agent("Shop", context={"tier": "none"}))
    response = await respond(agent, "A1", None, understands(order="A1"), says("Done"))
    assert response.session.extracted == {"order": "A1", "total": 250}
    assert response.session.context == {"tier": "gold"}
    assert response.tool_calls[0].content == "shipped"
    await respond(agent, "Thanks", response.session, understands(), says("Bye"))
    assert "gold" in reply_prompt(agent)


async def test_context_added_by_a_state_tool_is_available_to_the_next_tool() -> None:
    seen: list[Any] = []

    def find(order: str) -> ToolUpdate:
        """Find an order."""
        return ToolUpdate("shipped", context={"tier": "gold"})

    def greet(ctx: ToolContext) -> str:
        """Greet the customer."""
        seen.append(ctx.context)
        return "hello"

    agent = Agent("Shop", context={"tier": "none"})
    route = agent.create_route(title="Order", gather_schema=ORDER)
    (
        route.initial_state.transition_to(chat_state="Ask which order", gather=["order"])
        .transition_to(tool_state=find)
        .transition_to(tool_state=greet)
        .transition_to(chat_state="Tell the outcome")
    )
    await respond(agent, "A1", None, understands(order="A1"), says("Done"))
    assert seen == [{"tier": "gold"}]
    assert "gold" in reply_prompt(agent)


async def test_context_added_by_a_state_tool_fills_templates_of_the_same_turn() -> None:
    def find(order: str) -> ToolUpdate:
        """Find an order."""
        return ToolUpdate("shipped", context={"tier": "gold"})

    agent = Agent("Shop", composition_mode="strict_canned", canned_responses=["Sorry."])
    route = agent.create_route(title="Order", gather_schema=ORDER, canned_responses=["You are {{tier}}."])
    (
        route.initial_state.transition_to(chat_state="Ask which order", gather=["order"])
        .transition_to(tool_state=find)
        .transition_to(chat_state="Tell the outcome")
    )
    response = await respond(agent, "A1", None, understands(order="A1"))
    assert response.message == "You are gold."


async def test_a_failed_tool_is_reported_and_not_run_again_automatically() -> None:
    found: list[str] = []

    def broken(order: str) -> str:
        raise RuntimeError("the warehouse is on fire")

    agent, _ = build_order_agent(build_order_finder(found, broken))
    first = await respond(agent, "A1", None, understands(order="A1"), says("Sorry, it failed"))
    assert "the warehouse is on fire" in reply_prompt(agent)
    assert first.tool_calls[0].is_error
    assert first.state is not None
    assert first.state.description == "find"
    second = await respond(agent, "Hm", first.session, understands(), says("Still failing"))
    assert found == ["A1"]
    assert "the warehouse is on fire" in reply_prompt(agent)
    assert not second.completed


async def test_a_failed_tool_runs_again_if_the_user_wants_it() -> None:
    found: list[str] = []

    def once_broken(order: str) -> str:
        if len(found) == 1:
            raise RuntimeError("busy")
        return "shipped"

    agent, _ = build_order_agent(build_order_finder(found, once_broken))
    first = await respond(agent, "A1", None, understands(order="A1"), says("Busy"))
    retry_reading = understands(holds=["the user wants to try this again: find"])
    second = await respond(agent, "Try again", first.session, retry_reading, says("Shipped"))
    assert found == ["A1", "A1"]
    assert second.state is not None
    assert second.state.description == "Tell the outcome"


async def test_a_failed_tool_runs_again_with_other_values() -> None:
    found: list[str] = []

    def unknown(order: str) -> str:
        if order == "A1":
            raise LookupError("no such order")
        return "shipped"

    agent, _ = build_order_agent(build_order_finder(found, unknown))
    first = await respond(agent, "A1", None, understands(order="A1"), says("No such order"))
    second = await respond(agent, "B2 then", first.session, understands(order="B2"), says("Shipped"))
    assert found == ["A1", "B2"]
    assert second.state is not None
    assert second.state.description == "Tell the outcome"
    assert "no such order" not in reply_prompt(agent)


async def test_a_failure_can_have_its_own_transition() -> None:
    def broken(order: str) -> str:
        raise RuntimeError("on fire")

    agent = Agent("Shop")
    route = agent.create_route(title="Order", gather_schema=ORDER)
    find = route.initial_state.transition_to(chat_state="Ask", gather=["order"]).transition_to(
        tool_state=build_order_finder([], broken)
    )
    find.transition_to(chat_state="Tell the outcome")
    find.transition_to(chat_state="Offer a call back", on_error=True)
    response = await respond(agent, "A1", None, understands(order="A1"), says("Shall we call you?"))
    assert response.state is not None
    assert response.state.description == "Offer a call back"


@pytest.mark.parametrize("failure", [ToolResult(error="lost"), {"data": None, "error": "lost"}], ids=["class", "dict"])
async def test_an_error_that_a_tool_returns_is_a_failure(failure: Any) -> None:
    agent = Agent("Shop")
    route = agent.create_route(title="Order", gather_schema=ORDER)
    find = route.initial_state.transition_to(chat_state="Ask", gather=["order"]).transition_to(
        tool_state=build_order_finder([], failure), save_as="note"
    )
    find.transition_to(chat_state="Tell the outcome")
    find.transition_to(chat_state="Offer a call back", on_error=True)
    response = await respond(agent, "A1", None, understands(order="A1"), says("Shall we call you?"))
    assert response.state is not None
    assert response.state.description == "Offer a call back"
    assert [(call.content, call.is_error) for call in response.tool_calls] == [("lost", True)]
    assert response.session.extracted == {"order": "A1"}
    [run] = response.session.progress.runs.values()
    assert run.error == "lost"


async def test_the_data_of_a_returned_tool_result_is_saved() -> None:
    agent, _ = build_order_agent(build_order_finder([], ToolResult(data=42)), save_as="total")
    response = await respond(agent, "A1", None, understands(order="A1"), says("42"))
    assert response.session.extracted == {"order": "A1", "total": 42}


async def test_a_correction_does_not_rerun_a_tool_with_repeat_false() -> None:
    charged: list[str] = []
    agent, _ = build_order_agent(build_order_finder(charged), repeat=False)
    first = await respond(agent, "A1", None, understands(order="A1"), says("Charged"))
    await respond(agent, "I mean B2", first.session, understands(order="B2"), says("It was charged already"))
    assert charged == ["A1"]


async def test_a_tool_with_missing_arguments_fails_without_running() -> None:
    ran: list[str] = []

    def pay(order: str, note: str) -> str:
        """Pay."""
        ran.append(note)
        return "paid"

    agent, _ = build_order_agent(pay)
    response = await respond(agent, "A1", None, understands(order="A1"), says("I have no note"))
    assert ran == []
    assert response.tool_calls[0].is_error
    assert "note" in (response.tool_calls[0].content or "")


class Flaky(InMemorySessions):
    """A store whose first save fails."""

    def __init__(self) -> None:
        super().__init__()
        self.failures = 1

    async def save(self, session: SessionState, events: Any, **owner: Any) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError("disk full")
        await super().save(session, events, **owner)


async def test_retrying_a_failed_turn_does_not_rerun_its_tools() -> None:
    paid: list[str] = []
    agent, _ = build_order_agent(build_order_finder(paid, "paid back"))
    session = create_session()
    with pytest.raises(OSError, match="down"):
        await respond(agent, "A1", session, understands(order="A1"), OSError("down"))
    response = await respond(agent, "A1", session, understands(order="A1"), says("Paid back"))
    assert paid == ["A1"]
    assert "returned: paid back" in reply_prompt(agent)
    assert [call.name for call in response.tool_calls] == ["find"]


async def test_retrying_a_turn_that_was_not_stored_does_not_rerun_its_tools() -> None:
    paid: list[str] = []
    agent, _ = build_order_agent(build_order_finder(paid, "paid back"), agent=Agent("Shop", persistence=Flaky()))
    with pytest.raises(OSError, match="disk full"):
        await respond(agent, "A1", "web-42", understands(order="A1"), says("Paid back"))
    await respond(agent, "A1", "web-42", understands(order="A1"), says("Paid back"))
    assert paid == ["A1"]


async def test_a_retry_with_other_values_runs_the_tool() -> None:
    found: list[str] = []
    agent, _ = build_order_agent(build_order_finder(found))
    session = create_session()
    with pytest.raises(OSError, match="down"):
        await respond(agent, "A1", session, understands(order="A1"), OSError("down"))
    await respond(agent, "B2", session, understands(order="B2"), says("Shipped"))
    assert found == ["A1", "B2"]


async def test_a_retry_of_the_turn_runs_a_failed_tool_again() -> None:
    found: list[str] = []

    def once_broken(order: str) -> str:
        if len(found) == 1:
            raise RuntimeError("busy")
        return "shipped"

    agent, _ = build_order_agent(build_order_finder(found, once_broken))
    session = create_session()
    with pytest.raises(OSError, match="down"):
        await respond(agent, "A1", session, understands(order="A1"), OSError("down"))
    response = await respond(agent, "A1", session, understands(order="A1"), says("Shipped"))
    assert found == ["A1", "A1"]
    assert not response.tool_calls[0].is_error
