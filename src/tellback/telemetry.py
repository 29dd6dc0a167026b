"""OpenTelemetry spans of turns, model calls, tools, recall, embeddings and jobs.

No spans are created and nothing is imported until the application sets a tracer provider. Spans contain message text
only if `configure` or the environment turns this on, and never contain user ids. Names follow OpenTelemetry's semantic
conventions for generative AI; other names begin with `tellback.`. Every package may import this module.
"""

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

from tellback.types import ChatReply, ChatUsage, Message, MessagePart, ToolCall, ToolResult, message_text
from tellback.types.jobs import Job
from tellback.types.jsontext import dump_json
from tellback.types.memory import RecallResult

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer, TracerProvider

__all__ = [
    "CurrentSpan",
    "JobSpan",
    "ModelSpan",
    "RecallSpan",
    "ToolSpan",
    "TurnSpan",
    "configure",
    "embedding_span",
    "job_span",
    "model_span",
    "recall_span",
    "tool_span",
    "tracer",
    "turn_span",
]

log = logging.getLogger("tellback.telemetry")

CAPTURE_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
CONVERSATION_KEY = "tellback-conversation-id"
"""The key of the conversation id in OpenTelemetry's context, for spans within a turn."""

_TRACE_MODULE = "opentelemetry.trace"
_CAPTURE_VALUES = ("true", "1", "span_only", "span_and_event")
_find_provider_name: Callable[[str], str | None] = lambda name: None  # noqa: E731
_NO_SETTINGS: Mapping[str, Any] = {}
_SETTINGS = ("max_tokens", "temperature", "top_p", "top_k", "seed", "frequency_penalty", "presence_penalty")
"""The settings of a model call that have a name in the conventions."""

P = ParamSpec("P")
R = TypeVar("R")


class _TracerSource:
    """The configuration, and the tracer created from it."""

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
        self.captures_content = (
            os.environ.get(CAPTURE_VARIABLE, "").strip().lower() in _CAPTURE_VALUES
            if self._capture_content is None
            else self._capture_content
        )
        self._provider = provider
        return self._tracer


_source = _TracerSource()


def configure(*, tracer_provider: TracerProvider | None = None, capture_content: bool | None = None) -> None:
    """Configure the spans. An argument that is not passed is reset to its default.

    - `tracer_provider`: by default the global one of OpenTelemetry. Without any provider, no spans are created.
    - `capture_content`: whether spans contain messages, arguments and results of tools, and error texts. By default the
      environment variable `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true` turns it on.

    >>> configure(capture_content=False)
    >>> configure()
    """
    global _source
    if tracer_provider is not None and not callable(getattr(tracer_provider, "get_tracer", None)):
        raise TypeError(
            f"tracer_provider must be an OpenTelemetry TracerProvider, got {tracer_provider!r:.80}:"
            " create one with opentelemetry.sdk.trace.TracerProvider()."
        )
    _source = _TracerSource(tracer_provider, capture_content)


def tracer() -> Tracer | None:
    """Return the tracer, or None if no tracer provider is set.

    An application that sets a tracer provider has imported OpenTelemetry, so this function does not import it.

    >>> from opentelemetry.sdk.trace import TracerProvider
    >>> configure(tracer_provider=TracerProvider())
    >>> with tracer().start_as_current_span("look up the order") as span:
    ...     print(span.is_recording())
    True
    >>> configure()
    """
    if _TRACE_MODULE not in sys.modules:
        return None
    trace: Any = sys.modules[_TRACE_MODULE]
    # `get_tracer_provider` reads the environment, which is too slow if no spans are created.
    if _source.is_idle and getattr(trace, "_TRACER_PROVIDER", trace) is None:
        return None
    return _resolve_tracer(trace)


def suppress_errors(function: Callable[P, R]) -> Callable[P, R | None]:
    """Decorate a function so that an error in it does not fail the traced code: log the first one, return None."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if not _source.has_warned:
                _source.has_warned = True
                log.warning("OpenTelemetry failed; spans are incomplete. This is logged once.", exc_info=error)
            return None

    return wrapper


@suppress_errors
def _resolve_tracer(trace: Any) -> Tracer | None:
    return _source.tracer(trace)


@suppress_errors
def _start_span(tracer: Tracer, name: str, kind: str, attributes: Mapping[str, Any], is_root: bool) -> Span:
    from opentelemetry import context
    from opentelemetry.trace import SpanKind

    known_attributes = _drop_missing(
        {"gen_ai.conversation.id": context.get_value(CONVERSATION_KEY), **_drop_missing(attributes)}
    )
    parent = context.Context() if is_root else None
    return tracer.start_span(name, context=parent, kind=SpanKind[kind], attributes=known_attributes)


class BaseSpan:
    """A span that ends once. Calls after its end, or without a tracer provider, are ignored.

    In a `with` statement it ends with the block and records the error that the block raises.
    """

    __slots__ = ("_span",)

    def __init__(self, span: Span | None) -> None:
        self._span = span

    @classmethod
    def start(cls, name: str, kind: str, attributes: Mapping[str, Any], *, is_root: bool = False) -> Self:
        """Start a span, if spans are created at all."""
        active_tracer = tracer()
        return cls(None if active_tracer is None else _start_span(active_tracer, name, kind, attributes, is_root))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._span is not None:
            if isinstance(error, asyncio.CancelledError | GeneratorExit):  # cancelled, which is not an error
                self._set_attributes({"tellback.cancelled": True})
            elif error is not None:
                self._set_error(type(error).__name__, error)
            self._end()

    @property
    @suppress_errors
    def captures_content(self) -> bool:
        """Whether the span may contain message text and is recorded."""
        return self._span is not None and _source.captures_content and self._span.is_recording()

    @suppress_errors
    def _set_attributes(self, attributes: Mapping[str, Any]) -> None:
        if self._span is not None:
            self._span.set_attributes(_drop_missing(attributes))

    @suppress_errors
    def _set_content(self, name: str, render: Callable[[], str]) -> None:
        """Set an attribute with message text if content is captured."""
        if self.captures_content:
            self._set_attributes({name: render()})

    @suppress_errors
    def _set_error(self, error_type: str, error: BaseException | None = None) -> None:
        if self._span is None:
            return
        from opentelemetry.trace import StatusCode

        self._span.set_attribute("error.type", error_type)
        if error is not None and self.captures_content:  # error texts may quote messages
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
    """A model call. It is never the current span, because the reader of a stream may run in another context.

    >>> from tellback.types import ChatReply
    >>> span = model_span("gpt-5", "OpenAI")
    >>> span.finish(ChatReply("Hello!", usage=ChatUsage(input_tokens=12, output_tokens=3)))
    >>> isinstance(span, ModelSpan)
    True
    """

    __slots__ = ()

    def finish(self, reply: ChatReply) -> None:
        """Record the reply and end the span."""
        if self._span is None:
            return
        usage = reply.usage or ChatUsage()
        self._set_attributes(
            {
                "gen_ai.response.model": usage.model,
                "gen_ai.provider.name": otel_provider_name(usage.provider),
                "gen_ai.response.finish_reasons": (reply.stop_reason,),
                **_usage_attributes(usage),
            }
        )
        self._set_content("gen_ai.output.messages", lambda: _reply_json(reply))
        self._end()

    def fail(self, error: BaseException) -> None:
        """End the span with an error, or without one if the call was cancelled."""
        self.__exit__(type(error), error, None)


class CurrentSpan(BaseSpan):
    """A span for a `with` block, the parent of the spans within it.

    >>> with embedding_span("text-embedding-3-small", "OpenAI", dimensions=1536, texts=2) as span:
    ...     vectors = [[0.0] * 1536, [0.0] * 1536]
    >>> isinstance(span, CurrentSpan)
    True
    """

    __slots__ = ("_context", "_conversation_id", "_token")

    def __init__(self, span: Span | None) -> None:
        super().__init__(span)
        self._conversation_id: str | None = None
        self._context: Context | None = None
        self._token: Token[Context] | None = None

    def __enter__(self) -> Self:
        if self._span is not None:
            self._token = self._attach(self._span)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            self._detach(is_closed=kind is GeneratorExit)
        super().__exit__(kind, error, trace)

    @suppress_errors
    def _attach(self, span: Span) -> Token[Context]:
        from opentelemetry import context, trace

        span_context = trace.set_span_in_context(span)
        if self._conversation_id is not None:
            span_context = context.set_value(CONVERSATION_KEY, self._conversation_id, span_context)
        self._context = span_context
        return context.attach(span_context)

    @suppress_errors
    def _detach(self, *, is_closed: bool) -> None:
        from opentelemetry import context

        token, self._token = self._token, None
        # The garbage collector may close an abandoned generator in another context.
        if token is not None and not (is_closed and context.get_current() is not self._context):
            context.detach(token)


class TurnSpan(CurrentSpan):
    """One turn of a conversation.

    >>> with turn_span("conv_1", agent="Wanda") as span:
    ...     span.set_outcome("completed", ChatUsage(input_tokens=12, output_tokens=3), text="Hello!")
    >>> isinstance(span, TurnSpan)
    True
    """

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
        """Record the outcome."""
        if self._span is None:
            return
        self._set_attributes(
            {
                "tellback.turn.status": status,
                "tellback.turn.id": turn_id,
                "gen_ai.response.finish_reasons": None if stop_reason is None else (stop_reason,),
                **_usage_attributes(usage or ChatUsage()),
            }
        )
        if text is not None:
            reply = ChatReply(text, stop_reason=stop_reason or "end_turn")
            self._set_content("gen_ai.output.messages", lambda: _reply_json(reply))


class ToolSpan(CurrentSpan):
    """One tool call.

    >>> with tool_span(ToolCall("call_1", "add", {"x": 1, "y": 2})) as span:
    ...     result = span.record_result(ToolResult("call_1", "3"))
    >>> isinstance(span, ToolSpan), result.content
    (True, '3')
    """

    __slots__ = ("_has_error",)

    def __init__(self, span: Span | None) -> None:
        super().__init__(span)
        self._has_error = False

    def record_error(self, error_type: str, error: BaseException | None = None) -> None:
        """Record why the result is an error: a short code, or the name of an exception."""
        if self._span is not None:
            self._has_error = True
            self._set_error(error_type, error)

    def record_result(self, result: ToolResult) -> ToolResult:
        """Record the result and return it."""
        if self._span is not None:
            if result.is_error and not self._has_error:
                self._set_error("tool_error")
            self._set_content("gen_ai.tool.call.result", lambda: result.content)
        return result


class RecallSpan(CurrentSpan):
    """One recall.

    >>> from tellback.types.memory import RecallMode
    >>> with recall_span("BY_TOPIC", "ms_1") as span:
    ...     result = span.record_result(RecallResult(RecallMode.BY_TOPIC, (), total_candidates=8, latency_ms=1.5))
    >>> isinstance(span, RecallSpan), result.total_candidates
    (True, 8)
    """

    __slots__ = ()

    def record_result(self, result: RecallResult) -> RecallResult:
        """Record the number of hits and return the result."""
        if self._span is not None:
            counts = {"tellback.recall.hits": len(result.hits), "tellback.recall.candidates": result.total_candidates}
            self._set_attributes(counts)
        return result


class JobSpan(CurrentSpan):
    """One attempt at a job.

    >>> from tellback import Tellback
    >>> with Tellback(":memory:", worker=False) as tb:
    ...     maya = tb.user("maya")
    ...     reply = maya.chat("I keep bees.")
    ...     [job] = maya.memory.run_extraction_for_conversation(reply.conversation_id)
    >>> with job_span(job) as span:
    ...     span.record_outcome("done")
    >>> isinstance(span, JobSpan)
    True
    """

    __slots__ = ()

    def record_outcome(self, outcome: str, error: BaseException | None = None) -> None:
        """Record the outcome of the attempt."""
        self._set_attributes({"tellback.job.outcome": outcome})
        if error is not None:
            self._set_error(type(error).__name__, error)


_NO_TURN_SPAN = TurnSpan(None)
_NO_MODEL_SPAN = ModelSpan(None)
NO_TOOL_SPAN = ToolSpan(None)
_NO_RECALL_SPAN = RecallSpan(None)


def turn_span(
    conversation_id: str | None = None,
    *,
    agent: str | None = None,
    model: str | None = None,
    get_messages: Callable[[], Iterable[Message]] | None = None,
) -> TurnSpan:
    """Return a span of a turn for a `with` block. Call `set_outcome` with the result.

    `get_messages` returns the user's messages; it is called only if content is captured.

    >>> with turn_span("conv_1") as span:
    ...     span.set_outcome("completed")
    """
    if tracer() is None:
        return _NO_TURN_SPAN
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": agent,
        "gen_ai.conversation.id": conversation_id,
        "gen_ai.request.model": model or None,
    }
    name = f"invoke_agent {agent}" if agent else "invoke_agent"
    span = TurnSpan.start(name, "INTERNAL", attributes)
    span._conversation_id = conversation_id
    if get_messages is not None:
        span._set_content("gen_ai.input.messages", lambda: _messages_json(get_messages()))
    return span


def model_span(
    model: str,
    provider: str | None = None,
    settings: Mapping[str, Any] = _NO_SETTINGS,
    *,
    messages: Sequence[Message] = (),
    system: str | None = None,
    streaming: bool = False,
) -> ModelSpan:
    """Start a span of a model call below the current span. End it with `finish(reply)` or `fail(error)`.

    `settings` are the settings of the call in the loop.

    >>> from tellback.types import ChatReply
    >>> model_span("gpt-5", "OpenAI").finish(ChatReply("Hello!"))
    """
    if tracer() is None:
        return _NO_MODEL_SPAN
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": model or None,
        "gen_ai.provider.name": otel_provider_name(provider),
        "gen_ai.request.stream": streaming or None,
        "gen_ai.output.type": None if settings.get("output_schema") is None else "json",
        **_settings_attributes(settings),
    }
    span = ModelSpan.start(f"chat {model}".strip(), "CLIENT", attributes)
    span._set_content("gen_ai.input.messages", lambda: _messages_json(messages))
    if system:
        span._set_content("gen_ai.system_instructions", lambda: dump_json([_text_part(system)]))
    return span


def tool_span(call: ToolCall, *, is_known: bool = True) -> ToolSpan:
    """Return a span of a tool call for a `with` block.

    The model invented the name of an unknown tool, so the name counts as message text.

    >>> with tool_span(ToolCall("call_1", "add")) as span:
    ...     pass
    """
    if tracer() is None:
        return NO_TOOL_SPAN
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call.name if is_known or _source.captures_content else None,
        "gen_ai.tool.call.id": call.id,
        "gen_ai.tool.type": "function",
    }
    name = f"execute_tool {call.name if is_known else 'unknown'}"
    span = ToolSpan.start(name, "INTERNAL", attributes)
    span._set_content("gen_ai.tool.call.arguments", lambda: dump_json(_call_arguments(call)))
    return span


def recall_span(mode: str, space_id: str) -> RecallSpan:
    """Return a span of a recall for a `with` block.

    >>> from tellback.types.memory import RecallMode
    >>> with recall_span("TIMELINE", "ms_1") as span:
    ...     result = span.record_result(RecallResult(RecallMode.TIMELINE, (), total_candidates=0, latency_ms=1.5))
    >>> len(result.hits)
    0
    """
    if tracer() is None:
        return _NO_RECALL_SPAN
    attributes = {"tellback.recall.mode": str(mode), "tellback.space.id": space_id}
    return RecallSpan.start(f"recall {mode}", "INTERNAL", attributes)


def job_span(job: Job) -> JobSpan:
    """Return a span of a job attempt for a `with` block. It begins a new trace.

    >>> from tellback import Tellback
    >>> with Tellback(":memory:", worker=False) as tb:
    ...     maya = tb.user("maya")
    ...     reply = maya.chat("I keep bees.")
    ...     [job] = maya.memory.run_extraction_for_conversation(reply.conversation_id)
    >>> with job_span(job) as span:
    ...     span.record_outcome("retry", TimeoutError("too slow"))
    """
    attributes = {
        "tellback.job.id": job.id,
        "tellback.job.kind": job.kind,
        "tellback.job.attempt": job.attempts,
        "gen_ai.conversation.id": job.conversation_id,
        "tellback.space.id": job.memory_space_id,
    }
    span = JobSpan.start(f"process job {job.kind}", "CONSUMER", attributes, is_root=True)
    span._conversation_id = job.conversation_id
    return span


def embedding_span(model: str, provider: str | None, dimensions: int, texts: int) -> CurrentSpan:
    """Return a span of an embedding request for a `with` block.

    >>> with embedding_span("text-embedding-3-small", "OpenAI", dimensions=1536, texts=2):
    ...     vectors = [[0.0] * 1536, [0.0] * 1536]  # call your provider here
    >>> len(vectors)
    2
    """
    attributes = {
        "gen_ai.operation.name": "embeddings",
        "gen_ai.request.model": model,
        "gen_ai.provider.name": otel_provider_name(provider),
        "gen_ai.embeddings.dimension.count": dimensions,
        "tellback.embeddings.texts": texts,
    }
    return CurrentSpan.start(f"embeddings {model}", "CLIENT", attributes)


def set_provider_names(find_name: Callable[[str], str | None]) -> None:
    """Set the function that returns a provider's name in OpenTelemetry's conventions, or None for its own name."""
    global _find_provider_name
    _find_provider_name = find_name


def otel_provider_name(provider: object) -> str | None:
    """Return the conventions' name of a provider, or the provider's own name with underscores.

    >>> import tellback.chat
    >>> otel_provider_name("Gemini"), otel_provider_name("Anthropic"), otel_provider_name("compatible server")
    ('gcp.gemini', 'anthropic', 'compatible_server')
    """
    if not provider:
        return None
    return _find_provider_name(str(provider)) or str(provider).lower().replace(" ", "_")


def _settings_attributes(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numeric settings as attributes."""
    config = dict(settings.get("config") or _NO_SETTINGS)
    if settings.get("max_output_tokens") is not None:
        config["max_tokens"] = settings["max_output_tokens"]
    return {f"gen_ai.request.{key}": config[key] for key in _SETTINGS if isinstance(config.get(key), int | float)}


def _usage_attributes(usage: ChatUsage) -> dict[str, Any]:
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
        "tellback.usage.cost_usd": usage.cost_usd,
    }


def _drop_missing(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}


def _messages_json(messages: Iterable[Message]) -> str:
    return dump_json([{"role": message.role, "parts": _message_parts(message)} for message in messages])


def _reply_json(reply: ChatReply) -> str:
    parts = [{"type": "reasoning", "content": reply.thinking}] if reply.thinking else []
    parts += _message_parts(reply.message)
    return dump_json([{"role": "assistant", "parts": parts, "finish_reason": reply.stop_reason}])


def _message_parts(message: Message) -> list[dict[str, Any]]:
    text = message_text(message)
    if message.role == "tool":
        return [{"type": "tool_call_response", "id": message.tool_call_id, "response": text}]
    parts = [_content_part(part) for part in message.parts or ()]
    if text and message.parts is None:
        parts.append(_text_part(text))
    calls = message.tool_calls
    return parts + [
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": _call_arguments(call)} for call in calls
    ]


def _content_part(part: MessagePart) -> dict[str, Any]:
    """Return a part as JSON. Images, audio and files are reduced to their type, to keep spans small."""
    if part.kind == "text":
        return _text_part(part.text or "")
    return {"type": part.kind, "mime_type": part.mime}


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "content": text}


def _call_arguments(call: ToolCall) -> Any:
    return call.input if call.invalid_input is None else call.invalid_input
