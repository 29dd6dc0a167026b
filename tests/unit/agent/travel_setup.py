"""A travel agent for tests: it books flights and tells the weather."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from pydantic import BaseModel, Field

from tellback.agent import END_ROUTE, Agent, Response, Route, SessionState
from tellback.chat.model import ChatRequest
from tellback.testing import ScriptedModel


class Flight(BaseModel):
    destination: str
    departure: date
    passengers: int = Field(ge=1, le=9)


@dataclass
class TravelSetup:
    """The agent, its routes, and the arguments of its tool calls."""

    agent: Agent
    book: Route
    weather: Route
    searched: list[tuple[str, date, int]] = field(default_factory=list)


def make_travel_setup(**fields: Any) -> TravelSetup:
    searched: list[tuple[str, date, int]] = []

    def search_flights(destination: str, departure: date, passengers: int) -> list[dict[str, Any]]:
        """Find flights."""
        searched.append((destination, departure, passengers))
        return [{"flight": "TP1", "to": destination, "price": 120}]

    agent = Agent("Wanda", goal="Book flights", **fields)
    book = agent.create_route(title="Book a flight", conditions=["the user wants to fly"], gather_schema=Flight)
    (
        book.initial_state.transition_to(
            chat_state="Ask where to", gather=["destination"], skip_if=lambda data: "destination" in data
        )
        .transition_to(
            chat_state="Ask when and how many", gather=["departure", "passengers"], required_data=["destination"]
        )
        .transition_to(tool_state=search_flights)
        .transition_to(chat_state="Offer the flights found")
        .transition_to(state=END_ROUTE)
    )
    weather = agent.create_route(
        title="Tell the weather",
        conditions=["the user asks about the weather"],
        gather_schema={"type": "object", "properties": {"city": {"type": "string"}}},
    )
    (
        weather.initial_state.transition_to(chat_state="Ask which city", gather=["city"])
        .transition_to(chat_state="Tell the weather there")
        .transition_to(state=END_ROUTE)
    )
    return TravelSetup(agent, book, weather, searched)


async def respond(
    agent: Agent, message: Any, session: SessionState | str | None, *script: Any, **options: Any
) -> Response:
    """Run one turn with a scripted model; fail if the turn does not use the whole script."""
    with ScriptedModel(script) as model:
        agent.model = model
        return await agent.respond(message, session, **options)


def model_requests(agent: Agent) -> list[ChatRequest]:
    """Return the requests to the model in the last turn."""
    assert isinstance(agent.model, ScriptedModel)
    return agent.model.requests


def reply_prompt(agent: Agent) -> str:
    """Return the prompt of the last model call: the system prompt and the instructions for the turn."""
    return prompt_of(model_requests(agent)[-1])


def prompt_of(request: ChatRequest) -> str:
    """Return the system prompt of a request, followed by the instructions for the turn."""
    return "\n\n".join(filter(None, (request.system, request.instructions)))


def offered_tools(agent: Agent) -> set[str]:
    """Return the tools offered in the last model call."""
    return {tool.name for tool in model_requests(agent)[-1].tools}


async def wait_for_event(event: asyncio.Event) -> None:
    """Wait for an event of a running turn, with a timeout in case the turn failed."""
    async with asyncio.timeout(10):
        await event.wait()
