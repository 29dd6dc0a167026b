"""JSON files of any size, value by value: each with its place in the file, so that it can be read again."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tellback.errors import ImportFormatError
from tellback.importing.sources import CHUNK_BYTES, ChatFile

MAX_VALUE_LENGTH = 256 * 1024**2
"""How many characters one chat may have."""

TRUNCATION_MARGIN = 32
"""An error this near to the end of what was read may be no error once there is more."""

TRUNCATED_FILE = "the file ends before its chats do. Was the download cut off? Get it again"

_VALUE_END = tuple(" \t\r\n,]")
_WHITESPACE = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True, slots=True)
class JsonValue:
    """A value, and where it stands."""

    value: Any
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class UnreadableLine:
    """A line that is no JSON."""

    line: int
    problem: str


def iter_json_values(file: ChatFile) -> Iterator[JsonValue | UnreadableLine]:
    """What is in an array, or else on each line or one after the other."""
    file.file.seek(file.start)
    head = file.file.read(CHUNK_BYTES)
    if not head.strip():
        raise ImportFormatError(file.name, "the file is empty.")
    if not file.is_json_lines and head.lstrip()[:1] == b"[":
        return _JsonStreamReader(file, in_array=True).read()
    if file.is_json_lines or _is_json(head.lstrip().partition(b"\n")[0]):
        return _iter_lines(file)
    return _JsonStreamReader(file, in_array=False).read()


def read_value_at(file: ChatFile, offset: int, length: int) -> Any:
    """The value that stood there."""
    file.file.seek(offset)
    return json.loads(file.file.read(length).decode())


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line.decode())
    except (ValueError, RecursionError):
        return False
    return True


def _iter_lines(file: ChatFile) -> Iterator[JsonValue | UnreadableLine]:
    file.file.seek(file.start)
    offset, number = file.start, 0
    while line := file.file.readline(MAX_VALUE_LENGTH):
        number += 1
        if len(line) >= MAX_VALUE_LENGTH:
            raise ImportFormatError(file.name, f"line {number} has more than {MAX_VALUE_LENGTH:,} bytes.")
        line_offset, offset = offset, offset + len(line)
        if not line.strip():
            continue
        try:
            yield JsonValue(json.loads(line.decode()), line_offset, len(line))
        except UnicodeDecodeError:
            yield UnreadableLine(number, "a line is not UTF-8")
        except (ValueError, RecursionError):
            yield UnreadableLine(number, "a line is not JSON")
        file.file.seek(offset)  # others may have read at other places meanwhile


class _JsonStreamReader:
    """Reads an array element by element, or values that follow each other, holding little more than one at a time."""

    def __init__(self, file: ChatFile, *, in_array: bool) -> None:
        self._file = file
        self._in_array = in_array
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._parse = json.JSONDecoder().raw_decode
        self._read_offset = self._offset = file.start
        self._text, self._position = "", 0
        self._at_end = False

    def read(self) -> Iterator[JsonValue]:
        """The values."""
        if self._in_array:
            self._next_character()
            self._advance(1)
        while (char := self._next_character()) and not (self._in_array and char == "]"):
            value, end = self._read_value()
            offset, length = self._offset, self._advance(end - self._position)
            yield JsonValue(value, offset, length)
            if self._in_array:
                self._read_separator()
        if self._in_array and not char:
            raise self._format_error(TRUNCATED_FILE)

    def _read_separator(self) -> None:
        char = self._next_character()
        if char == ",":
            self._advance(1)
        elif char != "]":
            raise self._format_error(f"a comma was expected, and there is {char!r}" if char else TRUNCATED_FILE)

    def _next_character(self) -> str:
        """The next character that is no space; nothing at the end."""
        while True:
            match = _WHITESPACE.match(self._text, self._position)
            assert match is not None
            self._advance(match.end() - self._position)
            if self._position < len(self._text) or self._at_end:
                return self._text[self._position : self._position + 1]
            self._read_more()

    def _read_value(self) -> tuple[Any, int]:
        while True:
            try:
                value, end = self._parse(self._text, self._position)
                # A number may go on, be it only with a point.
                if self._at_end or not isinstance(value, int | float) or self._text[end : end + 1] in _VALUE_END:
                    return value, end
            except json.JSONDecodeError as error:
                is_unfinished = error.pos >= len(self._text) - TRUNCATION_MARGIN or error.msg.startswith(
                    "Unterminated string"
                )
                if self._at_end or not is_unfinished:
                    problem = (
                        TRUNCATED_FILE
                        if is_unfinished and error.pos > self._position
                        else f"it is not JSON: {error.msg}"
                    )
                    raise self._format_error(problem, error.pos) from None
            except (ValueError, RecursionError) as error:
                raise self._format_error(f"it cannot be read: {error}") from None
            if len(self._text) - self._position > MAX_VALUE_LENGTH:
                raise self._format_error(f"there is a chat of more than {MAX_VALUE_LENGTH:,} characters")
            self._read_more()

    def _read_more(self) -> None:
        rest = self._text[self._position :]
        self._file.file.seek(self._read_offset)  # others may have read at other places meanwhile
        # As much again as is there: whoever parses a long one anew at each chunk would never end.
        chunk = self._file.file.read(max(CHUNK_BYTES, len(rest)))
        self._at_end = not chunk
        try:
            self._text, self._position = rest + self._decode(chunk, self._at_end), 0
        except UnicodeDecodeError as error:
            byte_offset = max(self._read_offset + error.start, 0)
            raise ImportFormatError(
                self._file.name, f"it is not UTF-8 (at byte {byte_offset}). Save it as UTF-8, and try again."
            ) from None
        self._read_offset += len(chunk)

    def _advance(self, count: int) -> int:
        """Go on behind so many characters; gives how many bytes they are."""
        length = len(self._text[self._position : self._position + count].encode())
        self._position += count
        self._offset += length
        return length

    def _format_error(self, problem: str, position: int | None = None) -> ImportFormatError:
        byte_offset = self._offset + len(
            self._text[self._position : self._position if position is None else position].encode()
        )
        return ImportFormatError(self._file.name, f"{problem} (at byte {byte_offset}).")
