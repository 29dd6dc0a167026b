"""The choice of the route, and of the transitions in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tellback.agent import END_ROUTE, Agent, Route, Thresholds
from tellback.testing import FlowModel, says, understands
from tests.unit.agent.travel_setup import make_travel_setup, reply_prompt, respond

FLIGHT: dict[str, Any] = {"destination": "Rome", "departure": "2026-12-01", "passengers": 2}


async def test_another_route_must_win_by_a_margin() -> None:
    setup = make_travel_setup()
    first = await respond(setup.agent, "I want to fly", None, understands(route=setup.book), says("Where?"))
    close_script = (understands(scores={setup.book: 60, setup.weather: 74}), says("Where?"))
    stay_response = await respond(setup.agent, "Somewhere warm", first.session, *close_script)
    assert stay_response.route is not None
    assert stay_response.route.title == "Book a flight"
    assert "by 15" in stay_response.trace.route
    clear_script = (understands(scores={setup.book: 60, setup.weather: 75}), says("Which city?"))
    leave_response = await respond(setup.agent, "Where is it warm?", first.session, *clear_script)
    assert leave_response.route is not None
    assert leave_response.route.title == "Tell the weather"


async def test_a_route_needs_a_minimum_score_to_be_entered() -> None:
    setup = make_travel_setup()
    below = await respond(setup.agent, "Hello", None, understands(scores={setup.book: 49}), says("Hello!"))
    assert below.route is None
    assert below.session.current_route is None
    assert "You can help with: Book a flight; Tell the weather." in reply_prompt(setup.agent)
    above = await respond(setup.agent, "Flying", below.session, understands(scores={setup.book: 50}), says("Where?"))
    assert above.route is not None


async def test_the_agents_thresholds_are_used() -> None:
    setup = make_travel_setup(thresholds=Thresholds(enter=10, margin=0))
    first = await respond(setup.agent, "Fly", None, understands(scores={setup.book: 10}), says("Where?"))
    assert first.route is not None
    same = (understands(scores={setup.book: 40, setup.weather: 40}), says("Which city?"))
    second = await respond(setup.agent, "Sun", first.session, *same)
    assert second.route is not None
    assert second.route.title == "Tell the weather"


async def test_a_completed_route_is_entered_again_only_with_a_high_score() -> None:
    setup = make_travel_setup()
    first = await respond(setup.agent, "To Rome…", None, understands(route=setup.book, **FLIGHT), says("One flight"))
    completed = await respond(setup.agent, "Book it", first.session, understands(route=setup.book), says("Booked"))
    assert completed.completed
    assert completed.session.current_route is None
    assert completed.session.extracted["destination"] == "Rome"
    thanks = await respond(setup.agent, "Thanks!", completed.session, understands(scores={setup.book: 74}), says("Bye"))
    assert thanks.route is None
    reentered = await respond(
        setup.agent, "Another one", thanks.session, understands(scores={setup.book: 75}), says("Where?")
    )
    assert reentered.route is not None
    assert reentered.session.extracted == {}
    assert reentered.session.progress.runs == {}


async def test_optional_fields_are_asked_for_once() -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "nickname": {"type": "string"}},
        "required": ["name"],
    }
    agent = Agent("Wanda")
    route = agent.create_route(title="Sign up", gather_schema=schema)
    (
        route.initial_state.transition_to(chat_state="Ask their names", gather=["name", "nickname"])
        .transition_to(chat_state="Welcome them")
        .transition_to(state=END_ROUTE)
    )
    first = await respond(agent, "Maya", None, understands(name="Maya"), says("And a nickname?"))
    assert first.state is not None
    assert first.state.description == "Ask their names"
    second = await respond(agent, "No", first.session, understands(), says("Welcome!"))
    assert second.state is not None
    assert second.state.description == "Welcome them"


async def test_conditions_of_branches_can_be_texts_or_functions() -> None:
    agent = Agent("Wanda")
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}}
    route = agent.create_route(title="Sign up", gather_schema=schema)
    ask = route.initial_state.transition_to(chat_state="Ask their age", gather=["age"])
    ask.transition_to(chat_state="Ask for a parent", condition=lambda data: data["age"] < 18)
    ask.transition_to(chat_state="Offer the newsletter", condition="the user likes news")
    ask.transition_to(chat_state="Welcome them")

    async def reply_state(age: int, *holds: str) -> str | None:
        response = await respond(agent, "…", None, understands(age=age, holds=holds), says("Well"))
        assert response.state is not None
        return response.state.description

    assert await reply_state(17, "the user likes news") == "Ask for a parent"
    assert await reply_state(30, "the user likes news") == "Offer the newsletter"
    assert await reply_state(30) == "Welcome them"


async def test_a_correction_changes_the_branch() -> None:
    agent = Agent("Wanda")
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}}
    route = agent.create_route(title="Sign up", gather_schema=schema)
    ask = route.initial_state.transition_to(chat_state="Ask their age", gather=["age"])
    ask.transition_to(chat_state="Ask for a parent", condition=lambda data: data["age"] < 18)
    ask.transition_to(chat_state="Welcome them")
    first = await respond(agent, "17", None, understands(age=17), says("Your parent?"))
    second = await respond(agent, "I mean 71", first.session, understands(age=71), says("Welcome"))
    assert second.state is not None
    assert second.state.description == "Welcome them"


async def test_a_session_in_a_removed_route_continues_without_it() -> None:
    old = make_travel_setup()
    first = await respond(old.agent, "To Rome…", None, understands(route=old.book, **FLIGHT), says("One flight"))
    response = await respond(Agent("Wanda"), "Hello?", first.session, says("Hello!"))
    assert response.route is None
    assert response.session.paused_routes[old.book.id].extracted["destination"] == "Rome"


@pytest.mark.parametrize(
    "history", [None, "", [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]]
)
async def test_a_state_without_an_answer_speaks_again(history: Any) -> None:
    agent = Agent("Wanda")
    route = agent.create_route(title="Greet")
    route.initial_state.transition_to(chat_state="Greet").transition_to(chat_state="Say goodbye")
    first = await respond(agent, "Hi", None, says("Hello!"))
    second = await respond(agent, history, first.session, says("Still there?"))
    assert second.state is not None
    assert second.state.description == "Greet"


TRIP_FIELDS = {
    "type": "object",
    "properties": {
        "destination": {"type": "string"},
        "departureDate": {"type": "string"},
        "passengers": {"type": "number", "minimum": 1, "maximum": 9},
    },
    "required": ["destination", "departureDate", "passengers"],
}
"""The example of a route in the documentation of @falai/agent: step by step, and as a chain from the same state."""


def add_steps(route: Route) -> None:
    ask_destination = route.initial_state.transition_to(
        chat_state="Ask where they want to fly",
        gather=["destination"],
        skip_if=lambda extracted: bool(extracted.get("destination")),
    )
    ask_dates = ask_destination.transition_to(
        chat_state="Ask about travel dates",
        gather=["departureDate"],
        skip_if=lambda extracted: bool(extracted.get("departureDate")),
        required_data=["destination"],
    )
    ask_passengers = ask_dates.transition_to(
        chat_state="How many passengers?",
        gather=["passengers"],
        skip_if=lambda extracted: bool(extracted.get("passengers")),
    )
    assert ask_passengers.route_id == route.id


def add_chain(route: Route) -> None:
    (
        route.initial_state.transition_to(
            chat_state="Extract travel details", gather=["destination", "departureDate", "passengers"]
        )
        .transition_to(chat_state="Present available flights")
        .transition_to(state=END_ROUTE)
    )


def make_mixed_agent(*parts: Callable[[Route], None]) -> Agent:
    reads = {"destination": r"to ([A-Z]\w+)", "departureDate": r"on (\w+)", "passengers": r"(\d) of us"}
    agent = Agent("Wanda", model=FlowModel(reads=reads))
    route = agent.create_route(title="Book Flight", gather_schema=TRIP_FIELDS)
    for add in parts:
        add(route)
    agent.check()
    return agent


async def test_a_route_may_mix_steps_and_a_chain_from_the_same_state() -> None:
    agent = make_mixed_agent(add_steps, add_chain)
    session, spoken = None, []
    for message in ("I want to book", "to Paris", "on Monday"):
        response = await agent.respond(message, session)
        session = response.session
        spoken.append(response.state.description if response.state else None)
    assert spoken == ["Ask where they want to fly", "Ask about travel dates", "How many passengers?"]
    response = await agent.respond("3 of us", session)
    assert response.session.extracted == {"destination": "Paris", "departureDate": "Monday", "passengers": 3}
    assert response.state is not None
    assert response.state.description == "Present available flights"


@pytest.mark.parametrize("parts", [(add_steps, add_chain), (add_chain, add_steps)], ids=["steps first", "chain first"])
async def test_a_message_with_several_values_follows_the_chain(parts: Sequence[Callable[[Route], None]]) -> None:
    agent = make_mixed_agent(*parts)
    session, spoken = None, []
    for message in ("Book a flight to Paris on Monday", "3 of us", "thanks"):
        response = await agent.respond(message, session)
        session = response.session
        spoken.append(response.state.description if response.state else None)
    assert spoken == ["Extract travel details", "Present available flights", None]
    assert response.completed
