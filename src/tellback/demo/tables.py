"""An agent that books tables. With a model it converses; without one it goes by rules, so that it can be tried."""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Literal

from pydantic import BaseModel, Field

from tellback.agent import END_ROUTE, Agent, CompositionMode
from tellback.app import Tellback
from tellback.testing import FlowModel
from tellback.types.times import utc_now

ACCEPTS_TABLE = "the user takes a table that was offered"
_DAY_OFFSETS = {"today": 0, "tonight": 0, "tomorrow": 1}
_GUEST_WORDS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6}


class DinnerBooking(BaseModel):
    """What is learnt on the way; what has a default nobody is asked for."""

    kitchen: Literal["italian", "indian", "portuguese"]
    day: date
    guests: int = Field(ge=1, le=8)
    tables: list[str] = []
    booking: str = ""


def find_tables(kitchen: str, day: date, guests: int) -> list[str]:
    """Find tables that are free."""
    names = {"italian": "Da Enzo", "indian": "Jaipur", "portuguese": "Tasca do Rio"}
    return [f"{names[kitchen]} on {day:%A, %d %B} at {hour} for {guests}" for hour in ("19:30", "21:00")]


def book_table(kitchen: str, guests: int) -> str:
    """Book the first of the tables."""
    return f"{guests} at the {kitchen} place, under the name Tellback"


def build_tables_agent(rc: Tellback) -> Agent:
    """The agent, with the model of the Tellback that serves it."""
    agent = Agent(
        name="Tables",
        description="Books a table for dinner, and knows when the kitchens are open.",
        goal="Book a table",
        model=rc.model or _rule_based_model(),
        composition_mode=CompositionMode.CANNED_FLUID,
        canned_responses=["I book tables: italian, indian or portuguese. What would you like?"],
    )
    book = agent.create_route(
        title="Book a table",
        conditions=["the user wants to eat out"],
        gather_schema=DinnerBooking,
        canned_responses=["Booked: {{booking}}. Enjoy your dinner!"],
    )
    offer = (
        book.initial_state.transition_to(
            chat_state="Ask which kitchen",
            gather=["kitchen"],
            canned_responses=["Italian, indian or portuguese?"],
        )
        .transition_to(
            chat_state="Ask when and for how many",
            gather=["day", "guests"],
            canned_responses=["When, and how many are you?"],
        )
        .transition_to(tool_state=find_tables, save_as="tables")
        .transition_to(chat_state="Offer the tables found", canned_responses=["I found {{tables}}. Shall I book it?"])
    )
    booked = offer.transition_to(tool_state=book_table, condition=ACCEPTS_TABLE, save_as="booking", repeat=False)
    booked.transition_to(state=END_ROUTE)
    hours = agent.create_route(title="Opening hours", conditions=["the user asks when a place is open"])
    hours.initial_state.transition_to(
        chat_state="Tell the hours", canned_responses=["All kitchens are open from 19:00 to 23:00, but on Mondays."]
    )
    return agent


def _rule_based_model() -> FlowModel:
    return FlowModel(
        reads={"day": _parse_day, "guests": _parse_guests},
        routes={"Book a table": ["table", "eat", "dinner", "book"], "Opening hours": ["open", "hours"]},
        holds={ACCEPTS_TABLE: ["yes", "take", "book it", "please"]},
    )


def _parse_day(text: str) -> str | None:
    iso_date = re.search(r"\b\d{4}-\d{2}-\d{2}\b", text)
    if iso_date is not None:
        return iso_date[0]
    offset = next((days for word, days in _DAY_OFFSETS.items() if word in text.lower()), None)
    return None if offset is None else (utc_now().date() + timedelta(days=offset)).isoformat()


def _parse_guests(text: str) -> int | None:
    number = re.search(r"(?<![\d-])([1-8])(?![\d-])", text)
    if number is not None:
        return int(number[1])
    return next((count for word, count in _GUEST_WORDS.items() if re.search(rf"\b{word}\b", text.lower())), None)
