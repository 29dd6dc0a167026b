"""What an agent does with the reading of a message: every stated value is stored, or rejected with a reason."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest
from pydantic import BaseModel, model_validator

from tellback.agent import END_ROUTE, Agent, Route, create_session
from tellback.errors import InvalidArgumentError
from tellback.testing import Dialogue, answers, says, understands
from tests.unit.agent.test_agent_actions import Clinic, last_prompt
from tests.unit.agent.travel_setup import make_travel_setup


async def test_a_side_question_is_not_the_answer_to_a_confirmation() -> None:
    clinic = Clinic()
    dialogue = Dialogue(clinic.agent)
    await dialogue.says("Monday", understands(route=clinic.route, day="Monday"), says("Monday 9:00?"))
    await dialogue.says("Is there parking?", understands(answered=False), says("Yes. Monday 9:00?"))
    assert clinic.booked == []
    dialogue.expect(state="Ask to confirm")
    assert "answer this first" in last_prompt(dialogue)
    # The model calls the question an answer: code still does not start a tool that acts.
    await dialogue.says("And how much is it?", understands(answered=True, words={}), says("20 euros. Monday 9:00?"))
    assert clinic.booked == []
    await dialogue.says("Fine, yes", understands(answered=True), says("R1"))
    assert clinic.booked == ["Monday"]


async def test_without_a_word_about_the_answer_no_tool_runs() -> None:
    clinic = Clinic()
    dialogue = Dialogue(clinic.agent)
    await dialogue.says("Monday", understands(route=clinic.route, day="Monday"), says("Monday 9:00?"))
    reading = answers({"routes": [{"route": "book_a_visit", "score": 90}], "data": [], "forget": [], "conditions": []})
    await dialogue.says("Hm", reading, says("Monday 9:00?"))
    assert clinic.booked == []
    assert dialogue.last.trace.problems != ()
    dialogue.expect(state="Ask to confirm")


async def test_a_second_intent_waits_is_announced_and_resumes_by_itself() -> None:
    setup = make_travel_setup()
    dialogue = Dialogue(setup.agent)
    reading = understands(scores={setup.book: 95, setup.weather: 90}, data={"destination": "Rome", "city": "Oslo"})
    await dialogue.says("Fly me to Rome, and how is the weather in Oslo?", reading, says("When? Then the weather"))
    dialogue.expect(route=setup.book, state="Ask when and how many", data={"destination": "Rome"})
    assert "The user also wants: Tell the weather. Say that this comes next" in last_prompt(dialogue)
    assert dialogue.last.trace.queued == ("Tell the weather",)
    facts = understands(departure="2026-12-01", passengers=2)
    await dialogue.says("2026-12-01, two", facts, says("TP1?"))
    assert "Comes next, when this is done: Tell the weather" in last_prompt(dialogue)
    await dialogue.says("Great", understands(answered=True), says("Booked. It is sunny in Oslo"))
    dialogue.expect(route=setup.weather, state="Tell the weather there", data={"city": "Oslo"})
    assert [each.title for each in dialogue.last.completed_routes] == ["Book a flight"]
    assert "'Book a flight' was completed now: conclude it first" in last_prompt(dialogue)


async def test_a_second_intent_that_the_user_takes_back_is_not_begun() -> None:
    setup = make_travel_setup()
    dialogue = Dialogue(setup.agent)
    reading = understands(scores={setup.book: 95, setup.weather: 90}, data={"destination": "Rome", "city": "Oslo"})
    await dialogue.says("Fly me to Rome, and how is the weather in Oslo?", reading, says("When?"))
    await dialogue.says(
        "Forget the weather", understands(holds=["the user no longer wants this: Tell the weather"]), says("Ok. When?")
    )
    dialogue.expect(route=setup.book)
    assert "Comes next" not in last_prompt(dialogue)
    await dialogue.says("2026-12-01, two", understands(departure="2026-12-01", passengers=2), says("TP1?"))
    await dialogue.says("Great", understands(answered=True), says("Bye"))
    dialogue.expect(route=setup.book, completed=True)


async def test_a_branch_that_was_chosen_in_words_can_be_changed() -> None:
    agent = Agent("Shop")
    fields = {"address": {"type": "string"}, "shop": {"type": "string"}}
    route = agent.create_route("Deliver", gather_schema={"type": "object", "properties": fields})
    how = route.initial_state.transition_to(chat_state="Ask how to get it")
    how.transition_to(
        chat_state="Ask for the address", gather=["address"], condition="the user wants a delivery"
    ).transition_to(chat_state="Tell when it arrives").transition_to(state=END_ROUTE)
    how.transition_to(
        chat_state="Ask which shop", gather=["shop"], condition="the user wants to pick it up"
    ).transition_to(chat_state="Tell the opening hours").transition_to(state=END_ROUTE)
    dialogue = Dialogue(agent)
    await dialogue.says("Hello", understands(), says("How?"))
    await dialogue.says("Bring it", understands(holds=["the user wants a delivery"]), says("Where?"))
    await dialogue.says("Main St 1", understands(address="Main St 1"), says("At noon"))
    dialogue.expect(state="Tell when it arrives")
    changed = understands(holds=["the user wants to pick it up"])
    await dialogue.says("Wait, I'll pick it up", changed, says("Which shop?"))
    dialogue.expect(state="Ask which shop", asks=["shop"])
    assert "the user changed a choice" in dialogue.last.trace.went_back
    # A correction leads where saying it at first would have.
    await dialogue.says("No, bring it after all", understands(holds=["the user wants a delivery"]), says("At noon"))
    dialogue.expect(state="Tell when it arrives", data={"address": "Main St 1"})


class Trip(BaseModel):
    start: date
    end: date
    nights: int | None = None
    city: str = ""

    @model_validator(mode="after")
    def end_follows_start(self) -> Trip:
        if self.end < self.start:
            raise ValueError("end must not be before start")
        return self


def build_trip_agent(schema: Any = Trip) -> tuple[Agent, Route]:
    agent = Agent("Trips")
    route = agent.create_route("Plan a trip", gather_schema=schema)
    names = ["start", "end", "city"] if schema is Trip else [*schema["properties"]]
    route.initial_state.transition_to(chat_state="Ask for the trip", gather=names).transition_to(
        chat_state="Confirm the trip"
    ).transition_to(state=END_ROUTE)
    return agent, route


async def test_a_failed_check_of_several_fields_rejects_only_the_value_that_breaks_it() -> None:
    dialogue = Dialogue(build_trip_agent()[0])
    await dialogue.says("From June 5 2027", understands(start="2027-06-05"), says("Until?"))
    await dialogue.says(
        "Until June 1 2027, to Rome", understands(end="2027-06-01", city="Rome"), says("That is before the start")
    )
    dialogue.expect(data={"start": date(2027, 6, 5), "city": "Rome", "end": None}, asks=["end"])
    [rejected] = dialogue.last.trace.rejected
    assert (rejected.field, rejected.value, rejected.explained) == ("end", "2027-06-01", True)
    assert "end must not be before start" in rejected.problem
    assert "The user stated end" in last_prompt(dialogue)
    assert "The user stated city" not in last_prompt(dialogue)


async def test_a_failed_check_of_two_values_of_one_message_rejects_both() -> None:
    dialogue = Dialogue(build_trip_agent()[0])
    reading = understands(start="2027-06-05", end="2027-06-01", city="Rome")
    await dialogue.says("June 5 2027 to June 1 2027, Rome", reading, says("The end is before the start"))
    dialogue.expect(data={"city": "Rome", "start": None, "end": None}, asks=["start", "end"])
    assert {each.field for each in dialogue.last.trace.rejected} == {"start", "end"}


async def test_known_fields_are_not_asked_for_again_if_the_state_is_skipped() -> None:
    agent = Agent("Shop")
    fields = {"name": {"type": "string"}, "city": {"type": "string"}, "note": {"type": "string"}}
    route = agent.create_route(
        "Order", gather_schema={"type": "object", "properties": fields, "required": ["name", "city"]}
    )
    (
        route.initial_state.transition_to(chat_state="Ask for the name", gather=["name"])
        .transition_to(chat_state="Ask for the address", gather=["name", "city"], skip_if=lambda data: "city" in data)
        .transition_to(chat_state="Ask for a note", gather=["note"], skip_if=lambda data: "city" not in data)
        .transition_to(state=END_ROUTE)
    )
    dialogue = Dialogue(agent)
    await dialogue.says("Maya", understands(name="Maya"), says("Where?"))
    dialogue.expect(state="Ask for the address", asks=["city"], not_asks=["name"])
    await dialogue.says("Lisbon", understands(city="Lisbon"), says("A note?"))
    dialogue.expect(state="Ask for a note", asks=["note"], not_asks=["name", "city"])


async def test_a_route_whose_last_word_was_said_is_not_left_unfinished() -> None:
    agent = Agent("Guide")
    tell = agent.create_route(
        "Tell the weather",
        conditions=["the user asks about the weather"],
        gather_schema={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    )
    asked: list[str] = []

    def weather(city: str) -> str:
        """Look up the weather."""
        asked.append(city)
        return f"sunny in {city} ({len(asked)})"

    tell.initial_state.transition_to(chat_state="Ask which city", gather=["city"]).transition_to(
        tool_state=weather
    ).transition_to(chat_state="Tell the weather")
    book = agent.create_route("Book a trip", conditions=["the user wants to travel"])
    book.initial_state.transition_to(chat_state="Ask where to")
    dialogue = Dialogue(agent)
    await dialogue.says("Weather in Rome?", understands(route=tell, city="Rome"), says("Sunny (1)"))
    dialogue.expect(state="Tell the weather")
    await dialogue.says("I want to travel", understands(scores={book: 95, tell: 5}), says("Where?"))
    assert "Left unfinished" not in last_prompt(dialogue)
    assert [each.title for each in dialogue.last.completed_routes] == ["Tell the weather"]
    await dialogue.says("Weather in Rome?", understands(scores={tell: 95}, data={"city": "Rome"}), says("Sunny (2)"))
    dialogue.expect(route=tell, state="Tell the weather")
    assert "sunny in Rome (2)" in last_prompt(dialogue)
    assert "sunny in Rome (1)" not in last_prompt(dialogue)


async def test_items_of_a_list_are_added_and_can_be_replaced() -> None:
    agent = Agent("Clinic")
    fields = {"medicines": {"type": "array", "items": {"type": "string"}}, "age": {"type": "integer"}}
    route = agent.create_route("Intake", gather_schema={"type": "object", "properties": fields, "required": [*fields]})
    route.initial_state.transition_to(chat_state="Ask for medicines and age", gather=[*fields]).transition_to(
        chat_state="Thank the user"
    )
    dialogue = Dialogue(agent)
    await dialogue.says("Insulin", understands(medicines=["insulin"]), says("Your age?"))
    await dialogue.says("Also aspirin", understands(medicines=["aspirin"]), says("Your age?"))
    dialogue.expect(data={"medicines": ["insulin", "aspirin"]})
    await dialogue.says("Aspirin, I said", understands(medicines=["aspirin"]), says("Your age?"))
    dialogue.expect(data={"medicines": ["insulin", "aspirin"]})
    replaced = understands(medicines=["metformin"], forget=["medicines"])
    await dialogue.says("No: only metformin", replaced, says("Your age?"))
    dialogue.expect(data={"medicines": ["metformin"]})


async def test_of_two_values_for_one_field_the_last_is_used_and_the_other_reported() -> None:
    setup = make_travel_setup()
    dialogue = Dialogue(setup.agent)
    data = [
        {"field": f"book_a_flight.{name}", "value": value, "words": value}
        for name, value in (("destination", "Oslo"), ("destination", "Rome"))
    ]
    reading = answers({"routes": [{"route": "book_a_flight", "score": 95}], "data": data})
    await dialogue.says("To Oslo, no, to Rome", reading, says("When?"))
    dialogue.expect(data={"destination": "Rome"})
    [rejected] = dialogue.last.trace.rejected
    assert (rejected.field, rejected.value) == ("destination", "Oslo")
    assert "Rome" in rejected.problem


@pytest.mark.parametrize(
    ("message", "data"),
    [
        ("hi there", {"name": ("John Doe", "hi there"), "age": (30, "hi")}),
        ("hi there", {"name": ("John Doe", "John Doe")}),
        ("I'd rather not say", {"name": ("Unknown", "I'd rather not say")}),
        ("Let me think", {"name": ("unknown", "unknown"), "age": ("null", "")}),
        ("Which date?", {"birthday": ("1990-01-31", "1990-01-31")}),
        ("I was born some time ago", {"birthday": ("1990-01-31", "some time ago")}),
    ],
)
async def test_invented_values_run_no_tool(message: str, data: dict[str, tuple[Any, str]]) -> None:
    created: list[str] = []

    def create_account(name: str, age: int | None = None, birthday: date | None = None) -> str:
        """Create an account."""
        created.append(name)
        return "created"

    agent = Agent("Desk", canned_responses=["Your birthday, as in 1990-01-31?"])
    fields = {"name": {"type": "string"}, "age": {"type": "integer"}, "birthday": {"type": "string", "format": "date"}}
    route = agent.create_route(
        "Create an account", gather_schema={"type": "object", "properties": fields, "required": ["name"]}
    )
    route.initial_state.transition_to(chat_state="Ask who they are", gather=[*fields]).transition_to(
        tool_state=create_account, repeat=False
    ).transition_to(state=END_ROUTE)
    dialogue = Dialogue(agent)
    await dialogue.begins(says("Who are you? Your birthday, as in 1990-01-31?"))
    values = {name: value for name, (value, _) in data.items()}
    reading = understands(data=values, words={name: words for name, (_, words) in data.items()})
    await dialogue.says(message, reading, says("Who are you?"))
    assert created == []
    dialogue.expect(state="Ask who they are", data=dict.fromkeys(fields))
    assert {each.field for each in dialogue.last.trace.rejected} == {*data}


async def test_a_drop_beside_fresh_values_is_ignored_and_reported() -> None:
    setup = make_travel_setup()
    dialogue = Dialogue(setup.agent)
    await dialogue.says("To Rome", understands(route=setup.book, destination="Rome"), says("When?"))
    reading = understands(
        scores={setup.book: 100}, data={"passengers": 2}, holds=["the user no longer wants this: Book a flight"]
    )
    await dialogue.says("Two of us", reading, says("When?"))
    dialogue.expect(route=setup.book, data={"destination": "Rome", "passengers": 2})
    assert any("ignored" in problem for problem in dialogue.last.trace.problems)


async def test_a_question_does_not_drop_a_route_that_scored_high() -> None:
    setup = make_travel_setup()
    dialogue = Dialogue(setup.agent)
    await dialogue.says("To Rome", understands(route=setup.book, destination="Rome"), says("When?"))
    reading = understands(scores={setup.book: 100}, holds=["the user no longer wants this: Book a flight"])
    await dialogue.says("Do you take cats on board?", reading, says("No. When?"))
    dialogue.expect(route=setup.book, data={"destination": "Rome"})


async def test_a_field_is_not_forgotten_beside_its_fresh_value() -> None:
    setup = make_travel_setup()
    dialogue = Dialogue(setup.agent)
    await dialogue.says("To Rome", understands(route=setup.book, destination="Rome"), says("When?"))
    await dialogue.says("Oslo instead", understands(destination="Oslo", forget=["destination"]), says("When?"))
    dialogue.expect(data={"destination": "Oslo"}, not_asks=["destination"])


async def test_a_field_is_not_forgotten_beside_a_value_that_is_known_or_rejected() -> None:
    dialogue = Dialogue(make_travel_setup().agent)
    await dialogue.says("To Rome", understands(route="Book a flight", destination="Rome"), says("When?"))
    reading = understands(
        data={"destination": "Rome", "passengers": 4},
        words={"destination": "Rome", "passengers": "not sure"},
        forget=["destination", "passengers"],
    )
    await dialogue.says("I'm not sure yet", reading, says("When?"))
    dialogue.expect(data={"destination": "Rome"}, state="Ask when and how many")
    assert sum("is not forgotten" in problem for problem in dialogue.last.trace.problems) == 2
    await dialogue.says("Forget Rome", understands(forget=["destination"]), says("Where?"))
    dialogue.expect(data={"destination": None}, state="Ask where to")


@pytest.mark.parametrize("text", ["17 May 2001", "May 17, 2001", "17.05.2001", "2001-05-17", "17th of May 2001"])
async def test_dates_are_read_as_people_write_them(text: str) -> None:
    dialogue = Dialogue(
        build_trip_agent({"type": "object", "properties": {"born": {"type": "string", "format": "date"}}})[0]
    )
    await dialogue.says(f"I was born on {text}", understands(born=text, words={"born": text}), says("Thanks"))
    dialogue.expect(data={"born": "2001-05-17"})
    assert dialogue.last.trace.rejected == ()


async def test_the_reading_knows_the_time_of_day_in_the_users_time_zone() -> None:
    agent = make_travel_setup(clock=lambda: datetime(2026, 11, 19, 23, 30, tzinfo=UTC)).agent
    agent.time_zone = "Europe/Lisbon"
    dialogue = Dialogue(agent)
    await dialogue.says("Hi", understands(), says("Hello"))
    assert "Today: 2026-11-19 (Thursday), 23:30 WET" in dialogue.last.trace.calls[0].messages[0].content
    dialogue = Dialogue(agent, create_session(metadata={"time_zone": "Asia/Tokyo"}))
    await dialogue.says("Hi", understands(), says("Hello"))
    assert "Today: 2026-11-20 (Friday), 08:30 JST" in dialogue.last.trace.calls[0].messages[0].content


async def test_an_invalid_time_zone_of_a_session_does_not_end_the_turn() -> None:
    dialogue = Dialogue(make_travel_setup().agent, create_session(metadata={"time_zone": "Mars/Base"}))
    await dialogue.says("Hi", understands(), says("Hello"))
    [problem] = dialogue.last.problems
    assert problem.step == "time_zone"
    assert "Mars/Base" in str(problem.error)
    with pytest.raises(InvalidArgumentError, match="Europe/Lisbon"):
        Agent("Wanda", time_zone="Mars/Base")


class Pizza(BaseModel):
    toppings: set[str]
    medicines: list[str] | None = None
    size: tuple[int, int] | None = None


async def test_sets_and_optional_lists_grow_and_tuples_are_replaced() -> None:
    agent = Agent("Gino")
    route = agent.create_route("Order", gather_schema=Pizza)
    names = ["toppings", "medicines", "size"]
    route.initial_state.transition_to(chat_state="Ask", gather=names).transition_to(chat_state="Confirm")
    dialogue = Dialogue(agent)
    await dialogue.says("Ham", understands(toppings=["ham"], medicines=["insulin"], size=[1, 2]), says("Fine"))
    await dialogue.says("Also", understands(toppings=["olives"], medicines=["aspirin"], size=[5, 10]), says("Fine"))
    known = dialogue.last.session.extracted
    assert known == {"toppings": {"ham", "olives"}, "medicines": ["insulin", "aspirin"], "size": (5, 10)}
    assert dialogue.last.trace.rejected == ()


class Fragile(BaseModel):
    start: date
    rates: dict[str, int]

    @model_validator(mode="after")
    def rate_is_known(self) -> Fragile:
        assert self.rates["EUR"] > 0
        return self


async def test_a_validator_that_fails_on_its_own_rejects_the_value_and_does_not_end_the_turn() -> None:
    agent = Agent("Trips")
    route = agent.create_route("Plan", gather_schema=Fragile)
    route.initial_state.transition_to(chat_state="Ask", gather=["start", "rates"]).transition_to(chat_state="Confirm")
    dialogue = Dialogue(agent)
    await dialogue.says("June 5 2027", understands(start="2027-06-05"), says("Rates?"))
    await dialogue.says("USD 1", understands(rates={"USD": 1}), says("Rates?"))
    assert [each.field for each in dialogue.last.trace.rejected] == ["rates"]


async def test_a_field_that_the_next_state_requires_counts_as_asked_for() -> None:
    agent = Agent("Shop")
    fields = {"country": {"type": "string", "enum": ["DE", "PT"]}, "name": {"type": "string"}}
    route = agent.create_route("Order", gather_schema={"type": "object", "properties": fields, "required": []})
    ask = route.initial_state.transition_to(chat_state="Welcome")
    last = ask.transition_to(chat_state="Tell the price", required_data=["country"])
    last.transition_to(chat_state="Ask again", gather=["country", "name"])
    dialogue = Dialogue(agent)
    await dialogue.says("Hi", understands(answered=True), says("Welcome"))
    await dialogue.says("Ok", understands(answered=True), says("Where to?"))
    dialogue.expect(asks=["country"])
    await dialogue.says("Germany", understands(country="DE", words={"country": "Germany"}), says("5 euros"))
    dialogue.expect(data={"country": "DE"})


async def test_an_invalid_value_of_an_earlier_message_does_not_block_the_route() -> None:
    setup = make_travel_setup()
    dialogue = Dialogue(setup.agent)
    first = understands(route=setup.book, destination="Rome", passengers=20, words={"destination": "Rome"})
    await dialogue.says("Rome, 20 of us", first, says("Nine at most"))
    assert [(each.field, each.explained) for each in dialogue.last.trace.rejected] == [("passengers", True)]
    reading = understands(
        departure="2026-12-01", passengers=20, words={"departure": "2026-12-01", "passengers": "20 of us"}
    )
    await dialogue.says("On 2026-12-01", reading, says("How many?"))
    assert [(each.field, each.explained) for each in dialogue.last.trace.rejected] == [("passengers", False)]
    assert "The user stated passengers" not in last_prompt(dialogue)


async def test_an_empty_reply_becomes_a_text() -> None:
    setup = make_travel_setup()
    dialogue = Dialogue(setup.agent)
    await dialogue.says("Hi", understands(), says(""), says(" "))
    dialogue.expect(said="Sorry, I have no answer to this.")
