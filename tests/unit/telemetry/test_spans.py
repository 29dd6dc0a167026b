"""Spans: their attributes, their parents, the absence of message text, and tolerance of failures."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import json
import logging
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import context, trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as theirs
from opentelemetry.semconv.attributes import error_attributes
from opentelemetry.trace import NoOpTracerProvider, SpanKind, StatusCode

from tellback import (
    ChatReply,
    ChatUsage,
    Message,
    ToolCall,
    ToolResult,
    __version__,
    image_part,
    telemetry,
    tool,
    user_message,
)
from tellback.telemetry import CAPTURE_VARIABLE
from tellback.tools import dispatch, dispatch_all

CALL = ToolCall("call_1", "add", {"x": 1})


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    monkeypatch.delenv(CAPTURE_VARIABLE, raising=False)
    exporter = InMemorySpanExporter()
    telemetry.configure(tracer_provider=provider_to(exporter))
    yield exporter
    telemetry.configure()


def provider_to(exporter: SpanExporter) -> TracerProvider:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


def only_span(exporter: InMemorySpanExporter) -> ReadableSpan:
    [span] = exporter.get_finished_spans()
    return span


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def parent(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def span_id(span: ReadableSpan) -> int:
    found: int = span.get_span_context().span_id  # type: ignore[union-attr]
    return found


def test_span_names_follow_the_conventions() -> None:
    known = {value for name, value in vars(theirs).items() if name.startswith("GEN_AI_")}
    known.add(error_attributes.ERROR_TYPE)
    source = inspect.getsource(telemetry)
    written = set(re.findall(r'"((?:gen_ai|error)\.[a-z_.]+)"', source))
    assert len(written) > 20
    assert written | {f"gen_ai.request.{name}" for name in telemetry._SETTINGS} <= known
    operations = set(re.findall(r'"gen_ai.operation.name": "(\w+)"', source))
    assert operations == {"chat", "embeddings", "execute_tool", "invoke_agent"}
    assert operations <= {operation.value for operation in theirs.GenAiOperationNameValues}
    providers = {provider.value for provider in theirs.GenAiProviderNameValues}
    assert {telemetry.otel_provider_name(name) for name in ("Anthropic", "OpenAI", "Gemini", "xAI")} <= providers


def test_a_model_span_contains_settings_and_usage(exporter: InMemorySpanExporter) -> None:
    settings = {"max_output_tokens": 100, "config": {"temperature": 0.5, "stop": "x"}, "output_schema": {}}
    span = telemetry.model_span("gemini-pro", "Gemini", settings, streaming=True)
    usage = ChatUsage(10, 2, 12, 0.25, model="gemini-pro-001", provider="Gemini", cached_tokens=4, reasoning_tokens=1)
    span.finish(ChatReply("Hi", usage=usage))
    ended = only_span(exporter)
    assert (ended.name, ended.kind) == ("chat gemini-pro", SpanKind.CLIENT)
    assert ended.status.status_code is StatusCode.UNSET
    assert ended.instrumentation_scope is not None
    assert (ended.instrumentation_scope.name, ended.instrumentation_scope.version) == ("tellback", __version__)
    assert attributes(ended) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "gcp.gemini",
        "gen_ai.request.model": "gemini-pro",
        "gen_ai.request.stream": True,
        "gen_ai.request.max_tokens": 100,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.output.type": "json",
        "gen_ai.response.model": "gemini-pro-001",
        "gen_ai.response.finish_reasons": ("end_turn",),
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 2,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.usage.reasoning.output_tokens": 1,
        "tellback.usage.cost_usd": 0.25,
    }


def test_a_failed_model_span_contains_the_error_type_without_text(exporter: InMemorySpanExporter) -> None:
    span = telemetry.model_span("m")
    span.fail(ValueError("Maya's secret"))
    ended = only_span(exporter)
    assert ended.status.status_code is StatusCode.ERROR
    assert attributes(ended)["error.type"] == "ValueError"
    assert "secret" not in ended.to_json()


@pytest.mark.parametrize("stop", [asyncio.CancelledError(), GeneratorExit()])
def test_a_cancelled_call_is_not_an_error(exporter: InMemorySpanExporter, stop: BaseException) -> None:
    telemetry.model_span("m").fail(stop)
    span = only_span(exporter)
    assert span.status.status_code is StatusCode.UNSET
    assert attributes(span)["tellback.cancelled"] is True
    assert "error.type" not in attributes(span)


def test_a_span_ends_once(exporter: InMemorySpanExporter, caplog: pytest.LogCaptureFixture) -> None:
    span = telemetry.model_span("m")
    span.finish(ChatReply("Hi"))
    span.fail(ValueError())
    span.finish(ChatReply("Hi"))
    assert only_span(exporter).status.status_code is StatusCode.UNSET
    assert not caplog.records


def test_a_model_span_is_never_the_current_span(exporter: InMemorySpanExporter) -> None:
    before = trace.get_current_span()
    span = telemetry.model_span("m")
    assert trace.get_current_span() is before
    span.finish(ChatReply("Hi"))


async def test_spans_within_a_turn_are_its_children_with_its_conversation_id(exporter: InMemorySpanExporter) -> None:
    async def look() -> str:
        telemetry.model_span("inner", "x").finish(ChatReply("."))
        return "seen"

    before = trace.get_current_span()
    with telemetry.turn_span("conv_1", agent="Wanda", model="m") as turn:
        model = telemetry.model_span("m")
        model.finish(ChatReply("", (ToolCall("call_1", "look"),)))
        await dispatch(ToolCall("call_1", "look"), [look])
        turn.set_outcome("completed", ChatUsage(3, 4), stop_reason="end_turn", turn_id="turn_1")
    assert trace.get_current_span() is before
    spans = {span.name: span for span in exporter.get_finished_spans()}
    root = spans["invoke_agent Wanda"]
    assert parent(root) is None
    assert parent(spans["chat m"]) == parent(spans["execute_tool look"]) == span_id(root)
    assert parent(spans["chat inner"]) == span_id(spans["execute_tool look"])
    assert {attributes(span)["gen_ai.conversation.id"] for span in spans.values()} == {"conv_1"}
    assert attributes(root) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "Wanda",
        "gen_ai.conversation.id": "conv_1",
        "gen_ai.request.model": "m",
        "gen_ai.response.finish_reasons": ("end_turn",),
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.usage.output_tokens": 4,
        "tellback.turn.id": "turn_1",
        "tellback.turn.status": "completed",
    }


def test_a_turn_that_raises_ends_with_its_error(exporter: InMemorySpanExporter) -> None:
    with pytest.raises(KeyError), telemetry.turn_span():
        raise KeyError("name")
    span = only_span(exporter)
    assert (span.name, attributes(span)["error.type"]) == ("invoke_agent", "KeyError")


async def test_an_abandoned_span_is_closed_without_a_warning(
    exporter: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
) -> None:
    """The garbage collector closes an abandoned coroutine in another context than the one it started in."""

    async def wait() -> None:
        with telemetry.turn_span():
            await asyncio.Event().wait()

    abandoned = wait()
    contextvars.copy_context().run(abandoned.send, None)
    abandoned.close()
    assert attributes(only_span(exporter))["tellback.cancelled"] is True
    assert not caplog.records
    assert context.get_current() == {}


async def test_a_tool_call_is_a_span(exporter: InMemorySpanExporter) -> None:
    def add(x: int) -> str:
        return f"{x} {trace.get_current_span().get_span_context().span_id}"

    result = await dispatch(CALL, [add])
    span = only_span(exporter)
    assert (span.name, span.kind) == ("execute_tool add", SpanKind.INTERNAL)
    assert result.content == f"1 {span_id(span)}"
    assert attributes(span) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "add",
        "gen_ai.tool.call.id": "call_1",
        "gen_ai.tool.type": "function",
    }


async def slow(x: int) -> None:
    await asyncio.sleep(60)


async def broken(x: int) -> None:
    raise LookupError("secret")


async def sorry(x: int) -> ToolResult:
    return ToolResult("", "secret", is_error=True)


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (ToolCall("c", "secret"), "unknown_tool"),
        (ToolCall("c", "broken", {}, invalid_input='{"secret'), "invalid_arguments"),
        (ToolCall("c", "broken", {"x": "secret"}), "invalid_arguments"),
        (ToolCall("c", "broken", {"x": 1}), "LookupError"),
        (ToolCall("c", "sorry", {"x": 1}), "tool_error"),
        (ToolCall("c", "slow", {"x": 1}), "timeout"),
    ],
)
async def test_a_failed_tool_span_contains_the_kind_of_error(
    exporter: InMemorySpanExporter, call: ToolCall, kind: str
) -> None:
    result = await dispatch(call, [broken, sorry, tool(timeout=0.01)(slow)])
    assert result.is_error
    span = only_span(exporter)
    assert span.status.status_code is StatusCode.ERROR
    assert attributes(span)["error.type"] == kind
    assert "secret" not in span.to_json()


@pytest.mark.parametrize("captures", [False, True])
async def test_an_unknown_tool_name_counts_as_content(exporter: InMemorySpanExporter, captures: bool) -> None:
    telemetry.configure(tracer_provider=provider_to(exporter), capture_content=captures)
    await dispatch_all([ToolCall("c", "maya@example.com")], [broken])
    span = only_span(exporter)
    assert span.name == "execute_tool unknown"
    assert attributes(span).get("gen_ai.tool.name") == ("maya@example.com" if captures else None)
    assert ("maya@" in span.to_json()) == captures


async def test_a_cancelled_tool_call_is_not_an_error(exporter: InMemorySpanExporter) -> None:
    task = asyncio.create_task(dispatch(ToolCall("c", "slow", {"x": 1}), [slow]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    span = only_span(exporter)
    assert attributes(span)["tellback.cancelled"] is True
    assert span.status.status_code is StatusCode.UNSET


async def test_concurrent_turns_have_separate_child_spans(exporter: InMemorySpanExporter) -> None:
    async def nap(number: int) -> int:
        await asyncio.sleep(0.001 * (number % 7))
        return number

    async def turn(number: int) -> None:
        with telemetry.turn_span(f"conv_{number}"):
            calls = [ToolCall(f"{number}-{index}", "nap", {"number": number + index}) for index in range(3)]
            await dispatch_all(calls, [nap])

    await asyncio.gather(*map(turn, range(100)))
    spans = exporter.get_finished_spans()
    turns = {span_id(span): attributes(span)["gen_ai.conversation.id"] for span in spans if parent(span) is None}
    tools = [span for span in spans if parent(span) is not None]
    assert (len(turns), len(tools)) == (100, 300)
    for span in tools:
        number = attributes(span)["gen_ai.tool.call.id"].split("-")[0]
        assert turns[parent(span) or 0] == attributes(span)["gen_ai.conversation.id"] == f"conv_{number}"


@given(text=st.text("äbcxyz\n\"'🦊", min_size=8))
async def test_spans_contain_no_message_text_by_default(text: str) -> None:
    exporter = InMemorySpanExporter()
    telemetry.configure(tracer_provider=provider_to(exporter), capture_content=False)

    async def echo(text: str) -> str:
        raise ValueError(text)

    try:
        with telemetry.turn_span("conv_1", get_messages=lambda: [user_message(text)]) as turn:
            model = telemetry.model_span("m", messages=[user_message(text)], system=text)
            model.finish(ChatReply(text, thinking=text))
            await dispatch(ToolCall("c", "echo", {"text": text}), [echo])
            turn.set_outcome("completed", text=text)
        spans = exporter.get_finished_spans()
    finally:
        telemetry.configure()
    assert len(spans) == 3
    for span in spans:
        assert not any(text in str(value) for value in attributes(span).values())
        assert not span.events
        assert span.status.description is None


@pytest.mark.parametrize("value", ["true", "TRUE", "span_only"])
async def test_content_is_captured_if_the_environment_variable_is_set(
    monkeypatch: pytest.MonkeyPatch, exporter: InMemorySpanExporter, value: str
) -> None:
    monkeypatch.setenv(CAPTURE_VARIABLE, value)
    await dispatch(CALL, [broken])
    assert attributes(only_span(exporter))["gen_ai.tool.call.arguments"] == '{"x":1}'


async def test_content_is_captured_if_configured(exporter: InMemorySpanExporter) -> None:
    telemetry.configure(tracer_provider=provider_to(exporter), capture_content=True)
    history = [
        user_message(["Look", image_part(data=b"pixels", mime="image/png")]),
        Message("assistant", "", tool_calls=(CALL,)),
        Message("tool", "2", tool_call_id="call_1"),
    ]
    with telemetry.turn_span(get_messages=lambda: [user_message("Look")]) as turn:
        model = telemetry.model_span("m", messages=history, system="Be brief.")
        model.finish(ChatReply("Two.", thinking="1 + 1"))
        await dispatch(ToolCall("c", "broken", {"x": 1}), [broken])
        turn.set_outcome(text="Two.")
    model_call, called, root = exporter.get_finished_spans()
    assert json.loads(attributes(model_call)["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": "Look"}, {"type": "image", "mime_type": "image/png"}]},
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "call_1", "name": "add", "arguments": {"x": 1}}]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "call_1", "response": "2"}]},
    ]
    assert json.loads(attributes(model_call)["gen_ai.output.messages"])[0]["parts"] == [
        {"type": "reasoning", "content": "1 + 1"},
        {"type": "text", "content": "Two."},
    ]
    assert "Be brief." in attributes(model_call)["gen_ai.system_instructions"]
    assert attributes(called)["gen_ai.tool.call.result"] == "broken failed: LookupError: secret"
    assert called.status.description == "secret"
    assert called.events[0].name == "exception"
    assert "Look" in attributes(root)["gen_ai.input.messages"]
    assert "Two." in attributes(root)["gen_ai.output.messages"]


def unsayable() -> list[Message]:
    raise ValueError("the messages cannot be read")


class Breaks:
    """A tracer provider that fails on use."""

    def get_tracer(self, *args: Any) -> Any:
        raise ConnectionError("no tracer today")


class BadProcessor(SpanProcessor):
    def __init__(self, moment: str) -> None:
        self._moment = moment

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        if self._moment == "start":
            raise ConnectionError("at the start")

    def on_end(self, span: ReadableSpan) -> None:
        if self._moment == "end":
            raise ConnectionError("at the end")


class BadExporter(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        raise ConnectionError("nobody listens")


def with_processor(moment: str) -> TracerProvider:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BadProcessor(moment))
    return provider


@pytest.mark.parametrize(
    "provider",
    [Breaks(), with_processor("start"), with_processor("end"), provider_to(BadExporter())],
    ids=["tracer", "start", "end", "exporter"],
)
async def test_a_failing_tracer_does_not_fail_the_turn(
    exporter: InMemorySpanExporter, provider: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def add(x: int) -> int:
        return x + 1

    before = context.get_current()
    telemetry.configure(tracer_provider=provider, capture_content=True)
    for _ in range(3):
        with telemetry.turn_span("conv_1", get_messages=unsayable) as turn:
            result = await dispatch(CALL, [add])
            assert result.content == "2"
            telemetry.model_span("m").finish(ChatReply("Hi"))
            turn.set_outcome("completed")
    assert context.get_current() == before
    records = [record for record in caplog.records if record.name == "tellback.telemetry"]
    assert len(records) <= 1
    assert all(record.levelno == logging.WARNING for record in records)


def test_an_invalid_tracer_provider_is_rejected() -> None:
    with pytest.raises(TypeError, match="TracerProvider"):
        telemetry.configure(tracer_provider="console")  # type: ignore[arg-type]


@pytest.mark.parametrize("provider", [None, NoOpTracerProvider()])
async def test_without_a_provider_there_are_no_spans(provider: Any) -> None:
    telemetry.configure(tracer_provider=provider)
    try:
        assert telemetry.tracer() is None
        telemetry.model_span("m").finish(ChatReply("Hi"))
        with telemetry.turn_span("conv_1") as turn, telemetry.recall_span("BY_TOPIC", "space_1"):
            turn.set_outcome("completed", text="Hi")
            assert trace.get_current_span() is trace.INVALID_SPAN
        assert telemetry.turn_span() is turn, "all turns share one inactive span"
    finally:
        telemetry.configure()


async def test_unsampled_spans_cause_no_errors() -> None:
    telemetry.configure(
        tracer_provider=TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False), capture_content=True
    )
    try:
        with telemetry.turn_span(get_messages=unsayable) as turn:
            assert not turn.captures_content
            assert (await dispatch(CALL, [broken])).is_error
    finally:
        telemetry.configure()
