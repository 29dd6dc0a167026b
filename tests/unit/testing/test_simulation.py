"""The rule-based flow model and the simulated user."""

from __future__ import annotations

import asyncio
from datetime import date
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellback import END_ROUTE, Agent, InvalidArgumentError, Tellback, ToolCall, tool
from tellback.agent import InMemorySessions
from tellback.agent.definitions.value_parser import InvalidValue
from tellback.testing import FlowModel, ScriptedModel, SimulatedUser, says, simulate
from tests.support.travel_agents import Flight, make_flight_agent


async def test_the_flow_model_extracts_values_by_rules() -> None:
    agent, _ = make_flight_agent(model=FlowModel(reads={"destination": r"\bto ([A-Z]\w+)"}))
    response = await agent.respond("A flight to Rome for 2 on 2026-12-01")
    assert response.session.extracted == {
        "destination": "Rome",
        "departure": date(2026, 12, 1),
        "passengers": 2,
    }
    assert response.message == "Offer the flights found"
    assert response.trace.model_calls == 2
    response = await agent.respond("No, destination: New York; passengers is 3.", response.session)
    assert (response.session.extracted["destination"], response.session.extracted["passengers"]) == ("New York", 3)
    response = await agent.respond("How is the weather?", response.session)
    assert (response.message, response.route and response.route.title) == ("Ask which city (city?)", "Tell the weather")
    response = await agent.respond("Back to the flight. Forget the departure", response.session)
    assert response.message == "Ask when and how many (departure?)"
    assert "departure" not in response.session.extracted


async def test_the_flow_model_uses_the_last_option_in_the_message() -> None:
    agent = Agent("Wanda", model=FlowModel())
    route = agent.create_route("Cabin", gather_schema=Flight)
    route.initial_state.transition_to(chat_state="Ask which cabin", gather=["cabin"])
    response = await agent.respond("Not economy, business!")
    assert response.session.extracted == {"cabin": "business"}


async def test_the_flow_model_matches_conditions_by_words() -> None:
    agent = Agent("Wanda", model=FlowModel(holds={"the user agrees": ["yes", "ok"]}))
    ask = agent.create_route("Agree").initial_state.transition_to(chat_state="Ask whether to book")
    ask.transition_to(chat_state="Confirm", condition="the user agrees")
    first = await agent.respond(None)
    assert (await agent.respond("No", first.session)).message == "Ask whether to book"
    assert (await agent.respond("ok then", first.session)).message == "Confirm"


async def test_the_flow_model_replies_with_canned_responses() -> None:
    model = FlowModel()
    agent = Agent("Wanda", model=model, composition_mode="canned_fluid", canned_responses=["Hm."])
    route = agent.create_route("Greet")
    route.initial_state.transition_to(chat_state="Greet", canned_responses=['Say "hi"!', "Hello!"])
    assert (await agent.respond("Hi")).message == 'Say "hi"!'
    strict = Agent("Wanda", model=model, composition_mode="strict_canned", canned_responses=["One.", "Two."])
    assert (await strict.respond("Hi")).message == "One."


FACTS = {"destination": "Rome", "departure": "2026-12-01", "passengers": 2}


async def test_a_simulated_user_completes_a_route() -> None:
    agent, book = make_flight_agent(model=FlowModel())
    result = await simulate(agent, SimulatedUser("I want to fly", FACTS, route=book))
    assert result.outcome == "completed"
    assert str(result).splitlines() == [
        "user: I want to fly",
        "agent: Ask where to (destination?)",
        "user: destination: Rome",
        "agent: Ask when and how many (departure?, passengers?)",
        "user: departure: 2026-12-01; passengers: 2",
        "agent: Offer the flights found",
        "user: Yes, please.",
        "agent: 'Book a flight' is completed.",
        "(completed)",
    ]


async def test_a_simulated_user_changes_its_mind() -> None:
    agent, _ = make_flight_agent(model=FlowModel())
    user = SimulatedUser("I want to fly", FACTS, changes={"destination": ["Oslo", "Bern"]}, eager=9)
    for _ in range(2):  # a user can be used again
        result = await simulate(agent, user)
        assert result.outcome == "completed"
        assert result.session.extracted["destination"] == "Bern"
        assert [each.message for each in result.exchanges] == [
            "I want to fly; destination: Rome; departure: 2026-12-01; passengers: 2",
            "No, destination: Oslo",
            "No, destination: Bern",
            "Yes, please.",
        ]


async def test_a_simulated_user_can_have_memory() -> None:
    async with Tellback(":memory:", worker=False) as tb:
        agent, _ = make_flight_agent(model=FlowModel(), memory=tb)
        result = await simulate(agent, SimulatedUser("I want to fly", FACTS, eager=3), user="maya")
        assert (result.outcome, len(result.exchanges)) == ("completed", 2)
        [conversation] = await tb.user("maya").conversations.list()
        assert len(await tb.user("maya").conversations.messages(conversation.id)) == 4


@pytest.mark.parametrize("facts", [{}, {**FACTS, "passengers": 12}])
async def test_a_simulated_user_gives_up(facts: dict[str, Any]) -> None:
    agent, _ = make_flight_agent(model=FlowModel())
    result = await simulate(agent, SimulatedUser("I want to fly", facts, patience=2))
    assert result.outcome == "gave up"
    assert len(result.exchanges) <= 6
    assert (await simulate(agent, SimulatedUser("I want to fly", facts), max_turns=2)).outcome == "too long"


@pytest.mark.parametrize("max_turns", [0, 2.5, "5", True])
async def test_a_simulation_rejects_an_invalid_number_of_turns(max_turns: Any) -> None:
    agent, _ = make_flight_agent(model=FlowModel())
    with pytest.raises(InvalidArgumentError, match="max_turns must be an integer of at least 1"):
        await simulate(agent, SimulatedUser("I want to fly", FACTS), max_turns=max_turns)


async def test_a_simulation_stops_at_a_pending_call_without_an_approver() -> None:
    @tool(requires_approval=True)
    def refund(order: str) -> str:
        """Pay back."""
        return f"paid {order}"

    agent = Agent("Rita", model=FlowModel(), persistence=InMemorySessions())
    route = agent.create_route("Refund", gather_schema={"properties": {"order": {"type": "string"}}})
    ask = route.initial_state.transition_to(chat_state="Ask which order", gather=["order"])
    pay = ask.transition_to(tool_state=refund)
    pay.transition_to(state=END_ROUTE)
    pay.transition_to(chat_state="Say no", on_error=True).transition_to(state=END_ROUTE)
    user = SimulatedUser("A refund", {"order": "A1"})
    assert (await simulate(agent, user)).outcome == "waits"
    yes = await simulate(agent, user, session="s1", approve=lambda call: call.input == {"order": "A1"})
    assert (yes.outcome, yes.exchanges[-1].response.tool_calls[0].content) == ("completed", "paid A1")
    no = await simulate(agent, user, approve=False)
    assert "Say no" in str(no)


async def test_a_model_can_write_the_users_messages() -> None:
    agent, _ = make_flight_agent(model=FlowModel())
    script = [
        says("I want to fly. destination: Rome", expect=lambda request: '"destination":"Rome"' in str(request.system)),
        says("I'd rather not.", expect="Ask when and how many"),
        says("GOODBYE"),
    ]
    with ScriptedModel(script) as model:
        result = await simulate(agent, SimulatedUser("Fly to Rome", FACTS, model=model))
    assert result.outcome == "gave up"
    assert [each.message for each in result.exchanges] == ["I want to fly. destination: Rome", "I'd rather not."]


def test_changes_must_refer_to_facts() -> None:
    with pytest.raises(InvalidArgumentError, match="passengers=\\[3\\]"):
        SimulatedUser("Fly", {"destination": "Rome"}, changes={"passengers": [3]})
    with pytest.raises(InvalidArgumentError, match="destination='Oslo'"):
        SimulatedUser("Fly", {"destination": "Rome"}, changes={"destination": "Oslo"})


WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)


@given(
    note=WORDS | st.sampled_from(["seats: 3", "a; seats is 4", "x, tags: y", 'say "seats: 5"', "is", "7."]),
    tags=st.lists(WORDS, max_size=3),
)
@settings(max_examples=60, deadline=None)
def test_the_flow_model_reads_every_value_that_a_simulated_user_writes(note: str, tags: list[str]) -> None:
    fields = {"note": {"type": "string"}, "tags": {"type": "array"}, "seats": {"type": "integer"}}
    agent = Agent("Wanda", model=FlowModel())
    route = agent.create_route("Take notes", gather_schema={"properties": fields})
    ask = route.initial_state.transition_to(chat_state="Ask", gather=list(fields))
    ask.transition_to(state=END_ROUTE)
    facts = {"note": note, "tags": tags, "seats": 2}
    result = asyncio.run(simulate(agent, SimulatedUser("Hello", facts, patience=1), 4))
    try:
        expected = {name: route.schema.check(name, value) for name, value in facts.items()}
    except InvalidValue:  # for example a blank note
        return
    assert result.session.extracted == expected


ORDERS = st.permutations(list(FACTS))
CITIES = st.lists(st.sampled_from(["Oslo", "Bern", "New York"]), max_size=3, unique=True)
SEATS = st.lists(st.integers(3, 9), max_size=2, unique=True)


@given(order=ORDERS, eager=st.integers(0, 3), cities=CITIES, seats=SEATS)
@settings(max_examples=40, deadline=None)
def test_a_flow_ends_after_the_last_fact_in_any_order(
    order: list[str], eager: int, cities: list[str], seats: list[int]
) -> None:
    agent, book = make_flight_agent(model=FlowModel())
    facts = {name: FACTS[name] for name in order}
    user = SimulatedUser("Fly", facts, changes={"destination": cities, "passengers": seats}, eager=eager)
    result = asyncio.run(simulate(agent, user))
    assert result.outcome == "completed", str(result)
    known = result.session.extracted
    assert known["destination"] == (cities or ["Rome"])[-1]
    assert known["passengers"] == (seats or [2])[-1]
    [search] = [run for run in result.session.progress.runs.values() if run.tool == "search_flights"]
    assert search.arguments == book.schema.plain({name: known[name] for name in FACTS})
    assert all(each.response.trace.model_calls <= 2 for each in result.exchanges)
    state_ids = [
        each.response.state.id for each in result.exchanges if each.response.state and "?" in each.response.message
    ]
    assert len(state_ids) == len(set(state_ids)), "a question was asked twice"


async def test_the_word_again_repeats_a_failed_tool() -> None:
    tries: list[str] = []

    def send(to: str) -> str:
        """Send it."""
        tries.append(to)
        if len(tries) == 1:
            raise OSError("the line is down")
        return "sent"

    agent = Agent("Sendy", model=FlowModel())
    route = agent.create_route("Send a letter", gather_schema={"properties": {"to": {"type": "string"}}})
    ask = route.initial_state.transition_to(chat_state="Ask to whom", gather=["to"])
    ask.transition_to(tool_state=send).transition_to(state=END_ROUTE)
    response = await agent.respond("to: Maya")
    assert response.message == "send failed."
    response = await agent.respond("Hm.", response.session)
    assert (response.message, tries) == ("send failed.", ["Maya"])
    response = await agent.respond("Try again!", response.session)
    assert (response.completed, tries) == (True, ["Maya", "Maya"])


async def test_the_flow_model_matches_whole_titles() -> None:
    words = {"Book": ["table"], "Book a flight": ["fly"]}
    for titles in (["Book", "Book a flight"], ["Book a flight", "Book"]):
        agent = Agent("Wanda", model=FlowModel(routes=words))
        for title in titles:
            route = agent.create_route(title, description="It is booked.", conditions=["the user says so"])
            route.initial_state.transition_to(chat_state=f"{title}: ask")
        assert (await agent.respond("I fly")).message == "Book a flight: ask"
        assert (await agent.respond("A table")).message == "Book: ask"


async def test_the_flow_model_matches_conditions_with_several_lines() -> None:
    agent = Agent("Wanda", model=FlowModel(holds={"the user\nagrees": ["yes"]}))
    ask = agent.create_route("Agree").initial_state.transition_to(chat_state="Ask whether to book")
    ask.transition_to(chat_state="Confirm", condition="the user\n  agrees")
    first = await agent.respond(None)
    assert (await agent.respond("yes", first.session)).message == "Confirm"


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ({"reads": {"to": r"to \w+"}}, "reads\\['to'\\].* has no group"),
        ({"reads": {"to": r"to (\w+"}}, "reads\\['to'\\] is not a valid regular expression"),
        ({"reads": {"to": 3}}, "reads\\['to'\\] must be a regular expression or a function, got 3"),
        ({"routes": {"Book": "book"}}, "routes\\['Book'\\] must be a list of words, got 'book'"),
        ({"holds": {"the user agrees": "yes"}}, "holds\\['the user agrees'\\] must be a list of words"),
    ],
)
def test_invalid_rules_of_the_flow_model_are_rejected(options: dict[str, Any], pattern: str) -> None:
    with pytest.raises(InvalidArgumentError, match=pattern):
        FlowModel(**options)


@pytest.mark.parametrize("session", [None, "web-1"])
async def test_a_simulated_user_who_sends_no_message_does_not_change_the_session(session: str | None) -> None:
    sessions = InMemorySessions()
    agent, _ = make_flight_agent(model=FlowModel(), persistence=sessions)
    if session is not None:
        await agent.respond("I want to fly. destination: Rome", session)
    result = await simulate(agent, SimulatedUser("Nothing", model=ScriptedModel([says("GOODBYE")])), session=session)
    assert (result.outcome, result.exchanges, str(result)) == ("gave up", (), "(gave up)")
    assert result.session.extracted == ({} if session is None else {"destination": "Rome"})


async def test_the_approver_may_be_async() -> None:
    @tool(requires_approval=True)
    def refund(order: str) -> str:
        """Pay back."""
        return f"paid {order}"

    async def approve(call: ToolCall) -> bool:
        await asyncio.sleep(0)
        return call.input == {"order": "A1"}

    agent = Agent("Rita", model=FlowModel())
    route = agent.create_route("Refund", gather_schema={"properties": {"order": {"type": "string"}}})
    ask = route.initial_state.transition_to(chat_state="Ask which order", gather=["order"])
    ask.transition_to(tool_state=refund).transition_to(state=END_ROUTE)
    result = await simulate(agent, SimulatedUser("A refund", {"order": "A1"}), approve=approve)
    assert (result.outcome, result.exchanges[-1].response.tool_calls[0].content) == ("completed", "paid A1")


async def test_unknown_routes_and_facts_of_a_simulated_user_are_rejected() -> None:
    agent, _ = make_flight_agent(model=FlowModel())
    with pytest.raises(InvalidArgumentError, match="does not gather 'e-mail'; its fields: destination, departure"):
        await simulate(agent, SimulatedUser("Fly", {"destination": "Rome", "e-mail": "x"}))
    with pytest.raises(InvalidArgumentError, match="has no route 'Sail'; its routes: Book a flight, Tell the weather"):
        await simulate(agent, SimulatedUser("Sail", route="Sail"))
    model = ScriptedModel([says("GOODBYE", expect=lambda request: "grumpy" in str(request.system))])
    assert (await simulate(agent, SimulatedUser("Fly", {"mood": "grumpy"}, model=model))).outcome == "gave up"
