"""Ownership of sessions: users cannot continue each other's sessions or see each other's data."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tellback import Tellback
from tellback.agent import (
    Agent,
    InMemorySessions,
    MemoryOptions,
    ToolContext,
    ToolUpdate,
    create_session,
    session_data_to_state,
    session_state_to_data,
)
from tellback.errors import InvalidArgumentError, NotFoundError
from tellback.testing import ScriptedModel, raises, says, understands
from tellback.types.conversations import Identity
from tests.unit.agent.order_shop import build_order_agent, build_order_finder
from tests.unit.agent.travel_setup import model_requests, reply_prompt, respond

CART = {
    "type": "object",
    "properties": {"item": {"type": "string"}, "cart": {"type": "array", "items": {"type": "string"}}},
    "required": ["item"],
}


@pytest.fixture
async def tb() -> AsyncIterator[Tellback]:
    async with Tellback(":memory:", embedder=None, worker=False, summary_every=None) as opened:
        yield opened


def make_asking_agent(**fields: Any) -> Agent:
    return build_order_agent(build_order_finder([]), agent=Agent("Shop", **fields))[0]


def make_memory_agent(tb: Tellback, **fields: Any) -> Agent:
    return make_asking_agent(memory=tb, memory_options=MemoryOptions(tools=False), **fields)


async def test_a_stored_session_is_not_found_for_another_user(tb: Tellback) -> None:
    store = InMemorySessions()
    agent = make_memory_agent(tb, persistence=store)
    first = await respond(agent, "A1", "main", understands(order="A1"), says("On its way"), user="maya")
    with pytest.raises(NotFoundError, match="no session 'main' for this user"):
        await respond(agent, "Hi", "main", user="tom")
    assert model_requests(agent) == []
    assert await store.load("main") == first.session
    followup = await respond(agent, "And?", "main", understands(), says("Still"), user="maya")
    assert followup.session.version == 2


async def test_a_stored_session_is_not_found_for_another_sender() -> None:
    agent = make_asking_agent(persistence=InMemorySessions())
    await respond(agent, "A1", "main", understands(order="A1"), says("On its way"), sender=Identity("maya"))
    for stranger in (Identity("tom"), None):
        with pytest.raises(NotFoundError):
            await respond(agent, "Hi", "main", sender=stranger)
    followup = await respond(agent, "And?", "main", understands(), says("Still"), sender=Identity("maya"))
    assert followup.session.version == 2


async def test_a_passed_session_is_not_found_for_another_user(tb: Tellback) -> None:
    agent = make_memory_agent(tb)
    first = await respond(agent, "A1", None, understands(order="A1"), says("On its way"), user="maya")
    with pytest.raises(NotFoundError):
        await respond(agent, "Hi", first.session, user="tom")
    assert model_requests(agent) == []


async def test_a_passed_session_is_not_found_for_another_sender() -> None:
    agent = make_asking_agent()
    first = await respond(agent, "A1", None, understands(order="A1"), says("On its way"), sender=Identity("maya"))
    with pytest.raises(NotFoundError):
        await respond(agent, "Hi", first.session, sender=Identity("tom"))


async def test_a_session_restored_from_a_database_keeps_its_owner() -> None:
    agent = make_asking_agent()
    first = await respond(agent, "A1", None, understands(order="A1"), says("On its way"), sender=Identity("maya"))
    restored = session_data_to_state(first.session.id, session_state_to_data(first.session))
    with pytest.raises(NotFoundError):
        await respond(agent, "Hi", restored, sender=Identity("tom"))
    await respond(agent, "And?", restored, understands(), says("Still"), sender=Identity("maya"))


async def test_equal_user_ids_in_two_tenants_are_different_users(tb: Tellback) -> None:
    agent = make_memory_agent(tb, persistence=InMemorySessions())
    maya = tb.user("maya", tenant_id="one")
    await respond(agent, "A1", "main", understands(order="A1"), says("On its way"), user=maya)
    with pytest.raises(NotFoundError):
        await respond(agent, "Hi", "main", user=tb.user("maya", tenant_id="two"))


async def test_an_approval_by_another_user_is_rejected(tb: Tellback) -> None:
    agent = make_memory_agent(tb)
    first = await respond(agent, "A1", None, understands(order="A1"), says("On its way"), user="maya")
    with pytest.raises(NotFoundError):
        await respond(agent, None, first.session, user="tom", approvals={"call_1": True})


async def test_a_sender_must_be_an_identity() -> None:
    agent = make_asking_agent(model=ScriptedModel([]))
    with pytest.raises(InvalidArgumentError, match="Identity"):
        await agent.respond("Hi", sender="maya")  # type: ignore[arg-type]


async def test_a_tool_cannot_change_lists_in_the_agents_context() -> None:
    def add(item: str, ctx: ToolContext) -> str:
        """Add it to the cart."""
        ctx.context["cart"]["items"].append(item)
        return "added"

    agent = Agent("Shop", context={"cart": {"items": []}})
    route = agent.create_route(title="Buy", gather_schema=CART)
    ask = route.initial_state.transition_to(chat_state="Ask what", gather=["item"])
    ask.transition_to(tool_state=add).transition_to(chat_state="Thank")
    await respond(agent, "A lamp", None, understands(item="lamp"), says("Added"))
    assert agent.context == {"cart": {"items": []}}
    await respond(agent, "Hi", None, understands(), says("Hello"))
    assert "lamp" not in reply_prompt(agent)


async def test_a_tool_cannot_change_lists_in_the_callers_override() -> None:
    def add(item: str, ctx: ToolContext) -> str:
        """Add it to the cart."""
        ctx.context["cart"].append(item)
        return "added"

    agent = Agent("Shop")
    route = agent.create_route(title="Buy", gather_schema=CART)
    ask = route.initial_state.transition_to(chat_state="Ask what", gather=["item"])
    ask.transition_to(tool_state=add).transition_to(chat_state="Thank")
    override: dict[str, Any] = {"cart": []}
    await respond(agent, "A lamp", None, understands(item="lamp"), says("Added"), context_override=override)
    assert override == {"cart": []}


@pytest.mark.parametrize("fails", [False, True])
async def test_a_tool_cannot_change_the_session_through_its_data(fails: bool) -> None:
    def add(item: str, ctx: ToolContext) -> str:
        """Modify the data in place."""
        for data in (ctx.data, ctx.session.extracted):
            data["cart"].append(item)
        return "added"

    agent = Agent("Shop")
    route = agent.create_route(title="Buy", gather_schema=CART)
    filled = route.initial_state.transition_to(chat_state="Ask for the cart", gather=["cart"])
    ask = filled.transition_to(chat_state="Ask what", gather=["item"])
    ask.transition_to(tool_state=add).transition_to(chat_state="Thank")
    first = await respond(agent, "Chairs", create_session("web"), understands(cart=["chair"]), says("What else?"))
    last = raises(RuntimeError("lost")) if fails else says("Added")
    try:
        second = await respond(agent, "A lamp", first.session, understands(item="lamp"), last)
        assert second.session.extracted["cart"] == ["chair"]
    except RuntimeError:
        assert fails
    assert first.session.extracted == {"cart": ["chair"]}


async def test_a_tool_changes_the_data_through_its_result() -> None:
    def add(item: str, ctx: ToolContext) -> ToolUpdate:
        """Add it to the cart."""
        return ToolUpdate("added", data={"cart": [*ctx.data["cart"], item]})

    agent = Agent("Shop")
    route = agent.create_route(title="Buy", gather_schema=CART, initial_data={"cart": ["chair"]})
    ask = route.initial_state.transition_to(chat_state="Ask what", gather=["item"])
    ask.transition_to(tool_state=add).transition_to(chat_state="Thank")
    first = await respond(agent, "A lamp", None, understands(item="lamp"), says("Added"))
    assert first.session.extracted["cart"] == ["chair", "lamp"]
    assert route.initial_data == {"cart": ["chair"]}
