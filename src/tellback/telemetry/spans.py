"""Spans under way: what is noted on them, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextvars import Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tellback.telemetry import content, names
from tellback.telemetry.source import captures_content, suppress_errors
from tellback.types import ChatReply, ChatUsage, ToolResult
from tellback.types.memory import RecallResult

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span

CONVERSATION_KEY = "tellback-conversation-id"
"""Under what OpenTelemetry's context holds the conversation, so that spans within a turn can name it too."""

CANCELLATION_ERRORS = (asyncio.CancelledError, GeneratorExit)
"""What is raised where work is called off: nobody's error."""


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
            self._set_attributes({names.CANCELLED: True})
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

        self._span.set_attribute(names.ERROR_TYPE, error_type)
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
                names.RESPONSE_MODEL: usage.model,
                names.PROVIDER_NAME: names.otel_provider_name(usage.provider),
                names.RESPONSE_FINISH_REASONS: (reply.stop_reason,),
                **usage_attributes(usage),
            }
        )
        if self.captures_content:
            self._set_attributes({names.OUTPUT_MESSAGES: content.reply_json(reply)})


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
                names.TURN_STATUS: status,
                names.TURN_ID: turn_id,
                names.RESPONSE_FINISH_REASONS: None if stop_reason is None else (stop_reason,),
                **usage_attributes(usage),
            }
        )
        if text is not None and self.captures_content:
            self._record_answer(text, stop_reason)

    @suppress_errors
    def _record_answer(self, text: str, stop_reason: str | None) -> None:
        reply = ChatReply(text, stop_reason=stop_reason or "end_turn")
        self._set_attributes({names.OUTPUT_MESSAGES: content.reply_json(reply)})


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
            self._set_attributes({names.TOOL_CALL_RESULT: result.content})
        return result


class RecallSpan(CurrentSpan):
    """One recall."""

    __slots__ = ()

    def record_result(self, result: RecallResult) -> RecallResult:
        """Note how much was found, and hand it on."""
        if self._span is not None:
            self._set_attributes(
                {names.RECALL_HITS: len(result.hits), names.RECALL_CANDIDATES: result.total_candidates}
            )
        return result


class JobSpan(CurrentSpan):
    """One attempt at a job."""

    __slots__ = ()

    def record_outcome(self, outcome: str, error: BaseException | None = None) -> None:
        """Note what came of it."""
        if self._span is None:
            return
        self._set_attributes({names.JOB_OUTCOME: outcome})
        if error is not None:
            self._set_error(type(error).__name__, error)


def usage_attributes(usage: ChatUsage | None) -> dict[str, Any]:
    """What was used, as attributes."""
    if usage is None:
        return {}
    return {
        names.USAGE_INPUT_TOKENS: usage.input_tokens,
        names.USAGE_OUTPUT_TOKENS: usage.output_tokens,
        names.USAGE_CACHE_READ_INPUT_TOKENS: usage.cached_tokens,
        names.USAGE_CACHE_CREATION_INPUT_TOKENS: usage.cache_write_tokens,
        names.USAGE_REASONING_OUTPUT_TOKENS: usage.reasoning_tokens,
        names.COST: usage.cost_usd,
    }


def drop_missing(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Only what has a value."""
    return {name: value for name, value in attributes.items() if value is not None}
