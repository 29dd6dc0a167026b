"""Read streamed chat completions: text, thinking, and tool calls assembled from pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tellback.chat.providers.openai.codec import (
    META_KEY,
    OpenAIDialect,
    ThinkTagSplitter,
    arguments_text,
    error_from_body,
    generate_call_id,
    is_thinking_part,
    normalize_stop_reason,
    part_text,
    reasoning_to_meta,
)
from tellback.chat.providers.stainless import as_dict
from tellback.chat.usage import make_usage
from tellback.types import (
    ChatReply,
    ReplyDelta,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolUseEnd,
    ToolUseInputDelta,
    ToolUseStart,
)
from tellback.types.jsontext import parse_arguments


class OpenAIStreamReader:
    """What the chunks of one call have given so far.

    Some hosts never say why they stop, so a reply counts as complete when a reason came, a last chunk of usage and
    nothing else, or the closing mark, which only `saw_end` knows of.
    """

    def __init__(self, provider: str, model: str, dialect: OpenAIDialect, saw_end: Callable[[], bool]) -> None:
        self._finish_reason: str | None = None
        self._has_closing_usage = False
        self._saw_end = saw_end
        self._provider = provider
        self._model = model
        self._dialect = dialect
        self._splitter = ThinkTagSplitter(dialect.think_tags)
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._calls = ToolCallAssembler()
        self._reasoning_details: list[Any] = []
        self._is_refusal = False
        self._usage: Mapping[str, Any] | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the host said, one way or another, that this was all."""
        if self._finish_reason == "error":
            return False
        return bool(self._finish_reason) or self._has_closing_usage or self._saw_end()

    @property
    def is_finished(self) -> bool:
        """Usage may follow the reason, so only the end is the end."""
        return False

    def add(self, chunk: Any) -> Iterator[ReplyDelta]:
        """Take one chunk, and give its deltas."""
        self._model = getattr(chunk, "model", None) or self._model
        choices = getattr(chunk, "choices", None) or ()
        usage = _chunk_usage(chunk)
        if usage is not None:
            self._usage = usage
            self._has_closing_usage = not choices
        for choice in choices:
            self._finish_reason = getattr(choice, "finish_reason", None) or self._finish_reason
            if self._finish_reason == "error":
                raise error_from_body(as_dict(choice), self._provider, self._model)
            delta = getattr(choice, "delta", None)
            if delta is not None:
                yield from self._add_delta(delta)

    def _add_delta(self, delta: Any) -> Iterator[ReplyDelta]:
        self._reasoning_details.extend(getattr(delta, "reasoning_details", None) or ())
        reasoning = getattr(delta, "reasoning_content", None) or getattr(delta, "reasoning", None)
        if reasoning and isinstance(reasoning, str):
            yield self._record(ThinkingDelta(reasoning))
        content: Any = getattr(delta, "content", None)
        if isinstance(content, str):
            yield from map(self._record, self._splitter.feed(content))
        else:
            for part in content or ():
                if piece := part_text(part):
                    yield self._record(ThinkingDelta(piece) if is_thinking_part(part) else TextDelta(piece))
        refusal = getattr(delta, "refusal", None)
        if refusal:
            self._is_refusal = True
            yield self._record(TextDelta(refusal))
        for position, call in enumerate(getattr(delta, "tool_calls", None) or ()):
            yield from self._calls.add(call, position)
        function = getattr(delta, "function_call", None)
        if function is not None:
            yield from self._calls.add_function(function)

    def close(self) -> Iterator[ReplyDelta]:
        """What is left to give when no chunk follows."""
        yield from map(self._record, self._splitter.finish())
        yield from self._calls.close()

    def reply(self) -> ChatReply:
        """The whole reply."""
        calls = self._calls.build_calls()
        return ChatReply(
            text="".join(self._text),
            tool_calls=calls,
            stop_reason="refusal" if self._is_refusal else normalize_stop_reason(self._finish_reason, bool(calls)),
            usage=make_usage(self._usage, self._provider, self._model) if self._usage else None,
            raw={"model": self._model, "finish_reason": self._finish_reason, "usage": self._usage},
            thinking="".join(self._thinking),
            meta=reasoning_to_meta(self._reasoning_details, self._dialect),
        )

    def _record(self, delta: TextDelta | ThinkingDelta) -> TextDelta | ThinkingDelta:
        (self._text if isinstance(delta, TextDelta) else self._thinking).append(delta.text)
        return delta


@dataclass(slots=True)
class _PartialCall:
    """A call of which some pieces have come; `host_id` is what the host calls it, which may not be unique."""

    id: str
    host_id: str
    extras: Mapping[str, Any] | None
    name: str = ""
    pieces: list[str] = field(default_factory=list)

    @property
    def arguments(self) -> str:
        """What has come of the arguments."""
        return "".join(self.pieces)


class ToolCallAssembler:
    """Tool calls put together from pieces that hosts number and name as they like."""

    def __init__(self) -> None:
        self._open_calls: dict[Any, _PartialCall] = {}
        self._calls: list[_PartialCall] = []

    def add(self, piece: Any, position: int) -> Iterator[ReplyDelta]:
        """A piece, and where it stands in its chunk, for hosts that give it no index."""
        index = getattr(piece, "index", None)
        key = ("position", position) if index is None else index
        yield from self._add(
            key, getattr(piece, "function", None), getattr(piece, "id", None) or "", _call_extras(piece)
        )

    def add_function(self, function: Any) -> Iterator[ReplyDelta]:
        """A piece of the one call that the API knew before it knew tools."""
        yield from self._add("function_call", function, "", None)

    def _add(self, key: Any, function: Any, host_id: str, extras: Mapping[str, Any] | None) -> Iterator[ReplyDelta]:
        name = getattr(function, "name", None) or ""
        arguments = arguments_text(getattr(function, "arguments", None))
        call = self._open_calls.get(key)
        if call is None or (name and call.name and _starts_new_call(call, host_id, arguments)):
            used = {other.id for other in self._calls}
            id = host_id if host_id and host_id not in used else generate_call_id()
            call = _PartialCall(id, host_id, extras)
            self._open_calls[key] = call
            self._calls.append(call)
        if name and not call.name:
            call.name = name
            yield ToolUseStart(call.id, name)
            arguments = call.arguments + arguments
            call.pieces = []
        if arguments:
            call.pieces.append(arguments)
            if call.name:
                yield ToolUseInputDelta(call.id, arguments)

    def close(self) -> Iterator[ReplyDelta]:
        """The ends of all calls."""
        for call in self._calls:
            if call.name:
                yield ToolUseEnd(call.id)

    def build_calls(self) -> tuple[ToolCall, ...]:
        """The calls, put together."""
        calls = []
        for call in self._calls:
            if call.name:
                value, invalid = parse_arguments(call.arguments)
                calls.append(ToolCall(call.id, call.name, value, invalid, call.extras))
        return tuple(calls)


def _starts_new_call(call: _PartialCall, host_id: str, arguments: str) -> bool:
    """Whether a piece with a name begins a new call, though its index is that of one under way."""
    if host_id:
        return host_id != call.host_id
    # Without ids: some hosts repeat the name with every piece, so the call before must be whole.
    value, invalid = parse_arguments(call.arguments)
    return bool(arguments) and bool(value) and invalid is None


def _call_extras(piece: Any) -> Mapping[str, Any] | None:
    extra = getattr(piece, "model_extra", None)
    return {META_KEY: dict(extra)} if extra else None


def _chunk_usage(chunk: Any) -> Mapping[str, Any] | None:
    usage = getattr(chunk, "usage", None)
    if usage is None:
        groq = getattr(chunk, "x_groq", None)
        usage = groq.get("usage") if isinstance(groq, Mapping) else getattr(groq, "usage", None)
    return as_dict(usage) if usage else None
