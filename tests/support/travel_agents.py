"""Travel agents for tests: they book flights and trips and tell the weather."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from tellback import User, message_text, tool
from tellback.agent import END_ROUTE, Agent, Response, Route, SessionState, session_data_to_state, session_state_to_data
from tellback.chat.model import ChatRequest
from tellback.testing import ScriptedModel, understands
from tellback.types import remove_instructions
from tellback.types.conversations import StoredMessage

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
FULL_REQUEST = "Two of us to Rome, please."
RECALL_TOOLS = {"recall_by_topic", "recall_by_entity", "recall_timeline"}

Respond = Callable[..., Any]


class Flight(BaseModel):
    destination: str
    departure: date
    passengers: int = Field(ge=1, le=9)
    cabin: Literal["economy", "business"] | None = None


def search_flights(destination: str, departure: date, passengers: int) -> list[str]:
    """Find flights."""
    return [f"TP1 to {destination}"]


def make_flight_agent(**options: Any) -> tuple[Agent, Route]:
    agent = Agent("Wanda", goal="Book flights", **options)
    book = agent.create_route("Book a flight", conditions=["the user wants to fly"], gather_schema=Flight)
    (
        book.initial_state.transition_to(chat_state="Ask where to", gather=["destination"])
        .transition_to(chat_state="Ask when and how many", gather=["departure", "passengers"])
        .transition_to(tool_state=search_flights)
        .transition_to(chat_state="Offer the flights found")
        .transition_to(state=END_ROUTE)
    )
    weather = agent.create_route(
        "Tell the weather", conditions=["the user asks about the weather"], gather_schema={"properties": {"city": {}}}
    )
    weather.initial_state.transition_to(chat_state="Ask which city", gather=["city"]).transition_to(state=END_ROUTE)
    return agent, book


class Trip(BaseModel):
    destination: str
    passengers: int = Field(ge=1)


class TripSetup:
    """A travel agent with a scripted model, and its recorded tool calls."""

    def __init__(self, memory: Any, script: Any = (), *, approval: bool = False, **options: Any) -> None:
        self.model = ScriptedModel(script)
        self.searched: list[tuple[str, int]] = []
        self.paid: list[int] = []
        self.agent = Agent("Wanda", goal="Book trips", model=self.model, memory=memory, **options)
        self.book: Route = self.agent.create_route(
            "Book a trip", conditions=["the user wants to travel"], gather_schema=Trip
        )
        ask = self.book.initial_state.transition_to(
            chat_state="Ask where to and how many", gather=["destination", "passengers"]
        )
        search = ask.transition_to(tool_state=tool(requires_approval=approval)(self.search))
        search.transition_to(chat_state="Offer what was found").transition_to(state=END_ROUTE)

    def search(self, destination: str, passengers: int) -> list[str]:
        """Find trips."""
        self.searched.append((destination, passengers))
        return [f"the night train to {destination}"]

    def script(self, *steps: Any) -> None:
        """Set the model's next replies."""
        self.model._script[len(self.model.requests) :] = steps

    def understands_trip(self, **stated: Any) -> Any:
        """Return a model reply that understands a message about the trip."""
        return understands(self.book, **stated)

    @property
    def prompts(self) -> list[str]:
        return ["\n\n".join(filter(None, (each.system, each.instructions))) for each in self.model.requests]


def script_full_trip(setup: TripSetup, answer: Any = "The night train?") -> None:
    """Script the understanding of a complete request, and its answer."""
    setup.script(setup.understands_trip(destination="Rome", passengers=2), answer)


def make_pay_tool(paid: list[int]) -> Any:
    @tool(requires_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    return pay


def round_trip(session: SessionState) -> SessionState:
    """Return the session after a round trip through JSON."""
    return session_data_to_state(session.id, json.loads(json.dumps(session_state_to_data(session))))


async def read_messages(user: User, id: str | None, **options: Any) -> list[StoredMessage]:
    assert id is not None
    return await user.conversations.messages(id, **options)


async def read_texts(user: User, id: str | None, **options: Any) -> list[str]:
    return [message.text for message in await read_messages(user, id, **options)]


def sent_texts(model: ScriptedModel, number: int = -1) -> list[str]:
    """Return the texts of the conversation in a request."""
    return [message_text(message) for message in remove_instructions(model.requests[number].messages)]


def last_text(request: ChatRequest) -> str:
    """Return the newest message of the conversation in a request."""
    return message_text(remove_instructions(request.messages)[-1])


async def respond_streaming(agent: Agent, *arguments: Any, **options: Any) -> Response:
    """Return the response at the end of a stream."""
    chunks = [chunk async for chunk in agent.respond_stream(*arguments, **options)]
    assert [chunk.done for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert "".join(chunk.delta for chunk in chunks) == chunks[-1].accumulated
    response = chunks[-1].response
    assert response is not None
    return response


async def respond_once(agent: Agent, *arguments: Any, **options: Any) -> Response:
    return await agent.respond(*arguments, **options)


respond_variants = pytest.mark.parametrize("ask", [respond_once, respond_streaming], ids=["respond", "respond_stream"])
