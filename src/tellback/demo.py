"""The sample data of `tellback demo`: a user with conversations and memories, and an agent that books tables."""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from itertools import takewhile
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, Field

from tellback.agent import END_ROUTE, Agent, CompositionMode
from tellback.app import Tellback
from tellback.chat.model import ChatRequest
from tellback.testing import FlowModel, says
from tellback.testing.models import Step
from tellback.types import message_text, remove_instructions
from tellback.types.ids import utc_now
from tellback.types.memory import Atom
from tellback.user import User

SAMPLE_USER = "maya"
SAMPLE_NAMESPACE = "sample"
SAMPLE_SPACE = "default"

ACCEPTS_TABLE = "the user accepts a table that was offered"
CUISINE_QUESTION = "Would you like Italian, Indian or Portuguese food?"
GUESTS_QUESTION = "For which day, and for how many guests?"
_RETRY_HINTS = {
    CUISINE_QUESTION: 'Please choose one: "Italian", "Indian" or "Portuguese".',
    GUESTS_QUESTION: 'For example: "tomorrow, for two".',
}
_APOLOGIES = ("Sorry, I did not understand that.", "Sorry, I still do not understand.")
_THANKS = "Thank you."
_DAY_OFFSETS = {"today": 0, "tonight": 0, "tomorrow": 1}
_MONTH = f"({'|'.join(name[:3] for name in calendar.month_name[1:])})[a-z]*"
_DAY_OF_MONTH = re.compile(rf"\b(?:(\d{{1,2}})(?:st|nd|rd|th)?(?: of)? {_MONTH}|{_MONTH} (\d{{1,2}}))\b", re.IGNORECASE)
_GUEST_NUMBER = re.compile(r"(?<![\d-])(?<!\d[:.])([1-8])(?![\d-]|[:.]\d|\s*(?:[ap]\.?m\b|o'clock))", re.IGNORECASE)
"""A digit that is not part of a date or a time."""
_GUEST_WORDS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6}

_SAMPLE_CONVERSATIONS = (
    (
        datetime(2024, 5, 3, 18, 30, tzinfo=UTC),
        "A new job",
        (
            ("I started at the city hospital in Porto this week, as a nurse on night shifts.", "How are the nights?"),
            ("Long. I live ten minutes away at least, in Rua das Flores.", "That is a short way home."),
        ),
    ),
    (
        datetime(2025, 9, 14, 9, 5, tzinfo=UTC),
        "Dinner with Ana",
        (
            ("My sister Ana visits next week, and she is allergic to nuts.", "I will remember that."),
            ("I've been vegetarian since the summer, so no fish either.", "Noted: no fish, no nuts."),
        ),
    ),
    (
        datetime(2026, 3, 21, 20, 0, tzinfo=UTC),
        "Moving",
        (
            ("We moved to Lisbon last weekend, to a flat near the river.", "Congratulations! How is it?"),
            ("Bright. And I have day shifts now, at Santa Maria.", "Better sleep, then."),
        ),
    ),
)


class _SampleMemory(NamedTuple):
    text: str
    category: tuple[str, str]
    importance: int
    conversation: int
    turn: int
    entities: tuple[str, ...] = ()
    supersedes: int | None = None


_SAMPLE_ENTITIES = (
    ("person", "Ana", "Maya's sister"),
    ("place", "Lisbon", "Where Maya lives"),
    ("place", "Porto", "Where Maya lived before"),
    ("organization", "Santa Maria", "The hospital where Maya works"),
)
_HOME, _WORK = ("home", "FACT"), ("work", "FACT")
_NEW_WORK = "Maya is a nurse at Santa Maria in Lisbon, on day shifts."
_SAMPLE_MEMORIES = (
    _SampleMemory("Maya lives in Porto, in Rua das Flores.", _HOME, 4, 0, 1, ("Porto",)),
    _SampleMemory("Maya is a nurse at the city hospital in Porto, on night shifts.", _WORK, 4, 0, 0, ("Porto",)),
    _SampleMemory("Maya is vegetarian, and eats no fish.", ("food", "PREFERENCE"), 5, 1, 1),
    _SampleMemory("Ana, Maya's sister, is allergic to nuts.", ("health", "FACT"), 5, 1, 0, ("Ana",)),
    _SampleMemory("Maya lives in Lisbon, in a flat near the river.", _HOME, 4, 2, 0, ("Lisbon",), supersedes=0),
    _SampleMemory(_NEW_WORK, _WORK, 4, 2, 1, ("Santa Maria", "Lisbon"), supersedes=1),
)


async def load_sample(tb: Tellback) -> bool:
    """Add the sample user to an empty store, without calling a model; returns whether the store has the sample user."""
    maya = tb.user(SAMPLE_USER)
    if await maya.conversations.list(SAMPLE_NAMESPACE, limit=1):
        return True
    if await tb.store.conversations.list_across_users(
        tenant_id=None, app_id=None, user_id=None, namespace=None, after="", limit=1
    ):
        return False  # the store has real users: do not add a fictional one
    clock = tb.clock
    try:
        await _store_sample(tb, maya)
    finally:
        tb.clock = clock
    return True


async def _store_sample(tb: Tellback, maya: User) -> None:
    """Store the conversations and memories as if each was recorded at its own time."""
    stored = []
    for when, title, turns in _SAMPLE_CONVERSATIONS:
        tb.clock = _clock_at(when)
        stored.append((when, *await _store_conversation(maya, title, turns)))
    space = await maya.memory.create_space(SAMPLE_SPACE, once=True)
    entity_ids = {
        name: (await maya.memory.create_entity(space.id, kind, name, description=description)).id
        for kind, name, description in _SAMPLE_ENTITIES
    }
    atoms: list[Atom] = []
    for each in _SAMPLE_MEMORIES:
        when, conversation_id, message_ids = stored[each.conversation]
        tb.clock = _clock_at(when)
        values: dict[str, Any] = {
            "text": each.text,
            "category": each.category,
            "importance": each.importance,
            "source_conversation_id": conversation_id,
            "source_message_ids": [message_ids[each.turn]],
            "entity_ids": [entity_ids[name] for name in each.entities],
        }
        if each.supersedes is None:
            atoms.append(await maya.memory.add_atom(space.id, **values))
        else:
            atoms.append(await maya.memory.supersede_atom(atoms[each.supersedes].id, **values))


def _clock_at(when: datetime) -> Callable[[], datetime]:
    return lambda: when


async def _store_conversation(maya: User, title: str, turns: tuple[tuple[str, str], ...]) -> tuple[str, list[str]]:
    """Store a closed conversation; returns its id and the ids of Maya's messages."""
    conversation = await maya.conversations.create(SAMPLE_NAMESPACE, title=title)
    ids = []
    for user_text, reply_text in turns:
        message = await maya.conversations.append_user_message(conversation.id, user_text)
        await maya.conversations.append_assistant_turn(conversation.id, reply_text)
        ids.append(message.id)
    await maya.conversations.close(conversation.id)
    return conversation.id, ids


class DinnerBooking(BaseModel):
    """The data of a booking. The agent asks for the fields without a default."""

    cuisine: Literal["Italian", "Indian", "Portuguese"]
    day: date
    guests: int = Field(ge=1, le=8)
    tables: list[str] = []
    booking: str = ""


def find_tables(cuisine: str, day: date, guests: int) -> list[str]:
    """Find free tables."""
    names = {"Italian": "Da Enzo", "Indian": "Jaipur", "Portuguese": "Tasca do Rio"}
    when = f"{day:%A}, {day.day} {day:%B}"
    return [f"{names[cuisine]} on {when} at {hour} for {guests}" for hour in ("19:30", "21:00")]


def book_table(tables: list[str]) -> str:
    """Book the first of the tables."""
    return tables[0]


def build_tables_agent(tb: Tellback) -> Agent:
    """Create the demo agent. Without a configured model, it follows fixed rules."""
    agent = Agent(
        name="Restaurant",
        description="This agent books a table for dinner, and knows the opening hours.",
        goal="Book a table",
        model=tb.model or _rule_based_model(),
        composition_mode=CompositionMode.CANNED_FLUID,
        canned_responses=["I can book a table for dinner. Italian, Indian or Portuguese?"],
    )
    book = agent.create_route(
        title="Book a table",
        conditions=["the user wants to eat out"],
        gather_schema=DinnerBooking,
        canned_responses=["Booked: {{booking}}. Enjoy your dinner!"],
    )
    offer = (
        book.initial_state.transition_to(
            chat_state="Ask for the cuisine",
            gather=["cuisine"],
            canned_responses=[CUISINE_QUESTION],
        )
        .transition_to(
            chat_state="Ask for the day and the guests",
            gather=["day", "guests"],
            canned_responses=[GUESTS_QUESTION],
        )
        .transition_to(tool_state=find_tables, save_as="tables")
        .transition_to(
            chat_state="Offer the tables",
            canned_responses=["I found these tables:\n{{#tables}}- {{.}}\n{{/tables}}\n\nShall I book the first one?"],
        )
    )
    booked = offer.transition_to(tool_state=book_table, condition=ACCEPTS_TABLE, save_as="booking", repeat=False)
    booked.transition_to(state=END_ROUTE)
    hours = agent.create_route(title="Opening hours", conditions=["the user asks when a place is open"])
    hours.initial_state.transition_to(
        chat_state="Tell the opening hours", canned_responses=["All restaurants are open daily from 19:00 to 23:00."]
    )
    return agent


class _RuleBasedModel(FlowModel):
    """A `FlowModel` that does not repeat a question in the same words, and thanks for other values."""

    def _answer(self, request: ChatRequest) -> Step:
        step = super()._answer(request)
        question = step.reply.text
        apologies = [f"{apology} {_RETRY_HINTS.get(question, question)}" for apology in _APOLOGIES]
        thanks = f"{_THANKS} {question}"
        earlier = [message_text(each) for each in reversed(request.messages) if each.role == "assistant"]
        repeats = len(list(takewhile({question, thanks, *apologies}.__contains__, earlier)))
        if not question or not repeats:
            return step
        conversation = reversed(remove_instructions(request.messages))
        text = next((message_text(each) for each in conversation if each.role == "user"), "")
        has_value = _parse_day(text) is not None or _parse_guests(text) is not None
        return says(thanks if has_value and earlier[0] != thanks else apologies[(repeats - 1) % len(apologies)])


def _rule_based_model() -> FlowModel:
    return _RuleBasedModel(
        reads={"day": _parse_day, "guests": _parse_guests},
        routes={"Book a table": ["table", "eat", "dinner", "book"], "Opening hours": ["open", "hours"]},
        holds={ACCEPTS_TABLE: ["yes", "yep", "sure", "okay", "first", "take", "book it", "please"]},
    )


def _parse_day(text: str) -> str | None:
    iso_date = re.search(r"\b\d{4}-\d{2}-\d{2}\b", text)
    if iso_date is not None:
        return iso_date[0]
    today, lowered = utc_now().date(), text.lower()
    weekdays = {name.lower(): (number - today.weekday() - 1) % 7 + 1 for number, name in enumerate(calendar.day_name)}
    offset = next((days for word, days in {**_DAY_OFFSETS, **weekdays}.items() if word in lowered), None)
    if offset is not None:
        return (today + timedelta(days=offset)).isoformat()
    named_day = _DAY_OF_MONTH.search(text)
    if named_day is None:
        return None
    day, month = int(named_day[1] or named_day[4]), (named_day[2] or named_day[3]).title()
    months = [name[:3] for name in calendar.month_name]
    try:
        found = date(today.year, months.index(month), day)
        return (found if found >= today else found.replace(year=today.year + 1)).isoformat()
    except ValueError:  # there is no such day
        return None


def _parse_guests(text: str) -> int | None:
    number = _GUEST_NUMBER.search(_DAY_OF_MONTH.sub("", text))
    if number is not None:
        return int(number[1])
    return next((count for word, count in _GUEST_WORDS.items() if re.search(rf"\b{word}\b", text.lower())), None)
