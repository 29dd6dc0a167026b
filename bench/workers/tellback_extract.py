"""Tellback: a binding extracts memories from closed conversations; also the cost of turns, and a queue of jobs."""

from __future__ import annotations

import gc
import shutil
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import extraction_batches
from extraction_batches import USER, Batch, ExtractionData, wait_for_background
from protocol import expect

from tellback import Tellback
from tellback.chat.model import ChatRequest, ModelBase
from tellback.stores import AtomDraft
from tellback.types import ChatReply, ChatUsage, ReplyDelta
from tellback.types.ids import new_id
from tellback.types.memory import Category, CategoryKind

FILE = "memory.db"
SPACE, NAMESPACE = "bench", "chat"
NUMBER_PREFIX = "chat number "
SCOPE = {"namespace": NAMESPACE, "user_id": "*"}
OTHER_SCOPE = {"namespace": "elsewhere", "user_id": "*"}
BINDINGS: dict[str, tuple[dict[str, str], dict[str, Any]] | None] = {
    "none": None,
    "on_close": (SCOPE, {}),
    "elsewhere": (OTHER_SCOPE, {"windowed": True, "window_turns": 10}),
}
EXPECTED = {"added": 2, "superseded": 2, "cited": 1, "unchanged": 0, "left_out": 0}
WARM_UP_TURNS = 50
BACKGROUND_SECONDS = 0.15
"""Long enough for the worker to process events."""
LIFE = Category("life", CategoryKind.FACT)
ASSISTANT = "I see. Tell me more about it."


class InstantModel(ModelBase):
    """Returns the facts of the conversation whose number is in the first line, or the decision."""

    model, provider = "instant", "bench"

    def __init__(self, answers: Sequence[str], decision: str) -> None:
        self._replies = [_reply(answer) for answer in answers]
        self._decision = _reply(decision)
        self.call_count = 0

    async def _complete(self, request: ChatRequest) -> ChatReply:
        self.call_count += 1
        prompt = request.messages[-1].content
        assert isinstance(prompt, str)
        _, prefix, remainder = prompt.partition(NUMBER_PREFIX)
        return self._replies[int(remainder[: remainder.index(".")])] if prefix else self._decision

    def _stream(self, request: ChatRequest) -> AsyncIterator[ReplyDelta]:
        raise NotImplementedError


def _reply(text: str) -> ChatReply:
    usage = ChatUsage(input_tokens=1_000, output_tokens=200)
    return ChatReply(text=text, stop_reason="end_turn", usage=usage)


class MemoryExtractor:
    async def open(self, folder: Path, data: ExtractionData, size: int) -> None:
        self._model = InstantModel([conversation["answer"] for conversation in data.conversations[size]], data.decision)
        self._tb = Tellback(folder / FILE, model=self._model, patterns=None)
        await self._tb.open()
        self._user = self._tb.user(USER)
        self._space = (await self._user.memory.create_space(SPACE)).id
        await self._user.memory.create_binding(SCOPE, [self._space])

    @property
    def model_calls(self) -> int:
        return self._model.call_count

    async def fill(self, known: Sequence[dict[str, str]]) -> None:
        now = self._tb.clock()
        drafts = [AtomDraft(id=new_id("atom"), category=LIFE, valid_from=now, **fact) for fact in known]
        await self._tb.store.memories.add(self._user.scope, self._space, drafts, now=now)
        await self._tb.reembed()

    async def store(self, data: dict[str, Any]) -> str:
        conversation = await self._user.conversations.create(NAMESPACE)
        for question, answer in data["turns"]:
            await self._user.conversations.append_turn(conversation.id, question, {"content": answer})
        await self._tb.jobs.drain()
        return conversation.id

    async def extract(self, conversation_ids: Sequence[str]) -> None:
        for id in conversation_ids:
            await self._user.conversations.close(id)
        await self._tb.jobs.drain()

    async def check(self, conversation_id: str) -> dict[str, int]:
        [job] = await self._user.memory.list_jobs(conversation_id)
        expect("the job's error", job.error, None)
        fact_outcomes = {name: job.result[name] for name in EXPECTED}
        expect("outcome of the facts", fact_outcomes, EXPECTED)
        return fact_outcomes

    async def close(self) -> None:
        await self._tb.close()


async def turns(request: dict[str, Any], count: int) -> dict[str, Any]:
    """Measure turns of one conversation with or without a binding, including the background work."""
    folder = _folder(request)
    async with Tellback(folder / FILE, extractor="verbatim", summary_every=None, patterns=None) as tb:
        user = tb.user(USER)
        binding = BINDINGS[request["binding"]]
        space = await user.memory.create_space(SPACE)
        if binding is not None:
            scope, policy = binding
            await user.memory.create_binding(scope, [space.id], policy)
        conversation = await user.conversations.create(NAMESPACE)
        for number in range(WARM_UP_TURNS):
            await user.conversations.append_turn(conversation.id, f"Warming up {number}.", {"content": ASSISTANT})
        await wait_for_background(BACKGROUND_SECONDS)
        gc.collect()
        wall, cpu = time.perf_counter(), time.process_time()
        for number in range(count):
            await user.conversations.append_turn(conversation.id, f"This is number {number}.", {"content": ASSISTANT})
            if request["pause"]:
                await wait_for_background(request["pause"])
        wall = time.perf_counter() - wall
        await wait_for_background(BACKGROUND_SECONDS)
        cpu = time.process_time() - cpu
        expect("jobs", await tb.jobs.list(), [])
    shutil.rmtree(folder)
    return {"cpu_ms": 1000 * cpu / count, "wall_ms": 1000 * wall / count}


async def queue(request: dict[str, Any], count: int) -> dict[str, Any]:
    """Measure running jobs that were queued without a worker."""
    folder, users = _folder(request), request["users"]
    async with Tellback(folder / FILE, extractor="verbatim", worker=False, patterns=None) as tb:
        for number in range(count):
            user = tb.user(f"{USER}{number % users}")
            space = await user.memory.create_space(SPACE, once=True)
            conversation = await user.conversations.create(NAMESPACE)
            await user.conversations.append_turn(conversation.id, f"This is number {number}.", {"content": ASSISTANT})
            await user.memory.run_extraction_for_conversation(conversation.id, space_id=space.id)
    tb = Tellback(folder / FILE, extractor="verbatim", patterns=None)
    await tb.warm_up()
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    await tb.open()
    await tb.jobs.drain()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    expect("jobs done", len(await tb.jobs.list("done", limit=None)), count)
    await tb.close()
    shutil.rmtree(folder)
    return {"cpu_ms": 1000 * cpu / count, "wall_ms": 1000 * wall / count}


def _folder(request: dict[str, Any]) -> Path:
    folder = Path(request["folder"]) / new_id("run")
    folder.mkdir(parents=True)
    return folder


if __name__ == "__main__":
    extra_batches: dict[str, Batch] = {"turns": turns, "queue": queue}
    extraction_batches.serve(MemoryExtractor, ["tellback"], extra_batches)
