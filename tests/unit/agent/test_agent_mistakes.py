"""Caller mistakes raise specific errors that say what to do, before any model call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tellback import ChatReply, StreamStop, Tellback, TextDelta
from tellback.agent import END_ROUTE, Agent, Route, Thresholds, create_session
from tellback.errors import ConfigurationError, FlowError, InvalidArgumentError, TellbackError
from tellback.testing import ScriptedModel
from tellback.tools import tool
from tests.unit.agent.travel_setup import make_travel_setup


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""},
        {"name": "  "},
        {"name": 5},
        {"composition_mode": "wild"},
        {"composition_mode": 5},
        {"rules": "Be kind"},
        {"prohibitions": "Never swear"},
        {"rules": [5]},
        {"terms": "PNR"},
        {"terms": [{"name": "PNR"}]},
        {"terms": 5},
        {"guidelines": "Be brief"},
        {"guidelines": {"action": "Be brief"}},
        {"guidelines": [{"action": ""}]},
        {"guidelines": [{"acton": "Be brief"}]},
        {"capabilities": ["Refunds"]},
        {"capabilities": [{"title": "Refunds", "description": "x", "tools": len}]},
        {"tools": len},
        {"tools": "search"},
        {"tools": [5]},
        {"domains": "payment"},
        {"domains": ["payment"]},
        {"domains": {"payment": {}}},
        {"domains": {"payment": 5}},
        {"domains": {"payment": {5: "fee"}}},
        {"routes": ["Book a flight"]},
        {"routes": Route("Book a flight")},
        {"canned_responses": "Hello!"},
        {"canned_responses": ["{{name"]},
        {"canned_responses": [5]},
        {"options": "fast"},
        {"options": {"speed": 3}},
        {"options": {"system": "Be kind"}},
        {"options": {"tools": [len]}},
        {"options": {"output_type": int}},
        {"memory_options": {"spce": "x"}},
        {"memory_options": "travel"},
        {"thresholds": 5},
        {"limits": 5},
        {"skills": "billing"},
        {"before_response": "log"},
        {"after_response": 5},
        {"persistence": "sessions.db"},
        {"model": 5},
        {"understand_model": 5},
        {"description": 5},
        {"goal": ["Book flights"]},
        {"clock": "now"},
    ],
    ids=str,
)
def test_invalid_agent_arguments_raise_an_error(fields: dict[str, Any]) -> None:
    with pytest.raises(TellbackError):
        Agent(**{"name": "Wanda", **fields})


@pytest.mark.parametrize("value", [-1, 101, "50", None, True, float("nan")])
def test_a_threshold_must_be_a_number_from_0_to_100(value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="from 0 to 100"):
        Thresholds(enter=value)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"title": ""}, "title must be a non-empty string"),
        ({"title": "Book", "colour": "red"}, "invalid arguments for a route"),
        ({"title": "Book", "conditions": "the user wants to fly"}, "conditions must be a list"),
        ({"title": "Book", "rules": "be kind"}, "rules must be a list"),
        ({"title": "Book", "domains": "payment"}, "domains must be a list"),
        ({"title": "Book", "gather_schema": {"type": "array"}}, "gather_schema"),
        ({"title": "Book", "gather_schema": "Flight"}, "gather_schema"),
        ({"title": "Book", "initial_data": {"to": "Rome"}}, "initial_data"),
        ({"title": "Book", "guidelines": ["Be brief"]}, "expected a Guideline"),
        ({"title": "Book", "id": ""}, "id must be a non-empty string"),
        ({"title": "Book", "canned_responses": "Hello"}, "canned_responses"),
    ],
    ids=str,
)
def test_invalid_route_arguments_raise_an_error(fields: dict[str, Any], problem: str) -> None:
    agent = Agent("Wanda")
    with pytest.raises(TellbackError, match=problem):
        agent.create_route(**fields)
    assert agent.routes == ()


def test_two_routes_with_the_same_id_are_rejected() -> None:
    agent = Agent("Wanda")
    agent.create_route(title="Book a flight")
    with pytest.raises(FlowError, match="Route 'Book a flight': the id"):
        agent.create_route(title="Book a flight")
    agent.create_route(title="Book a flight", id="other")
    assert len(agent.routes) == 2


def test_errors_about_unknown_routes_list_the_known_ones() -> None:
    agent = make_travel_setup().agent
    with pytest.raises(InvalidArgumentError, match="has no route 'x'"):
        agent.domains_for_route("x")
    with pytest.raises(InvalidArgumentError, match="'Book a flight', 'Tell the weather'"):
        agent.domains_for_route_title("Fly to Mars")


async def test_an_unknown_domain_of_a_route_is_rejected_before_the_first_turn() -> None:
    agent = Agent("Wanda", domains={"shipping": {"rate": 5}}, model=(model := ScriptedModel([])))
    agent.create_route(title="Pay", domains=["payment"]).initial_state.transition_to(chat_state="Take the money")
    with pytest.raises(FlowError, match=r"Route 'Pay': the domain 'payment' is unknown. Known: shipping"):
        agent.check()
    with pytest.raises(FlowError, match="the domain 'payment' is unknown"):
        await agent.respond("Hi")
    assert model.requests == []


@pytest.mark.parametrize("is_passed_to_the_agent", [True, False])
def test_a_domain_may_be_added_after_the_route_that_names_it(is_passed_to_the_agent: bool) -> None:
    route = Route("Pay", domains=["payment"])
    agent = Agent("Wanda", routes=[route] if is_passed_to_the_agent else [])
    if not is_passed_to_the_agent:
        agent.add_route(route)
    agent.add_domain("payment", {"refund": print})
    agent.check()
    assert agent.domains_for_route_title("Pay") == {"payment": {"refund": print}}


def test_add_route_accepts_only_routes() -> None:
    with pytest.raises(InvalidArgumentError, match="must be a Route"):
        Agent("Wanda").add_route("Book a flight")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"history": 5}, "history"),
        ({"history": b"Hi"}, "history"),
        ({"history": [5]}, r"history\[0\]"),
        ({"history": [{"role": "wizard", "content": "Hi"}]}, r"history\[0\]"),
        ({"history": "Hi", "session": 5}, "session must be a SessionState"),
        ({"history": "Hi", "session": {"id": "web-42"}}, "session must be a SessionState"),
        ({"history": "Hi", "session": "web-42"}, "pass Agent"),
        ({"history": "Hi", "context_override": "pro"}, "context_override must be a mapping"),
        ({"history": "Hi", "mood": "good"}, "unknown arguments: mood"),
        ({"history": "Hi", "approvals": {"call_1": True}}, "without a history"),
        ({"approvals": {}}, "no call"),
        ({"approvals": {"call_1": True}}, "the waiting calls are: none"),
        ({"approvals": {"call_1": "yes"}}, "decision on call 'call_1'"),
        ({"approvals": ["call_1"]}, "approvals must be a mapping"),
        ({"history": "Hi", "user": "maya"}, "user requires an agent with a memory"),
        ({"history": "Hi", "extras": "x"}, "extras must be a mapping"),
        ({"history": "Hi", "extras": {1: "x"}}, "extras must be a mapping"),
    ],
    ids=str,
)
@pytest.mark.parametrize("streams", [False, True])
async def test_invalid_turn_arguments_raise_an_error_before_any_model_call(
    fields: dict[str, Any], problem: str, streams: bool
) -> None:
    setup = make_travel_setup()
    setup.agent.model = model = ScriptedModel([])
    with pytest.raises(InvalidArgumentError, match=problem):
        await (anext(setup.agent.respond_stream(**fields)) if streams else setup.agent.respond(**fields))
    assert model.requests == []
    assert not setup.agent._responder._running_keys


def test_the_name_of_an_agent_and_the_title_of_a_route_cannot_be_changed() -> None:
    agent = Agent("Wanda")
    route = agent.create_route(title="Book a flight")
    with pytest.raises(AttributeError, match=r"the name of agent 'Wanda' cannot be changed: create an Agent with"):
        agent.name = "Olga"
    with pytest.raises(AttributeError, match=r"the title of route 'Book a flight' cannot be changed: create a Route"):
        route.title = "Book a hotel"
    assert (agent.name, route.title) == ("Wanda", "Book a flight")
    assert agent.with_model("gpt-5").name == "Wanda"


async def test_an_agent_without_a_model_raises_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match=r"agent 'Wanda' has no model: pass Agent\(model"):
        await Agent("Wanda").respond("Hi")


class NoModel:
    def generate(self) -> str:
        return "Hello!"


class OldModel:
    async def complete(self, prompt: str) -> str:
        return "Hello!"


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (NoModel(), "which has no method complete"),
        (ScriptedModel, "which is a class: pass an object"),
        (OldModel(), "its method complete has other parameters"),
    ],
)
def test_an_object_that_is_no_model_is_rejected_with_what_is_missing(model: Any, problem: str) -> None:
    with pytest.raises(InvalidArgumentError, match=problem):
        Agent("Wanda", model=model)
    with pytest.raises(InvalidArgumentError, match=problem):
        Agent("Wanda", understand_model=model)
    with pytest.raises(InvalidArgumentError, match=problem):
        Agent("Wanda").with_model(model)
    with pytest.raises(TellbackError, match="model"):
        Agent("Wanda", options={"model": model})


class MinimalModel:
    """A model with nothing but `complete`."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    async def complete(self, messages: Any, system: Any = None, tools: Any = None, **options: Any) -> ChatReply:
        self.calls.append((messages, system, tools, options))
        if "output_schema" in options:
            return ChatReply('{"routes": {}, "data": {}}')
        return ChatReply("Hello!")


@pytest.mark.parametrize("field", ["model", "options"])
async def test_a_model_with_only_complete_answers_and_streams(field: str) -> None:
    model = MinimalModel()
    agent = Agent("Wanda", **({"model": model} if field == "model" else {"options": {"model": model}}))
    assert (await agent.respond("Hi")).message == "Hello!"
    deltas = [chunk.delta async for chunk in agent.respond_stream("Hi")]
    assert "".join(deltas) == "Hello!"
    assert len(model.calls) == 2
    async with Tellback(":memory:", worker=False) as tb:
        remembering = Agent("Wanda", model=model, memory=tb.user("maya"))  # type: ignore[arg-type]
        response = await remembering.respond("Hi")
        assert response.message == "Hello!"
        [*_, reply] = await tb.user("maya").conversations.messages(response.conversation_id or "")
        assert reply.model == "MinimalModel"


async def test_a_model_without_a_name_streams_its_own_deltas() -> None:
    class NamelessModel(MinimalModel):
        async def stream(self, messages: Any, system: Any = None, tools: Any = None, **options: Any) -> Any:
            yield TextDelta("Hel")
            yield TextDelta("lo!")
            yield StreamStop("end_turn")

    agent = Agent("Wanda", model=NamelessModel())  # type: ignore[arg-type]
    chunks = [chunk async for chunk in agent.respond_stream("Hi")]
    assert [chunk.delta for chunk in chunks if chunk.delta] == ["Hel", "lo!"]


async def test_an_unknown_model_name_is_reported() -> None:
    with pytest.raises(ConfigurationError, match="mystery-9"):
        await Agent("Wanda", model="mystery-9").respond("Hi")


async def test_a_context_class_is_rejected() -> None:
    setup = make_travel_setup(context=dict)
    setup.agent.model = model = ScriptedModel([])
    with pytest.raises(InvalidArgumentError, match="pass an instance of dict"):
        await setup.agent.respond("Hi")
    assert model.requests == []


def broken_skip(agent: Agent) -> None:
    route = agent.create_route(title="Broken")
    route.initial_state.transition_to(chat_state="Ask", skip_if=lambda data: data["missing"])


def broken_condition(agent: Agent) -> None:
    route = agent.create_route(title="Broken")
    route.initial_state.transition_to(chat_state="Ask", condition=lambda data: data["missing"])


def broken_arguments(agent: Agent) -> None:
    def find(order: str) -> str:
        """Find."""
        return order

    route = agent.create_route(title="Broken")
    route.initial_state.transition_to(tool_state=find, arguments=lambda data: {"order": data["missing"]})


@pytest.mark.parametrize("build", [broken_skip, broken_condition, broken_arguments])
async def test_an_exception_in_flow_code_is_reported_with_its_place(build: Callable[[Agent], None]) -> None:
    agent = Agent("Wanda", model=ScriptedModel([]))
    build(agent)
    session = create_session()
    for _ in range(2):
        with pytest.raises(FlowError, match=r"Route 'Broken', state .* raised KeyError: 'missing'"):
            await agent.respond("Hi", session)


async def test_an_invalid_flow_is_rejected_before_the_first_turn() -> None:
    agent = Agent("Wanda", model=ScriptedModel([]))
    route = agent.create_route(title="Broken")
    route.initial_state.transition_to(state="later")
    with pytest.raises(FlowError, match="leads to the state 'later'"):
        await agent.respond("Hi")


def test_an_invalid_flow_is_rejected_when_the_agent_is_created() -> None:
    route = Route("Broken")
    route.initial_state.transition_to(state="later")
    with pytest.raises(FlowError, match="leads to the state 'later'"):
        Agent("Wanda", routes=[route])


async def test_changes_between_turns_are_checked() -> None:
    agent = Agent("Wanda")
    route = agent.create_route(title="Greet")
    greet = route.initial_state.transition_to(chat_state="Greet")
    agent.model = ScriptedModel(["Hello!"])
    await agent.respond("Hi")
    greet.transition_to(state="later")
    agent.model = model = ScriptedModel([])
    with pytest.raises(FlowError, match="leads to the state 'later'"):
        await agent.respond("Hi")
    assert model.requests == []


async def test_two_tools_with_the_same_name_are_rejected() -> None:
    @tool(name="find")
    def one(order: str) -> str:
        """Find."""
        return order

    @tool(name="find")
    def other(city: str) -> str:
        """Find."""
        return city

    agent = Agent("Wanda", tools=[one], model=ScriptedModel([]))
    agent.create_capability(title="Finding", description="Finds things.", tools=[other])
    with pytest.raises(FlowError, match="two tools have the name 'find'"):
        await agent.respond("Hi")


def test_no_state_can_follow_the_end() -> None:
    with pytest.raises(FlowError, match="no state can follow"):
        END_ROUTE.transition_to(chat_state="Ask")
