"""A window as a model reads it: one line for each message, which nothing said in it can forge."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from tellback.memory.extraction.values import Window
from tellback.memory.neutral import neutral, one_line
from tellback.memory.recall.dates import Span, read_text
from tellback.memory.speakers import SPEAKERS, is_heard, speakers
from tellback.types.blocks import TextBlock
from tellback.types.conversations import StoredMessage
from tellback.types.times import from_micros, to_micros

MESSAGE_LENGTH = 8_000
"""How many characters of a message are shown; what is longer is cut in the middle."""

SPEAKER_LENGTH = 80
CUT = " […] "

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_HOUR = 3_600_000_000
_DAY = 24 * _HOUR
# Years up to ten ahead of a moment are read as such, so it must be a later one.
_ANOTHER_MOMENT = 4_019 * _DAY


@dataclass(frozen=True, slots=True)
class Line:
    """A message that can be cited: the id to cite it by, and its words as they are shown."""

    id: str
    message: StoredMessage
    words: str

    @property
    def is_users(self) -> bool:
        """Whether the user said it."""
        return self.message.role == "user"


@dataclass(frozen=True, slots=True)
class Transcript:
    """A window as text, and its messages by the ids they are cited by."""

    text: str
    lines: Mapping[str, Line]

    @property
    def has_words_of_the_user(self) -> bool:
        """Whether there is anything the user said."""
        return any(line.is_users for line in self.lines.values())


def transcribe(window: Window) -> Transcript:
    """The window as data for a model.

    Each message is a line of its own: its id, when it was said, by whom, and its words as a JSON string. What came
    before the window is set apart and has no ids.
    """
    names = _names(window)
    lines = {line.id: line for line in _lines(window.messages)}
    record = [f"{id} | {_spoken(line.message, names)}: {quoted(line.words)}" for id, line in lines.items()]
    before = [f"- | {_spoken(line.message, names)}: {quoted(line.words)}" for line in _lines(window.before)]
    parts = [_tagged("before", before)] if before else []
    return Transcript("\n".join([*parts, _tagged("record", record)]), lines)


def words_of(message: StoredMessage) -> str:
    """What was said in a message; nothing a tool gave, and nothing that the person could not see."""
    if not is_heard(message):
        return ""
    return "\n\n".join(block.text for block in message.content if isinstance(block, TextBlock) and block.text)


def quoted(text: str) -> str:
    """The text as a JSON string on one line, which cannot close the tag it stands in."""
    return inside(json.dumps(text, ensure_ascii=False))


def inside(text: str) -> str:
    """Text that cannot close the tag it stands in."""
    return text.replace("</", "<\\/")


def shortened(text: str, limit: int) -> str:
    """The text, cut in the middle if it is longer than that.

    >>> shortened("from the beginning to the end", 15)
    'from  […] e end'
    """
    if len(text) <= limit:
        return text
    half = (limit - len(CUT)) // 2
    return text[:half] + CUT + text[-half:]


def with_dates(text: str, said_at: datetime) -> str:
    """The text with the dates that its words mean, where these depend on the day it was said.

    >>> with_dates("We met yesterday, and on 8 May 2023.", datetime(2026, 3, 5, tzinfo=UTC))
    'We met yesterday [2026-03-04], and on 8 May 2023.'
    """
    said_us = to_micros(said_at)
    pieces, done = [], 0
    for span in read_text(text, said_us):
        found = re.compile(rf"(?<!\w){re.escape(span.text)}(?!\w)").search(text, done)
        if found is None:
            continue
        pieces.append(text[done : found.end()])
        done = found.end()
        if not _is_absolute(span, said_us):
            pieces.append(f" [{_dates(span)}]")
    return "".join([*pieces, text[done:]])


def _lines(messages: Iterable[StoredMessage]) -> Iterable[Line]:
    for message in messages:
        words = neutral(words_of(message)).strip()
        if words:
            yield Line(f"m{message.seq}", message, with_dates(shortened(words, MESSAGE_LENGTH), message.created_at))


def _names(window: Window) -> dict[str, str]:
    """What each role's lines are marked with; a name of one's own never hides the role."""
    named = speakers(window.conversation)
    marks = {}
    for role, plain in SPEAKERS.items():
        name = one_line(named[role])[:SPEAKER_LENGTH].strip()
        marks[role] = plain if not name or name == plain else f"{inside(name)} ({role})"
    return marks


def _spoken(message: StoredMessage, names: Mapping[str, str]) -> str:
    at = message.created_at.astimezone(UTC)
    return f"{_WEEKDAYS[at.weekday()]} {at.isoformat(' ')[:16]} | {names[message.role]}"


def _tagged(tag: str, lines: Iterable[str]) -> str:
    return "\n".join([f"<{tag}>", *lines, f"</{tag}>"])


def _is_absolute(span: Span, said_us: int) -> bool:
    """Whether the words mean the same whenever they are said."""
    again = read_text(span.text, said_us + _ANOTHER_MOMENT)
    return len(again) == 1 and (again[0].start, again[0].end) == (span.start, span.end)


def _dates(span: Span) -> str:
    first, last = (from_micros(us).isoformat() for us in (span.start, span.end - 1))
    if span.precision == "hour" and span.end - span.start <= _HOUR:
        return f"{first[:10]} {first[11:16]}"
    if span.precision in ("year", "month"):
        return first[: 4 if span.precision == "year" else 7]
    return first[:10] if first[:10] == last[:10] else f"{first[:10]} to {last[:10]}"
