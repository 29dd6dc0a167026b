"""Spans of model calls: one for each call, with every entry point and every ending."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode, get_current_span

from tellback import ChatOptions, ChatReply, run_loop, run_loop_stream, stream_loop, telemetry
from tellback.chat import ProviderRegistration, dispatch_chat, dispatch_chat_stream, prefix_detector
from tellback.chat.dispatch import CallRequest, resolve_caller
from tellback.errors import MissingKeyError
from tellback.memory.extraction.extractors import ask_model
from tellback.telemetry import CAPTURE_VARIABLE
from tellback.testing import ScriptedModel, raises, says

ModelCall = Callable[[ChatOptions], Awaitable[Any]]


async def iterate_stream(opts: ChatOptions) -> None:
    async for _ in stream_loop(opts, "Hi"):
        pass


MODEL_CALLS: dict[str, tuple[ModelCall, bool]] = {
    "run_loop": (lambda opts: run_loop(opts, "Hi"), False),
    "run_loop_stream": (lambda opts: run_loop_stream(opts, "Hi"), True),
    "stream_loop": (iterate_stream, True),
    "dispatch_chat": (lambda opts: dispatch_chat(opts, "Hi"), False),
    "dispatch_chat_stream": (lambda opts: dispatch_chat_stream(opts, "Hi"), True),
    "extraction": (lambda opts: ask_model(opts, "Hi", {"type": "object"}, str, 0), False),
}


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    monkeypatch.delenv(CAPTURE_VARIABLE, raising=False)
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry.configure(tracer_provider=provider)
    yield exporter
    telemetry.configure()


def only_span(exporter: InMemorySpanExporter) -> tuple[ReadableSpan, dict[str, Any]]:
    [span] = exporter.get_finished_spans()
    return span, dict(span.attributes or {})


async def hello(model: str, messages: Any, system: Any, tools: Any) -> str:
    assert not get_current_span().is_recording()
    return "Hello!"


async def hello_streamed(model: str, messages: Any, system: Any, tools: Any, on_delta: Any) -> ChatReply:
    return ChatReply("Hello!")


async def failing(model: str, messages: Any, system: Any, tools: Any) -> str:
    raise ConnectionError("gone")


@pytest.mark.parametrize("entry_point", MODEL_CALLS)
@pytest.mark.parametrize("answerer", ["model", "chat_fn", "chat_stream_fn", "both"])
async def test_every_model_call_is_one_span(exporter: InMemorySpanExporter, entry_point: str, answerer: str) -> None:
    options = {
        "model": ChatOptions(model=ScriptedModel([says("Hello!")], model="m")),
        "chat_fn": ChatOptions(model="m", chat_fn=hello),
        "chat_stream_fn": ChatOptions(model="m", chat_stream_fn=hello_streamed),
        "both": ChatOptions(model="m", chat_fn=hello, chat_stream_fn=hello_streamed),
    }
    call_model, streams = MODEL_CALLS[entry_point]
    await call_model(options[answerer])
    span, attributes = only_span(exporter)
    assert span.name == "chat m"
    assert span.status.status_code is StatusCode.UNSET
    assert attributes["gen_ai.response.finish_reasons"] == ("end_turn",)
    assert attributes.get("gen_ai.request.stream", False) == streams


@pytest.mark.parametrize("entry_point", MODEL_CALLS)
async def test_the_span_of_a_failed_call_has_its_provider(exporter: InMemorySpanExporter, entry_point: str) -> None:
    entry = ProviderRegistration("own", prefix_detector("own-"), "Own Host", chat_fn=failing)
    for opts, provider in (
        (ChatOptions(model=ScriptedModel([raises(ConnectionError("gone"))])), "scripted"),
        (ChatOptions(model="own-1", providers=[entry]), "own_host"),
        (ChatOptions(model="m", chat_fn=failing), None),
    ):
        exporter.clear()
        with pytest.raises(ConnectionError):
            await MODEL_CALLS[entry_point][0](opts)
        span, attributes = only_span(exporter)
        assert span.status.status_code is StatusCode.ERROR
        assert attributes["error.type"] == "ConnectionError"
        assert attributes.get("gen_ai.provider.name") == provider


async def test_the_span_has_the_provider_of_a_model_name(
    exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    with pytest.raises(MissingKeyError):
        await run_loop(ChatOptions(model="gemini-2.5-flash"), "Hi")
    assert only_span(exporter)[1]["gen_ai.provider.name"] == "gcp.gemini"


@pytest.mark.parametrize("steps", [1, 2])
async def test_a_stream_closed_early_is_marked_as_cancelled(exporter: InMemorySpanExporter, steps: int) -> None:
    caller = resolve_caller(ChatOptions(model=ScriptedModel([says("One, two.", chunks=3)])))
    async with aclosing(caller.stream(CallRequest([], None, (), {}))) as items:
        for _ in range(steps):
            await anext(items)
        assert not exporter.get_finished_spans()
    span, attributes = only_span(exporter)
    assert span.status.status_code is StatusCode.UNSET
    assert attributes["tellback.cancelled"] is True


async def test_a_stream_with_a_complete_reply_is_complete_even_if_not_read_to_its_end(
    exporter: InMemorySpanExporter,
) -> None:
    caller = resolve_caller(ChatOptions(model=ScriptedModel([says("One, two.")])))
    async with aclosing(caller.stream(CallRequest([], None, (), {}))) as items:
        async for item in items:
            if isinstance(item, ChatReply):
                break
    _, attributes = only_span(exporter)
    assert attributes["gen_ai.response.finish_reasons"] == ("end_turn",)
    assert "tellback.cancelled" not in attributes


async def test_a_stream_that_never_started_has_no_span(exporter: InMemorySpanExporter) -> None:
    caller = resolve_caller(ChatOptions(model=ScriptedModel([])))
    await caller.stream(CallRequest([], None, (), {})).aclose()
    assert not exporter.get_finished_spans()


@pytest.mark.parametrize("entry_point", MODEL_CALLS)
async def test_a_cancelled_call_is_not_an_error(exporter: InMemorySpanExporter, entry_point: str) -> None:
    was_called = asyncio.Event()
    model = ScriptedModel([says("never", delay=30, expect=lambda _: was_called.set())])
    task = asyncio.ensure_future(MODEL_CALLS[entry_point][0](ChatOptions(model=model)))
    async with asyncio.timeout(20):
        await was_called.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    span, attributes = only_span(exporter)
    assert span.status.status_code is StatusCode.UNSET
    assert attributes["tellback.cancelled"] is True


async def test_a_failing_callback_fails_its_call(exporter: InMemorySpanExporter) -> None:
    def listen(delta: Any) -> None:
        raise LookupError("no")

    with pytest.raises(LookupError):
        await run_loop_stream(ChatOptions(model=ScriptedModel([says("Hi!")])), "Hi", listen)
    assert only_span(exporter)[1]["error.type"] == "LookupError"


def test_without_tracing_callers_are_not_wrapped() -> None:
    assert type(resolve_caller(ChatOptions(chat_fn=hello))).__name__ == "FunctionCaller"
