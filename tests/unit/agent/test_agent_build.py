"""Errors found when an agent is created or changed, and consistency between values."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr, ValidationInfo, field_validator, model_validator

from tellback import END_ROUTE, Agent, InvalidArgumentError, create_session
from tellback.agent import enter_route, session_data_to_state, session_state_to_data
from tellback.agent.definitions.state import State
from tellback.agent.prompts.relevance import TextRanker
from tellback.errors import FlowError
from tellback.testing import Dialogue, ScriptedModel, says, understands


class Stay(BaseModel):
    arrival: date
    departure: date
    nights: int | None

    @field_validator("departure")
    @classmethod
    def after_arrival(cls, departure: date, info: ValidationInfo) -> date:
        if departure <= info.data["arrival"]:
            raise ValueError("the departure is not after the arrival")
        return departure


class Party(BaseModel):
    adults: int
    children: int

    @model_validator(mode="after")
    def with_an_adult(self) -> Party:
        if self.children > 5 * self.adults:
            raise ValueError("too many children for the adults")
        return self


def make_hotel_agent(model: type[BaseModel], gather: list[str]) -> tuple[Agent, list[dict[str, Any]]]:
    booked: list[dict[str, Any]] = []

    def book(**stay: Any) -> str:
        """Book."""
        booked.append(stay)
        return "booked"

    agent = Agent("Hotel")
    route = agent.create_route("Book a room", gather_schema=model)
    ask = route.initial_state.transition_to(chat_state="Ask", gather=gather)
    ask.transition_to(tool_state=book, arguments=dict).transition_to(state=END_ROUTE)
    return agent, booked


async def test_inconsistent_values_are_rejected_and_no_tool_runs() -> None:
    agent, booked = make_hotel_agent(Stay, ["arrival", "departure"])
    conversation = Dialogue(agent)
    step = understands(arrival="2026-12-10", departure="2026-12-01")
    await conversation.says("From the 10th to the 1st", step, says("That cannot be."))
    conversation.expect(asks=["arrival", "departure"], completed=False)
    assert booked == []
    assert {each.field for each in conversation.last.trace.rejected} == {"arrival", "departure"}
    assert "not after the arrival" in conversation.last.trace.prompts[-1]
    await conversation.says(
        "Until the 12th", understands(arrival="2026-12-10", departure="2026-12-12"), says("Booked.")
    )
    conversation.expect(completed=True)
    assert len(booked) == 1


async def test_model_validators_run_once_all_fields_are_known() -> None:
    agent, booked = make_hotel_agent(Party, ["adults", "children"])
    conversation = Dialogue(agent)
    await conversation.says("Ten children", understands(children=10), says("And adults?"))
    await conversation.says("One adult", understands(adults=1), says("That cannot be."))
    conversation.expect(asks=["adults"], data={"children": 10})
    await conversation.says("Two adults", understands(adults=2), says("Booked."))
    assert booked == [{"children": 10, "adults": 2}]


async def test_a_nullable_field_does_not_block_the_route() -> None:
    agent, booked = make_hotel_agent(Stay, ["arrival", "departure", "nights"])
    conversation = Dialogue(agent)
    step = understands(arrival="2026-12-10", departure="2026-12-12")
    await conversation.says("10th to 12th", step, says("How many nights?"))
    await conversation.says("I can't count", understands(), says("Booked."))
    assert len(booked) == 1


async def test_route_data_returns_an_instance_of_the_model() -> None:
    agent, _ = make_hotel_agent(Party, ["adults", "children"])
    [route] = agent.routes
    conversation = Dialogue(agent)
    await conversation.says("Two adults", understands(adults=2), says("Children?"))
    assert route.data(conversation.last.session) == {"adults": 2}
    await conversation.says("None", understands(children=0), says("Booked."))
    assert route.data(conversation.last.session) == Party(adults=2, children=0)


async def test_data_of_a_completed_route_keeps_its_types_in_a_database() -> None:
    agent, _ = make_hotel_agent(Stay, ["arrival", "departure"])
    conversation = Dialogue(agent)
    await conversation.says("10 to 12", understands(arrival="2026-12-10", departure="2026-12-12"), says("nights?"))
    row = json.loads(json.dumps(session_state_to_data(conversation.last.session)))
    later = await Dialogue(agent, session_data_to_state("s", row)).says("thanks", understands(), says("bye"))
    assert later.session.extracted["arrival"] == date(2026, 12, 10)


@dataclass
class Address:
    street: str


class Secret(BaseModel):
    pin: SecretStr
    address: Address


async def test_values_of_all_kinds_can_be_restored_from_a_database() -> None:
    agent, booked = make_hotel_agent(Secret, ["pin", "address"])
    conversation = Dialogue(agent)
    await conversation.says("pin 1234", understands(pin="1234"), says("Where?"))
    row = json.loads(json.dumps(session_state_to_data(conversation.last.session)))
    conversation = Dialogue(agent, session_data_to_state("s", row))
    await conversation.says("Rua 1", understands(address={"street": "Rua 1"}), says("Booked."))
    assert booked == [{"pin": "1234", "address": {"street": "Rua 1"}}]


async def test_a_composition_mode_set_later_is_validated_and_used() -> None:
    agent = Agent("Clinic", canned_responses=["Only this."], model=ScriptedModel([]))
    agent.composition_mode = "strict_canned"  # type: ignore[assignment]
    assert (await agent.respond("Hi")).message == "Only this."
    with pytest.raises(InvalidArgumentError, match="composition_mode must be one of"):
        agent.composition_mode = "wild"  # type: ignore[assignment]
    agent.canned_responses = []  # type: ignore[assignment]
    with pytest.raises(FlowError, match="strict_canned mode needs"):
        await agent.respond("Hi")


def make_start_state() -> State:
    return Agent("Wanda").create_route("Book", gather_schema=Party).initial_state


def test_a_tool_with_an_unavailable_argument_is_rejected() -> None:
    def search(guests: int) -> str:
        """Find."""
        return str(guests)

    with pytest.raises(FlowError, match=r"search needs 'guests', but no field has this name: .* adults, children"):
        make_start_state().transition_to(tool_state=search)
    make_start_state().transition_to(tool_state=search, arguments={"guests": "adults"})


def test_async_skip_if_and_conditions_are_rejected() -> None:
    async def later(data: Any) -> bool:
        return True

    with pytest.raises(FlowError, match="skip_if must be a synchronous function"):
        make_start_state().transition_to(chat_state="Ask", skip_if=later)
    with pytest.raises(FlowError, match="condition must be a string or a synchronous function"):
        make_start_state().transition_to(chat_state="Ask", condition=later)


def test_a_state_with_invalid_guidelines_is_not_added() -> None:
    state = make_start_state()
    for wrong in (["oops"], {"action": "x"}, None):
        with pytest.raises((FlowError, InvalidArgumentError)):
            state.transition_to(chat_state="Ask", guidelines=wrong)  # type: ignore[arg-type]
    state.transition_to(chat_state="Ask")
    state.route.check()


async def test_a_session_put_into_a_route_gets_the_initial_data() -> None:
    agent = Agent("Wanda")
    route = agent.create_route("Book", gather_schema=Party, initial_data={"adults": 2})
    route.initial_state.transition_to(chat_state="Ask", gather=["adults", "children"])
    conversation = Dialogue(agent, enter_route(create_session(), route.id, route.title))
    await conversation.says("Hi", understands(), says("How many children?"))
    conversation.expect(asks=["children"])


def test_thresholds_and_limits_can_be_mappings() -> None:
    agent = Agent("Wanda", thresholds={"enter": 40}, limits={"in_play": 4})
    assert (agent.thresholds.enter, agent.limits.in_play) == (40, 4)
    for wrong in ({"in_play": "6"}, {"in_play": 0}, {"many": 1}):
        with pytest.raises(InvalidArgumentError):
            Agent("Wanda", limits=wrong)


async def test_a_short_answer_is_ranked_together_with_its_question() -> None:
    agent = Agent("Wanda", model=ScriptedModel([]), limits={"in_play": 1, "listed": 2})
    for number in range(30):
        agent.create_route(f"Arrange flight {number}", conditions=["the user wants to fly"])
    agent.create_route("Cancel the subscription", conditions=["the user wants to cancel the subscription"])
    conversation = Dialogue(agent)
    await conversation.says("It is too dear", understands(), says("Shall I cancel your subscription?"))
    await conversation.says("Yes", understands(route="Cancel the subscription"), says("Done."))
    conversation.expect(route="Cancel the subscription")


async def test_canned_responses_whose_condition_is_false_are_not_offered() -> None:
    canned = ["One moment.", {"text": "It is approved.", "condition": "the manager approved it"}]
    agent = Agent("Shop", composition_mode="composited_canned", canned_responses=canned)
    conversation = Dialogue(agent)
    await conversation.says("And?", understands(), says("One moment."))
    assert "It is approved." not in conversation.last.trace.prompts[-1]
    await conversation.says("And now?", understands(holds=["the manager approved it"]), says("It is approved."))
    assert "It is approved." in conversation.last.trace.prompts[-1]


async def test_many_routes_are_indexed_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    thread_ids: list[int] = []
    prepare = TextRanker.prepare

    def record(relevance: TextRanker) -> None:
        thread_ids.append(threading.get_ident())
        prepare(relevance)

    monkeypatch.setattr(TextRanker, "prepare", record)
    agent = Agent("Wanda", limits={"in_play": 1})
    for number in range(3):
        agent.create_route(f"Arrange flight {number}", conditions=["the user wants to fly"])
    conversation = Dialogue(agent)
    await conversation.says("A flight", understands(), says("Which?"))
    await conversation.says("The first", understands(), says("Sure."))
    [thread] = thread_ids
    assert thread != threading.get_ident()
