"""The prompts of an agent: relevant routes, known and rejected values, and the retry of an unparseable answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellback.agent import Agent, InMemorySessions, Limits, create_session
from tellback.errors import OutputValidationError
from tellback.testing import ScriptedModel, answers, says, understands
from tellback.testing.nlu import parse_understanding_request
from tellback.types import message_text, remove_instructions
from tests.unit.agent.travel_setup import make_travel_setup, model_requests, reply_prompt, respond

THINGS = ("flight", "hotel", "train", "table", "concert", "doctor", "taxi", "boat", "museum", "haircut")


def make_busy_agent(count: int, **fields: Any) -> Agent:
    """Build an agent with this many routes, the last of which is about penguins."""
    agent = Agent("Concierge", **fields)
    for number in range(count - 1):
        thing = THINGS[number % len(THINGS)]
        route = agent.create_route(
            title=f"Arrange {thing} {number}",
            conditions=[f"the user wants {thing} number {number}"],
            gather_schema={"type": "object", "properties": {f"{thing}_{number}": {"type": "string"}}},
        )
        route.initial_state.transition_to(chat_state=f"Ask about {thing} {number}", gather=[f"{thing}_{number}"])
    route = agent.create_route(
        title="Adopt a penguin",
        conditions=["the user wants to adopt a penguin"],
        gather_schema={"type": "object", "properties": {"penguin": {"type": "string"}}},
    )
    route.initial_state.transition_to(chat_state="Ask which penguin", gather=["penguin"])
    return agent


def in_play(agent: Agent) -> set[str]:
    """Return the fields in the last understanding request."""
    reading = parse_understanding_request(model_requests(agent)[0])
    assert reading is not None
    return set(reading.field_names)


def prompt_sizes(agent: Agent) -> tuple[int, int, int]:
    """Return the lengths of the two prompts and of the schema of the last turn."""
    reading, reply = model_requests(agent)
    return len(reading.system or ""), len(json.dumps(reading.output_schema)), len(reply.system or "")


async def test_prompt_size_does_not_grow_with_irrelevant_routes() -> None:
    found = {}
    for count in (5, 50, 500):
        agent = make_busy_agent(count)
        script = (understands(route="Adopt a penguin", penguin="Pingu"), says("Lovely"))
        response = await respond(agent, "I would like to adopt a penguin called Pingu", None, *script)
        assert response.session.extracted == {"penguin": "Pingu"}
        found[count] = prompt_sizes(agent)
    for few, many, most in zip(*found.values(), strict=True):
        assert most < 1.2 * many
        assert many < 8 * few


async def test_the_agents_limits_are_used() -> None:
    agent = make_busy_agent(50, limits=Limits(in_play=2, listed=3))
    await respond(agent, "I would like to adopt a penguin", None, understands(route="Adopt a penguin"), says("Which?"))
    reading = parse_understanding_request(model_requests(agent)[0])
    assert reading is not None
    assert len(reading.routes) == 3
    assert len(in_play(agent)) == 2
    assert "adopt_a_penguin.penguin" in in_play(agent)


async def test_the_fields_of_current_and_paused_routes_are_always_in_the_prompt() -> None:
    agent = make_busy_agent(50, limits=Limits(in_play=1, listed=2))
    first = await respond(agent, "A penguin please", None, understands(route="Adopt a penguin"), says("Which?"))
    detour = await respond(agent, "flight 0", first.session, understands(route="Arrange flight 0"), says("Where?"))
    await respond(agent, "I need a doctor", detour.session, understands(), says("Hm"))
    assert in_play(agent) == {"adopt_a_penguin.penguin", "arrange_flight_0.flight_0"}


async def test_the_reply_prompt_contains_only_the_active_route() -> None:
    setup = make_travel_setup()
    await respond(setup.agent, "Fly", None, understands(route=setup.book), says("Where to?"))
    assert "Book a flight" in reply_prompt(setup.agent)
    assert "weather" not in reply_prompt(setup.agent)


async def test_known_values_are_listed_as_not_to_be_asked_for() -> None:
    setup = make_travel_setup()
    reading = understands(route=setup.book, destination="Rome", passengers=2)
    first = await respond(setup.agent, "Two to Rome", None, reading, says("When?"))
    expected = 'Already known, do not ask for it again: {"destination":"Rome","passengers":2}'
    assert expected in reply_prompt(setup.agent)
    await respond(setup.agent, "Hm", first.session, understands(route=setup.book), says("When?"))
    assert expected in reply_prompt(setup.agent)
    assert '"destination":"Rome"' in message_text(model_requests(setup.agent)[0].messages[0])


async def test_rejected_values_are_in_the_prompt_with_the_reason() -> None:
    setup = make_travel_setup()
    reading = understands(route=setup.book, destination="Rome", passengers=12)
    await respond(setup.agent, "12 to Rome", None, reading, says("Nine at most"))
    [line] = [line for line in reply_prompt(setup.agent).splitlines() if "is invalid" in line]
    assert "passengers = 12" in line
    assert "9" in line
    assert "passengers" not in str(remove_instructions(model_requests(setup.agent)[1].messages))


async def test_limits_of_a_field_are_in_the_prompt_but_not_in_the_schema() -> None:
    setup = make_travel_setup()
    await respond(setup.agent, "Fly", None, understands(route=setup.book), says("Where to?"))
    reading = model_requests(setup.agent)[0]
    assert '"maximum":9' in (reading.system or "")
    assert '"maximum": 9' not in json.dumps(reading.output_schema)


async def test_the_prompt_contains_identity_rules_terms_and_context() -> None:
    agent = Agent(
        "Wanda",
        "A travel agent",
        "Book flights",
        rules=["Be kind"],
        prohibitions=["Promise refunds"],
        terms=[{"name": "PNR", "description": "Identifies a booking."}],
        context={"season": "winter"},
    )
    await respond(agent, "Hi", None, says("Hello!"))
    for text in ("Wanda", "A travel agent", "Book flights", "Be kind", "Promise refunds", "PNR", "winter"):
        assert text in reply_prompt(agent)


async def test_rules_of_a_route_are_only_in_its_prompts() -> None:
    agent = Agent("Wanda")
    route = agent.create_route(
        title="Fly", conditions=["the user flies"], rules=["Name the price"], prohibitions=["Sell insurance"]
    )
    route.initial_state.transition_to(chat_state="Ask where to")
    first = await respond(agent, "Hi", None, understands(), says("Hello!"))
    assert "Name the price" not in reply_prompt(agent)
    await respond(agent, "Fly", first.session, understands(route=route), says("Where?"))
    assert "Name the price" in reply_prompt(agent)
    assert "Sell insurance" in reply_prompt(agent)


@settings(max_examples=60, deadline=None)
@given(text=st.text(min_size=1, max_size=80).filter(lambda text: text.strip() != ""))
async def test_no_message_can_imitate_another_line_of_the_understanding_prompt(text: str) -> None:
    setup = make_travel_setup()
    await respond(setup.agent, f"x\nKnown: {text}", None, understands(), says("Hello!"))
    prompt = message_text(model_requests(setup.agent)[0].messages[0])
    assert len(prompt.split("\n")) == 2
    assert prompt.split("\n")[1].startswith("Newest message: ")


async def test_only_the_end_of_a_long_history_is_in_the_prompt() -> None:
    setup = make_travel_setup()
    history = [
        {"role": "user" if number % 2 == 0 else "assistant", "content": f"line {number}"} for number in range(61)
    ]
    await respond(setup.agent, history, None, understands(), says("Hello!"))
    prompt = message_text(model_requests(setup.agent)[0].messages[0])
    assert '"line 60"' in prompt
    assert '"line 59"' in prompt
    assert '"line 10"' not in prompt


async def test_understanding_prompts_share_a_prefix_across_turns() -> None:
    setup = make_travel_setup()
    first = await respond(setup.agent, "Fly", None, understands(route=setup.book), says("Where?"))
    before = model_requests(setup.agent)[0].system
    await respond(setup.agent, "Rome", first.session, understands(route=setup.book, destination="Rome"), says("When?"))
    assert before is not None
    assert (model_requests(setup.agent)[0].system or "").startswith(before)


MALFORMED = ["", "Sure! Here you go:", "[1, 2]", '"book_a_flight"', "null", '{"routes": [', "[" * 5000, "{}{}"]


@pytest.mark.parametrize("text", MALFORMED, ids=lambda text: text[:20] or "nothing")
async def test_an_unparseable_answer_is_requested_once_more(text: str) -> None:
    setup = make_travel_setup()
    script = (says(text), understands(route=setup.book, destination="Rome"), says("When?"))
    response = await respond(setup.agent, "Rome", None, *script)
    assert response.session.extracted == {"destination": "Rome"}
    retry = model_requests(setup.agent)[1]
    assert [message.role for message in retry.messages] == ["user", "assistant", "user"]
    assert "Your answer is invalid" in message_text(retry.messages[-1])


@pytest.mark.parametrize("text", MALFORMED, ids=lambda text: text[:20] or "nothing")
async def test_after_a_second_unparseable_answer_the_agent_asks_to_rephrase(text: str) -> None:
    setup = make_travel_setup(persistence=InMemorySessions())
    first = await respond(setup.agent, "Fly", "web-42", understands(route=setup.book), says("Where to?"))
    response = await respond(setup.agent, "Rome", "web-42", says(text), says(text), says("Sorry, where to?"))
    assert response.message == "Sorry, where to?"
    assert "The newest message could not be understood." in reply_prompt(setup.agent)
    [problem] = response.problems
    assert problem.step == "understand"
    assert isinstance(problem.error, OutputValidationError)
    assert problem.error.text == text
    assert response.session.extracted == first.session.extracted
    assert response.state == first.state
    retried = await respond(setup.agent, "Rome", "web-42", understands(destination="Rome"), says("When?"))
    assert retried.session.extracted == {"destination": "Rome"}


async def test_an_answer_in_a_code_fence_is_parsed() -> None:
    setup = make_travel_setup()
    text = '```json\n{"routes": [{"route": "book_a_flight", "score": 90}]}\n```'
    response = await respond(setup.agent, "Fly", None, says(text), says("Where?"))
    assert response.route is not None


@pytest.mark.parametrize(
    "part",
    [
        {"routes": "book_a_flight"},
        {"routes": 5},
        {"routes": [["book_a_flight", 90]]},
        {"routes": [{"route": "book_a_flight", "score": "high"}]},
        {"data": "Rome"},
        {"data": ["Rome"]},
        {"data": {"book_a_flight": "Rome"}},
        {"data": [{"value": "Rome"}]},
        {"data": [{"field": "book_a_flight", "value": "Rome"}]},
        {"forget": "destination"},
        {"conditions": {"c1": True}},
    ],
    ids=str,
)
async def test_an_invalid_part_of_an_answer_is_always_reported(part: dict[str, Any]) -> None:
    setup = make_travel_setup()
    response = await respond(setup.agent, "Fly", None, answers({"routes": [], **part}), says("Hello!"))
    assert response.trace.problems != ()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=6) | st.sampled_from(["route", "score"]), inner, max_size=3)
    ),
    max_leaves=8,
)
readings = st.fixed_dictionaries(
    {},
    optional={
        "routes": json_values
        | st.lists(
            st.fixed_dictionaries(
                {"route": st.sampled_from(["book_a_flight", "tell_the_weather"]), "score": json_values}
            )
        ),
        "data": json_values
        | st.lists(
            st.fixed_dictionaries(
                {
                    "field": st.sampled_from(["book_a_flight.destination", "book_a_flight.departure", "city"]),
                    "value": json_values,
                }
            )
        )
        | st.fixed_dictionaries(
            {}, optional={"book_a_flight": st.dictionaries(st.sampled_from(["destination", "departure"]), json_values)}
        ),
        "forget": json_values | st.lists(st.sampled_from(["book_a_flight.destination", "x"])),
        "conditions": json_values,
    },
)


@settings(max_examples=120, deadline=None)
@given(reading=readings)
async def test_any_parsed_answer_lets_the_turn_continue_with_valid_values(reading: dict[str, Any]) -> None:
    setup = make_travel_setup()
    session = create_session()
    response = await respond(setup.agent, "Fly", session, says(json.dumps(reading)), says("Well"))
    assert response.message == "Well"
    plain = setup.book.schema.plain(response.session.extracted)
    if response.route is not None and response.route.title == "Book a flight":
        assert {name: setup.book.schema.check(name, value) for name, value in plain.items()} == dict(
            response.session.extracted
        )


async def test_the_understanding_request_contains_only_open_questions() -> None:
    agent = Agent("Wanda", guidelines=[{"condition": "the user is angry", "action": "Calm them."}])
    agent.model = model = ScriptedModel([understands(), says("Hello!")])
    await agent.respond("Hi")
    schema = model.requests[0].output_schema
    assert schema is not None
    assert list(schema["properties"]) == ["conditions"]
    assert "routes:" not in (model.requests[0].system or "")
