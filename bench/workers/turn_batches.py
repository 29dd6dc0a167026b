"""Shared code of the workers of bench/turn.py: batches of turns on conversations of one length, in a fresh file.

The parent prepares the memories, the questions about them, and the vectors of both (memory_batches.py). A batch is
spread over conversations that are filled before the clock starts; the last turn before it is a real one
(persist_batches.py). After the clock has stopped, the worker checks the messages sent to the model, the recalled
memories and the stored messages.
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
from memory_batches import MAX_MISSED_SHARE, MemoryData, load_data
from persist_batches import Plan, numbered_text, per_operation
from protocol import expect

USER = "maya"
SYSTEM = "You are a helpful assistant. Answer in one sentence."
HITS = 8
"""The default number of memories that `user.chat` recalls."""
WARM_UP_MS = 100.0
WARM_UP_COUNT = 5


@dataclass
class CallLog:
    """The calls of the fake model: the messages, and their number at that moment."""

    calls: list[tuple[Any, int]] = field(default_factory=list)

    def record_call(self, request: Any, count: int) -> None:
        self.calls.append((request, count))


@dataclass(frozen=True)
class ModelCall:
    """A call of the model: the system prompt, and the texts of the messages after it."""

    system: str
    texts: list[str]


@dataclass(frozen=True)
class TurnAnswer:
    """The result of a turn: its text, the number of pieces, and the memories sent to the model."""

    text: str
    pieces: int = 1
    recalled: Sequence[str] | None = None


class TurnRunner(Protocol):
    """A library, or a combination of libraries, that answers with recalled memories."""

    @property
    def call_log(self) -> CallLog: ...

    async def fill(self, folder: Path, data: MemoryData, size: int) -> None:
        """Store `size` memories, once for all batches."""
        ...

    async def open(self, kind: str, folder: Path) -> None:
        """Prepare for a batch in an empty folder, with the stored memories."""
        ...

    async def close(self, count: int) -> None:
        """End a batch of `count` turns."""
        ...

    async def create_conversation(self, texts: Sequence[str]) -> Any:
        """Create a conversation with these messages, alternating between user and assistant."""
        ...

    async def turn(self, kind: str, conversation: Any, text: str) -> Any: ...

    def to_answer(self, kind: str, outcome: Any) -> TurnAnswer: ...

    def expected_turn(self, kind: str, length: int) -> ExpectedTurn:
        """Return the expected effects of a turn of this kind in a conversation of this length."""
        ...

    def to_model_call(self, call: Any) -> ModelCall: ...

    async def load_texts(self, conversation: Any) -> list[str]:
        """Return the texts of all messages, in order."""
        ...


@dataclass(frozen=True)
class ExpectedTurn:
    """The expected effects of a turn. `window` is the number of messages sent, or None without a model call."""

    text: str
    window: int | None
    pieces: int = 1
    recalls: bool = True
    persists: bool = True


class Batches:
    """The batches of a worker, and the number of questions used so far."""

    def __init__(self, runner: TurnRunner) -> None:
        self._runner = runner
        self._questions_used = 0

    async def fill(self, request: dict[str, Any]) -> dict[str, Any]:
        await self._runner.fill(
            _create_folder(Path(request["folder"])), load_data(request["data_folder"]), request["size"]
        )
        return {"filled": request["size"]}

    async def warm_up(self, request: dict[str, Any]) -> dict[str, Any]:
        count, min_ms = WARM_UP_COUNT, min(WARM_UP_MS, request["batch_ms"])
        while True:
            cpu_ms = (await self.run(request, count))["cpu_ms"]
            if count > WARM_UP_COUNT and cpu_ms * count >= min_ms:
                return {"estimate_ms": cpu_ms}
            count *= 4

    async def run(self, request: dict[str, Any], count: int) -> dict[str, Any]:
        folder = _create_folder(Path(request["folder"]) / "batch")
        try:
            await self._runner.open(request["kind"], folder)
            return await self._measure(request, Plan.of(request["length"], count))
        finally:
            shutil.rmtree(folder)

    async def _measure(self, request: dict[str, Any], plan: Plan) -> dict[str, Any]:
        runner, kind = self._runner, request["kind"]
        earlier_texts = [numbered_text(index) for index in range(plan.initial_length - 2)]
        question_lists = [self._questions(request, plan.turns + 1) for _ in range(plan.conversations)]
        conversations = []
        for questions in question_lists:
            conversations.append(await runner.create_conversation(earlier_texts))
            await runner.turn(kind, conversations[-1], questions[0][0])
        runner.call_log.calls.clear()
        outcomes = []
        gc.collect()
        wall, cpu = time.perf_counter(), time.process_time()
        for conversation, questions in zip(conversations, question_lists, strict=True):
            outcomes += [await runner.turn(kind, conversation, question) for question, _ in questions[1:]]
        await protocol.settle()
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall

        timed_questions = [pair for questions in question_lists for pair in questions[1:]]
        found_share = _check_turns(runner, kind, plan, timed_questions, outcomes)
        if runner.expected_turn(kind, plan.length).persists:
            for conversation, questions in zip(conversations, question_lists, strict=True):
                answer = runner.expected_turn(kind, plan.length).text
                expected_texts = [*earlier_texts, *(text for question, _ in questions for text in (question, answer))]
                expect("stored messages", await runner.load_texts(conversation), expected_texts)
        await runner.close(plan.count + plan.conversations)
        return per_operation(plan.count, cpu, wall) | {"found": found_share}

    async def run_paired(self, request: dict[str, Any], count: int) -> dict[str, Any]:
        """Alternate turns of two kinds, for differences smaller than the noise between batches."""
        folder = _create_folder(Path(request["folder"]) / "batch")
        kinds = request["kind"].split("/")
        try:
            await self._runner.open(kinds[0], folder)
            plan = Plan.of(request["length"], count)
            cpu_seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
            for _ in range(plan.conversations):
                await self._run_alternating(request, plan, kinds, cpu_seconds)
            await self._runner.close(0)
        finally:
            shutil.rmtree(folder)
        compared, baseline = (1000 * median(cpu_seconds[kind]) for kind in kinds)
        return {"compared_ms": compared, "baseline_ms": baseline}

    async def _run_alternating(
        self, request: dict[str, Any], plan: Plan, kinds: Sequence[str], cpu_seconds: dict[str, list[float]]
    ) -> None:
        runner = self._runner
        earlier_texts = [numbered_text(index) for index in range(plan.initial_length - 2)]
        conversations = {kind: await runner.create_conversation(earlier_texts) for kind in kinds}
        for index in range(-1, plan.turns):
            # Each kind goes first equally often.
            for kind in kinds if len(cpu_seconds[kinds[0]]) % 2 else kinds[::-1]:
                [(question, _)] = self._questions(request, 1)
                cpu = time.process_time()
                outcome = await runner.turn(kind, conversations[kind], question)
                cpu = time.process_time() - cpu
                expect("text", runner.to_answer(kind, outcome).text, runner.expected_turn(kind, plan.length).text)
                if index >= 0:
                    cpu_seconds[kind].append(cpu)

    def _questions(self, request: dict[str, Any], count: int) -> list[tuple[str, str]]:
        """Return the next questions and the memories that answer them; restart after the last one."""
        data = load_data(request["data_folder"])
        questions = data.questions[request["size"]]
        numbers = [(self._questions_used + index) % len(questions) for index in range(count)]
        self._questions_used += count
        return [(questions[number][0], data.memories[questions[number][1]]) for number in numbers]


def _create_folder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def _check_turns(
    runner: TurnRunner, kind: str, plan: Plan, questions: Sequence[tuple[str, str]], outcomes: Sequence[Any]
) -> float | None:
    """Return the share of questions that found their answer, or None without recall; raise if too many did not."""
    calls, found_count = runner.call_log.calls, 0
    recalls = False
    for index, ((question, memory), outcome) in enumerate(zip(questions, outcomes, strict=True)):
        expected = runner.expected_turn(kind, plan.initial_length + 2 * (index % plan.turns))
        answer = runner.to_answer(kind, outcome)
        expect("text", answer.text, expected.text)
        expect("pieces", answer.pieces, expected.pieces)
        if expected.recalls:
            recalls = True
            recalled = answer.recalled or ()
            expect(f"memories for {question!r}", len({*recalled}), HITS)
            found_count += any(text.endswith(memory) for text in recalled)
        if expected.window is not None:
            call, count = calls[index]
            _check_call(runner.to_model_call((call, count)), expected, question, answer)
    expect("model calls", len(calls), 0 if expected.window is None else len(questions))
    if not recalls:
        return None
    if len(questions) - found_count > max(1, MAX_MISSED_SHARE * len(questions)):
        raise AssertionError(f"only {found_count} of {len(questions)} questions found the memory that answers them")
    return found_count / len(questions)


def _check_call(call: ModelCall, expected: ExpectedTurn, question: str, answer: TurnAnswer) -> None:
    expect("messages sent to the model", len(call.texts), expected.window)
    expect("the last message sent to the model", call.texts[-1], question)
    expect("the system prompt's beginning", call.system.startswith(SYSTEM), True)
    if expected.recalls:
        missing = [text for text in answer.recalled or () if text not in call.system]
        expect("memories that are not in the system prompt", missing, [])


def serve(runner: TurnRunner, kinds: Sequence[str], packages: Sequence[str]) -> None:
    """Answer requests to fill, and for batches of turns."""
    batches = Batches(runner)

    async def handle_request(request: dict[str, Any]) -> dict[str, Any]:
        if request["kind"] == "fill":
            return await batches.fill(request)
        if "/" in request["kind"]:
            return await batches.run_paired(request, request["count"])
        return await (batches.warm_up(request) if request["count"] is None else batches.run(request, request["count"]))

    protocol.answer_requests(handle_request, ["fill", *kinds], packages)
