"""A scripted dialogue fails when the conversation differs from the script."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tellback import END_ROUTE, Agent, Tellback, tool
from tellback.agent import InMemorySessions
from tellback.testing import Dialogue, ScriptedModel, ScriptError, calls, play, raises, says, understands
from tests.support.travel_agents import make_flight_agent


async def test_a_dialogue_passes_history_and_session_to_the_next_turn() -> None:
    agent, book = make_flight_agent(model="gpt-5")
    conversation = Dialogue(agent)
    response = await conversation.says("I want to fly", understands(route=book), says("Where to?"))
    assert conversation.last is response
    conversation.expect(route=book, state="Ask where to", asks=["destination"], calls=2, said="Where", tools=[])
    await conversation.says(
        "Rome, on December 1, two of us",
        understands(scores={book: 80}, destination="Rome", departure="2026-12-01", passengers=2),
        says("One flight.", expect=lambda request: len(request.messages) == 3),
    )
    conversation.expect(asks=[], tools=["search_flights"], completed=False, pending=[])
    conversation.expect(data={"departure": date(2026, 12, 1), "passengers": 2, "cabin": None})
    conversation.expect(data={"departure": "2026-12-01"}, not_asks=["destination"])
    assert agent.model == "gpt-5"


async def test_a_failed_expectation_reports_all_differences_and_the_trace() -> None:
    agent, book = make_flight_agent()
    conversation = Dialogue(agent)
    await conversation.says("To Rome!", understands(route=book, destination="Rome"), says("When?"))
    with pytest.raises(ScriptError) as failure:
        conversation.expect(
            route=None,
            state="Offer the flights found",
            data={"destination": "Oslo"},
            asks=["passengers"],
            not_asks=["departure"],
            calls=1,
            tools=["search_flights"],
            said="Where",
            completed=True,
            pending=["pay"],
        )
    message = str(failure.value)
    for line in (
        "route: expected None, got 'Book a flight'",
        "state: expected 'Offer the flights found', got 'Ask when and how many'",
        "data: expected destination='Oslo', got 'Rome'",
        "asks: expected ['passengers'], got ['departure', 'passengers']",
        "not_asks: expected [], got ['departure']",
        "calls: expected 1, got 2",
        "tools: expected ['search_flights'], got []",
        "pending: expected ['pay'], got []",
        "completed: expected True, got False",
        "said: expected 'Where' in 'When?'",
        "skipped: Ask where to (destination is known)",
        "known: destination='Rome'",
    ):
        assert line in message


async def test_unused_and_missing_steps_fail() -> None:
    agent, book = make_flight_agent()
    with pytest.raises(ScriptError, match=r"1 of 3 scripted steps were not used(.|\n)*speaks: Ask where to"):
        await Dialogue(agent).says("Fly", understands(route=book), says("Where to?"), says("Hm?"))
    with pytest.raises(ScriptError, match="call 2 was not scripted"):
        await Dialogue(agent).says("Fly", understands(route=book))
    with pytest.raises(ScriptError, match="there is no response yet"):
        Dialogue(agent).expect(calls=1)


async def test_a_failed_turn_can_be_repeated() -> None:
    agent, book = make_flight_agent()
    conversation = Dialogue(agent)
    with pytest.raises(OSError, match="down"):
        await conversation.says("Fly to Rome", understands(route=book, destination="Rome"), raises(OSError("down")))
    await conversation.says(
        "Fly to Rome",
        understands(route=book, destination="Rome"),
        says("When?", expect=lambda request: [m.content for m in request.messages] == ["Fly to Rome"]),
    )
    conversation.expect(asks=["departure", "passengers"])


async def test_a_repeated_turn_runs_its_tools_once() -> None:
    ran: list[str] = []

    def pay(order: str) -> str:
        """Pay."""
        ran.append(order)
        return "paid"

    agent = Agent("Rita")
    route = agent.create_route("Pay", gather_schema={"properties": {"order": {"type": "string"}}})
    ask = route.initial_state.transition_to(chat_state="Ask which order", gather=["order"])
    ask.transition_to(tool_state=pay).transition_to(state=END_ROUTE)
    conversation = Dialogue(agent)
    with pytest.raises(OSError, match="down"):
        await conversation.says("A1", understands(order="A1"), raises(OSError("down")))
    await conversation.says("A1", understands(order="A1"), says("Paid."))
    conversation.expect(completed=True)
    assert ran == ["A1"]


async def test_concurrent_dialogues_with_one_agent_are_independent() -> None:
    agent, book = make_flight_agent()

    async def one(city: str) -> str:
        conversation = Dialogue(agent)
        await conversation.says("Fly", understands(route=book), says("Where to?", delay=0.01))
        await conversation.says(city, understands(destination=city), says(f"{city}, fine."))
        conversation.expect(data={"destination": city})
        return conversation.last.message

    cities = [f"City{number}" for number in range(10)]
    assert await asyncio.gather(*map(one, cities)) == [f"{city}, fine." for city in cities]


async def test_the_agent_can_begin_and_calls_can_be_approved() -> None:
    @tool(requires_approval=True)
    def refund(order: str) -> str:
        """Pay back."""
        return f"paid {order}"

    agent = Agent("Rita")
    route = agent.create_route("Refund", gather_schema={"properties": {"order": {"type": "string"}}})
    (
        route.initial_state.transition_to(chat_state="Ask which order", gather=["order"])
        .transition_to(tool_state=refund)
        .transition_to(state=END_ROUTE)
    )
    conversation = Dialogue(agent)
    await conversation.begins(says("Which order?"))
    conversation.expect(asks=["order"], calls=1)
    await conversation.begins(
        says("Are you there?", expect=lambda request: request.messages[0].content == "Which order?")
    )
    conversation.expect(asks=["order"], calls=1)
    with pytest.raises(ScriptError, match="no call is pending"):
        await conversation.decides(True)
    await conversation.says("A1", understands(order="A1"), says("I have to ask."))
    conversation.expect(pending=["refund"], tools=[])
    await conversation.decides(True, says("Done."))
    conversation.expect(pending=[], tools=["refund"], completed=True, state=None)


async def test_a_dialogue_with_persistence_passes_the_session_id() -> None:
    sessions = InMemorySessions()
    agent, book = make_flight_agent(persistence=sessions)
    conversation = Dialogue(agent, "web-1")
    await conversation.says("Fly", understands(route=book), says("Where to?"))
    await conversation.says(
        "Rome", understands(destination="Rome"), says("When?", expect=lambda r: len(r.messages) == 3)
    )
    stored = await sessions.load("web-1")
    assert stored is not None
    assert (stored.version, stored.extracted) == (2, {"destination": "Rome"})


async def test_a_dialogue_can_use_memory() -> None:
    async with Tellback(":memory:", worker=False) as tb:
        agent, book = make_flight_agent(memory=tb)
        conversation = Dialogue(agent, user="maya")
        await conversation.says("Fly", understands(route=book), says("Where to?"))
        await conversation.says("Rome", understands(destination="Rome"), says("When?", expect="Rome"))
        maya = tb.user("maya")
        [stored] = await maya.conversations.list()
        assert [each.text for each in await maya.conversations.messages(stored.id)] == [
            "Fly",
            "Where to?",
            "Rome",
            "When?",
        ]


async def test_play_runs_a_whole_conversation() -> None:
    agent, book = make_flight_agent()
    responses = await play(
        agent,
        [
            ("I want to fly", understands(route=book), "Where to?", {"asks": ["destination"]}),
            ("Rome", understands(destination="Rome"), "When?", {"data": {"destination": "Rome"}, "calls": 2}),
        ],
    )
    assert [str(each) for each in responses] == ["Where to?", "When?"]
    with pytest.raises(ScriptError, match=r"asks: expected \['passengers'\]"):
        await play(agent, [("Fly", understands(route=book), "Where to?", {"asks": ["passengers"]})])


async def test_later_additions_to_an_agent_do_not_reach_its_copy() -> None:
    agent = Agent("Wanda", understand_model="gpt-5", options={"chat_fn": lambda *_: "not scripted"})
    twin = agent.with_model(ScriptedModel([says("Hello!")]))
    twin.create_route("Chat").initial_state.transition_to(chat_state="Chat")
    assert (agent.routes, [route.title for route in twin.routes]) == ((), ["Chat"])
    assert (await twin.respond("Hi")).message == "Hello!"
    assert agent.understand_model == "gpt-5"


def test_a_domain_added_to_a_copy_does_not_reach_the_original() -> None:
    agent = Agent("Wanda", model=ScriptedModel([]))
    agent.with_model(ScriptedModel([])).add_domain("payment", {"refund": print})
    assert agent.domains.names == ()


@pytest.mark.parametrize(
    ("expected", "pattern"),
    [
        ({"asks": "destination"}, r"asks must be a list of names, got 'destination': write asks=\[...\]"),
        ({"not_asks": "departure"}, "not_asks must be a list of names"),
        ({"tools": "search_flights"}, "tools must be a list of names"),
        ({"pending": "pay"}, "pending must be a list of names"),
        ({"asks": {"destination": "Rome"}}, "asks must be a list of names"),
        ({"not_asks": 3}, "not_asks must be a list of names, got 3"),
        (
            {"not_asks": ["e-mail"]},
            "not_asks: no route of the agent has the field 'e-mail'; known fields: destination, .*city",
        ),
        ({"asks": ["e-mail"]}, "asks: no route of the agent has the field 'e-mail'"),
        ({"data": {"e-mail": None}}, "data: no route of the agent has the field 'e-mail'"),
        ({"data": ["destination"]}, r"data must map fields to values, got \['destination'\]: write data={...}"),
        ({"said": ["Where"]}, r"said must be a part of the message as a string, got \['Where'\]"),
    ],
)
async def test_expectations_that_cannot_fail_or_be_met_are_rejected(expected: dict[str, Any], pattern: str) -> None:
    agent, book = make_flight_agent()
    conversation = Dialogue(agent)
    await conversation.says("Fly", understands(route=book), says("Where to?"))
    with pytest.raises(ScriptError, match=pattern):
        conversation.expect(**expected)
    conversation.expect(asks={"destination"}, not_asks=("city", "departure"))  # type: ignore[arg-type]


@pytest.mark.parametrize("script", [(), (says("Where?"),), (says("Where?"), understands()), (calls("look"),)])
async def test_a_missing_interpretation_step_lists_what_the_agent_asked(script: tuple[Any, ...]) -> None:
    agent, _ = make_flight_agent()
    with pytest.raises(ScriptError) as failure:
        await Dialogue(agent).says("Hi", *script)
    assert str(failure.value) == (
        "the agent asked the model to interpret the message (routes: book_a_flight, tell_the_weather;"
        " fields: book_a_flight.destination,"
        " book_a_flight.departure, book_a_flight.passengers, tell_the_weather.city; conditions: none):"
        " put understands(...) first."
    )


async def test_an_interpretation_step_may_be_invalid_json_or_an_error() -> None:
    agent, book = make_flight_agent()
    conversation = Dialogue(agent)
    await conversation.says("Fly", says('{"routes": '), understands(route=book), says("Where to?"))
    conversation.expect(route=book, calls=3)


@pytest.mark.parametrize("entry", ["Hi!", (), 7, (says("Hello!"),), {"Hi!": "Hello!"}])
async def test_play_rejects_turns_of_the_wrong_form(entry: Any) -> None:
    with pytest.raises(ScriptError, match=r"each turn must be like .*, got"):
        await play(Agent("Wanda"), [entry])


_FAILING_TEST = """\
from tellback import Agent
from tellback.testing import Dialogue, says


async def test_a_greeting():
    conversation = Dialogue(Agent("Wanda"))
    await conversation.says("Hi!", says("Hello!"))
    conversation.expect(said="Hello!")
    conversation.expect(said="Goodbye!")
"""


def test_pytest_shows_the_line_of_the_test_when_an_expectation_fails(tmp_path: Path) -> None:
    (tmp_path / "test_greeting.py").write_text(_FAILING_TEST)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
    )
    process = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "--color", "no", "-p", "no:cacheprovider"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
        timeout=50,
    )
    assert process.returncode == 1, process.stdout + process.stderr
    assert '>       conversation.expect(said="Goodbye!")' in process.stdout
    assert f"test_greeting.py:{len(_FAILING_TEST.splitlines())}: ScriptError" in process.stdout
    assert "said: expected 'Goodbye!' in 'Hello!'" in process.stdout
    assert "dialogue.py" not in process.stdout
