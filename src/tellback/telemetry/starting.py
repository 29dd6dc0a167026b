"""Starting spans: one function for each kind of thing that is observed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tellback.telemetry import content, names
from tellback.telemetry.source import captures_content, suppress_errors, tracer
from tellback.telemetry.spans import (
    CONVERSATION_KEY,
    CurrentSpan,
    JobSpan,
    ModelSpan,
    RecallSpan,
    ToolSpan,
    TurnSpan,
    drop_missing,
)
from tellback.types import Message, ToolCall
from tellback.types.jobs import Job

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

_NOTHING: Mapping[str, Any] = {}
_SETTING_ATTRIBUTES = {
    "max_tokens": names.REQUEST_MAX_TOKENS,
    "temperature": names.REQUEST_TEMPERATURE,
    "top_p": names.REQUEST_TOP_P,
    "top_k": names.REQUEST_TOP_K,
    "seed": names.REQUEST_SEED,
    "frequency_penalty": names.REQUEST_FREQUENCY_PENALTY,
    "presence_penalty": names.REQUEST_PRESENCE_PENALTY,
}

_NO_SPAN = CurrentSpan(None)
_NO_TURN_SPAN = TurnSpan(None)
_NO_MODEL_SPAN = ModelSpan(None)
_NO_TOOL_SPAN = ToolSpan(None)
_NO_RECALL_SPAN = RecallSpan(None)
_NO_JOB_SPAN = JobSpan(None)


def turn_span(
    conversation_id: str | None = None,
    *,
    agent: str | None = None,
    model: str | None = None,
    get_messages: Callable[[], Iterable[Message]] | None = None,
) -> TurnSpan:
    """A turn, for a `with` block: whatever happens in it is below it. Say by `set_outcome` how it went.

    `said` gives what the user said, and is called only where content is captured.

    >>> with turn_span("conv_1") as span:
    ...     span.set_outcome("completed")
    """
    active_tracer = tracer()
    if active_tracer is None:
        return _NO_TURN_SPAN
    attributes = {
        names.OPERATION_NAME: names.INVOKE_AGENT,
        names.AGENT_NAME: agent,
        names.CONVERSATION_ID: conversation_id,
        names.REQUEST_MODEL: model or None,
    }
    span = _start_span(active_tracer, _format_span_name(names.INVOKE_AGENT, agent), "INTERNAL", attributes)
    if span is None:
        return _NO_TURN_SPAN
    turn = TurnSpan(span, conversation_id)
    if get_messages is not None and turn.captures_content:
        _record_input(span, get_messages)
    return turn


def model_span(
    model: str,
    provider: str | None = None,
    settings: Mapping[str, Any] = _NOTHING,
    *,
    messages: Sequence[Message] = (),
    system: str | None = None,
    streaming: bool = False,
) -> ModelSpan:
    """A model call, below what is current now, to be told of its end by `ended(reply)` or `failed(error)`.

    `settings` are those of the call, as the loop has them.

    >>> from tellback.types import ChatReply
    >>> model_span("gpt-5", "OpenAI").ended(ChatReply("Hello!"))
    """
    active_tracer = tracer()
    if active_tracer is None:
        return _NO_MODEL_SPAN
    attributes = {
        names.OPERATION_NAME: names.CHAT,
        names.REQUEST_MODEL: model or None,
        names.PROVIDER_NAME: names.otel_provider_name(provider),
        names.REQUEST_STREAM: streaming or None,
        **_settings_attributes(settings),
    }
    span = _start_span(active_tracer, _format_span_name(names.CHAT, model), "CLIENT", attributes)
    if span is None:
        return _NO_MODEL_SPAN
    model_call = ModelSpan(span)
    if model_call.captures_content:
        _record_input(span, lambda: messages, system)
    return model_call


def tool_span(call: ToolCall, *, is_known: bool = True) -> ToolSpan:
    """A tool call, for a `with` block: what the tool does is below it.

    The name of a tool that is not known is the model's invention, and content like any other.

    >>> with tool_span(ToolCall("call_1", "add")) as span:
    ...     pass
    """
    active_tracer = tracer()
    if active_tracer is None:
        return _NO_TOOL_SPAN
    attributes = {
        names.OPERATION_NAME: names.EXECUTE_TOOL,
        names.TOOL_NAME: call.name if is_known or captures_content() else None,
        names.TOOL_CALL_ID: call.id,
        names.TOOL_TYPE: "function",
    }
    span = _start_span(
        active_tracer,
        _format_span_name(names.EXECUTE_TOOL, call.name if is_known else "unknown"),
        "INTERNAL",
        attributes,
    )
    if span is None:
        return _NO_TOOL_SPAN
    if captures_content():
        _record_arguments(span, call)
    return ToolSpan(span)


def recall_span(mode: str, space_id: str) -> RecallSpan:
    """A recall, for a `with` block."""
    active_tracer = tracer()
    if active_tracer is None:
        return _NO_RECALL_SPAN
    attributes = {names.RECALL_MODE: str(mode), names.SPACE_ID: space_id}
    span = _start_span(active_tracer, f"recall {mode}", "INTERNAL", attributes)
    return _NO_RECALL_SPAN if span is None else RecallSpan(span)


def job_span(job: Job) -> JobSpan:
    """An attempt at a job, for a `with` block. It begins a trace: a worker outlives whatever it was started in."""
    active_tracer = tracer()
    if active_tracer is None:
        return _NO_JOB_SPAN
    attributes = {
        names.JOB_ID: job.id,
        names.JOB_KIND: job.kind,
        names.JOB_ATTEMPT: job.attempts,
        names.CONVERSATION_ID: job.conversation_id,
        names.SPACE_ID: job.memory_space_id,
    }
    span = _start_span(active_tracer, f"process job {job.kind}", "CONSUMER", attributes, is_root=True)
    return _NO_JOB_SPAN if span is None else JobSpan(span, job.conversation_id)


def embedding_span(model: str, provider: str | None, dimensions: int, texts: int) -> CurrentSpan:
    """A request for so many texts' vectors, for a `with` block."""
    active_tracer = tracer()
    if active_tracer is None:
        return _NO_SPAN
    attributes = {
        names.OPERATION_NAME: names.EMBEDDINGS,
        names.REQUEST_MODEL: model,
        names.PROVIDER_NAME: names.otel_provider_name(provider),
        names.EMBEDDINGS_DIMENSION_COUNT: dimensions,
        names.EMBEDDINGS_TEXTS: texts,
    }
    span = _start_span(active_tracer, _format_span_name(names.EMBEDDINGS, model), "CLIENT", attributes)
    return _NO_SPAN if span is None else CurrentSpan(span)


@suppress_errors
def _start_span(tracer: Tracer, name: str, kind: str, attributes: Mapping[str, Any], *, is_root: bool = False) -> Span:
    from opentelemetry import context
    from opentelemetry.trace import SpanKind

    known_attributes = drop_missing(
        {names.CONVERSATION_ID: context.get_value(CONVERSATION_KEY), **drop_missing(attributes)}
    )
    parent = context.Context() if is_root else None
    return tracer.start_span(name, context=parent, kind=SpanKind[kind], attributes=known_attributes)


@suppress_errors
def _record_input(span: Span, get_messages: Callable[[], Iterable[Message]], system: str | None = None) -> None:
    span.set_attribute(names.INPUT_MESSAGES, content.messages_json(get_messages()))
    if system:
        span.set_attribute(names.SYSTEM_INSTRUCTIONS, content.text_json(system))


@suppress_errors
def _record_arguments(span: Span, call: ToolCall) -> None:
    if span.is_recording():
        span.set_attribute(names.TOOL_CALL_ARGUMENTS, content.arguments_json(call))


def _settings_attributes(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What the conventions have a name for, if it is a number as they say."""
    config = settings.get("config") or _NOTHING
    candidates = {name: config.get(key) for key, name in _SETTING_ATTRIBUTES.items()}
    if settings.get("max_output_tokens") is not None:
        candidates[names.REQUEST_MAX_TOKENS] = settings["max_output_tokens"]
    numbers: dict[str, Any] = {name: value for name, value in candidates.items() if isinstance(value, int | float)}
    if settings.get("output_schema") is not None:
        numbers[names.OUTPUT_TYPE] = "json"
    return numbers


def _format_span_name(operation: str, what: str | None) -> str:
    return f"{operation} {what}" if what else operation
