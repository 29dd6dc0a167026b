"""JSON files of any size, value by value: each with its place in the file, so that it can be read again."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tellback.errors import ImportFormatError
from tellback.importing.sources import CHUNK, ChatFile

LARGEST_VALUE = 256 * 1024**2
"""How many characters one chat may have."""

NEAR = 32
"""An error this near to the end of what was read may be no error once there is more."""

CUT_OFF = "the file ends before its chats do. Was the download cut off? Get it again"

_AFTER = tuple(" \t\r\n,]")
_SPACE = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True, slots=True)
class Value:
    """A value, and where it stands."""

    value: Any
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A line that is no JSON."""

    line: int
    problem: str


def values(file: ChatFile) -> Iterator[Value | Unreadable]:
    """What is in an array, or else on each line or one after the other."""
    file.file.seek(file.start)
    head = file.file.read(CHUNK)
    if not head.strip():
        raise ImportFormatError(file.name, "the file is empty.")
    if not file.has_lines and head.lstrip()[:1] == b"[":
        return _Elements(file, in_array=True).read()
    if file.has_lines or _is_value(head.lstrip().partition(b"\n")[0]):
        return _lines(file)
    return _Elements(file, in_array=False).read()


def value_at(file: ChatFile, offset: int, length: int) -> Any:
    """The value that stood there."""
    file.file.seek(offset)
    return json.loads(file.file.read(length).decode())


def _is_value(line: bytes) -> bool:
    try:
        json.loads(line.decode())
    except (ValueError, RecursionError):
        return False
    return True


def _lines(file: ChatFile) -> Iterator[Value | Unreadable]:
    file.file.seek(file.start)
    offset, number = file.start, 0
    while line := file.file.readline(LARGEST_VALUE):
        number += 1
        if len(line) >= LARGEST_VALUE:
            raise ImportFormatError(file.name, f"line {number} has more than {LARGEST_VALUE:,} bytes.")
        at, offset = offset, offset + len(line)
        if not line.strip():
            continue
        try:
            yield Value(json.loads(line.decode()), at, len(line))
        except UnicodeDecodeError:
            yield Unreadable(number, "a line is not UTF-8")
        except (ValueError, RecursionError):
            yield Unreadable(number, "a line is not JSON")
        file.file.seek(offset)  # others may have read at other places meanwhile


class _Elements:
    """Reads an array element by element, or values that follow each other, holding little more than one at a time."""

    def __init__(self, file: ChatFile, *, in_array: bool) -> None:
        self._file = file
        self._in_array = in_array
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._parse = json.JSONDecoder().raw_decode
        self._read_to = self._offset = file.start
        self._text, self._at = "", 0
        self._ended = False

    def read(self) -> Iterator[Value]:
        """The values."""
        if self._in_array:
            self._next()
            self._pass(1)
        while (char := self._next()) and not (self._in_array and char == "]"):
            value, end = self._value()
            offset, length = self._offset, self._pass(end - self._at)
            yield Value(value, offset, length)
            if self._in_array:
                self._separator()
        if self._in_array and not char:
            raise self._wrong(CUT_OFF)

    def _separator(self) -> None:
        char = self._next()
        if char == ",":
            self._pass(1)
        elif char != "]":
            raise self._wrong(f"a comma was expected, and there is {char!r}" if char else CUT_OFF)

    def _next(self) -> str:
        """The next character that is no space; nothing at the end."""
        while True:
            found = _SPACE.match(self._text, self._at)
            assert found is not None
            self._pass(found.end() - self._at)
            if self._at < len(self._text) or self._ended:
                return self._text[self._at : self._at + 1]
            self._more()

    def _value(self) -> tuple[Any, int]:
        while True:
            try:
                value, end = self._parse(self._text, self._at)
                # A number may go on, be it only with a point.
                if self._ended or not isinstance(value, int | float) or self._text[end : end + 1] in _AFTER:
                    return value, end
            except json.JSONDecodeError as error:
                unfinished = error.pos >= len(self._text) - NEAR or error.msg.startswith("Unterminated string")
                if self._ended or not unfinished:
                    told = CUT_OFF if unfinished and error.pos > self._at else f"it is not JSON: {error.msg}"
                    raise self._wrong(told, error.pos) from None
            except (ValueError, RecursionError) as error:
                raise self._wrong(f"it cannot be read: {error}") from None
            if len(self._text) - self._at > LARGEST_VALUE:
                raise self._wrong(f"there is a chat of more than {LARGEST_VALUE:,} characters")
            self._more()

    def _more(self) -> None:
        left = self._text[self._at :]
        self._file.file.seek(self._read_to)  # others may have read at other places meanwhile
        # As much again as is there: whoever parses a long one anew at each chunk would never end.
        chunk = self._file.file.read(max(CHUNK, len(left)))
        self._ended = not chunk
        try:
            self._text, self._at = left + self._decode(chunk, self._ended), 0
        except UnicodeDecodeError as error:
            at = max(self._read_to + error.start, 0)
            raise ImportFormatError(
                self._file.name, f"it is not UTF-8 (at byte {at}). Save it as UTF-8, and try again."
            ) from None
        self._read_to += len(chunk)

    def _pass(self, count: int) -> int:
        """Go on behind so many characters; gives how many bytes they are."""
        length = len(self._text[self._at : self._at + count].encode())
        self._at += count
        self._offset += length
        return length

    def _wrong(self, problem: str, place: int | None = None) -> ImportFormatError:
        at = self._offset + len(self._text[self._at : self._at if place is None else place].encode())
        return ImportFormatError(self._file.name, f"{problem} (at byte {at}).")
