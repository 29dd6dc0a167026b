"""Spans of real operations: recall, jobs in a worker, tools in a turn, requests for vectors; and no spans when off."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from tellback import NotFoundError, Tellback, telemetry
from tellback.embed import OpenAIEmbedder
from tellback.errors import EmbeddingError, ProviderOverloadedError
from tellback.jobs import Jobs, open_worker
from tellback.stores import JobEnd, Store, open_store
from tellback.telemetry import CAPTURE_VARIABLE
from tellback.testing import ScriptedModel, answers, calls, raises, says
from tellback.testing.jobs.fixtures import (
    KIND,
    QUICK_OPTIONS,
    ScriptedJobHandler,
    make_spaces,
    queue_job,
    wait_until_finished,
)
from tellback.types.jobs import Job
from tests.support.fake_http_server import FakeHttpServer, Reply, Request, json_reply


@pytest.fixture
def provider() -> TracerProvider:
    return TracerProvider(shutdown_on_exit=False)


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch, provider: TracerProvider) -> Iterator[InMemorySpanExporter]:
    monkeypatch.delenv(CAPTURE_VARIABLE, raising=False)
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry.configure(tracer_provider=provider)
    yield exporter
    telemetry.configure()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = open_store(str(tmp_path / "tellback.db"))
    await store.open()
    yield store
    await store.close()


def spans_with_prefix(exporter: InMemorySpanExporter, prefix: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name.startswith(prefix)]


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def parent(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


async def test_every_recall_method_creates_a_span_with_its_hit_count(
    exporter: InMemorySpanExporter, provider: TracerProvider
) -> None:
    async with Tellback(":memory:", worker=False) as tb:
        memory = tb.user("maya").memory
        space = await memory.create_space("home")
        await memory.add_atom(space.id, "Maya lives in Lisbon.")
        await memory.add_atom(space.id, "Maya has a cat.")
        with provider.get_tracer("test").start_as_current_span("asking") as parent_span:
            await memory.recall_by_topic(space.id, "Where does Maya live?", limit=1)
            await memory.recall_by_entity(space.id, "Maya")
            await memory.recall_timeline(space.id)
        with pytest.raises(NotFoundError):
            await memory.recall_by_topic("space_unknown", "Lisbon")
    *found, lost = spans_with_prefix(exporter, "recall ")
    assert [span.name for span in found] == ["recall BY_TOPIC", "recall BY_ENTITY", "recall TIMELINE"]
    for span, hits in zip(found, (1, 2, 2), strict=True):
        assert parent(span) == parent_span.get_span_context().span_id
        assert attributes(span) == {
            "tellback.recall.mode": span.name.removeprefix("recall "),
            "tellback.recall.hits": hits,
            "tellback.recall.candidates": 2,
            "tellback.space.id": space.id,
        }
    assert attributes(lost)["error.type"] == "NotFoundError"
    assert not any("Lisbon" in span.to_json() for span in exporter.get_finished_spans())


async def test_tool_spans_belong_to_the_trace_of_the_current_span(
    exporter: InMemorySpanExporter, provider: TracerProvider
) -> None:
    model = ScriptedModel([calls("weather", city="Lisbon"), says("Sunny.")])

    def weather(city: str) -> str:
        """Return the weather."""
        return "sunny"

    async with Tellback(":memory:", model=model, worker=False) as tb:
        maya = tb.user("maya")
        conversation = await maya.conversations.create("chat")
        with provider.get_tracer("test").start_as_current_span("request") as request:
            await maya.conversations.run_turn(conversation.id, user_text="How is it?", tools=[weather])
    [tool] = spans_with_prefix(exporter, "execute_tool ")
    trace_id = request.get_span_context().trace_id
    assert tool.get_span_context().trace_id == trace_id  # type: ignore[union-attr]
    for span in exporter.get_finished_spans():
        text = span.to_json()
        assert "maya" not in text
        assert "Lisbon" not in text
        assert "sunny" not in text.lower()


@pytest.mark.parametrize("entry_point", ["chat", "chat_stream"])
async def test_a_turn_is_one_trace_from_recall_to_the_answer(exporter: InMemorySpanExporter, entry_point: str) -> None:
    def look(place: str) -> str:
        return "a secret place"

    model = ScriptedModel([calls("look", place="Lisbon"), says("A secret answer.")])
    async with Tellback(":memory:", worker=False) as tb:
        maya = tb.user("maya")
        if entry_point == "chat":
            reply: Any = await maya.chat("A secret question?", model=model, tools=[look])
        else:
            items = [item async for item in maya.chat_stream("A secret question?", model=model, tools=[look])]
            reply = items[-1]
    [turn] = spans_with_prefix(exporter, "invoke_agent")
    child_spans = [span for span in exporter.get_finished_spans() if span is not turn]
    assert [span.name for span in child_spans] == [
        "recall BY_TOPIC",
        "chat scripted",
        "execute_tool look",
        "chat scripted",
    ]
    assert turn.context is not None
    assert {parent(span) for span in child_spans} == {turn.context.span_id}
    assert parent(turn) is None
    for span in (turn, *child_spans):
        assert attributes(span)["gen_ai.conversation.id"] == reply.conversation_id
        assert "secret" not in span.to_json()
    assert attributes(turn)["gen_ai.operation.name"] == "invoke_agent"
    assert [
        attributes(span)["gen_ai.response.finish_reasons"] for span in child_spans if span.name.startswith("chat")
    ] == [
        ("tool_use",),
        ("end_turn",),
    ]


@pytest.mark.parametrize("streams", [False, True])
async def test_a_failed_model_call_marks_its_span_and_the_turn_span_as_errors(
    exporter: InMemorySpanExporter, streams: bool
) -> None:
    model = ScriptedModel([raises(ProviderOverloadedError("too busy"))])
    async with Tellback(":memory:", worker=False) as tb:
        maya = tb.user("maya")
        conversation = await maya.conversations.create("chat")
        items = maya.conversations.stream_turn(conversation.id, model, "Hello?")
        with pytest.raises(ProviderOverloadedError):
            await (anext(items) if streams else maya.conversations.run_turn(conversation.id, model, "Hello?"))
        await items.aclose()
    [call] = spans_with_prefix(exporter, "chat")
    [turn] = spans_with_prefix(exporter, "invoke_agent")
    for span in (call, turn):
        assert span.status.status_code is StatusCode.ERROR
        assert attributes(span)["error.type"] == "ProviderOverloadedError"


async def test_closing_a_stream_ends_its_spans(exporter: InMemorySpanExporter) -> None:
    async with Tellback(":memory:", worker=False) as tb:
        maya = tb.user("maya")
        conversation = await maya.conversations.create("chat")
        items = maya.conversations.stream_turn(conversation.id, ScriptedModel([says("One, two.")]), "Count!")
        await anext(items)
        await items.aclose()
    assert [span.name for span in exporter.get_finished_spans()] == ["chat scripted", "invoke_agent"]
    assert all(attributes(span)["tellback.cancelled"] for span in exporter.get_finished_spans())


async def test_each_job_attempt_is_a_separate_trace(
    exporter: InMemorySpanExporter, provider: TracerProvider, store: Store
) -> None:
    """A span that was current when the worker started is not the parent."""
    handler = ScriptedJobHandler(store)

    async def handle(job: Job) -> JobEnd | None:
        telemetry.model_span("reader").fail(ValueError())
        return await handler(job)

    [space] = await make_spaces(store, 1)
    with provider.get_tracer("test").start_as_current_span("opening"):
        worker = open_worker(store, {KIND: handle}, options=QUICK_OPTIONS)
        worker.start()
    job = await queue_job(store, space)
    await wait_until_finished(Jobs(store), job)
    await worker.close()
    [span] = spans_with_prefix(exporter, "process job ")
    [model] = spans_with_prefix(exporter, "chat reader")
    assert (span.name, span.kind, span.parent) == ("process job extract", SpanKind.CONSUMER, None)
    assert attributes(span) == {
        "gen_ai.conversation.id": job.conversation_id,
        "tellback.space.id": space.id,
        "tellback.job.id": job.id,
        "tellback.job.kind": "extract",
        "tellback.job.attempt": 1,
        "tellback.job.outcome": "done",
    }
    assert parent(model) == span.get_span_context().span_id  # type: ignore[union-attr]
    assert attributes(model)["gen_ai.conversation.id"] == job.conversation_id


async def test_model_calls_of_an_extraction_are_children_of_its_job(exporter: InMemorySpanExporter) -> None:
    model = ScriptedModel([says("no JSON"), answers({"facts": [], "entities": []})])
    async with Tellback(":memory:", model=model, worker=QUICK_OPTIONS) as tb:
        memory, conversations = tb.user("maya").memory, tb.user("maya").conversations
        space = await memory.create_space("home")
        conversation = await conversations.create("chat")
        await conversations.append_turn(conversation.id, "I live in Porto.", {"content": "I see."})
        await memory.run_extraction_for_conversation(conversation.id, space_id=space.id)
        await tb.jobs.drain()
    [job] = spans_with_prefix(exporter, "process job extract")
    calls = spans_with_prefix(exporter, "chat ")
    assert [span.name for span in calls] == ["chat scripted", "chat scripted"]
    assert job.context is not None
    for span in calls:
        assert parent(span) == job.context.span_id
        assert attributes(span)["gen_ai.conversation.id"] == conversation.id
        assert attributes(span)["gen_ai.provider.name"] == "scripted"
        assert attributes(span)["gen_ai.output.type"] == "json"
        assert "Porto" not in span.to_json()


async def test_the_model_call_of_a_summary_creates_a_span(exporter: InMemorySpanExporter) -> None:
    async with Tellback(":memory:", worker=False) as tb:
        conversations = tb.user("maya").conversations
        conversation = await conversations.create("chat")
        await conversations.append_turn(conversation.id, "I live in Porto.", {"content": "I see."})
        await conversations.refresh_rolling_summary(
            conversation.id, model=ScriptedModel([says("Maya lives in Porto.")])
        )
    [span] = spans_with_prefix(exporter, "chat ")
    assert attributes(span)["gen_ai.response.finish_reasons"] == ("end_turn",)
    assert "Porto" not in span.to_json()


@pytest.mark.parametrize(
    ("behaviour", "outcomes"),
    [("poison", ["retry", "retry", "failed"]), ("postponed", ["postponed", "postponed", "done"])],
)
async def test_each_job_span_contains_the_outcome_of_its_attempt(
    exporter: InMemorySpanExporter, store: Store, behaviour: str, outcomes: list[str]
) -> None:
    [space] = await make_spaces(store, 1)
    worker = open_worker(store, {KIND: ScriptedJobHandler(store)}, options=QUICK_OPTIONS)
    worker.start()
    await wait_until_finished(Jobs(store), await queue_job(store, space, behaviour))
    await worker.close()
    spans = spans_with_prefix(exporter, "process job ")
    assert [attributes(span)["tellback.job.outcome"] for span in spans] == outcomes
    for span in spans:
        has_failed = attributes(span)["tellback.job.outcome"] in ("retry", "failed")
        assert (span.status.status_code is StatusCode.ERROR) == has_failed
        assert attributes(span).get("error.type") == ("ValueError" if has_failed else None)
        assert "no good" not in span.to_json()


async def test_the_span_of_a_job_returned_to_the_queue_is_not_an_error(
    exporter: InMemorySpanExporter, store: Store
) -> None:
    [space] = await make_spaces(store, 1)
    handler = ScriptedJobHandler(store, holds=True)
    worker = open_worker(store, {KIND: handler}, options=QUICK_OPTIONS)
    worker.start()
    await queue_job(store, space, "held")
    async with asyncio.timeout(30):
        await handler.holding.wait()
    await worker.close()
    [span] = spans_with_prefix(exporter, "process job ")
    assert attributes(span)["tellback.job.outcome"] == "requeued"
    assert span.status.status_code is StatusCode.UNSET


async def test_a_request_for_vectors_creates_a_span(exporter: InMemorySpanExporter) -> None:
    def answer(request: Request) -> Reply:
        if "secret" in request.body["input"]:
            return json_reply({"error": {"message": "secret"}}, status=400)
        data = [{"object": "embedding", "index": index, "embedding": [1.0, 2.0]} for index in range(2)]
        return json_reply({"object": "list", "data": data, "model": "m", "usage": {"prompt_tokens": 1}})

    async with FakeHttpServer(answer) as wire:
        embedder = OpenAIEmbedder("text-embedding-3-small", dimensions=2, api_key="key", base_url=wire.url)
        await embedder.embed(["one", "two"])
        with pytest.raises(EmbeddingError):
            await embedder.embed(["secret"])
        await embedder.close()
    good, bad = spans_with_prefix(exporter, "embeddings ")
    assert (good.name, good.kind) == ("embeddings text-embedding-3-small", SpanKind.CLIENT)
    assert attributes(good) == {
        "gen_ai.operation.name": "embeddings",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "text-embedding-3-small",
        "gen_ai.embeddings.dimension.count": 2,
        "tellback.embeddings.texts": 2,
    }
    assert attributes(bad)["error.type"] == "EmbeddingError"
    assert "secret" not in bad.to_json()


def run(code: str) -> str:
    completed = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=50)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


TURN = """
import asyncio, sys
from tellback import Tellback
from tellback.testing import ScriptedModel, calls, raises, says

async def add(x: int) -> int:
    return x + 1

async def main() -> None:
    async with Tellback(":memory:", model=ScriptedModel([calls("add", x=1), says("2")]), worker=False) as tb:
        maya = tb.user("maya")
        space = await maya.memory.create_space("home")
        conversation = await maya.conversations.create("chat")
        assert (await maya.conversations.run_turn(conversation.id, user_text="1 + 1?", tools=[add])).text == "2"
        await maya.memory.recall_by_topic(space.id, "sums")

asyncio.run(main())
"""


HIDDEN = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Hidden())
from tellback import telemetry
telemetry.configure(capture_content=True)
"""


def test_without_configuration_opentelemetry_is_not_loaded() -> None:
    code = f"{TURN}\nprint([name for name in sys.modules if name.partition('.')[0] == 'opentelemetry'])"
    assert run(code).strip() == "[]"


def test_tellback_works_without_opentelemetry() -> None:
    run(HIDDEN + TURN)


LATER = """
from opentelemetry import trace
from tellback import telemetry
assert telemetry.tracer() is None
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
asyncio.run(main())
print(sorted({span.name for span in exporter.get_finished_spans()}))
"""


def test_a_provider_that_is_set_later_is_used() -> None:
    names = run(TURN + LATER)
    assert "execute_tool add" in names
    assert "recall BY_TOPIC" in names


@pytest.mark.parametrize("streams", [False, True])
async def test_a_turn_span_contains_messages_if_content_is_captured(
    exporter: InMemorySpanExporter, provider: TracerProvider, streams: bool
) -> None:
    telemetry.configure(tracer_provider=provider, capture_content=True)
    model = ScriptedModel([says("Sunny.")])
    async with Tellback(":memory:", worker=False) as tb:
        conversations = tb.user("maya").conversations
        conversation = await conversations.create("chat")
        if streams:
            assert [item async for item in conversations.stream_turn(conversation.id, model, "How is Lisbon?")]
        else:
            await conversations.run_turn(conversation.id, model, "How is Lisbon?")
    [turn] = spans_with_prefix(exporter, "invoke_agent")
    assert "How is Lisbon?" in attributes(turn)["gen_ai.input.messages"]
    assert "Sunny." in attributes(turn)["gen_ai.output.messages"]
