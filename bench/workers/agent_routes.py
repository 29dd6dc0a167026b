"""What the workers of bench/agent.py share: the routes, the guidelines, what is said, and where that must lead.

A conversation is six messages: a request that enters a route, one value, a detour to another route with a value of its
own, the way back with the rest of the values, a correction, and a yes that completes the route. Where each of them
leads is known beforehand, and checked after the clock has stopped, as are the calls to the model.
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
HELD = (3, 17, 42)
"""Numbers of the conditions that hold in every turn."""

NAME = "Wanda"
GOAL = "Get things done for people who call."
REPLY = "Gladly. " + "This is what the next step is about, as you asked. " * 4
PIECES = tuple(f"word{index} " for index in range(100))
STREAMED = "".join(PIECES)
TURNS = 6
CALLS = 2
"""To the model, in a turn: it reads, and it replies."""
WARM_UP = 3
BEFORE = 20
"""Messages that a conversation holds when it begins here."""


@dataclass(frozen=True)
class RouteSpec:
    """A route as every contender is given it."""

    title: str
    about: str
    condition: str


@dataclass(frozen=True)
class Turn:
    """A message, how it is to be read, and where it leads: which route, which of its states (None: it is completed),
    and with which values."""

    said: str
    scores: Mapping[str, int]
    meant: str
    stated: Mapping[str, Any]
    state: int | None
    known: Mapping[str, Any]


@dataclass(frozen=True)
class Came:
    """Where a turn led, in the same terms, and what was said."""

    text: str
    route: str | None
    state: int | None
    known: Mapping[str, Any]
    pieces: int = 1


@dataclass(frozen=True)
class Sent:
    """How many characters a call to the model had: the prompt, and the schema that the answer must fit."""

    prompt: int
    schema: int


@cache
def routes(count: int) -> tuple[RouteSpec, ...]:
    """So many routes, no two alike."""
    found = []
    for index in range(count):
        cycle, verb = divmod(index, len(VERBS))
        what = f"{VERBS[verb]} a {THINGS[(cycle + verb) % len(THINGS)]}"
        about = f"Takes the order to {what} and its details."
        found.append(RouteSpec(what.capitalize(), about, f"the user wants to {what}"))
    return tuple(found)


def guideline(number: int) -> tuple[str | None, str]:
    """When, and what to do; the first ones are conditional."""
    action = f"Mention rule {number} of the house, in one short sentence, before anything else is asked."
    if number > CONDITIONAL:
        return None, action
    return f"the user speaks of matter {number}, or of something that is much like it", action


def turns(count: int, number: int) -> tuple[Turn, ...]:
    """What is said in the conversation of that number, among so many routes."""
    specs = routes(count)
    main = specs[number * 7 % count]
    other = specs[(number * 7 + 1 + number % (count - 1)) % count]
    place, second, day, how_many = f"Town{number}", f"Port{number}", "2031-12-01", 1 + number % 9
    here, there = {main.title: 90}, {other.title: 90, main.title: 20}
    stays, back = {main.title: 85}, {main.title: 90, other.title: 10}
    whole = {"place": place, "day": day, "count": how_many}
    moved = {**whole, "place": second}
    rest = {"day": day, "count": how_many}
    return (
        Turn(f"Good morning, I would like to {_what(main)}.", here, main.title, {}, 0, {}),
        Turn(f"In {place}, please.", stays, main.title, {"place": place}, 1, {"place": place}),
        Turn(
            f"Wait, first I want to {_what(other)}, in {second}.",
            there,
            other.title,
            {"place": second},
            1,
            {"place": second},
        ),
        Turn(f"Now {_what(main)}: {how_many}, on the first of December 2031.", back, main.title, rest, 3, whole),
        Turn(f"No, not in {place}: in {second}.", stays, main.title, {"place": second}, 3, moved),
        Turn("Yes, that is right.", stays, main.title, {}, None, moved),
    )


def _what(spec: RouteSpec) -> str:
    return spec.title.lower()


def earlier() -> list[str]:
    """What was said before, the user's and the agent's in turn."""
    return [f"{index:03d} says something about the weather of the day, as people do." for index in range(BEFORE)]


@dataclass
class Seen:
    """What the fake model was sent, call by call, and how it reads the message of the turn that runs."""

    calls: list[Any] = field(default_factory=list)
    reading: Any = None


class Guide(Protocol):
    """A library, or what was put together with it, that leads conversations along routes."""

    @property
    def seen(self) -> Seen: ...

    async def open(self, kind: str, count: int, folder: Path) -> None:
        """Be ready for a batch with so many routes, in an empty folder."""
        ...

    async def close(self) -> None: ...

    def reading(self, turn: Turn) -> Any:
        """How the model answers when it is asked what a message means: made before the clock starts."""
        ...

    async def begin(self, texts: Sequence[str]) -> Any:
        """A new conversation that holds these messages."""
        ...

    async def turn(self, conversation: Any, text: str) -> Any: ...

    def came(self, outcome: Any) -> Came: ...

    def sent(self, call: Any) -> Sent: ...

    async def kept(self, conversation: Any) -> int | None:
        """How many messages of a conversation are stored; None if that is the caller's business."""
        ...


@dataclass
class Batches:
    """The batches of a worker, and how many conversations it has held."""

    guide: Guide
    talks: int = 0

    async def warm_up(self, request: dict[str, Any]) -> dict[str, Any]:
        await self.run(request, WARM_UP)
        return {"estimate_ms": TURNS * (await self.run(request, WARM_UP))["cpu_ms"]}

    async def run(self, request: dict[str, Any], count: int) -> dict[str, Any]:
        """So many conversations: CPU and wall time of one turn, and what the model was sent."""
        folder = Path(request["folder"]) / "batch"
        folder.mkdir(parents=True)
        try:
            await self.guide.open(request["kind"], request["routes"], folder)
            return await self._measured(request, count)
        finally:
            await self.guide.close()
            shutil.rmtree(folder)

    async def _measured(self, request: dict[str, Any], count: int) -> dict[str, Any]:
        guide = self.guide
        planned = [turns(request["routes"], self.talks + index) for index in range(count)]
        self.talks += count
        conversations = [await guide.begin(earlier()) for _ in planned]
        readings = [[guide.reading(turn) for turn in each] for each in planned]
        guide.seen.calls.clear()
        outcomes = []
        gc.collect()
        wall, cpu = time.perf_counter(), time.process_time()
        for conversation, each, answers in zip(conversations, planned, readings, strict=True):
            for turn, answer in zip(each, answers, strict=True):
                guide.seen.reading = answer
                outcomes.append(await guide.turn(conversation, turn.said))
            await protocol.settle()
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall

        streams = request["kind"] == "stream"
        for turn, outcome in zip([turn for each in planned for turn in each], outcomes, strict=True):
            _check(turn, guide.came(outcome), streams=streams)
        for conversation in conversations:
            stored = await guide.kept(conversation)
            expect("messages that are kept", stored, None if stored is None else BEFORE + 2 * TURNS)
        expect("calls to the model", len(guide.seen.calls), CALLS * len(outcomes))
        prompts = _prompts([guide.sent(call) for call in guide.seen.calls])
        return {"cpu_ms": 1000 * cpu / len(outcomes), "wall_ms": 1000 * wall / len(outcomes), **prompts}


def _check(turn: Turn, came: Came, *, streams: bool) -> None:
    expect("text", came.text, STREAMED if streams else REPLY)
    expect("pieces", came.pieces, len(PIECES) if streams else 1)
    expect(f"route after {turn.said!r}", came.route, turn.meant)
    expect(f"state after {turn.said!r}", came.state, turn.state)
    expect(f"values after {turn.said!r}", dict(came.known), dict(turn.known))


def _prompts(sent: Sequence[Sent]) -> dict[str, float]:
    """Characters of a median call of each kind; a turn reads first, and then replies."""
    reads, replies = sent[::CALLS], sent[1::CALLS]
    return {
        "understand_chars": median(call.prompt for call in reads),
        "schema_chars": median(call.schema for call in reads),
        "reply_chars": median(call.prompt for call in replies),
    }


def serve(guide: Guide, kinds: Sequence[str], packages: Sequence[str], more: Mapping[str, Callable[..., Any]]) -> None:
    """Answer requests for batches of conversations, and for whatever `more` a worker can do."""
    batches = Batches(guide)

    async def measured(request: dict[str, Any]) -> dict[str, Any]:
        if request["kind"] in more:
            found: dict[str, Any] = await more[request["kind"]](request)
            return found
        return await (batches.warm_up(request) if request["count"] is None else batches.run(request, request["count"]))

    protocol.answer_requests(measured, [*more, *kinds], packages)
