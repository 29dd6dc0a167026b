"""Routes: their parts, the arguments they reject, and the routes an agent rejects."""

from __future__ import annotations

from typing import Any

import pytest

from tellback.agent import Agent
from tellback.agent.definitions.route import Route, RouteRef
from tellback.agent.definitions.state import END_ROUTE, generate_route_id
from tellback.errors import FlowError, InvalidArgumentError
from tests.unit.agent.flow.route_strategies import Facts


def test_the_id_is_derived_from_the_title_or_passed() -> None:
    assert Route("Book a flight").id == generate_route_id("Book a flight")
    assert Route("Book a flight", id="book").ref == RouteRef("book")


def test_a_route_begins_with_an_initial_state() -> None:
    route = Route("Book", gather_schema=Facts)
    ask = route.initial_state.transition_to(chat_state="Ask", gather=["b", "a"])
    ask.transition_to(chat_state="More", gather=["a", "day"]).transition_to(state=END_ROUTE)
    assert route.states[0] is route.initial_state
    assert route.state(ask.id) is ask
    assert route.state("nowhere") is None
    assert route.gatherable == ("b", "a", "day")


def test_gatherable_fields_grow_with_the_route() -> None:
    route = Route("Book", gather_schema=Facts)
    assert not route.gatherable
    ask = route.initial_state.transition_to(chat_state="Ask", gather=["b"])
    assert list(route.gatherable) == ["b"]
    ask.transition_to(chat_state="Ask more", gather=["a"])
    assert list(route.gatherable) == ["b", "a"]


def test_a_rejected_state_adds_no_gatherable_fields() -> None:
    route = Route("Book", gather_schema=Facts)
    ask = route.initial_state.transition_to(chat_state="Ask", gather=["b"])
    ask.transition_to(state=END_ROUTE)
    with pytest.raises(FlowError, match="unreachable"):
        ask.transition_to(chat_state="Bad", gather=["a"])
    assert route.gatherable == ("b",)
    assert len(route.states) == 2


def test_initial_data_is_validated_and_typed() -> None:
    assert Route("Book", gather_schema=Facts, initial_data={"b": "2"}).initial_data == {"b": 2}


@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        ({"title": ""}, "title"),
        ({"title": None}, "title"),
        ({"id": " "}, "id"),
        ({"conditions": "the user flies"}, r"conditions=\[...\]"),
        ({"conditions": [5]}, "conditions"),
        ({"rules": [""]}, "rules"),
        ({"prohibitions": 5}, "prohibitions"),
        ({"domains": "flights"}, "domains"),
        ({"gather_schema": 5}, "gather_schema"),
        ({"gather_schema": {"type": "string"}}, "gather_schema"),
        ({"gather_schema": Facts, "initial_data": {"nope": 1}}, "initial_data contains the field 'nope'"),
        ({"gather_schema": Facts, "initial_data": {"b": "many"}}, "initial_data, field b"),
        ({"initial_data": {"b": 1}}, "no gather_schema"),
        ({"initial_data": [1]}, "initial_data"),
    ],
)
def test_invalid_arguments_raise_flow_error(fields: dict[str, Any], pattern: str) -> None:
    with pytest.raises(FlowError, match=pattern) as caught:
        Route(**{"title": "Book", **fields})
    assert caught.value.place == ("a route" if "title" in fields else "route 'Book'")


def test_an_agent_rejects_a_second_route_with_the_same_id() -> None:
    agent = Agent("Wanda", routes=[Route("Book", id="book")])
    with pytest.raises(FlowError, match="'book' is already used by 'Book'") as caught:
        agent.create_route("Pay", id="book")
    assert caught.value.place == "route 'Pay'"
    with pytest.raises(FlowError, match="another id or title"):
        Agent("Wanda", routes=[Route("Book"), Route("Book")])
    assert len(agent.routes) == 1


def test_an_agent_rejects_an_unknown_domain() -> None:
    agent = Agent("Wanda", domains={"flights": {"find": len}})
    assert agent.create_route("Fly", domains=["flights"]).domains == ("flights",)
    agent.check()
    agent.create_route("Book", domains=["hotels"])
    with pytest.raises(FlowError, match=r"'hotels' is unknown\. Known: flights") as caught:
        agent.check()
    assert caught.value.place == "route 'Book'"


def test_an_agent_rejects_values_that_are_not_routes() -> None:
    not_a_route: Any = "Book"
    with pytest.raises(InvalidArgumentError, match="must be a Route"):
        Agent("Wanda").add_route(not_a_route)
    with pytest.raises(InvalidArgumentError, match="invalid arguments for a route"):
        Agent("Wanda").create_route("Book", colour="red")  # type: ignore[call-arg]


def test_a_route_changed_after_registration_is_checked_again() -> None:
    agent = Agent("Wanda", routes=[Route("Book")])
    agent.routes[0].initial_state.transition_to(state="nowhere")
    with pytest.raises(FlowError, match="'nowhere'"):
        agent.check()
