"""A travel desk to talk to: it books flights and tells the weather."""

from __future__ import annotations

from datetime import date
from typing import Any, Literal

from pydantic import BaseModel, Field

from tellback import END_ROUTE, Agent, Route


class Flight(BaseModel):
    destination: str
    departure: date
    passengers: int = Field(ge=1, le=9)
    cabin: Literal["economy", "business"] | None = None


def search_flights(destination: str, departure: date, passengers: int) -> list[str]:
    """Find flights."""
    return [f"TP1 to {destination}"]


def make_flight_agent(**more: Any) -> tuple[Agent, Route]:
    agent = Agent("Wanda", goal="Book flights", **more)
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
