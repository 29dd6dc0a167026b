"""The trace of an answer: scores, walked states, guidelines, prompts, calls and token usage."""

from __future__ import annotations

from typing import Any

from tellback.agent import Agent
from tellback.testing import ScriptedModel, answers, calls, says, understands
from tellback.types import ChatUsage
from tests.unit.agent.travel_setup import make_travel_setup, model_requests, prompt_of, respond

FLIGHT: dict[str, Any] = {"destination": "Rome", "departure": "2026-12-01", "passengers": 2}


def usage_of(tokens: int) -> ChatUsage:
    return ChatUsage(input_tokens=tokens, output_tokens=1, total_tokens=tokens + 1)


async def test_scores_are_listed_by_title_with_the_reason_for_the_choice() -> None:
    setup = make_travel_setup()
    reading = understands(route=setup.weather, score=80, scores={setup.book: 30})
    response = await respond(setup.agent, "Rain?", None, reading, says("Which city?"))
    assert response.trace.scores == {"Book a flight": 30, "Tell the weather": 80}
    assert response.trace.route == "it scored highest (80)"


async def test_walked_states_are_listed_with_action_and_reason() -> None:
    setup = make_travel_setup()
    response = await respond(setup.agent, "To Rome…", None, understands(route=setup.book, **FLIGHT), says("One flight"))
    assert [(step.state, step.action) for step in response.trace.walked] == [
        ("Ask where to", "skipped"),
        ("Ask when and how many", "skipped"),
        ("search_flights", "ran"),
        ("Offer the flights found", "speaks"),
    ]
    assert response.trace.walked[0].why == "skip_if is true"
    ids = [state.id for state in setup.book.states]
    assert [step.state_id for step in response.trace.walked] == ids[1:]


async def test_a_trace_is_readable_as_text() -> None:
    setup = make_travel_setup()
    first = await respond(setup.agent, "To Rome…", None, understands(route=setup.book, **FLIGHT), says("One flight"))
    assert str(first.trace).splitlines()[:3] == [
        "route: it scored highest (90)",
        "score: Book a flight 90",
        "skipped: Ask where to (skip_if is true)",
    ]
    assert "None" not in str(first.trace)


async def test_followed_guidelines_are_listed_with_their_condition() -> None:
    agent = Agent(
        "Wanda",
        guidelines=[
            {"action": "Be brief."},
            {"condition": "the user is angry", "action": "Calm them."},
            {"condition": "the user is sad", "action": "Cheer them up."},
        ],
    )
    response = await respond(agent, "ARGH", None, understands(holds=["the user is angry"]), says("Easy"))
    assert response.trace.conditions == ("the user is angry",)
    assert [(match.guideline.action, match.rationale) for match in response.trace.guidelines] == [
        ("Be brief.", "always"),
        ("Calm them.", "the user is angry"),
    ]
    assert "guideline: Calm them. (the user is angry)" in str(response.trace)


async def test_prompts_are_the_sent_system_prompts_and_instructions() -> None:
    setup = make_travel_setup()
    response = await respond(setup.agent, "Fly", None, understands(route=setup.book), says("Where to?"))
    assert response.trace.prompts == tuple(map(prompt_of, model_requests(setup.agent)))
    assert [call.instructions for call in response.trace.calls] == [
        request.instructions for request in model_requests(setup.agent)
    ]
    assert [call.text for call in response.trace.calls][1] == "Where to?"
    sent = [tuple(call.messages) for call in response.trace.calls]
    assert sent == [request.messages for request in model_requests(setup.agent)]


async def test_every_call_counts_with_its_tokens() -> None:
    def fare(city: str) -> int:
        """Return the price."""
        return 120

    setup = make_travel_setup(tools=[fare])
    script = (
        understands(route=setup.book, usage=usage_of(10)),
        calls("fare", city="Rome", usage=usage_of(20)),
        says("120", usage=usage_of(30)),
    )
    response = await respond(setup.agent, "Fly", None, *script)
    assert [(call.purpose, call.replies, call.usage.input_tokens) for call in response.trace.calls] == [
        ("understand", 1, 10),
        ("reply", 2, 50),
    ]
    assert response.trace.model_calls == 3
    assert response.usage == response.trace.usage
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens) == (60, 3, 63)


async def test_a_retried_understanding_call_counts_twice() -> None:
    setup = make_travel_setup()
    script = (
        says("Hm", usage=usage_of(10)),
        understands(route=setup.book, usage=usage_of(12)),
        says("Where?", usage=usage_of(5)),
    )
    response = await respond(setup.agent, "Fly", None, *script)
    assert [call.purpose for call in response.trace.calls] == ["understand", "understand", "reply"]
    assert response.usage.input_tokens == 27


async def test_a_strict_answer_counts_the_choice_and_no_reply() -> None:
    agent = Agent("Clinic", composition_mode="strict_canned", canned_responses=["One.", "Two."])
    with ScriptedModel([answers({"answer": "r1"}, usage=usage_of(7))]) as model:
        agent.model = model
        response = await agent.respond("Hi")
    assert [(call.purpose, call.usage.input_tokens) for call in response.trace.calls] == [("choose", 7)]
    assert response.trace.model_calls == 1
    assert response.usage.input_tokens == 7


async def test_rejected_values_are_listed() -> None:
    setup = make_travel_setup()
    reading = understands(route=setup.book, passengers=12, departure="soon")
    response = await respond(setup.agent, "12 of us, soon", None, reading, says("Nine at most"))
    assert {each.field: each.value for each in response.trace.rejected} == {"passengers": 12, "departure": "soon"}
    assert "passengers" not in response.session.extracted


async def test_ignored_parts_of_an_understanding_are_listed_as_problems() -> None:
    setup = make_travel_setup()
    reading = answers(
        {
            "routes": [{"route": "book_a_flight", "score": 90}, {"route": "fly_to_mars", "score": 99}],
            "data": {"book_a_flight": {"seat": "12A"}, "mars": {"x": 1}},
            "forget": ["mars.x"],
            "conditions": ["c9"],
        }
    )
    response = await respond(setup.agent, "Fly", None, reading, says("Where to?"))
    assert response.route is not None
    problems = "\n".join(response.trace.problems)
    for name in ("fly_to_mars", "seat", "mars", "c9"):
        assert name in problems


async def test_a_turn_without_decisions_has_an_empty_trace() -> None:
    response = await respond(Agent("Wanda"), "Hi", None, says("Hello!"))
    assert response.trace.scores == {}
    assert response.trace.walked == ()
    assert response.trace.route == "no routes were scored"
