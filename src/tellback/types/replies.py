"""A model's reply: the whole of it with its usage, or the deltas of a streamed one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tellback.types.messages import Message, ToolCall


@dataclass(frozen=True, slots=True)
class ChatUsage:
    """Tokens, cost and time of one call, or of several added up.

    `input_tokens` counts the whole prompt, cached or not, and `output_tokens` everything generated, thinking
    included, whatever the provider's own way of counting. `cost_usd` is None where no price is known.

    >>> (ChatUsage(input_tokens=10, output_tokens=2) + ChatUsage(input_tokens=5, output_tokens=1)).input_tokens
    15
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    cost_usd: float | None = None
    latency_ms: int | None = None
    provider: str | None = None
    model: str | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None

    def __add__(self, other: ChatUsage) -> ChatUsage:
        return ChatUsage(
            input_tokens=_add_optional(self.input_tokens, other.input_tokens),
            output_tokens=_add_optional(self.output_tokens, other.output_tokens),
            total_tokens=_add_optional(self.total_tokens, other.total_tokens),
            cost_usd=_add_optional(self.cost_usd, other.cost_usd),
            latency_ms=_add_optional(self.latency_ms, other.latency_ms),
            provider=_same_or_none(self.provider, other.provider),
            model=_same_or_none(self.model, other.model),
            cached_tokens=_add_optional(self.cached_tokens, other.cached_tokens),
            cache_write_tokens=_add_optional(self.cache_write_tokens, other.cache_write_tokens),
            reasoning_tokens=_add_optional(self.reasoning_tokens, other.reasoning_tokens),
        )


def _same_or_none(a: str | None, b: str | None) -> str | None:
    if a is None or b is None:
        return a or b
    return a if a == b else None


def _add_optional(a: Any, b: Any) -> Any:
    if a is None:
        return b
    return a if b is None else a + b


@dataclass(frozen=True, slots=True)
class ChatReply:
    """A model's whole reply.

    `stop_reason` is "end_turn", "tool_use", "max_tokens", "stop_sequence", "refusal", "pause_turn", or
    whatever else the provider said; `raw` keeps the provider's own answer. `meta` is provider state that
    goes back with the message.

    >>> ChatReply(text="Hello").message.role
    'assistant'
    """

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    stop_reason: str = "end_turn"
    usage: ChatUsage | None = None
    raw: Any = field(default=None, compare=False, repr=False)
    thinking: str = ""
    meta: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if type(self.tool_calls) is not tuple:
            object.__setattr__(self, "tool_calls", tuple(self.tool_calls or ()))
        if self.text is None:
            object.__setattr__(self, "text", "")

    @property
    def message(self) -> Message:
        """This reply as a message of the history."""
        return Message("assistant", self.text, tool_calls=self.tool_calls, meta=self.meta)


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next piece of the reply's text.

    >>> TextDelta("Hel").text + TextDelta("lo").text
    'Hello'
    """

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """The next piece of what the model thinks before it answers.

    >>> ThinkingDelta("The user wants ...").text
    'The user wants ...'
    """

    text: str


@dataclass(frozen=True, slots=True)
class ToolUseStart:
    """A tool call begins; its input follows as `ToolUseInputDelta`s.

    >>> ToolUseStart(id="call_1", name="add").name
    'add'
    """

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolUseInputDelta:
    """A piece of a tool call's input, as JSON text.

    >>> ToolUseInputDelta(id="call_1", partial_input_json='{"x":').partial_input_json
    '{"x":'
    """

    id: str
    partial_input_json: str


@dataclass(frozen=True, slots=True)
class ToolUseEnd:
    """A tool call's input is complete.

    >>> ToolUseEnd(id="call_1").id
    'call_1'
    """

    id: str


@dataclass(frozen=True, slots=True)
class StreamStop:
    """The last delta of a model call. `reply` is the whole reply, assembled.

    >>> StreamStop(reason="end_turn").reason
    'end_turn'
    """

    reason: str
    usage: ChatUsage | None = None
    reply: ChatReply | None = field(default=None, compare=False, repr=False)


ReplyDelta = TextDelta | ThinkingDelta | ToolUseStart | ToolUseInputDelta | ToolUseEnd | StreamStop
"""One event of a streamed reply. The union is open: pass on what you do not know."""


def reply_deltas(reply: ChatReply, chunks: Iterable[str] | None = None) -> Iterable[ReplyDelta]:
    """A whole reply as the deltas a stream of it would have given.

    >>> [type(d).__name__ for d in reply_deltas(ChatReply(text="Hi"))]
    ['TextDelta', 'StreamStop']
    """
    from tellback.types.jsontext import dump_json

    if reply.thinking:
        yield ThinkingDelta(reply.thinking)
    for chunk in (reply.text,) if chunks is None else chunks:
        if chunk:
            yield TextDelta(chunk)
    for call in reply.tool_calls:
        yield ToolUseStart(call.id, call.name)
        yield ToolUseInputDelta(call.id, call.invalid_input or dump_json(call.input))
        yield ToolUseEnd(call.id)
    yield StreamStop(reply.stop_reason, reply.usage, reply)
