"""Tools that the model calls: when they are offered, and how they update data and context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tellback import request
from tellback.agent import END_ROUTE, Agent, ToolContext, ToolUpdate, create_session, define_tool
from tellback.testing import calls, says, understands
from tellback.tools import tool
from tests.unit.agent.order_shop import ORDER, build_order_agent, build_order_finder
from tests.unit.agent.travel_setup import model_requests, offered_tools, reply_prompt, respond


async def test_a_defined_tool_can_have_its_own_schema_and_id() -> None:
    def handler(_: Any, **arguments: Any) -> str:
        return str(sorted(arguments))

    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    fare = define_tool("fare", handler, "custom_fare", "Return the price.", schema)
    assert fare.id == "custom_fare"
    agent = Agent("Wanda", tools=[fare])
    response = await respond(agent, "Rome?", None, calls("fare", city="Rome"), says("120"))
    assert response.tool_calls[0].content == "['city']"


async def test_a_tool_called_by_the_model_updates_data_and_context() -> None:
    def weigh(order: str) -> ToolUpdate:
        """Weigh an order."""
        return ToolUpdate("3 kg", data={"total": 99}, context={"scale": "north"})

    seen: list[ToolContext] = []

    def look(ctx: ToolContext) -> str:
        """Look around."""
        seen.append(ctx)
        return "fine"

    agent, _ = build_order_agent(build_order_finder([]), agent=Agent("Shop", tools=[weigh, look]))
    script = (understands(order="A1"), calls("weigh", order="A1"), calls("look"), says("99 in all"))
    response = await respond(agent, "A1", None, *script)
    assert response.session.extracted == {"order": "A1", "total": 99}
    assert response.session.context == {"scale": "north"}
    assert seen[0].data["total"] == 99
    assert seen[0].context == {"scale": "north"}
    assert [call.name for call in response.tool_calls] == ["find", "weigh", "look"]


async def test_an_error_that_a_tool_returns_to_the_model_is_a_failure_without_updates() -> None:
    def weigh(order: str) -> ToolUpdate:
        """Weigh an order."""
        return ToolUpdate({"data": None, "error": "the scale is broken"}, data={"total": 99})

    agent, _ = build_order_agent(build_order_finder([]), agent=Agent("Shop", tools=[weigh]))
    script = (understands(order="A1"), calls("weigh", order="A1"), says("It cannot be weighed"))
    response = await respond(agent, "A1", None, *script)
    assert [(call.name, call.content, call.is_error) for call in response.tool_calls[1:]] == [
        ("weigh", "the scale is broken", True)
    ]
    assert model_requests(agent)[-1].messages[-1].is_error
    assert response.session.extracted == {"order": "A1"}


async def test_an_update_that_does_not_fit_is_reported_as_a_problem() -> None:
    def weigh(order: str) -> ToolUpdate:
        """Weigh an order."""
        return ToolUpdate("3 kg", data={"total": "heavy", "order": "B2"})

    agent, _ = build_order_agent(build_order_finder([]), agent=Agent("Shop", tools=[weigh]))
    script = (understands(order="A1"), calls("weigh", order="A1"), says("3 kg"))
    response = await respond(agent, "A1", None, *script)
    assert response.session.extracted == {"order": "B2"}
    [problem] = response.problems
    assert "total" in str(problem.error)


async def test_tools_of_a_guideline_are_offered_only_while_it_applies() -> None:
    def escalate(reason: str) -> str:
        """Call a person."""
        return "called"

    condition = "the user is angry"
    agent = Agent("Shop", guidelines=[{"condition": condition, "action": "Calm them.", "tools": [escalate]}])
    calm = await respond(agent, "Hello", None, understands(), says("Hello!"))
    assert offered_tools(agent) == set()
    assert "Calm them." not in reply_prompt(agent)
    script = (understands(holds=[condition]), calls("escalate", reason="anger"), says("A person will call"))
    angry = await respond(agent, "ARGH", calm.session, *script)
    assert offered_tools(agent) == {"escalate"}
    assert [call.name for call in angry.tool_calls] == ["escalate"]
    assert "Calm them." in reply_prompt(agent)


async def test_guidelines_of_routes_and_states_apply_there_only() -> None:
    agent = Agent("Shop")
    route = agent.create_route(title="Order", gather_schema=ORDER, guidelines=[{"action": "Be brief."}])
    ask = route.initial_state.transition_to(chat_state="Ask", gather=["order"])
    ask.add_guideline(action="Offer an example.")
    ask.transition_to(chat_state="Tell the outcome").transition_to(state=END_ROUTE)
    first = await respond(agent, "Hi", None, understands(), says("Which?"))
    assert "Be brief." in reply_prompt(agent)
    assert "Offer an example." in reply_prompt(agent)
    await respond(agent, "A1", first.session, understands(order="A1"), says("Shipped"))
    assert "Be brief." in reply_prompt(agent)
    assert "Offer an example." not in reply_prompt(agent)


async def test_a_disabled_guideline_is_ignored() -> None:
    guideline = {"condition": "the user is angry", "action": "Calm them.", "enabled": False}
    agent = Agent("Shop", guidelines=[guideline])
    response = await respond(agent, "ARGH", None, says("Hello!"))
    assert response.trace.model_calls == 1
    assert "Calm" not in reply_prompt(agent)


async def test_a_route_may_use_only_its_domains() -> None:
    @tool
    def refund(order: str) -> str:
        """Pay back."""
        return "paid back"

    @tool
    def track(order: str) -> str:
        """Return the location."""
        return "here"

    seen: list[ToolContext] = []

    def look(ctx: ToolContext) -> str:
        """Look around."""
        seen.append(ctx)
        return "fine"

    agent = Agent("Shop", domains={"payment": {"refund": refund}, "shipping": {"track": track}}, tools=[look])
    route = agent.create_route(title="Track", conditions=["the user asks where it is"], domains=["shipping"])
    route.initial_state.transition_to(chat_state="Tell where it is")
    without_route = await respond(agent, "Hi", None, understands(), says("Hello!"))
    assert offered_tools(agent) == {"refund", "track", "look"}
    await respond(agent, "Where?", without_route.session, understands(route=route), calls("look"), says("There"))
    assert offered_tools(agent) == {"track", "look"}
    assert list(seen[0].domains) == ["shipping"]
    assert list(agent.domains_for_route(route.id)) == ["shipping"]
    assert list(agent.domains_for_route_title("Track")) == ["shipping"]


async def test_a_route_with_an_empty_domain_list_has_no_domain_tools() -> None:
    @tool
    def refund(order: str) -> str:
        """Pay back."""
        return "paid back"

    agent = Agent("Shop", domains={"payment": {"refund": refund}})
    route = agent.create_route(title="Chat", domains=[])
    route.initial_state.transition_to(chat_state="Chat")
    await respond(agent, "Hi", None, says("Hello!"))
    assert offered_tools(agent) == set()


async def test_application_code_can_use_domains() -> None:
    agent = Agent("Shop", domains={"payment": {"fee": lambda amount: amount // 10}})
    assert agent.domain.payment.fee(100) == 10


async def test_capabilities_are_in_the_prompt_and_their_tools_are_offered() -> None:
    def refund(order: str) -> str:
        """Pay back."""
        return "paid back"

    agent = Agent("Shop")
    assert agent.create_capability(title="Refunds", description="Up to 100 euros.", tools=[refund]) is agent
    await respond(agent, "Hi", None, calls("refund", order="A1"), says("Paid back"))
    assert offered_tools(agent) == {"refund"}
    assert "Up to 100 euros." in reply_prompt(agent)


async def test_failed_tool_calls_of_the_model_are_reported_as_errors() -> None:
    def refund(order: str) -> str:
        """Pay back."""
        raise RuntimeError("no money")

    agent = Agent("Shop", tools=[refund])
    script = (calls("refund"), calls("refund", order="A1"), calls("magic"), says("I cannot"))
    response = await respond(agent, "Hi", None, *script)
    assert [call.is_error for call in response.tool_calls] == [True, True, True]
    assert "no money" in (response.tool_calls[1].content or "")


async def test_tools_can_read_the_extras_of_the_request() -> None:
    found: list[Any] = []

    def who() -> str:
        """Return who asks."""
        current = request.current()
        found.append((current.session.id if current.session else None, dict(current.extras)))
        return "you"

    agent = Agent("Shop", tools=[who])
    await respond(agent, "Hi", create_session("web-42"), calls("who"), says("You"), extras={"ip": "::1"})
    assert found == [("web-42", {"ip": "::1"})]


async def test_a_dataclass_context_keeps_its_type_when_a_tool_changes_it() -> None:
    @dataclass
    class Customer:
        name: str
        tier: str = "none"
        _token: str = "secret"

    seen: list[Any] = []

    def upgrade() -> ToolUpdate:
        """Upgrade."""
        return ToolUpdate("done", context={"tier": "gold"})

    def look(ctx: ToolContext) -> str:
        """Look."""
        seen.append(ctx.context)
        return "fine"

    agent = Agent("Shop", tools=[upgrade, look], context=Customer("Maya"))
    await respond(agent, "Hi", None, calls("upgrade"), calls("look"), says("Done"))
    assert seen == [Customer("Maya", "gold")]


async def test_all_model_calls_of_a_reply_with_tools_are_counted() -> None:
    def fare(city: str) -> int:
        """Return the price."""
        return 120

    agent = Agent("Wanda", tools=[fare])
    response = await respond(
        agent, "Rome and Oslo?", None, calls("fare", city="Rome"), calls("fare", city="Oslo"), says("Both")
    )
    assert response.trace.model_calls == len(model_requests(agent)) == 3
