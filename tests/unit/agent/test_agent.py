"""Conversations with an agent: known values, corrections, detours, and the number of model calls."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

from tellback.agent import END_ROUTE, Agent, create_session, session_data_to_state, session_state_to_data
from tellback.testing import ScriptedModel, says, understands
from tests.unit.agent.travel_setup import Flight, make_travel_setup, model_requests, reply_prompt, respond

FLIGHT: dict[str, Any] = {"destination": "Rome", "departure": "2026-12-01", "passengers": 2}


def make_flight_route() -> tuple[Agent, list[str]]:
    """Build a flight route whose states skip known fields, and return the states' ids."""
    agent = Agent("Travel Agent")
    route = agent.create_route(
        title="Book Flight",
        gather_schema={
            "type": "object",
            "properties": {
                "destination": {"type": "string"},
                "departure_date": {"type": "string"},
                "passengers": {"type": "number", "minimum": 1, "maximum": 9},
            },
            "required": ["destination", "departure_date", "passengers"],
        },
    )
    ask_destination = route.initial_state.transition_to(
        chat_state="Ask where they want to fly",
        gather=["destination"],
        skip_if=lambda extracted: bool(extracted.get("destination")),
    )
    ask_dates = ask_destination.transition_to(
        chat_state="Ask about travel dates",
        gather=["departure_date"],
        skip_if=lambda extracted: bool(extracted.get("departure_date")),
        required_data=["destination"],
    )
    ask_passengers = ask_dates.transition_to(
        chat_state="How many passengers?",
        gather=["passengers"],
        skip_if=lambda extracted: bool(extracted.get("passengers")),
    )
    present = ask_passengers.transition_to(chat_state="Present available flights")
    present.transition_to(state=END_ROUTE)
    return agent, [ask_destination.id, ask_dates.id, ask_passengers.id, present.id]


async def test_a_flight_is_booked_question_by_question() -> None:
    agent, [destination, dates, passengers, present] = make_flight_route()
    first = await respond(agent, "I want to fly", create_session(), understands(), says("Where to?"))
    second = await respond(agent, "Paris", first.session, understands(destination="Paris"), says("When?"))
    third = await respond(agent, "June 15", second.session, understands(departure_date="2026-06-15"), says("How many?"))
    fourth = await respond(agent, "Two of us", third.session, understands(passengers=2), says("Here they are"))
    last = await respond(agent, "Thanks", fourth.session, understands(), says("Have a good trip"))
    state_ids = [each.state.id for each in (first, second, third, fourth) if each.state is not None]
    assert state_ids == [destination, dates, passengers, present]
    assert last.completed
    assert last.session.extracted == {"destination": "Paris", "departure_date": "2026-06-15", "passengers": 2}
    assert [visit.completed for visit in last.session.route_history] == [True]


async def test_a_flight_stated_in_one_message_skips_all_questions() -> None:
    agent, [*_, present] = make_flight_route()
    reading = understands(destination="Paris", departure_date="2026-06-15", passengers=2)
    response = await respond(agent, "Two of us to Paris on June 15", create_session(), reading, says("Here they are"))
    assert response.state is not None
    assert response.state.id == present
    assert response.trace.model_calls == 2


async def test_values_stated_in_one_message_are_not_asked_for() -> None:
    setup = make_travel_setup()
    script = (understands(route=setup.book, **FLIGHT), says("One flight, 120 euros"))
    response = await respond(setup.agent, "To Rome on December 1, two of us", None, *script)
    assert response.message == str(response) == "One flight, 120 euros"
    assert response.route is not None
    assert response.route.title == "Book a flight"
    assert response.state is not None
    assert response.state.description == "Offer the flights found"
    assert response.session.extracted == {"destination": "Rome", "departure": date(2026, 12, 1), "passengers": 2}
    assert setup.searched == [("Rome", date(2026, 12, 1), 2)]
    assert "Ask for:" not in reply_prompt(setup.agent)


async def test_only_missing_fields_are_asked_for() -> None:
    setup = make_travel_setup()
    script = (understands(route=setup.book, destination="Rome", passengers=2), says("When?"))
    response = await respond(setup.agent, "Two of us to Rome", None, *script)
    assert response.state is not None
    assert response.state.description == "Ask when and how many"
    prompt_lines = [line for line in reply_prompt(setup.agent).splitlines() if line.startswith("Ask for:")]
    assert len(prompt_lines) == 1
    assert "departure" in prompt_lines[0]
    assert setup.searched == []


async def test_a_value_stated_before_its_question_is_kept() -> None:
    setup = make_travel_setup()
    first = await respond(
        setup.agent, "A flight for two", None, understands(route=setup.book, passengers=2), says("Where?")
    )
    assert first.state is not None
    assert first.state.description == "Ask where to"
    script = (understands(route=setup.book, destination="Rome", departure="2026-12-01"), says("One flight"))
    second = await respond(setup.agent, "Rome, December 1", first.session, *script)
    assert second.state is not None
    assert second.state.description == "Offer the flights found"


async def test_a_correction_runs_the_search_again() -> None:
    setup = make_travel_setup()
    first = await respond(setup.agent, "To Rome…", None, understands(route=setup.book, **FLIGHT), says("One flight"))
    script = (understands(scores={setup.book: 80}, destination="Oslo"), says("Oslo then"))
    second = await respond(setup.agent, "No, Oslo", first.session, *script)
    assert second.session.extracted["destination"] == "Oslo"
    assert [each[0] for each in setup.searched] == ["Rome", "Oslo"]
    assert second.state is not None
    assert second.state.description == "Offer the flights found"
    assert "Rome" not in reply_prompt(setup.agent)


async def test_a_value_taken_back_is_asked_for_again() -> None:
    setup = make_travel_setup()
    first = await respond(setup.agent, "To Rome…", None, understands(route=setup.book, **FLIGHT), says("One flight"))
    script = (understands(scores={setup.book: 80}, forget=["departure"]), says("When then?"))
    second = await respond(setup.agent, "Forget the date", first.session, *script)
    assert "departure" not in second.session.extracted
    assert second.state is not None
    assert second.state.description == "Ask when and how many"
    assert len(setup.searched) == 1


async def test_repeating_a_value_is_not_a_correction() -> None:
    setup = make_travel_setup()
    first = await respond(setup.agent, "To Rome…", None, understands(route=setup.book, **FLIGHT), says("One flight"))
    script = (understands(scores={setup.book: 80}, destination="Rome"), says("Booked"))
    second = await respond(setup.agent, "Yes, the one to Rome", first.session, *script)
    assert second.completed
    assert len(setup.searched) == 1


async def test_a_rejected_correction_does_not_end_the_route() -> None:
    setup = make_travel_setup()
    first = await respond(setup.agent, "To Rome…", None, understands(route=setup.book, **FLIGHT), says("One flight"))
    script = (understands(scores={setup.book: 80}, passengers=12), says("Nine at most"))
    second = await respond(setup.agent, "Make it 12 passengers", first.session, *script)
    assert second.session.extracted["passengers"] == 2
    assert not second.completed
    assert second.state is not None
    assert second.state.description == "Offer the flights found"


async def test_a_detour_and_return_keeps_the_data() -> None:
    setup = make_travel_setup()
    first = await respond(setup.agent, "To Rome…", None, understands(route=setup.book, **FLIGHT), says("One flight"))
    weather_script = (understands(route=setup.weather, scores={setup.book: 20}, city="Rome"), says("Sunny"))
    second = await respond(setup.agent, "What's the weather in Rome?", first.session, *weather_script)
    assert second.route is not None
    assert second.route.title == "Tell the weather"
    assert second.session.extracted == {"city": "Rome"}
    assert "Left unfinished: Book a flight" in reply_prompt(setup.agent)
    return_script = (understands(route=setup.book, scores={setup.weather: 10}), says("So, that flight"))
    third = await respond(setup.agent, "Back to the flight", second.session, *return_script)
    assert third.session.extracted == first.session.extracted
    assert third.session.progress.runs == first.session.progress.runs
    assert third.state is not None
    assert third.state.description == "Offer the flights found"
    assert len(setup.searched) == 1
    fourth = await respond(setup.agent, "Book it", third.session, understands(route=setup.book), says("Booked"))
    assert fourth.completed


async def test_returning_with_a_correction_applies_it() -> None:
    setup = make_travel_setup()
    first = await respond(setup.agent, "To Rome…", None, understands(route=setup.book, **FLIGHT), says("One flight"))
    weather_script = (understands(route=setup.weather, scores={setup.book: 20}, city="Rome"), says("Rain"))
    second = await respond(setup.agent, "Weather in Rome?", first.session, *weather_script)
    return_script = (understands(route=setup.book, scores={setup.weather: 10}, destination="Oslo"), says("Oslo"))
    third = await respond(setup.agent, "Then book Oslo instead", second.session, *return_script)
    assert third.session.extracted["destination"] == "Oslo"
    assert [each[0] for each in setup.searched] == ["Rome", "Oslo"]


async def test_a_turn_makes_at_most_two_model_calls() -> None:
    setup = make_travel_setup()
    session = None
    turns: list[tuple[str, Any]] = [
        ("Hi", understands()),
        ("I want to fly", understands(route=setup.book)),
        ("Rome", understands(route=setup.book, destination="Rome")),
        ("weather?", understands(route=setup.weather, scores={setup.book: 5})),
        ("back", understands(route=setup.book, departure="2026-12-01", passengers=1)),
        ("no, Oslo", understands(route=setup.book, destination="Oslo")),
        ("book it", understands(route=setup.book)),
    ]
    for text, reading in turns:
        response = await respond(setup.agent, text, session, reading, says("Well"))
        assert response.trace.model_calls == 2
        assert [call.purpose for call in response.trace.calls] == ["understand", "reply"]
        session = response.session


async def test_a_turn_without_open_questions_makes_one_model_call() -> None:
    agent = Agent("Wanda")
    response = await respond(agent, "Hi", None, says("Hello!"))
    assert response.trace.model_calls == 1
    route = agent.create_route(title="Greet")
    route.initial_state.transition_to(chat_state="Greet").transition_to(chat_state="Say goodbye").transition_to(
        state=END_ROUTE
    )
    first = await respond(agent, "Hi", response.session, says("Hello!"))
    second = await respond(agent, "Bye", first.session, says("Goodbye!"))
    assert [first.trace.model_calls, second.trace.model_calls] == [1, 1]
    assert second.state is not None
    assert second.state.description == "Say goodbye"


async def test_skip_if_states_cost_no_model_call() -> None:
    agent = Agent("Wanda")
    schema = {"type": "object", "properties": {"plan": {"type": "string"}}}
    route = agent.create_route(title="Sell", gather_schema=schema, initial_data={"plan": "pro"})
    (
        route.initial_state.transition_to(chat_state="Offer pro", skip_if=lambda data: data["plan"] == "pro")
        .transition_to(chat_state="Offer a trial", skip_if=lambda data: data["plan"] != "free")
        .transition_to(chat_state="Thank them")
        .transition_to(state=END_ROUTE)
    )
    response = await respond(agent, "Hi", None, says("Thank you!"))
    assert response.trace.model_calls == 1
    assert [step.action for step in response.trace.walked] == ["skipped", "skipped", "speaks"]


async def test_a_turn_without_a_message_skips_understanding() -> None:
    agent, [destination, *_] = make_flight_route()
    response = await respond(agent, None, None, says("Where would you like to fly?"))
    assert response.state is not None
    assert response.state.id == destination
    assert response.trace.model_calls == 1


async def test_a_history_of_several_messages_can_be_passed() -> None:
    setup = make_travel_setup()
    history = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello, where to?"},
        {"role": "user", "content": "Rome"},
    ]
    await respond(setup.agent, history, None, understands(route=setup.book, destination="Rome"), says("When?"))
    reading, reply = model_requests(setup.agent)
    assert "Hello, where to?" in str(reading.messages[0].content)
    assert [message.role for message in reply.messages] == ["user", "assistant", "user"]


async def test_a_session_can_be_stored_in_a_database_between_turns() -> None:
    setup = make_travel_setup()
    first = await respond(setup.agent, "To Rome…", None, understands(route=setup.book, **FLIGHT), says("One flight"))
    session = session_data_to_state(first.session.id, session_state_to_data(first.session))
    second = await respond(setup.agent, "Book it", session, understands(route=setup.book), says("Booked"))
    assert second.completed
    assert second.session.extracted["departure"] == date(2026, 12, 1)
    assert Flight.model_validate(second.session.extracted).passengers == 2
    assert len(setup.searched) == 1


async def test_the_session_passed_in_stays_unchanged() -> None:
    setup = make_travel_setup()
    session = create_session("web-42")
    before = session_state_to_data(session)
    response = await respond(
        setup.agent, "To Rome…", session, understands(route=setup.book, **FLIGHT), says("One flight")
    )
    assert session_state_to_data(session) == before
    assert (session.version, response.session.version) == (0, 1)


async def test_understand_model_reads_messages_and_model_replies() -> None:
    setup = make_travel_setup()
    with ScriptedModel([understands(route=setup.book)]) as reader, ScriptedModel([says("Where to?")]) as writer:
        setup.agent.understand_model = reader
        setup.agent.model = writer
        response = await setup.agent.respond("I want to fly")
    assert response.message == "Where to?"


async def test_the_agents_clock_is_used() -> None:
    setup = make_travel_setup(clock=lambda: datetime(2031, 5, 6, tzinfo=UTC))
    response = await respond(setup.agent, "Fly", None, understands(route=setup.book), says("Where?"))
    assert "Today: 2031-05-06 (Tuesday)" in str(model_requests(setup.agent)[0].messages[0].content)
    assert response.session.current_route is not None
    assert response.session.current_route.entered_at.year == 2031


async def test_structured_returns_the_answer_as_one_value() -> None:
    setup = make_travel_setup()
    response = await respond(setup.agent, "To Rome…", None, understands(route=setup.book, **FLIGHT), says("One flight"))
    structured = response.structured
    assert (structured.message, structured.route, structured.state) == (
        "One flight",
        "Book a flight",
        "Offer the flights found",
    )
    assert [call.tool_name for call in structured.tool_calls] == ["search_flights"]
