"""A whole reply from the deltas of a stream."""

from __future__ import annotations

from tellback.types import (
    ChatReply,
    StreamStop,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolUseEnd,
    ToolUseInputDelta,
    ToolUseStart,
)
from tellback.types.jsontext import parse_arguments


class ReplyBuilder:
    """Collects deltas; `reply()` is what they add up to."""

    __slots__ = ("_inputs", "_names", "_stop", "_text", "_thinking", "_unfinished")

    def __init__(self) -> None:
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._names: dict[str, str] = {}
        self._inputs: dict[str, list[str]] = {}
        self._unfinished: set[str] = set()
        self._stop: StreamStop | None = None

    def add(self, delta: object) -> None:
        """Take the next delta; unknown kinds carry nothing a reply needs."""
        if type(delta) is TextDelta:  # by far the most frequent
            self._text.append(delta.text)
        elif isinstance(delta, ToolUseInputDelta):
            self._inputs.setdefault(delta.id, []).append(delta.partial_input_json)
        elif isinstance(delta, ToolUseStart):
            self._names[delta.id] = delta.name
            self._unfinished.add(delta.id)
        elif isinstance(delta, ToolUseEnd):
            self._unfinished.discard(delta.id)
        elif isinstance(delta, ThinkingDelta):
            self._thinking.append(delta.text)
        elif isinstance(delta, StreamStop):
            self._stop = delta
        elif isinstance(delta, TextDelta):
            self._text.append(delta.text)

    @property
    def stopped(self) -> bool:
        """Whether the stream's last delta has come."""
        return self._stop is not None

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._text)

    def reply(self) -> ChatReply:
        """The reply; the one the stream itself assembled is preferred, since it carries provider state."""
        stop = self._stop
        if stop is not None and stop.reply is not None:
            return stop.reply
        calls = []
        for id, name in self._names.items():
            text = "".join(self._inputs.get(id, ()))
            value, invalid = parse_arguments(text)
            if stop is None and id in self._unfinished:
                value, invalid = {}, text  # the stream broke off in the middle of it
            calls.append(ToolCall(id, name, value, invalid))
        return ChatReply(
            text=self.text,
            tool_calls=tuple(calls),
            stop_reason=stop.reason if stop else ("tool_use" if calls else "end_turn"),
            usage=stop.usage if stop else None,
            thinking="".join(self._thinking),
        )
