"""Composition modes: free answers, preferred canned responses, and strict canned responses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellback.agent import END_ROUTE, Agent, CannedResponse, CompositionMode
from tellback.errors import FlowError, OutputValidationError
from tellback.testing import ScriptedModel, answers, says, understands
from tests.unit.agent.travel_setup import model_requests, reply_prompt, respond

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


def make_clinic_agent(
    mode: str, state: Any = (), route: Any = (), agent: Any = ("Please wait.",), **fields: Any
) -> Agent:
    """Build an agent that asks for a city, with canned responses at each level."""
    clinic_agent = Agent("Clinic", composition_mode=mode, canned_responses=agent, **fields)
    intake = clinic_agent.create_route(title="Intake", gather_schema=SCHEMA, canned_responses=route)
    (
        intake.initial_state.transition_to(chat_state="Ask which city", gather=["city"], canned_responses=state)
        .transition_to(chat_state="Name the clinic there")
        .transition_to(state=END_ROUTE)
    )
    return clinic_agent


async def test_a_fluid_prompt_contains_no_canned_responses() -> None:
    agent = make_clinic_agent("fluid", ["Which city?"])
    response = await respond(agent, "Hi", None, understands(), says("Where do you live?"))
    assert response.message == "Where do you live?"
    assert "Which city?" not in reply_prompt(agent)


@pytest.mark.parametrize("mode", [CompositionMode.CANNED_FLUID, CompositionMode.CANNED_COMPOSITED])
async def test_canned_modes_show_the_applicable_responses(mode: CompositionMode) -> None:
    agent = make_clinic_agent(
        mode, ["Which city?", "Still {{city}}?"], ["This is the intake."], context={"clinic": "North"}
    )
    agent.canned_responses = (CannedResponse("Welcome to {{clinic}}."),)
    response = await respond(agent, "Hi", None, understands(), says("Welcome to North. Which city?"))
    prompt = reply_prompt(agent)
    assert all(text in prompt for text in ("Which city?", "This is the intake.", "Welcome to North."))
    assert "Still" not in prompt
    assert "{{" not in prompt
    assert response.trace.model_calls == 2


async def test_the_two_canned_modes_have_different_instructions() -> None:
    prompts = []
    for mode in ("canned_fluid", "composited_canned"):
        agent = make_clinic_agent(mode, ["Which city?"])
        await respond(agent, "Hi", None, understands(), says("Which city?"))
        prompts.append(reply_prompt(agent))
    assert "your own words" in prompts[0]
    assert "from these texts" in prompts[1]


async def test_canned_modes_without_canned_responses_are_fluid() -> None:
    agent = make_clinic_agent("canned_fluid", agent=())
    response = await respond(agent, "Hi", None, understands(), says("Anything"))
    assert response.message == "Anything"
    assert "# Wording" not in reply_prompt(agent)


async def test_a_strict_agent_sends_the_only_response_without_a_model_call() -> None:
    agent = make_clinic_agent("strict_canned", ["Which city do you live in?"])
    response = await respond(agent, "Hi", None, understands())
    assert response.message == "Which city do you live in?"
    assert response.trace.model_calls == 1
    assert [call.purpose for call in response.trace.calls] == ["understand"]


async def test_a_strict_agent_lets_the_model_choose_among_several() -> None:
    agent = make_clinic_agent("strict_canned", ["Which city?", "Sorry, which city?"])
    response = await respond(agent, "Hi", None, understands(), answers({"answer": "r2"}))
    assert response.message == "Sorry, which city?"
    assert [call.purpose for call in response.trace.calls] == ["understand", "choose"]
    choose = model_requests(agent)[-1]
    assert choose.output_schema is not None
    assert choose.output_schema["properties"]["answer"]["enum"] == ["r1", "r2"]
    assert choose.tools == ()


async def test_equal_responses_need_no_choice() -> None:
    agent = make_clinic_agent("strict_canned", ["Which city?", {"text": "Which city?", "id": "again"}])
    response = await respond(agent, "Hi", None, understands())
    assert response.message == "Which city?"


@settings(max_examples=40, deadline=None)
@given(chosen=st.text(max_size=40) | st.sampled_from(['{"answer":"r1"}', '{"answer":"r2"}', '"r1"', "r2", "Hello!"]))
async def test_a_strict_agent_sends_only_canned_responses_for_any_model_output(chosen: str) -> None:
    texts = ["Which city?", "Sorry, which city?"]
    agent = make_clinic_agent("strict_canned", texts)
    agent.model = ScriptedModel([understands(), *(says(chosen) for _ in range(4))])
    try:
        response = await agent.respond("Hi")
    except OutputValidationError:
        return
    assert response.message in texts


async def test_after_a_second_invalid_choice_the_first_text_is_used() -> None:
    agent = make_clinic_agent("strict_canned", ["Which city?", "Sorry, which city?"])
    response = await respond(agent, "Hi", None, understands(), says("I would rather talk of cats"), says("Cats!"))
    assert response.message == "Which city?"
    [problem] = response.problems
    assert problem.step == "choose"
    assert "r1, r2" in str(problem.error)


async def test_an_unparseable_choice_is_requested_once_more() -> None:
    agent = make_clinic_agent("strict_canned", ["Which city?", "Sorry, which city?"])
    script = (understands(), says("The second one."), answers({"answer": "r2"}))
    response = await respond(agent, "Hi", None, *script)
    assert response.message == "Sorry, which city?"


async def test_the_nearest_level_with_a_complete_response_is_used() -> None:
    agent = make_clinic_agent("strict_canned", ["Which city, {{name}}?"], ["This is the intake."])
    response = await respond(agent, "Hi", None, understands())
    assert response.message == "This is the intake."
    agent = make_clinic_agent("strict_canned", ["Which city, {{name}}?"], ["{{name}}, this is the intake."])
    response = await respond(agent, "Hi", None, understands())
    assert response.message == "Please wait."


async def test_templates_are_filled_from_data_and_context() -> None:
    agent = Agent(
        "Clinic", composition_mode="strict_canned", canned_responses=["Please wait."], context={"name": "Maya"}
    )
    route = agent.create_route(title="Intake", gather_schema=SCHEMA)
    (
        route.initial_state.transition_to(chat_state="Ask which city", gather=["city"])
        .transition_to(chat_state="Name the clinic", canned_responses=["{{name}}, yours is {{city}} North."])
        .transition_to(state=END_ROUTE)
    )
    response = await respond(agent, "Rome", None, understands(city="Rome"))
    assert response.message == "Maya, yours is Rome North."


async def test_user_text_is_not_interpreted_as_a_template() -> None:
    agent = Agent("Clinic", composition_mode="strict_canned", canned_responses=["Please wait."], context={"key": "s3"})
    route = agent.create_route(title="Intake", gather_schema=SCHEMA)
    route.initial_state.transition_to(chat_state="Ask", gather=["city"]).transition_to(
        chat_state="Name the clinic", canned_responses=["Yours is in {{city}}."]
    )
    response = await respond(agent, "…", None, understands(city="{{key}}"))
    assert response.message == "Yours is in {{key}}."


async def test_a_response_with_a_condition_is_used_when_it_is_true() -> None:
    sorry = {"text": "I am sorry to hear that. Which city?", "condition": "the user is in pain"}
    agent = make_clinic_agent("strict_canned", ["Which city?", sorry])
    pained = await respond(agent, "It hurts", None, understands(holds=["the user is in pain"]))
    assert pained.message == "I am sorry to hear that. Which city?"
    other = await respond(agent, "Hi", None, understands())
    assert other.message == "Which city?"


async def test_a_strict_agent_requires_an_unconditional_response() -> None:
    agent = make_clinic_agent("strict_canned", agent=[{"text": "Sorry.", "condition": "the user is in pain"}])
    agent.model = model = ScriptedModel([])
    with pytest.raises(FlowError, match="needs a canned response of the agent without a condition"):
        await agent.respond("Hi")
    assert model.requests == []


async def test_a_response_that_may_be_empty_cannot_be_the_fallback() -> None:
    agent = make_clinic_agent("strict_canned", agent=["{{#name}}Welcome, {{name}}!{{/name}}"])
    agent.model = model = ScriptedModel([])
    with pytest.raises(FlowError, match="without values, for when no other one applies"):
        await agent.respond("Hi")
    assert model.requests == []


async def test_a_response_with_missing_values_cannot_be_the_fallback() -> None:
    agent = make_clinic_agent("strict_canned", ["Which city, {{name}}?"], agent=["Wait, {{title}} {{name}}."])
    agent.model = model = ScriptedModel([])
    with pytest.raises(FlowError, match="without values, for when no other one applies"):
        await agent.respond("Hi")
    assert model.requests == []


async def test_a_strict_agent_outside_of_routes_uses_its_own_responses() -> None:
    agent = Agent("Clinic", composition_mode="strict_canned", canned_responses=["How can I help?"])
    agent.create_route(title="Intake", conditions=["the user is ill"]).initial_state.transition_to(chat_state="Ask")
    response = await respond(agent, "Hi", None, understands())
    assert response.message == "How can I help?"


async def test_a_strict_agent_offers_the_model_no_tools() -> None:
    ran = []

    def look_up(city: str) -> str:
        """Look it up."""
        ran.append(city)
        return "here"

    agent = make_clinic_agent("strict_canned", ["Which city?", "Sorry?"], tools=[look_up])
    await respond(agent, "Hi", None, understands(), answers({"answer": "r1"}))
    assert all(request.tools == () for request in model_requests(agent))
    assert ran == []


async def test_a_completed_strict_route_uses_the_routes_responses() -> None:
    agent = make_clinic_agent("strict_canned", ["Which city?"], ["That was the intake."])
    first = await respond(agent, "Rome", None, understands(city="Rome"))
    assert first.message == "That was the intake."
    last = await respond(agent, "Thanks", first.session, understands())
    assert last.completed
    assert last.message == "That was the intake."
