"""Measure how much of each request of an agent a provider can read from its prefix cache.

An agent with three routes plays a dialogue of 20 turns with a `FlowModel`: two bookings, a detour, corrections and
questions. Each turn makes two requests: one reads the message ("understand"), the other replies ("reply"). The script
encodes each request as for OpenAI (tools, schema, then messages with the system prompt) and compares it with the
previous request of the same kind. A provider can cache at most the common prefix, so the table shows the share of
characters that belong to it.

The dialogue is played twice: the application passes the whole history, or the agent stores the sessions and reads the
last messages itself. In the second case the history begins with another message as soon as the conversation is longer
than this limit, so that only the system prompt is shared.

    python bench/prompt_cache.py
    python bench/prompt_cache.py --turns     # also each turn
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from tellback.agent import END_ROUTE, Agent, InMemorySessions, SessionState, create_session
from tellback.chat.model import ChatRequest
from tellback.chat.providers.chat_completions import OPENAI_DIALECT, encode
from tellback.testing import FlowModel
from tellback.types import Message, assistant_message, user_message

DIALOGUE = (
    "Hello, I need some help with a journey.",
    "I want to book a flight.",
    "destination: Rome",
    "departure: 2026-12-01",
    "passengers: 2",
    "Is there a window seat on that one?",
    "What about the weather?",
    "city: Rome",
    "Back to booking my flight.",
    "passengers is 3",
    "Thanks, that one is fine.",
    "This is outrageous, nobody told me about the fee!",
    "I want to complain about a bill.",
    "invoice: A-1007; reason: charged twice",
    "amount: 120",
    "Thank you.",
    "I want to book another flight.",
    "destination: Oslo; departure: 2026-12-24",
    "passengers: 1",
    "Great, that is all.",
)


class RecordingModel(FlowModel):
    """A `FlowModel` that records its requests."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.recorded: list[ChatRequest] = []

    def _answer(self, request: ChatRequest) -> Any:
        self.recorded.append(request)
        return super()._answer(request)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A request of one turn: its length, and that of the prefix it shares with the previous request of its kind."""

    history: str
    turn: int
    kind: str
    length: int
    shared: int


def build_agent(model: FlowModel, persistence: InMemorySessions | None) -> Agent:
    """Build the agent: three routes, six guidelines (two with a condition), terms, rules and a tool."""

    def opening_hours(office: str) -> str:
        """Return the opening hours of an office."""
        return "9 to 17"

    def search_flights(destination: str, departure: str, passengers: int) -> list[dict[str, Any]]:
        """Find flights."""
        return [{"flight": f"TP{number}", "to": destination, "price": 100 + number} for number in range(5)]

    text = {"type": "string"}
    number = {"type": "integer"}
    agent = Agent(
        "Wanda",
        "A travel agent of a small travel agency in Lisbon.",
        "Help customers to book flights, answer questions about their journey, and settle complaints.",
        model=model,
        persistence=persistence,
        tools=[opening_hours],
        context={"agency": "Fernweh Travel", "currency": "EUR", "office": "Rua Augusta 12, Lisbon"},
        rules=["name prices in euros, with all fees", "name the airline of each flight"],
        prohibitions=["promise a seat that is not confirmed", "give legal advice"],
        terms=[
            {"name": "PNR", "description": "The six characters that name a booking."},
            {"name": "Open jaw", "description": "A return flight from another airport than the one of arrival."},
        ],
        guidelines=[
            {"action": "Write at most three sentences."},
            {"action": "Use the customer's language."},
            {"action": "Never use exclamation marks."},
            {"action": "Write dates as 1 December 2026."},
            {"condition": "the user is angry", "action": "Apologise first, and offer to call back."},
            {"condition": "the user thanks you", "action": "Say that you are happy to help."},
        ],
    )
    book = agent.create_route(
        "Book a flight",
        description="Find flights and book one of them.",
        conditions=["the user wants to book a flight"],
        gather_schema={"type": "object", "properties": {"destination": text, "departure": text, "passengers": number}},
        rules=["repeat the date and the number of passengers before you book"],
    )
    (
        book.initial_state.transition_to(chat_state="Ask where to", gather=["destination"])
        .transition_to(chat_state="Ask when and how many", gather=["departure", "passengers"])
        .transition_to(tool_state=search_flights)
        .transition_to(chat_state="Offer the flights found")
        .transition_to(state=END_ROUTE)
    )
    weather = agent.create_route(
        "Tell the weather",
        conditions=["the user asks about the weather"],
        gather_schema={"type": "object", "properties": {"city": text}},
    )
    weather.initial_state.transition_to(chat_state="Ask which city", gather=["city"]).transition_to(
        chat_state="Tell the weather there"
    ).transition_to(state=END_ROUTE)
    complain = agent.create_route(
        "Settle a complaint",
        conditions=["the user wants to complain about a bill"],
        gather_schema={"type": "object", "properties": {"invoice": text, "reason": text, "amount": number}},
        prohibitions=["admit a mistake of the airline"],
    )
    complain.initial_state.transition_to(
        chat_state="Ask for the invoice and what is wrong", gather=["invoice", "reason", "amount"]
    ).transition_to(chat_state="Say that a person will look at it").transition_to(state=END_ROUTE)
    return agent


def serialize(request: ChatRequest) -> str:
    """Return the part of a request that a provider reads into its prompt, in the order in which it reads it."""
    body, _ = encode("gpt-5", request, OPENAI_DIALECT)
    parts = (body.get("tools"), body.get("response_format"), body["messages"])
    return "\n".join(json.dumps(part, ensure_ascii=False) for part in parts if part)


def count_shared(before: str, after: str) -> int:
    """Return the length of the common prefix."""
    different = (at for at, (old, new) in enumerate(zip(before, after, strict=False)) if old != new)
    return next(different, min(len(before), len(after)))


async def play(history: str) -> list[Comparison]:
    """Play the dialogue, and compare consecutive requests of each kind."""
    model = RecordingModel(
        routes={
            "Book a flight": ["book", "booking"],
            "Tell the weather": ["weather"],
            "Settle a complaint": ["complain"],
        },
        holds={"the user is angry": ["outrageous"], "the user thanks you": ["thank", "thanks"]},
    )
    agent = build_agent(model, InMemorySessions() if history == "stored" else None)
    session: SessionState | str = "bench" if history == "stored" else create_session("bench")
    messages: list[Message] = []
    found: list[Comparison] = []
    previous: dict[str, str] = {}
    for turn, text in enumerate(DIALOGUE, 1):
        model.recorded.clear()
        messages.append(user_message(text))
        response = await agent.respond(text if history == "stored" else messages, session)
        messages.append(assistant_message(response.message))
        session = "bench" if history == "stored" else response.session
        for request in model.recorded:
            kind = "reply" if request.output_schema is None else "understand"
            sent = serialize(request)
            if kind in previous:
                shared = count_shared(previous[kind], sent)
                found.append(Comparison(history, turn, kind, len(sent), shared))
            previous[kind] = sent
    return found


def format_report(comparisons: list[Comparison], *, with_turns: bool) -> str:
    """Return the table as text."""
    lines = [f"{'history':<8} {'turn':>5}  {'request':<10} {'characters':>10} {'shared':>8} {'share':>6}"]
    totals: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for each in comparisons:
        totals[each.history, each.kind][0] += each.length
        totals[each.history, each.kind][1] += each.shared
        if with_turns:
            lines.append(_format_line(each.history, str(each.turn), each.kind, each.length, each.shared))
    lines += [_format_line(history, "all", kind, *lengths) for (history, kind), lengths in totals.items()]
    return "\n".join(lines)


def _format_line(history: str, turn: str, kind: str, length: int, shared: int) -> str:
    return f"{history:<8} {turn:>5}  {kind:<10} {length:>10,} {shared:>8,} {shared / length:>6.0%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", action="store_true", help="also print each turn")
    arguments = parser.parse_args()
    comparisons = [each for history in ("passed", "stored") for each in asyncio.run(play(history))]
    print(format_report(comparisons, with_turns=arguments.turns))


if __name__ == "__main__":
    main()
