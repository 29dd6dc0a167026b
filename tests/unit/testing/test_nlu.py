"""`understands`: scripting the interpretation of a message in the terms of the flow, and rejecting unknown terms."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tellback.agent import Agent, Route
from tellback.chat.model import ChatRequest
from tellback.errors import InvalidArgumentError
from tellback.testing import ScriptedModel, ScriptError, says, understands
from tellback.types import ChatUsage, user_message

CITY = {"type": "object", "properties": {"city": {"type": "string"}, "day": {"type": "string"}}}
PLACE = {"type": "object", "properties": {"city": {"type": "string"}, "seats": {"type": "integer"}}}


def two_routes(first: str = "Tell the weather", second: str = "Book a table") -> tuple[Agent, Route, Route]:
    agent = Agent("Wanda", guidelines=[{"condition": "the user is in a hurry", "action": "Be brief."}])
    weather = agent.create_route(title=first, id="first", conditions=["the user asks for it"], gather_schema=CITY)
    weather.initial_state.transition_to(chat_state="Ask where", gather=["city", "day"])
    table = agent.create_route(title=second, id="second", conditions=["the user eats"], gather_schema=PLACE)
    table.initial_state.transition_to(chat_state="Ask where", gather=["city", "seats"])
    return agent, weather, table


async def read_turn(agent: Agent, reading: Any) -> dict[str, Any]:
    """Return the answer of the model to the understanding request."""
    agent.model = model = ScriptedModel([reading, says("Well")])
    response = await agent.respond("…")
    assert model.remaining == 0
    answer: dict[str, Any] = json.loads(response.trace.calls[0].text)
    return answer


async def test_a_route_is_given_as_an_object_or_by_its_title() -> None:
    agent, weather, _ = two_routes()
    for route in (weather, "Tell the weather"):
        assert await read_turn(agent, understands(route=route)) == {
            "routes": [{"route": "tell_the_weather", "score": 90}]
        }
    assert (await read_turn(agent, understands(route=weather, score=55)))["routes"][0]["score"] == 55


async def test_several_scores_can_be_given() -> None:
    agent, weather, table = two_routes()
    answer = await read_turn(agent, understands(route=weather, scores={table: 20}))
    assert {each["route"]: each["score"] for each in answer["routes"]} == {"tell_the_weather": 90, "book_a_table": 20}


async def test_an_empty_interpretation_is_possible() -> None:
    agent, _, _ = two_routes()
    assert await read_turn(agent, understands()) == {"routes": []}


def stated_values(answer: dict[str, Any]) -> dict[str, Any]:
    return {each["field"]: each["value"] for each in answer["data"]}


async def test_values_go_to_the_given_route_or_the_only_route_with_the_field() -> None:
    agent, weather, table = two_routes()
    answer = await read_turn(agent, understands(route=table, city="Rome", seats=2, day="today"))
    assert stated_values(answer) == {
        "book_a_table.city": "Rome",
        "book_a_table.seats": 2,
        "tell_the_weather.day": "today",
    }
    assert stated_values(await read_turn(agent, understands(day="today"))) == {"tell_the_weather.day": "today"}
    answer = await read_turn(agent, understands(route=weather, data={"city": "Rome"}, day="today"))
    assert stated_values(answer) == {"tell_the_weather.city": "Rome", "tell_the_weather.day": "today"}


async def test_a_field_of_several_routes_needs_the_route_argument() -> None:
    agent, _, _ = two_routes()
    with pytest.raises(ScriptError, match=r"several routes have the field 'city' .*: pass route="):
        await read_turn(agent, understands(city="Rome"))


async def test_forgotten_fields_are_sent_with_route_and_field() -> None:
    agent, weather, _ = two_routes()
    assert (await read_turn(agent, understands(forget=["day"])))["forget"] == ["tell_the_weather.day"]
    assert (await read_turn(agent, understands(route=weather, forget=["city"])))["forget"] == ["tell_the_weather.city"]


async def test_conditions_are_given_by_their_text() -> None:
    agent, _, _ = two_routes()
    agent.create_guideline(condition="the user is sad", action="Cheer them up.")
    answer = await read_turn(agent, understands(holds=["the user is sad"]))
    assert answer["conditions"] == ["c2"]


async def test_an_interpretation_can_have_usage() -> None:
    agent, _, _ = two_routes()
    agent.model = ScriptedModel([understands(usage=ChatUsage(input_tokens=7)), says("Well")])
    assert (await agent.respond("…")).usage.input_tokens == 7


@pytest.mark.parametrize(
    ("reading", "pattern"),
    [
        (understands(route="Fly to Mars"), "does not contain the route 'Fly to Mars'.*book_a_table"),
        (understands(scores={"Fly to Mars": 5}), "does not contain the route 'Fly to Mars'"),
        (understands(planet="Mars"), "does not contain the field 'planet'.*tell_the_weather.city"),
        (understands(forget=["planet"]), "does not contain the field 'planet'"),
        (understands(holds=["the user is on Mars"]), "does not contain the condition 'the user is on Mars'.*hurry"),
    ],
)
async def test_routes_fields_and_conditions_outside_the_prompt_fail(reading: Any, pattern: str) -> None:
    agent, _, _ = two_routes()
    with pytest.raises(ScriptError, match=pattern):
        await read_turn(agent, reading)


async def test_an_interpretation_step_for_a_reply_fails() -> None:
    agent = Agent("Wanda", model=ScriptedModel([understands()]))
    with pytest.raises(ScriptError, match="asked the model for a reply"):
        await agent.respond("Hi")


def test_an_interpretation_step_for_other_structured_output_fails() -> None:
    request = ChatRequest((user_message("Hi"),), output_schema={"type": "object", "properties": {"answer": {}}})
    with pytest.raises(ScriptError, match="asked the model for a reply"):
        understands()(request)


def test_an_interpretation_step_for_a_schema_without_properties_fails() -> None:
    request = ChatRequest((user_message("Hi"),), output_schema={"type": "array", "items": {"type": "string"}})
    with pytest.raises(ScriptError, match="asked the model for a reply"):
        understands()(request)


async def test_the_only_route_can_be_given_although_it_is_not_scored() -> None:
    agent = Agent("Wanda")
    route = agent.create_route(title="Tell the weather", gather_schema=CITY)
    route.initial_state.transition_to(chat_state="Ask where", gather=["city", "day"])
    agent.model = ScriptedModel([understands(route=route, city="Rome"), says("Which day?")])
    response = await agent.respond("Rome")
    assert response.session.extracted == {"city": "Rome"}
    assert response.trace.problems == ()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Book a table", "Book a table!"),
        ("Book a table", "Book a table"),
        ("!!!", "???"),
        ("Book a table for a birthday party of the family", "Book a table for a birthday party of the firm"),
        ("予約する", "キャンセルする"),
    ],
)
async def test_routes_with_equal_keys_are_distinguished(first: str, second: str) -> None:
    for index in (0, 1):
        agent, *routes = two_routes(first, second)
        agent.model = ScriptedModel([understands(route=routes[index], city="Rome"), says("Well")])
        response = await agent.respond("…")
        assert response.route is not None
        assert response.route.id == routes[index].id
        assert response.session.extracted == {"city": "Rome"}


async def test_an_interpretation_step_can_be_reused() -> None:
    agent, weather, _ = two_routes()
    reading = understands(route=weather, city="Rome")
    assert await read_turn(agent, reading) == await read_turn(agent, reading)


async def test_a_field_may_have_the_name_of_an_argument() -> None:
    agent = Agent("Wanda")
    schema = {"type": "object", "properties": {"score": {"type": "integer"}, "route": {"type": "string"}}}
    route = agent.create_route(title="Rate", gather_schema=schema)
    route.initial_state.transition_to(chat_state="Ask", gather=["score", "route"])
    agent.model = ScriptedModel([understands(data={"score": 5, "route": "A9"}), says("Thanks")])
    response = await agent.respond("…")
    assert response.session.extracted == {"score": 5, "route": "A9"}


async def route_of_reading(agent: Agent, reading: Any) -> str:
    """Return the id of the understood route."""
    agent.model = ScriptedModel([reading, says("Well")])
    response = await agent.respond("…")
    assert response.route is not None
    assert response.trace.problems == ()
    return response.route.id


def book_route(id: str, title: str = "Book", **fields: Any) -> Route:
    route = Route(title, id, **fields)
    route.initial_state.transition_to(chat_state="Ask", gather=list(route.schema.fields))
    return route


async def test_a_route_of_two_agents_works_in_both() -> None:
    plain, other = book_route("plain", gather_schema=CITY), book_route("other", "Book!", gather_schema=PLACE)
    first, second = Agent("Wanda", routes=[other, plain]), Agent("Rita", routes=[plain, other])
    sole = Agent("Solo", routes=[other])
    for agent in (first, second):
        for route in (plain, other):
            assert await route_of_reading(agent, understands(route=route, city="Rome")) == route.id
            assert await route_of_reading(agent, understands(route=route.title, city="Rome")) == route.id
    assert await route_of_reading(sole, understands(route=other, city="Rome")) == "other"
    Agent("Last", routes=[plain, other])
    assert other.key == "book_2"
    assert await route_of_reading(sole, understands(route=other, city="Rome")) == "other"


@pytest.mark.parametrize(
    ("one", "another"),
    [
        ({"description": "A table."}, {"description": "A flight."}),
        ({"conditions": ["the user\neats"]}, {"conditions": ["the user flies"]}),
        ({"gather_schema": CITY}, {"gather_schema": PLACE}),
    ],
)
async def test_routes_with_one_title_are_distinguished_by_their_description(
    one: dict[str, Any], another: dict[str, Any]
) -> None:
    routes = [book_route("one", **one), book_route("another", **another)]
    agent = Agent("Wanda", routes=routes)
    Agent("Rita", routes=routes[::-1])
    for route in routes:
        assert await route_of_reading(agent, understands(route=route)) == route.id
    with pytest.raises(
        ScriptError, match=r"several routes have the title 'Book' \(book, book_2\): pass the route itself"
    ):
        await route_of_reading(agent, understands(route="Book"))


async def test_indistinguishable_routes_raise_an_error() -> None:
    agent = Agent("Wanda", routes=[book_route("one"), book_route("another")])
    with pytest.raises(ScriptError, match=r"several routes have the title 'Book' .*: give them different titles"):
        await route_of_reading(agent, understands(route=_with_key(book_route("third"), "book_3")))


def _with_key(route: Route, key: str) -> Route:
    route.key = key
    return route


async def test_a_title_does_not_match_a_longer_title() -> None:
    agent = Agent("Wanda", routes=[book_route("now", "Book. Now"), book_route("book"), book_route("lines", "A\n line")])
    assert await route_of_reading(agent, understands(route="Book")) == "book"
    assert await route_of_reading(agent, understands(route="Book. Now")) == "now"
    assert await route_of_reading(agent, understands(route="A\n line")) == "lines"


async def test_a_field_of_several_routes_belongs_to_the_current_route() -> None:
    agent, _, table = two_routes()
    agent.model = ScriptedModel([understands(route=table), says("Where?"), understands(city="Rome"), says("When?")])
    response = await agent.respond("A table")
    response = await agent.respond("Rome", response.session)
    assert response.route is not None
    assert (response.route.id, response.session.extracted) == ("second", {"city": "Rome"})


async def test_a_condition_with_several_lines_matches() -> None:
    agent = Agent("Wanda", guidelines=[{"condition": "the user is angry\n  or upset", "action": "Be kind."}])
    for condition in ("the user is angry\n  or upset", "the user is angry or upset"):
        assert (await read_turn(agent, understands(holds=[condition])))["conditions"] == ["c1"]


def test_strings_instead_of_lists_are_rejected() -> None:
    with pytest.raises(InvalidArgumentError, match="holds must be a list, got 'the user is sad'"):
        understands(holds="the user is sad")
    with pytest.raises(InvalidArgumentError, match=r"write forget=\[...\]"):
        understands(forget="city")
