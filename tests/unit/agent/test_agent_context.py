"""The context of an agent: a value, a function, an override for one turn, and hooks around each turn."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

import pytest

from tellback.agent import Agent, Response, SessionState, ToolContext, ToolUpdate, create_session
from tellback.agent.response import BeforeResponse
from tellback.errors import InvalidArgumentError
from tellback.testing import ScriptedModel, calls, says
from tests.unit.agent.travel_setup import reply_prompt, respond


async def test_the_model_sees_only_public_plain_context_values() -> None:
    agent = Agent("Wanda", context={"name": "Maya", "_token": "s3cret", "client": object()})
    await respond(agent, "Hi", None, says("Hello!"))
    assert "Maya" in reply_prompt(agent)
    assert "s3cret" not in reply_prompt(agent)


async def test_a_context_function_is_called_for_each_session() -> None:
    seen: list[str] = []

    async def context(session: SessionState) -> dict[str, Any]:
        seen.append(session.id)
        return {"name": f"user of {session.id}"}

    agent = Agent("Wanda", context=context)
    await respond(agent, "Hi", create_session("a"), says("Hello!"))
    assert "user of a" in reply_prompt(agent)
    await respond(agent, "Hi", create_session("b"), says("Hello!"))
    assert "user of b" in reply_prompt(agent)
    assert seen == ["a", "b"]


async def test_an_override_applies_to_one_turn() -> None:
    agent = Agent("Wanda", context={"plan": "free", "name": "Maya"})
    first = await respond(agent, "Hi", None, says("Hello!"), context_override={"plan": "pro"})
    assert "pro" in reply_prompt(agent)
    assert "Maya" in reply_prompt(agent)
    await respond(agent, "Hi", first.session, says("Hello!"))
    assert "pro" not in reply_prompt(agent)
    assert agent.context == {"plan": "free", "name": "Maya"}


async def test_a_tool_cannot_change_the_agents_context() -> None:
    def spoil(ctx: ToolContext) -> str:
        """Spoil it."""
        ctx.context["plan"] = "stolen"
        return "done"

    agent = Agent("Wanda", context={"plan": "free"}, tools=[spoil])
    await respond(agent, "Hi", None, calls("spoil"), says("Hello!"))
    assert agent.context == {"plan": "free"}


async def test_context_added_by_tools_stays_in_the_session_below_an_override() -> None:
    def upgrade() -> ToolUpdate:
        """Upgrade."""
        return ToolUpdate("done", context={"plan": "pro"})

    agent = Agent("Wanda", context={"plan": "free"}, tools=[upgrade])
    first = await respond(agent, "Upgrade", None, calls("upgrade"), says("Done"))
    await respond(agent, "Hi", first.session, says("Hello!"))
    assert "pro" in reply_prompt(agent)
    await respond(agent, "Hi", first.session, says("Hello!"), context_override={"plan": "trial"})
    assert "trial" in reply_prompt(agent)
    assert "pro" not in reply_prompt(agent)


async def test_an_override_takes_precedence_when_a_hook_adds_other_values() -> None:
    def upgrade() -> ToolUpdate:
        """Upgrade."""
        return ToolUpdate("done", context={"plan": "pro"})

    agent = Agent("Wanda", context={"plan": "free"}, tools=[upgrade])
    first = await respond(agent, "Upgrade", None, calls("upgrade"), says("Done"))
    agent.before_response = lambda upcoming: {"hour": "noon"}
    await respond(agent, "Hi", first.session, says("Hello!"), context_override={"plan": "trial"})
    assert "noon" in reply_prompt(agent)
    assert "trial" in reply_prompt(agent)
    assert "pro" not in reply_prompt(agent)


async def test_a_dataclass_can_be_the_context() -> None:
    @dataclass
    class Customer:
        name: str
        plan: str = "free"

    customer = Customer("Maya")
    agent = Agent("Wanda", context=customer)
    await respond(agent, "Hi", None, says("Hello!"), context_override={"plan": "pro"})
    assert "Maya" in reply_prompt(agent)
    assert "pro" in reply_prompt(agent)
    assert customer.plan == "free"
    agent.model = model = ScriptedModel([])
    with pytest.raises(InvalidArgumentError, match="has no 'plam'"):
        await agent.respond("Hi", context_override={"plam": "pro"})
    assert model.requests == []


async def test_an_exception_in_a_context_function_ends_the_turn() -> None:
    def context() -> Any:
        raise LookupError("no such customer")

    agent = Agent("Wanda", context=context, model=ScriptedModel([]))
    session = create_session()
    with pytest.raises(LookupError, match="no such customer"):
        await agent.respond("Hi", session)
    agent.context = None
    assert (await respond(agent, "Hi", session, says("Hello!"))).session.version == 1


async def test_before_response_receives_the_turn_and_may_change_the_context() -> None:
    seen: list[BeforeResponse] = []

    async def before(upcoming: BeforeResponse) -> dict[str, Any]:
        await asyncio.sleep(0)
        seen.append(upcoming)
        return {"plan": "pro"}

    agent = Agent("Wanda", context={"plan": "free"}, before_response=before)
    session = create_session("web-42")
    first = await respond(agent, "Hi", session, says("Hello!"))
    [upcoming] = seen
    assert upcoming.session == session
    assert [message.content for message in upcoming.history] == ["Hi"]
    assert upcoming.context == {"plan": "free"}
    assert "pro" in reply_prompt(agent)
    agent.before_response = lambda upcoming: None
    await respond(agent, "Hi", first.session, says("Hello!"))
    assert "pro" not in reply_prompt(agent)


async def test_before_response_may_reject_the_turn() -> None:
    def before(upcoming: BeforeResponse) -> None:
        raise PermissionError("blocked")

    agent = Agent("Wanda", before_response=before)
    agent.model = model = ScriptedModel([])
    session = create_session()
    with pytest.raises(PermissionError, match="blocked"):
        await agent.respond("Hi", session)
    assert model.requests == []
    agent.before_response = None
    assert (await respond(agent, "Hi", session, says("Hello!"))).session.version == 1


async def test_before_response_must_return_a_mapping_or_none() -> None:
    agent = Agent("Wanda", before_response=lambda upcoming: ["pro"])
    agent.model = model = ScriptedModel([])
    with pytest.raises(InvalidArgumentError, match="before_response must return a mapping"):
        await agent.respond("Hi")
    assert model.requests == []


async def test_after_response_receives_the_response() -> None:
    seen: list[Response] = []

    async def after(response: Response) -> None:
        await asyncio.sleep(0)
        seen.append(response)

    agent = Agent("Wanda", after_response=after)
    response = await respond(agent, "Hi", None, says("Hello!"))
    assert seen == [response]
    agent.model = ScriptedModel([says("Again!")])
    chunks = [chunk async for chunk in agent.respond_stream("Hi", response.session)]
    assert seen[1:] == [chunks[-1].response]


async def test_an_exception_in_after_response_does_not_affect_the_response(caplog: pytest.LogCaptureFixture) -> None:
    def after(response: Response) -> None:
        raise RuntimeError("no analytics today")

    agent = Agent("Wanda", after_response=after)
    with caplog.at_level(logging.ERROR, "tellback.agent"):
        response = await respond(agent, "Hi", None, says("Hello!"))
    assert response.message == "Hello!"
    assert "no analytics today" in caplog.text


async def test_after_response_can_start_another_turn() -> None:
    agent = Agent("Wanda")
    answered: list[str] = []

    async def after(response: Response) -> None:
        if not answered:
            answered.append(response.message)
            answered.append((await agent.respond("And?", response.session)).message)

    agent.after_response = after
    await respond(agent, "Hi", None, says("Hello!"), says("Well"))
    assert answered == ["Hello!", "Well"]
