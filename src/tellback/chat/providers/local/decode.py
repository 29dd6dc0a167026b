"""An answer held to `{"say": ...}` or `{"tool": ..., "input": ...}`, read while it is written.

What is said is given as it comes, decoded; a call's input as the JSON text it is. Text that is no such object is taken
for what is said, as it stands: a model may end up unheld, and a person should still get its words.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from tellback.chat.providers.local.encode import INPUT, SAY, TOOL
from tellback.types import ReplyDelta, TextDelta, ToolCall, ToolUseEnd, ToolUseInputDelta, ToolUseStart
from tellback.types.jsontext import parse_arguments

_BLANKS = " \t\r\n"
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class JsonStringDecoder:
    """The inside of one JSON string, decoded from pieces cut anywhere, also within an escape."""

    def __init__(self) -> None:
        self.is_closed = False
        self._escape = ""
        self._high_surrogate = ""

    def feed(self, char: str) -> str:
        """The text that is certain after this character: none, some or more than one."""
        if self._escape:
            self._escape += char
            return self._decode_escape()
        if char == "\\":
            self._escape = char
            return ""
        if char == '"':
            self.is_closed = True
            return self._flush("")
        return self._flush(char)

    def _decode_escape(self) -> str:
        if self._escape[1] != "u":
            char = self._escape[1]
            self._escape = ""
            return self._flush(_ESCAPES.get(char, char))
        if len(self._escape) < 6:
            return ""
        digits, self._escape = self._escape[2:], ""
        try:
            code = int(digits, 16)
        except ValueError:
            return self._flush(_REPLACEMENT)
        if 0xD800 <= code < 0xDC00:
            lost = self._flush("")
            self._high_surrogate = chr(code)
            return lost
        if 0xDC00 <= code < 0xE000:
            if not self._high_surrogate:
                return _REPLACEMENT
            high, self._high_surrogate = ord(self._high_surrogate), ""
            return chr(0x10000 + ((high - 0xD800) << 10) + code - 0xDC00)
        return self._flush(chr(code))

    def _flush(self, text: str) -> str:
        """The text, and before it a mark for half a character whose other half never came."""
        if self._high_surrogate:
            self._high_surrogate = ""
            return _REPLACEMENT + text
        return text


class JsonValueScanner:
    """One JSON value as the text it is written in; says where it ends."""

    def __init__(self) -> None:
        self.is_closed = False
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def accept(self, char: str) -> bool:
        """Whether the character belongs to the value; one that does not has ended it."""
        if self._in_string:
            if self._escaped:
                self._escaped = False
            elif char == "\\":
                self._escaped = True
            elif char == '"':
                self._in_string = False
                self.is_closed = self._depth == 0
            return True
        if char == '"':
            self._in_string = True
        elif char in "{[":
            self._depth += 1
        elif char in "}]" and self._depth:
            self._depth -= 1
            self.is_closed = self._depth == 0
        elif self._depth == 0 and char in f",}}]{_BLANKS}":
            self.is_closed = True
            return False
        return True


class AnswerReader:
    """Deltas from the pieces of an answer. `says_json` is for answers whose `say` is itself of a schema."""

    def __init__(self, *, expects_json: bool = False) -> None:
        self._expects_json = expects_json
        self._state = "start"
        self._string = JsonStringDecoder()
        self._raw = JsonValueScanner()
        self._key = ""
        self._name = ""
        self._id = ""
        self._input: list[str] = []
        self._is_input_complete = False

    def feed(self, piece: str) -> Iterator[ReplyDelta]:
        """Take the next piece, and give its deltas: at most one of each kind in a row."""
        text_pieces: list[str] = []
        input_pieces: list[str] = []
        for char in piece:
            text = self._step(char)
            if text:
                (input_pieces if self._key == INPUT else text_pieces).append(text)
            if self._id == "" and self._name and self._state != "name":
                self._id = f"call_{uuid.uuid4().hex[:24]}"
                yield ToolUseStart(self._id, self._name)
        if text_pieces:
            yield TextDelta("".join(text_pieces))
        if input_pieces:
            text = "".join(input_pieces)
            self._input.append(text)
            if self._id:
                yield ToolUseInputDelta(self._id, text)

    def close(self) -> Iterator[ReplyDelta]:
        """What is left to give when no piece follows."""
        if self._id:
            yield ToolUseEnd(self._id)

    @property
    def call(self) -> ToolCall | None:
        """The call, if there is one. One that was cut off says so, whatever there is of its input."""
        if not self._id:
            return None
        text = "".join(self._input)
        value, invalid = parse_arguments(text)
        if not self._is_input_complete:
            value, invalid = {}, text
        return ToolCall(self._id, self._name, value, invalid)

    def _step(self, char: str) -> str:
        """One character on; gives text that was said, or that a call's input is written in."""
        match self._state:
            case "start":
                if char in _BLANKS:
                    return ""
                self._state = "object" if char == "{" else "free"
                return "" if char == "{" else char
            case "free":
                return char
            case "object":
                if char == '"':
                    self._state, self._string, self._key = "key", JsonStringDecoder(), ""
                elif char == "}":
                    self._state = "end"
            case "key":
                self._key += self._string.feed(char)
                if self._string.is_closed:
                    self._state = "colon"
            case "colon":
                if char not in f":{_BLANKS}":
                    return self._start_value(char)
            case "name":
                self._name += self._string.feed(char)
                if self._string.is_closed:
                    self._state = "object"
            case "saying":
                text = self._string.feed(char)
                if self._string.is_closed:
                    self._state = "object"
                return text
            case "raw":
                return self._raw_step(char)
        return ""

    def _start_value(self, char: str) -> str:
        self._string = JsonStringDecoder()
        if char == '"' and self._key == TOOL:
            self._state = "name"
            return ""
        if char == '"' and self._key == SAY and not self._expects_json:
            self._state = "saying"
            return ""
        self._state, self._raw = "raw", JsonValueScanner()
        return self._raw_step(char)

    def _raw_step(self, char: str) -> str:
        is_part = self._raw.accept(char)
        if self._raw.is_closed:
            self._is_input_complete |= self._key == INPUT
            self._state = "object" if is_part or char != "}" else "end"
        return char if is_part and self._key in (SAY, INPUT) else ""
