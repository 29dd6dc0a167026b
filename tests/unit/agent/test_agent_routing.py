"""Which route a conversation is in, and which way it takes in it."""

from __future__ import annotations

from typing import Any

import pytest

from tellback.agent import END_ROUTE, Agent, Thresholds
from tellback.testing import says, understands
from tests.unit.agent.travel_desk import reply_prompt, respond, travel_desk

WHOLE: dict[str, Any] = {"destination": "Rome", "departure": "2026-12-01", "passengers": 2}


async def test_another_route_takes_over_only_by_a_margin() -> None:
    desk = travel_desk()
    first = await respond(desk.agent, "I want to fly", None, understands(route=desk.book), says("Where?"))
    close = (understands(scores={desk.book: 60, desk.weather: 74}), says("Where?"))
    stays = await respond(desk.agent, "Somewhere warm", first.session, *close)
    assert stays.route is not None
    assert stays.route.title == "Book a flight"
    assert "by 15" in stays.trace.route
    enough = (understands(scores={desk.book: 60, desk.weather: 75}), says("Which city?"))
    leaves = await respond(desk.agent, "Where is it warm?", first.session, *enough)
    assert leaves.route is not None
    assert leaves.route.title == "Tell the weather"


async def test_a_route_needs_a_score_to_be_entered() -> None:
    desk = travel_desk()
    below = await respond(desk.agent, "Hello", None, understands(scores={desk.book: 49}), says("Hello!"))
    assert below.route is None
    assert below.session.current_route is None
    assert "You can help with: Book a flight; Tell the weather." in reply_prompt(desk.agent)
    above = await respond(desk.agent, "Flying", below.session, understands(scores={desk.book: 50}), says("Where?"))
    assert above.route is not None


async def test_thresholds_are_the_agents() -> None:
    desk = travel_desk(thresholds=Thresholds(enter=10, margin=0))
    first = await respond(desk.agent, "Fly", None, understands(scores={desk.book: 10}), says("Where?"))
    assert first.route is not None
    same = (understands(scores={desk.book: 40, desk.weather: 40}), says("Which city?"))
    second = await respond(desk.agent, "Sun", first.session, *same)
    assert second.route is not None
    assert second.route.title == "Tell the weather"


async def test_a_completed_route_is_entered_again_only_if_clearly_asked_for() -> None:
    desk = travel_desk()
    first = await respond(desk.agent, "To Rome…", None, understands(route=desk.book, **WHOLE), says("One flight"))
    done = await respond(desk.agent, "Book it", first.session, understands(route=desk.book), says("Booked"))
    assert done.completed
    assert done.session.current_route is None
    assert done.session.extracted["destination"] == "Rome"
    thanks = await respond(desk.agent, "Thanks!", done.session, understands(scores={desk.book: 74}), says("Bye"))
    assert thanks.route is None
    again = await respond(
        desk.agent, "Another one", thanks.session, understands(scores={desk.book: 75}), says("Where?")
    )
    assert again.route is not None
    assert again.session.extracted == {}
    assert again.session.progress.runs == {}


async def test_optional_fields_are_asked_once() -> None:
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


async def test_branches_follow_words_and_code() -> None:
    agent = Agent("Wanda")
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}}
    route = agent.create_route(title="Sign up", gather_schema=schema)
    ask = route.initial_state.transition_to(chat_state="Ask their age", gather=["age"])
    ask.transition_to(chat_state="Ask for a parent", condition=lambda data: data["age"] < 18)
    ask.transition_to(chat_state="Offer the newsletter", condition="the user likes news")
    ask.transition_to(chat_state="Welcome them")

    async def spoke(age: int, *holds: str) -> str | None:
        response = await respond(agent, "…", None, understands(age=age, holds=holds), says("Well"))
        assert response.state is not None
        return response.state.description

    assert await spoke(17, "the user likes news") == "Ask for a parent"
    assert await spoke(30, "the user likes news") == "Offer the newsletter"
    assert await spoke(30) == "Welcome them"


async def test_a_corrected_branch_is_taken_anew() -> None:
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


async def test_a_session_in_a_route_that_is_no_more_goes_on_without_it() -> None:
    old = travel_desk()
    first = await respond(old.agent, "To Rome…", None, understands(route=old.book, **WHOLE), says("One flight"))
    response = await respond(Agent("Wanda"), "Hello?", first.session, says("Hello!"))
    assert response.route is None
    assert response.session.paused_routes[old.book.id].extracted["destination"] == "Rome"


@pytest.mark.parametrize(
    "history", [None, "", [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]]
)
async def test_a_state_that_nobody_answered_speaks_again(history: Any) -> None:
    agent = Agent("Wanda")
    route = agent.create_route(title="Greet")
    route.initial_state.transition_to(chat_state="Greet").transition_to(chat_state="Say goodbye")
    first = await respond(agent, "Hi", None, says("Hello!"))
    second = await respond(agent, history, first.session, says("Still there?"))
    assert second.state is not None
    assert second.state.description == "Greet"
