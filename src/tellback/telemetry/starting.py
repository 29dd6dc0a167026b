"""Starting spans: one function for each kind of thing that is observed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tellback.telemetry import content, names
from tellback.telemetry.source import captures_content, quietly, tracer
from tellback.telemetry.spans import (
    CONVERSATION_KEY,
    CurrentSpan,
    JobSpan,
    ModelSpan,
    RecallSpan,
    ToolSpan,
    TurnSpan,
    known,
)
from tellback.types import Message, ToolCall
from tellback.types.jobs import Job

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

_NOTHING: Mapping[str, Any] = {}
_SETTINGS = {
    "max_tokens": names.REQUEST_MAX_TOKENS,
    "temperature": names.REQUEST_TEMPERATURE,
    "top_p": names.REQUEST_TOP_P,
    "top_k": names.REQUEST_TOP_K,
    "seed": names.REQUEST_SEED,
    "frequency_penalty": names.REQUEST_FREQUENCY_PENALTY,
    "presence_penalty": names.REQUEST_PRESENCE_PENALTY,
}

_NO_SPAN = CurrentSpan(None)
_NO_TURN = TurnSpan(None)
_NO_MODEL = ModelSpan(None)
_NO_TOOL = ToolSpan(None)
_NO_RECALL = RecallSpan(None)
_NO_JOB = JobSpan(None)


def turn_span(
    conversation_id: str | None = None,
    *,
    agent: str | None = None,
    model: str | None = None,
    said: Callable[[], Iterable[Message]] | None = None,
) -> TurnSpan:
    """A turn, for a `with` block: whatever happens in it is below it. Say by `set_outcome` how it went.

    `said` gives what the user said, and is called only where content is captured.

    >>> with turn_span("conv_1") as span:
    ...     span.set_outcome("completed")
    """
    found = tracer()
    if found is None:
        return _NO_TURN
    attributes = {
        names.OPERATION_NAME: names.INVOKE_AGENT,
        names.AGENT_NAME: agent,
        names.CONVERSATION_ID: conversation_id,
        names.REQUEST_MODEL: model or None,
    }
    span = _start(found, _titled(names.INVOKE_AGENT, agent), "INTERNAL", attributes)
    if span is None:
        return _NO_TURN
    turn = TurnSpan(span, conversation_id)
    if said is not None and turn.captures:
        _note_input(span, said)
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
    found = tracer()
    if found is None:
        return _NO_MODEL
    attributes = {
        names.OPERATION_NAME: names.CHAT,
        names.REQUEST_MODEL: model or None,
        names.PROVIDER_NAME: names.provider_name(provider),
        names.REQUEST_STREAM: streaming or None,
        **_settings(settings),
    }
    span = _start(found, _titled(names.CHAT, model), "CLIENT", attributes)
    if span is None:
        return _NO_MODEL
    call = ModelSpan(span)
    if call.captures:
        _note_input(span, lambda: messages, system)
    return call


def tool_span(call: ToolCall, *, is_known: bool = True) -> ToolSpan:
    """A tool call, for a `with` block: what the tool does is below it.

    The name of a tool that is not known is the model's invention, and content like any other.

    >>> with tool_span(ToolCall("call_1", "add")) as span:
    ...     pass
    """
    found = tracer()
    if found is None:
        return _NO_TOOL
    attributes = {
        names.OPERATION_NAME: names.EXECUTE_TOOL,
        names.TOOL_NAME: call.name if is_known or captures_content() else None,
        names.TOOL_CALL_ID: call.id,
        names.TOOL_TYPE: "function",
    }
    span = _start(found, _titled(names.EXECUTE_TOOL, call.name if is_known else "unknown"), "INTERNAL", attributes)
    if span is None:
        return _NO_TOOL
    if captures_content():
        _note_arguments(span, call)
    return ToolSpan(span)


def recall_span(mode: str, space_id: str) -> RecallSpan:
    """A recall, for a `with` block."""
    found = tracer()
    if found is None:
        return _NO_RECALL
    attributes = {names.RECALL_MODE: str(mode), names.SPACE_ID: space_id}
    span = _start(found, f"recall {mode}", "INTERNAL", attributes)
    return _NO_RECALL if span is None else RecallSpan(span)


def job_span(job: Job) -> JobSpan:
    """An attempt at a job, for a `with` block. It begins a trace: a worker outlives whatever it was started in."""
    found = tracer()
    if found is None:
        return _NO_JOB
    attributes = {
        names.JOB_ID: job.id,
        names.JOB_KIND: job.kind,
        names.JOB_ATTEMPT: job.attempts,
        names.CONVERSATION_ID: job.conversation_id,
        names.SPACE_ID: job.memory_space_id,
    }
    span = _start(found, f"process job {job.kind}", "CONSUMER", attributes, is_root=True)
    return _NO_JOB if span is None else JobSpan(span, job.conversation_id)


def embedding_span(model: str, provider: str | None, dimensions: int, texts: int) -> CurrentSpan:
    """A request for so many texts' vectors, for a `with` block."""
    found = tracer()
    if found is None:
        return _NO_SPAN
    attributes = {
        names.OPERATION_NAME: names.EMBEDDINGS,
        names.REQUEST_MODEL: model,
        names.PROVIDER_NAME: names.provider_name(provider),
        names.EMBEDDINGS_DIMENSION_COUNT: dimensions,
        names.EMBEDDINGS_TEXTS: texts,
    }
    span = _start(found, _titled(names.EMBEDDINGS, model), "CLIENT", attributes)
    return _NO_SPAN if span is None else CurrentSpan(span)


@quietly
def _start(tracer: Tracer, name: str, kind: str, attributes: Mapping[str, Any], *, is_root: bool = False) -> Span:
    from opentelemetry import context
    from opentelemetry.trace import SpanKind

    noted = known({names.CONVERSATION_ID: context.get_value(CONVERSATION_KEY), **known(attributes)})
    parent = context.Context() if is_root else None
    return tracer.start_span(name, context=parent, kind=SpanKind[kind], attributes=noted)


@quietly
def _note_input(span: Span, said: Callable[[], Iterable[Message]], system: str | None = None) -> None:
    span.set_attribute(names.INPUT_MESSAGES, content.messages_json(said()))
    if system:
        span.set_attribute(names.SYSTEM_INSTRUCTIONS, content.text_json(system))


@quietly
def _note_arguments(span: Span, call: ToolCall) -> None:
    if span.is_recording():
        span.set_attribute(names.TOOL_CALL_ARGUMENTS, content.arguments_json(call))


def _settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What the conventions have a name for, if it is a number as they say."""
    config = settings.get("config") or _NOTHING
    found = {name: config.get(key) for key, name in _SETTINGS.items()}
    if settings.get("max_output_tokens") is not None:
        found[names.REQUEST_MAX_TOKENS] = settings["max_output_tokens"]
    numbers: dict[str, Any] = {name: value for name, value in found.items() if isinstance(value, int | float)}
    if settings.get("output_schema") is not None:
        numbers[names.OUTPUT_TYPE] = "json"
    return numbers


def _titled(operation: str, what: str | None) -> str:
    return f"{operation} {what}" if what else operation
