"""Shared code of the workers of bench/agent.py: routes, guidelines, messages and their expected outcomes.

A conversation is six messages: a request that enters a route, one value, a detour to another route with a value, the
return with the remaining values, a correction, and a yes that completes the route. The outcome of each message is known
beforehand, and checked after the clock has stopped, as are the calls to the model.
"""

from __future__ import annotations

import gc
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import protocol
from protocol import expect

VERBS = (
    *("book", "cancel", "insure", "repair", "return", "sell", "rent", "review", "compare", "deliver", "upgrade"),
    *("translate", "photograph", "inspect", "paint", "borrow", "register", "donate", "print", "clean", "design"),
    *("store", "recycle", "auction", "exhibit"),
)
THINGS = (
    *("flight", "mattress", "bicycle", "passport", "violin", "refrigerator", "wedding cake", "greenhouse", "sailboat"),
    *("dictionary", "telescope", "tractor", "necklace", "warehouse", "keyboard", "puppy", "sculpture", "parachute"),
    *("microphone", "vineyard"),
)
FIELDS: Mapping[str, Mapping[str, Any]] = {
    "place": {"type": "string", "description": "The town"},
    "day": {"type": "string", "format": "date", "description": "On which day"},
    "count": {"type": "integer", "minimum": 1, "maximum": 9, "description": "How many"},
}
STATES = ("Ask in which town", "Ask on which day", "Ask how many", "Read everything back and ask whether it is right")
GUIDELINES = 100
CONDITIONAL = 80
TRUE_CONDITIONS = (3, 17, 42)
"""Numbers of the conditions that are true in every turn."""

NAME = "Wanda"
GOAL = "Get things done for people who call."
REPLY = "Gladly. " + "This is what the next step is about, as you asked. " * 4
PIECES = tuple(f"word{index} " for index in range(100))
STREAMED_TEXT = "".join(PIECES)
TURNS = 6
CALLS = 2
"""Model calls per turn: one reads the message, one replies."""
WARM_UP = 3
EARLIER_COUNT = 20
"""Messages in a conversation before the measured turns."""


@dataclass(frozen=True)
class RouteSpec:
    """A route, in the form that every contender receives."""

    title: str
    description: str
    condition: str


@dataclass(frozen=True)
class Turn:
    """A message, how the model reads it, and the expected route, state (None if completed) and values."""

    message: str
    scores: Mapping[str, int]
    route: str
    values: Mapping[str, Any]
    state: int | None
    known: Mapping[str, Any]


@dataclass(frozen=True)
class TurnOutcome:
    """The actual route, state, values and reply of a turn."""

    text: str
    route: str | None
    state: int | None
    known: Mapping[str, Any]
    pieces: int = 1


@dataclass(frozen=True)
class PromptSize:
    """The number of characters in a model call: in the prompt, and in the schema of the answer."""

    prompt: int
    schema: int


@cache
def build_routes(count: int) -> tuple[RouteSpec, ...]:
    """Return `count` different routes."""
    specs = []
    for index in range(count):
        cycle, verb = divmod(index, len(VERBS))
        wish = f"{VERBS[verb]} a {THINGS[(cycle + verb) % len(THINGS)]}"
        description = f"Takes the order to {wish} and its details."
        specs.append(RouteSpec(wish.capitalize(), description, f"the user wants to {wish}"))
    return tuple(specs)


def build_guideline(number: int) -> tuple[str | None, str]:
    """Return the condition (None after the first `CONDITIONAL`) and the action."""
    action = f"Mention company rule {number}, in one short sentence, before you ask anything else."
    if number > CONDITIONAL:
        return None, action
    return f"the user asks about topic {number}, or about something very similar to it", action


def build_turns(count: int, number: int) -> tuple[Turn, ...]:
    """Return the turns of conversation `number` with `count` routes."""
    specs = build_routes(count)
    main = specs[number * 7 % count]
    other = specs[(number * 7 + 1 + number % (count - 1)) % count]
    place, other_place, day, amount = f"Town{number}", f"Port{number}", "2031-12-01", 1 + number % 9
    entry_scores, detour_scores = {main.title: 90}, {other.title: 90, main.title: 20}
    stay_scores, return_scores = {main.title: 85}, {main.title: 90, other.title: 10}
    all_values = {"place": place, "day": day, "count": amount}
    corrected_values = {**all_values, "place": other_place}
    remaining_values = {"day": day, "count": amount}
    return (
        Turn(f"Good morning, I would like to {_wish(main)}.", entry_scores, main.title, {}, 0, {}),
        Turn(f"In {place}, please.", stay_scores, main.title, {"place": place}, 1, {"place": place}),
        Turn(
            f"Wait, first I want to {_wish(other)}, in {other_place}.",
            detour_scores,
            other.title,
            {"place": other_place},
            1,
            {"place": other_place},
        ),
        Turn(
            f"Now {_wish(main)}: {amount}, on the first of December 2031.",
            return_scores,
            main.title,
            remaining_values,
            3,
            all_values,
        ),
        Turn(
            f"No, not in {place}: in {other_place}.",
            stay_scores,
            main.title,
            {"place": other_place},
            3,
            corrected_values,
        ),
        Turn("Yes, that is right.", stay_scores, main.title, {}, None, corrected_values),
    )


def _wish(spec: RouteSpec) -> str:
    return spec.title.lower()


def earlier_messages() -> list[str]:
    """Return the messages before the measured turns, alternating between user and agent."""
    return [f"{index:03d} says something about the weather of the day, as people do." for index in range(EARLIER_COUNT)]


@dataclass
class CallLog:
    """The requests to the fake model, and its reading of the current turn's message."""

    calls: list[Any] = field(default_factory=list)
    reading: Any = None


class RouteAgent(Protocol):
    """An agent that follows routes, built with one library."""

    @property
    def call_log(self) -> CallLog: ...

    async def open(self, kind: str, count: int, folder: Path) -> None:
        """Prepare for a batch with the given number of routes, in an empty folder."""
        ...

    async def close(self) -> None: ...

    def reading(self, turn: Turn) -> Any:
        """Return the model's reading of a message; it is created before the clock starts."""
        ...

    async def create_conversation(self, texts: Sequence[str]) -> Any:
        """Create a conversation with these messages."""
        ...

    async def turn(self, conversation: Any, text: str) -> Any: ...

    def to_outcome(self, result: Any) -> TurnOutcome: ...

    def prompt_size(self, call: Any) -> PromptSize: ...

    async def stored_count(self, conversation: Any) -> int | None:
        """Return the number of stored messages, or None if the caller stores them."""
        ...


@dataclass
class Batches:
    """The batches of a worker, and the number of its conversations so far."""

    agent: RouteAgent
    conversation_count: int = 0

    async def warm_up(self, request: dict[str, Any]) -> dict[str, Any]:
        await self.run(request, WARM_UP)
        return {"estimate_ms": TURNS * (await self.run(request, WARM_UP))["cpu_ms"]}

    async def run(self, request: dict[str, Any], count: int) -> dict[str, Any]:
        """Run `count` conversations; return CPU and wall time per turn, and the prompt sizes."""
        folder = Path(request["folder"]) / "batch"
        folder.mkdir(parents=True)
        try:
            await self.agent.open(request["kind"], request["routes"], folder)
            return await self._measure(request, count)
        finally:
            await self.agent.close()
            shutil.rmtree(folder)

    async def _measure(self, request: dict[str, Any], count: int) -> dict[str, Any]:
        agent = self.agent
        planned_turns = [build_turns(request["routes"], self.conversation_count + index) for index in range(count)]
        self.conversation_count += count
        conversations = [await agent.create_conversation(earlier_messages()) for _ in planned_turns]
        readings = [[agent.reading(turn) for turn in conversation_turns] for conversation_turns in planned_turns]
        agent.call_log.calls.clear()
        outcomes = []
        gc.collect()
        wall, cpu = time.perf_counter(), time.process_time()
        for conversation, conversation_turns, answers in zip(conversations, planned_turns, readings, strict=True):
            for turn, answer in zip(conversation_turns, answers, strict=True):
                agent.call_log.reading = answer
                outcomes.append(await agent.turn(conversation, turn.message))
            await protocol.settle()
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall

        streams = request["kind"] == "stream"
        for turn, outcome in zip(
            [turn for conversation_turns in planned_turns for turn in conversation_turns], outcomes, strict=True
        ):
            _check(turn, agent.to_outcome(outcome), streams=streams)
        for conversation in conversations:
            stored = await agent.stored_count(conversation)
            expect("stored messages", stored, None if stored is None else EARLIER_COUNT + 2 * TURNS)
        expect("calls to the model", len(agent.call_log.calls), CALLS * len(outcomes))
        prompts = _prompts([agent.prompt_size(call) for call in agent.call_log.calls])
        return {"cpu_ms": 1000 * cpu / len(outcomes), "wall_ms": 1000 * wall / len(outcomes), **prompts}


def _check(turn: Turn, outcome: TurnOutcome, *, streams: bool) -> None:
    expect("text", outcome.text, STREAMED_TEXT if streams else REPLY)
    expect("pieces", outcome.pieces, len(PIECES) if streams else 1)
    expect(f"route after {turn.message!r}", outcome.route, turn.route)
    expect(f"state after {turn.message!r}", outcome.state, turn.state)
    expect(f"values after {turn.message!r}", dict(outcome.known), dict(turn.known))


def _prompts(sizes: Sequence[PromptSize]) -> dict[str, float]:
    """Return the median characters of each kind of call; a turn reads first and then replies."""
    reads, replies = sizes[::CALLS], sizes[1::CALLS]
    return {
        "understand_chars": median(call.prompt for call in reads),
        "schema_chars": median(call.schema for call in reads),
        "reply_chars": median(call.prompt for call in replies),
    }


def serve(
    agent: RouteAgent, kinds: Sequence[str], packages: Sequence[str], extra_handlers: Mapping[str, Callable[..., Any]]
) -> None:
    """Answer requests for batches of conversations, and those in `extra_handlers`."""
    batches = Batches(agent)

    async def handle_request(request: dict[str, Any]) -> dict[str, Any]:
        if request["kind"] in extra_handlers:
            response: dict[str, Any] = await extra_handlers[request["kind"]](request)
            return response
        return await (batches.warm_up(request) if request["count"] is None else batches.run(request, request["count"]))

    protocol.answer_requests(handle_request, [*extra_handlers, *kinds], packages)
