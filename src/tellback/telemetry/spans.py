"""The configured tracer, and spans for turns, model calls, tools, recall, embeddings and jobs: start, record, end."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from tellback.telemetry import semconv
from tellback.types import ChatReply, ChatUsage, Message, ToolCall, ToolResult
from tellback.types.jobs import Job
from tellback.types.memory import RecallResult

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer, TracerProvider


log = logging.getLogger("tellback.telemetry")

CAPTURE_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"

_TRACE_MODULE = "opentelemetry.trace"
_CAPTURE_VALUES = ("true", "1", "span_only", "span_and_event")

P = ParamSpec("P")
R = TypeVar("R")


class _TracerSource:
    """What was configured, and the tracer made of it."""

    __slots__ = (
        "_capture_content",
        "_configured_provider",
        "_provider",
        "_tracer",
        "captures_content",
        "has_warned",
        "is_idle",
    )

    def __init__(self, tracer_provider: TracerProvider | None = None, capture_content: bool | None = None) -> None:
        self._configured_provider = tracer_provider
        self._capture_content = capture_content
        self._provider: TracerProvider | None = None
        self._tracer: Tracer | None = None
        self.is_idle = False
        self.captures_content = False
        self.has_warned = False

    def tracer(self, trace: Any) -> Tracer | None:
        provider: TracerProvider = self._configured_provider or trace.get_tracer_provider()
        if provider is self._provider:
            return self._tracer
        self.is_idle = isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider)
        self._tracer = None if self.is_idle else provider.get_tracer("tellback", sys.modules["tellback"].__version__)
        self.captures_content = _captures_by_environment() if self._capture_content is None else self._capture_content
        self._provider = provider
        return self._tracer


_source = _TracerSource()


def configure(*, tracer_provider: TracerProvider | None = None, capture_content: bool | None = None) -> None:
    """Say where spans go and what may be in them; whatever is not given is as it was at the start.

    Without `tracer_provider`, it is the one that the application has set for OpenTelemetry as a whole; without any,
    there are no spans. With `capture_content`, they carry what was said: messages, arguments and results of tools, the
    texts of errors. Where it is not given, `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true` does the same.

    >>> configure(capture_content=False)
    >>> configure()
    """
    global _source
    if tracer_provider is not None and not callable(getattr(tracer_provider, "get_tracer", None)):
        raise TypeError(
            f"tracer_provider is an OpenTelemetry TracerProvider, not {tracer_provider!r:.80}:"
            " make one with opentelemetry.sdk.trace.TracerProvider()."
        )
    _source = _TracerSource(tracer_provider, capture_content)


def tracer() -> Tracer | None:
    """The tracer, or None while nobody wants spans.

    Nobody does unless OpenTelemetry was loaded: to set up a tracer provider, one has to. So this loads nothing.
    """
    if _TRACE_MODULE not in sys.modules:
        return None
    trace: Any = sys.modules[_TRACE_MODULE]
    # Asking in the public way costs more than a span that is off may, as that looks into the environment.
    if _source.is_idle and getattr(trace, "_TRACER_PROVIDER", trace) is None:
        return None
    return _resolve_tracer(trace)


def captures_content() -> bool:
    """Whether spans may carry what was said."""
    return _source.captures_content


def suppress_errors(function: Callable[P, R]) -> Callable[P, R | None]:
    """Let a failure to observe be no failure of what is observed: it is logged, once, and gives None."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return function(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - tracers, processors and exporters may be anybody's code
            _warn_once(error)
            return None

    return wrapper


@suppress_errors
def _resolve_tracer(trace: Any) -> Tracer | None:
    return _source.tracer(trace)


def _warn_once(error: Exception) -> None:
    if not _source.has_warned:
        _source.has_warned = True
        log.warning("spans are incomplete: OpenTelemetry failed; this is said only once", exc_info=error)


def _captures_by_environment() -> bool:
    return os.environ.get(CAPTURE_VARIABLE, "").strip().lower() in _CAPTURE_VALUES


CONVERSATION_KEY = "tellback-conversation-id"
"""Under what OpenTelemetry's context holds the conversation, so that spans within a turn can name it too."""

CANCELLATION_ERRORS = (asyncio.CancelledError, GeneratorExit)
"""What is raised where work is called off: nobody's error."""

_NOTHING: Mapping[str, Any] = {}
_SETTING_ATTRIBUTES = {
    "max_tokens": semconv.REQUEST_MAX_TOKENS,
    "temperature": semconv.REQUEST_TEMPERATURE,
    "top_p": semconv.REQUEST_TOP_P,
    "top_k": semconv.REQUEST_TOP_K,
    "seed": semconv.REQUEST_SEED,
    "frequency_penalty": semconv.REQUEST_FREQUENCY_PENALTY,
    "presence_penalty": semconv.REQUEST_PRESENCE_PENALTY,
}


class BaseSpan:
    """A span that ends once. What it is told after that, or when it is off, is ignored."""

    __slots__ = ("_span",)

    def __init__(self, span: Span | None) -> None:
        self._span = span

    @property
    @suppress_errors
    def captures_content(self) -> bool:
        """Whether it may carry what was said, and anyone is going to see it."""
        return self._span is not None and captures_content() and self._span.is_recording()

    def _record_failure(self, error: BaseException) -> None:
        if isinstance(error, CANCELLATION_ERRORS):
            self._set_attributes({semconv.CANCELLED: True})
        else:
            self._set_error(type(error).__name__, error)

    @suppress_errors
    def _set_attributes(self, attributes: Mapping[str, Any]) -> None:
        if self._span is not None:
            self._span.set_attributes(drop_missing(attributes))

    @suppress_errors
    def _set_error(self, error_type: str, error: BaseException | None = None) -> None:
        if self._span is None:
            return
        from opentelemetry.trace import StatusCode

        self._span.set_attribute(semconv.ERROR_TYPE, error_type)
        if error is not None and self.captures_content:  # errors quote what was said
            self._span.set_status(StatusCode.ERROR, str(error))
            self._span.record_exception(error)
        else:
            self._span.set_status(StatusCode.ERROR)

    @suppress_errors
    def _end(self) -> None:
        span, self._span = self._span, None
        if span is not None:
            span.end()


class ModelSpan(BaseSpan):
    """One call of a model. It is never the current span, since a stream's reader may be in another context."""

    __slots__ = ()

    def finish(self, reply: ChatReply) -> None:
        """The model has answered."""
        if self._span is not None:
            self._record_reply(reply)
            self._end()

    def fail(self, error: BaseException) -> None:
        """It ends with an error or, if it was called off, without one."""
        self._record_failure(error)
        self._end()

    @suppress_errors
    def _record_reply(self, reply: ChatReply) -> None:
        usage = reply.usage or ChatUsage()
        self._set_attributes(
            {
                semconv.RESPONSE_MODEL: usage.model,
                semconv.PROVIDER_NAME: semconv.otel_provider_name(usage.provider),
                semconv.RESPONSE_FINISH_REASONS: (reply.stop_reason,),
                **usage_attributes(usage),
            }
        )
        if self.captures_content:
            self._set_attributes({semconv.OUTPUT_MESSAGES: semconv.reply_json(reply)})


class CurrentSpan(BaseSpan):
    """A span for a `with` block, the parent of what happens within it."""

    __slots__ = ("_context", "_conversation_id", "_token")

    def __init__(self, span: Span | None, conversation_id: str | None = None) -> None:
        super().__init__(span)
        self._conversation_id = conversation_id
        self._context: Context | None = None
        self._token: Token[Context] | None = None

    def __enter__(self) -> Self:
        if self._span is not None:
            self._token = self._attach()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            self._detach(is_closed=kind is GeneratorExit)
        if self._span is not None:
            if error is not None:
                self._record_failure(error)
            self._end()

    @suppress_errors
    def _attach(self) -> Token[Context] | None:
        if self._span is None:
            return None
        from opentelemetry import context, trace

        span_context = trace.set_span_in_context(self._span)
        if self._conversation_id is not None:
            span_context = context.set_value(CONVERSATION_KEY, self._conversation_id, span_context)
        self._context = span_context
        return context.attach(span_context)

    @suppress_errors
    def _detach(self, *, is_closed: bool) -> None:
        from opentelemetry import context

        token, self._token = self._token, None
        # What is left lying about is closed by the garbage collector, in whatever context that is at work.
        if token is not None and not (is_closed and context.get_current() is not self._context):
            context.detach(token)


class TurnSpan(CurrentSpan):
    """One turn of a conversation."""

    __slots__ = ()

    def set_outcome(
        self,
        status: str | None = None,
        usage: ChatUsage | None = None,
        *,
        stop_reason: str | None = None,
        text: str | None = None,
        turn_id: str | None = None,
    ) -> None:
        """Note what came of it, as far as it is known."""
        if self._span is None:
            return
        self._set_attributes(
            {
                semconv.TURN_STATUS: status,
                semconv.TURN_ID: turn_id,
                semconv.RESPONSE_FINISH_REASONS: None if stop_reason is None else (stop_reason,),
                **usage_attributes(usage),
            }
        )
        if text is not None and self.captures_content:
            self._record_answer(text, stop_reason)

    @suppress_errors
    def _record_answer(self, text: str, stop_reason: str | None) -> None:
        reply = ChatReply(text, stop_reason=stop_reason or "end_turn")
        self._set_attributes({semconv.OUTPUT_MESSAGES: semconv.reply_json(reply)})


class ToolSpan(CurrentSpan):
    """One tool call."""

    __slots__ = ("_has_error",)

    def __init__(self, span: Span | None) -> None:
        super().__init__(span)
        self._has_error = False

    def record_error(self, error_type: str, error: BaseException | None = None) -> None:
        """Say why the result is going to be an error: a short word, or an exception's name."""
        if self._span is not None:
            self._has_error = True
            self._set_error(error_type, error)

    def record_result(self, result: ToolResult) -> ToolResult:
        """Note the result, and hand it on."""
        if self._span is None:
            return result
        if result.is_error and not self._has_error:
            self._set_error("tool_error")
        if self.captures_content:
            self._set_attributes({semconv.TOOL_CALL_RESULT: result.content})
        return result


class RecallSpan(CurrentSpan):
    """One recall."""

    __slots__ = ()

    def record_result(self, result: RecallResult) -> RecallResult:
        """Note how much was found, and hand it on."""
        if self._span is not None:
            self._set_attributes(
                {semconv.RECALL_HITS: len(result.hits), semconv.RECALL_CANDIDATES: result.total_candidates}
            )
        return result


class JobSpan(CurrentSpan):
    """One attempt at a job."""

    __slots__ = ()

    def record_outcome(self, outcome: str, error: BaseException | None = None) -> None:
        """Note what came of it."""
        if self._span is None:
            return
        self._set_attributes({semconv.JOB_OUTCOME: outcome})
        if error is not None:
            self._set_error(type(error).__name__, error)


def usage_attributes(usage: ChatUsage | None) -> dict[str, Any]:
    """What was used, as attributes."""
    if usage is None:
        return {}
    return {
        semconv.USAGE_INPUT_TOKENS: usage.input_tokens,
        semconv.USAGE_OUTPUT_TOKENS: usage.output_tokens,
        semconv.USAGE_CACHE_READ_INPUT_TOKENS: usage.cached_tokens,
        semconv.USAGE_CACHE_CREATION_INPUT_TOKENS: usage.cache_write_tokens,
        semconv.USAGE_REASONING_OUTPUT_TOKENS: usage.reasoning_tokens,
        semconv.COST: usage.cost_usd,
    }


def drop_missing(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Only what has a value."""
    return {name: value for name, value in attributes.items() if value is not None}


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

    `get_messages` gives what the user said, and is called only where content is captured.

    >>> with turn_span("conv_1") as span:
    ...     span.set_outcome("completed")
    """
    active_tracer = tracer()
    if active_tracer is None:
        return _NO_TURN_SPAN
    attributes = {
        semconv.OPERATION_NAME: semconv.INVOKE_AGENT,
        semconv.AGENT_NAME: agent,
        semconv.CONVERSATION_ID: conversation_id,
        semconv.REQUEST_MODEL: model or None,
    }
    span = _start_span(active_tracer, _format_span_name(semconv.INVOKE_AGENT, agent), "INTERNAL", attributes)
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
    """A model call, below what is current now, to be ended by `finish(reply)` or `fail(error)`.

    `settings` are those of the call, as the loop has them.

    >>> from tellback.types import ChatReply
    >>> model_span("gpt-5", "OpenAI").finish(ChatReply("Hello!"))
    """
    active_tracer = tracer()
    if active_tracer is None:
        return _NO_MODEL_SPAN
    attributes = {
        semconv.OPERATION_NAME: semconv.CHAT,
        semconv.REQUEST_MODEL: model or None,
        semconv.PROVIDER_NAME: semconv.otel_provider_name(provider),
        semconv.REQUEST_STREAM: streaming or None,
        **_settings_attributes(settings),
    }
    span = _start_span(active_tracer, _format_span_name(semconv.CHAT, model), "CLIENT", attributes)
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
        semconv.OPERATION_NAME: semconv.EXECUTE_TOOL,
        semconv.TOOL_NAME: call.name if is_known or captures_content() else None,
        semconv.TOOL_CALL_ID: call.id,
        semconv.TOOL_TYPE: "function",
    }
    span = _start_span(
        active_tracer,
        _format_span_name(semconv.EXECUTE_TOOL, call.name if is_known else "unknown"),
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
    attributes = {semconv.RECALL_MODE: str(mode), semconv.SPACE_ID: space_id}
    span = _start_span(active_tracer, f"recall {mode}", "INTERNAL", attributes)
    return _NO_RECALL_SPAN if span is None else RecallSpan(span)


def job_span(job: Job) -> JobSpan:
    """An attempt at a job, for a `with` block. It begins a trace: a worker outlives whatever it was started in."""
    active_tracer = tracer()
    if active_tracer is None:
        return _NO_JOB_SPAN
    attributes = {
        semconv.JOB_ID: job.id,
        semconv.JOB_KIND: job.kind,
        semconv.JOB_ATTEMPT: job.attempts,
        semconv.CONVERSATION_ID: job.conversation_id,
        semconv.SPACE_ID: job.memory_space_id,
    }
    span = _start_span(active_tracer, f"process job {job.kind}", "CONSUMER", attributes, is_root=True)
    return _NO_JOB_SPAN if span is None else JobSpan(span, job.conversation_id)


def embedding_span(model: str, provider: str | None, dimensions: int, texts: int) -> CurrentSpan:
    """A request for so many texts' vectors, for a `with` block."""
    active_tracer = tracer()
    if active_tracer is None:
        return _NO_SPAN
    attributes = {
        semconv.OPERATION_NAME: semconv.EMBEDDINGS,
        semconv.REQUEST_MODEL: model,
        semconv.PROVIDER_NAME: semconv.otel_provider_name(provider),
        semconv.EMBEDDINGS_DIMENSION_COUNT: dimensions,
        semconv.EMBEDDINGS_TEXTS: texts,
    }
    span = _start_span(active_tracer, _format_span_name(semconv.EMBEDDINGS, model), "CLIENT", attributes)
    return _NO_SPAN if span is None else CurrentSpan(span)


@suppress_errors
def _start_span(tracer: Tracer, name: str, kind: str, attributes: Mapping[str, Any], *, is_root: bool = False) -> Span:
    from opentelemetry import context
    from opentelemetry.trace import SpanKind

    known_attributes = drop_missing(
        {semconv.CONVERSATION_ID: context.get_value(CONVERSATION_KEY), **drop_missing(attributes)}
    )
    parent = context.Context() if is_root else None
    return tracer.start_span(name, context=parent, kind=SpanKind[kind], attributes=known_attributes)


@suppress_errors
def _record_input(span: Span, get_messages: Callable[[], Iterable[Message]], system: str | None = None) -> None:
    span.set_attribute(semconv.INPUT_MESSAGES, semconv.messages_json(get_messages()))
    if system:
        span.set_attribute(semconv.SYSTEM_INSTRUCTIONS, semconv.text_json(system))


@suppress_errors
def _record_arguments(span: Span, call: ToolCall) -> None:
    if span.is_recording():
        span.set_attribute(semconv.TOOL_CALL_ARGUMENTS, semconv.arguments_json(call))


def _settings_attributes(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What the conventions have a name for, if it is a number as they say."""
    config = settings.get("config") or _NOTHING
    candidates = {name: config.get(key) for key, name in _SETTING_ATTRIBUTES.items()}
    if settings.get("max_output_tokens") is not None:
        candidates[semconv.REQUEST_MAX_TOKENS] = settings["max_output_tokens"]
    numbers: dict[str, Any] = {name: value for name, value in candidates.items() if isinstance(value, int | float)}
    if settings.get("output_schema") is not None:
        numbers[semconv.OUTPUT_TYPE] = "json"
    return numbers


def _format_span_name(operation: str, target: str | None) -> str:
    return f"{operation} {target}" if target else operation
