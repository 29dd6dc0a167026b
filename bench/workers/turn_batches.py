"""What the workers of bench/turn.py share: batches of turns on conversations of one length, in a fresh file.

Memories, the questions that are asked about them and the vectors of both are prepared by the parent
(memory_batches.py). A batch is spread over conversations that were filled before the clock started, the last turn
before it being a real one (persist_batches.py). What the model was sent, what was recalled and what was stored is
checked after the clock has stopped.
"""

from __future__ import annotations

import gc
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import protocol
from memory_batches import MISSED_MOST, Material, material
from persist_batches import Plan, per_operation, said
from protocol import expect

USER = "maya"
SYSTEM = "You are a helpful assistant. Answer in one sentence."
HITS = 8
"""What `user.chat` recalls unless it is told otherwise."""
WARM_UP_MS = 100.0
WARM_UP_COUNT = 5


@dataclass
class Seen:
    """What the fake model was sent, call by call: the messages, and how many they were at that moment."""

    calls: list[tuple[Any, int]] = field(default_factory=list)

    def model_called(self, request: Any, count: int) -> None:
        self.calls.append((request, count))


@dataclass(frozen=True)
class Sent:
    """A call as the model got it: the system prompt, and the texts of the messages after it."""

    system: str
    texts: list[str]


@dataclass(frozen=True)
class Answered:
    """What a turn gave: its text, in how many pieces, and the memories that the model was given."""

    text: str
    pieces: int = 1
    recalled: Sequence[str] | None = None


class Talker(Protocol):
    """A library, or what was put together of several, that answers with what it remembers."""

    @property
    def seen(self) -> Seen: ...

    async def fill(self, folder: Path, given: Material, size: int) -> None:
        """Remember so many, once for all batches."""
        ...

    async def open(self, kind: str, folder: Path) -> None:
        """Be ready for a batch in an empty folder, with what was filled in."""
        ...

    async def close(self, count: int) -> None:
        """The end of a batch of so many turns."""
        ...

    async def begin(self, texts: Sequence[str]) -> Any:
        """A new conversation that holds these messages, the user's and the assistant's in turn."""
        ...

    async def turn(self, kind: str, conversation: Any, text: str) -> Any: ...

    def answered(self, kind: str, outcome: Any) -> Answered: ...

    def expected(self, kind: str, length: int) -> Expected:
        """What a turn of that kind does, when it finds a conversation of that length."""
        ...

    def sent(self, call: Any) -> Sent: ...

    async def stored(self, conversation: Any) -> list[str]:
        """The texts of all messages, in order."""
        ...


@dataclass(frozen=True)
class Expected:
    """What a turn does. `window` is how many messages the model is sent, None if it is not asked at all."""

    text: str
    window: int | None
    pieces: int = 1
    recalls: bool = True
    keeps: bool = True


class Batches:
    """The batches of a worker, and how many of the questions were asked so far."""

    def __init__(self, talker: Talker) -> None:
        self._talker = talker
        self._asked = 0

    async def fill(self, request: dict[str, Any]) -> dict[str, Any]:
        await self._talker.fill(_made(Path(request["folder"])), material(request["material"]), request["size"])
        return {"filled": request["size"]}

    async def warm_up(self, request: dict[str, Any]) -> dict[str, Any]:
        count, enough = WARM_UP_COUNT, min(WARM_UP_MS, request["batch_ms"])
        while True:
            cpu_ms = (await self.run(request, count))["cpu_ms"]
            if count > WARM_UP_COUNT and cpu_ms * count >= enough:
                return {"estimate_ms": cpu_ms}
            count *= 4

    async def run(self, request: dict[str, Any], count: int) -> dict[str, Any]:
        folder = _made(Path(request["folder"]) / "batch")
        try:
            await self._talker.open(request["kind"], folder)
            return await self._measured(request, Plan.of(request["length"], count))
        finally:
            shutil.rmtree(folder)

    async def _measured(self, request: dict[str, Any], plan: Plan) -> dict[str, Any]:
        talker, kind = self._talker, request["kind"]
        before = [said(index) for index in range(plan.filled - 2)]
        asked = [self._questions(request, plan.turns + 1) for _ in range(plan.conversations)]
        conversations = []
        for questions in asked:
            conversations.append(await talker.begin(before))
            await talker.turn(kind, conversations[-1], questions[0][0])
        talker.seen.calls.clear()
        outcomes = []
        gc.collect()
        wall, cpu = time.perf_counter(), time.process_time()
        for conversation, questions in zip(conversations, asked, strict=True):
            outcomes += [await talker.turn(kind, conversation, question) for question, _ in questions[1:]]
        await protocol.settle()
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall

        timed = [pair for questions in asked for pair in questions[1:]]
        found = _checked(talker, kind, plan, timed, outcomes)
        if talker.expected(kind, plan.length).keeps:
            for conversation, questions in zip(conversations, asked, strict=True):
                answer = talker.expected(kind, plan.length).text
                kept = [*before, *(text for question, _ in questions for text in (question, answer))]
                expect("messages that are kept", await talker.stored(conversation), kept)
        await talker.close(plan.count + plan.conversations)
        return per_operation(plan.count, cpu, wall) | {"found": found}

    async def paired(self, request: dict[str, Any], count: int) -> dict[str, Any]:
        """Turns of two kinds in turn, for differences that are smaller than what changes between two batches."""
        folder = _made(Path(request["folder"]) / "batch")
        kinds = request["kind"].split("/")
        try:
            await self._talker.open(kinds[0], folder)
            plan = Plan.of(request["length"], count)
            spent: dict[str, list[float]] = {kind: [] for kind in kinds}
            for _ in range(plan.conversations):
                await self._alternated(request, plan, kinds, spent)
            await self._talker.close(0)
        finally:
            shutil.rmtree(folder)
        over, under = (1000 * median(spent[kind]) for kind in kinds)
        return {"over_ms": over, "under_ms": under}

    async def _alternated(
        self, request: dict[str, Any], plan: Plan, kinds: Sequence[str], spent: dict[str, list[float]]
    ) -> None:
        talker = self._talker
        before = [said(index) for index in range(plan.filled - 2)]
        conversations = {kind: await talker.begin(before) for kind in kinds}
        for index in range(-1, plan.turns):
            # Each goes first as often as the other.
            for kind in kinds if len(spent[kinds[0]]) % 2 else kinds[::-1]:
                [(question, _)] = self._questions(request, 1)
                cpu = time.process_time()
                outcome = await talker.turn(kind, conversations[kind], question)
                cpu = time.process_time() - cpu
                expect("text", talker.answered(kind, outcome).text, talker.expected(kind, plan.length).text)
                if index >= 0:
                    spent[kind].append(cpu)

    def _questions(self, request: dict[str, Any], count: int) -> list[tuple[str, str]]:
        """The next ones, with the memories that answer them; from the beginning again when all were asked."""
        given = material(request["material"])
        questions = given.questions[request["size"]]
        numbers = [(self._asked + index) % len(questions) for index in range(count)]
        self._asked += count
        return [(questions[number][0], given.memories[questions[number][1]]) for number in numbers]


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def _checked(
    talker: Talker, kind: str, plan: Plan, asked: Sequence[tuple[str, str]], outcomes: Sequence[Any]
) -> float | None:
    """How many questions found the memory that answers them, if that is nearly all; None if nothing is recalled."""
    calls, found = talker.seen.calls, 0
    recalls = False
    for index, ((question, memory), outcome) in enumerate(zip(asked, outcomes, strict=True)):
        wanted = talker.expected(kind, plan.filled + 2 * (index % plan.turns))
        answered = talker.answered(kind, outcome)
        expect("text", answered.text, wanted.text)
        expect("pieces", answered.pieces, wanted.pieces)
        if wanted.recalls:
            recalls = True
            recalled = answered.recalled or ()
            expect(f"memories for {question!r}", len({*recalled}), HITS)
            found += any(text.endswith(memory) for text in recalled)
        if wanted.window is not None:
            call, count = calls[index]
            _check_call(talker.sent((call, count)), wanted, question, answered)
    expect("model calls", len(calls), 0 if wanted.window is None else len(asked))
    if not recalls:
        return None
    if len(asked) - found > max(1, MISSED_MOST * len(asked)):
        raise AssertionError(f"only {found} of {len(asked)} questions found the memory that answers them")
    return found / len(asked)


def _check_call(sent: Sent, wanted: Expected, question: str, answered: Answered) -> None:
    expect("messages the model saw", len(sent.texts), wanted.window)
    expect("the last message the model saw", sent.texts[-1], question)
    expect("the system prompt's beginning", sent.system.startswith(SYSTEM), True)
    if wanted.recalls:
        missing = [text for text in answered.recalled or () if text not in sent.system]
        expect("memories that are not in the system prompt", missing, [])


def serve(talker: Talker, kinds: Sequence[str], packages: Sequence[str]) -> None:
    """Answer requests to fill, and for batches of turns."""
    batches = Batches(talker)

    async def measured(request: dict[str, Any]) -> dict[str, Any]:
        if request["kind"] == "fill":
            return await batches.fill(request)
        if "/" in request["kind"]:
            return await batches.paired(request, request["count"])
        return await (batches.warm_up(request) if request["count"] is None else batches.run(request, request["count"]))

    protocol.answer_requests(measured, ["fill", *kinds], packages)
