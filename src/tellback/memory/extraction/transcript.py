"""Windows and questions rendered for a model: one line per message or fact, which no text inside can forge."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tellback.chat.offline import is_offline
from tellback.memory.extraction.values import Change, Question, Window
from tellback.memory.recall.dates.calendar import DAY, HOUR, TimeSpan
from tellback.memory.recall.dates.parser import parse_time_spans
from tellback.memory.templates import sanitize_line, sanitize_text
from tellback.types.blocks import TextBlock
from tellback.types.conversations import Conversation, StoredMessage
from tellback.types.ids import from_micros, to_micros
from tellback.types.jsontext import make_storable
from tellback.types.memory import Atom, CategoryKind

DEFAULT_SPEAKERS = {"user": "User", "assistant": "Assistant"}
"""The roles whose messages are shown, and their names unless the conversation's metadata has others."""

MAX_MESSAGE_LENGTH = 8_000
"""How many characters of a message are shown; a longer one is cut in the middle."""

MAX_SPEAKER_LENGTH = 80
TRUNCATION_MARK = " […] "

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
# The date parser recognizes bare years up to ten years ahead, so this offset is larger.
_LATER = 4_019 * DAY

MAX_QUESTION_TEXT = 2_000

_CHANGE_NOTES = {Change.NONE: "", Change.CHANGED: " (the user says it changed)", Change.CORRECTED: " (a correction)"}


def speaker_names(conversation: Conversation) -> dict[str, str]:
    """Return the speaker's name per role. The metadata comes from the user, so invalid names are ignored."""
    configured = conversation.metadata.get("speakers")
    named = configured if isinstance(configured, Mapping) else {}
    one_line = {role: " ".join(make_storable(name).split()) for role, name in named.items() if isinstance(name, str)}
    return DEFAULT_SPEAKERS | {role: name for role, name in one_line.items() if name}


def is_extractable(message: StoredMessage) -> bool:
    """Whether memories can be extracted from a message: the user saw it, and it is not from the offline model.

    The offline model quotes memories, which would otherwise be stored again and again.
    """
    return message.role in DEFAULT_SPEAKERS and message.visibility == "user" and not is_offline(message.model)


@dataclass(frozen=True, slots=True)
class TranscriptLine:
    """A message that can be cited: its id in the transcript, and its text as shown."""

    id: str
    message: StoredMessage
    words: str

    @property
    def is_from_user(self) -> bool:
        return self.message.role == "user"


@dataclass(frozen=True, slots=True)
class Transcript:
    """A window as text, and its messages by the ids with which they are cited."""

    text: str
    lines: Mapping[str, TranscriptLine]

    @property
    def has_user_messages(self) -> bool:
        return any(line.is_from_user for line in self.lines.values())


def render_transcript(window: Window) -> Transcript:
    """Render a window as data for a model.

    Each message is one line: its id, time and speaker, and its text as a JSON string. The messages before the window
    are in a separate section and have no ids.
    """
    names = _speaker_labels(window)
    lines = {line.id: line for line in _lines(window.messages)}
    record = [f"{id} | {_line_header(line.message, names)}: {quote_json(line.words)}" for id, line in lines.items()]
    before = [f"- | {_line_header(line.message, names)}: {quote_json(line.words)}" for line in _lines(window.before)]
    parts = [_wrap_in_tag("before", before)] if before else []
    return Transcript("\n".join([*parts, _wrap_in_tag("record", record)]), lines)


def visible_text(message: StoredMessage) -> str:
    """Return the text of a message without tool output and parts that the user could not see."""
    if not is_extractable(message):
        return ""
    return "\n\n".join(block.text for block in message.content if isinstance(block, TextBlock) and block.text)


def quote_json(text: str) -> str:
    """Return the text as a JSON string on one line, which cannot close the surrounding tag."""
    return escape_closing_tags(json.dumps(text, ensure_ascii=False))


def escape_closing_tags(text: str) -> str:
    """Escape closing tags, so that the text cannot close the surrounding tag."""
    return text.replace("</", "<\\/")


def truncate_middle(text: str, limit: int) -> str:
    """Cut a text in the middle if it is longer than `limit`.

    >>> truncate_middle("from the beginning to the end", 15)
    'from  […] e end'
    """
    if len(text) <= limit:
        return text
    half = (limit - len(TRUNCATION_MARK)) // 2
    return text[:half] + TRUNCATION_MARK + text[-half:]


def annotate_dates(text: str, said_at: datetime) -> str:
    """Add the dates of relative time expressions to a text.

    >>> annotate_dates("We met yesterday, and on 8 May 2023.", datetime(2026, 3, 5, tzinfo=UTC))
    'We met yesterday [2026-03-04], and on 8 May 2023.'
    """
    said_us = to_micros(said_at)
    pieces, position = [], 0
    for span in parse_time_spans(text, said_us):
        found = re.compile(rf"(?<!\w){re.escape(span.text)}(?!\w)").search(text, position)
        if found is None:
            continue
        pieces.append(text[position : found.end()])
        position = found.end()
        if not _is_absolute(span, said_us):
            pieces.append(f" [{_format_span(span)}]")
    return "".join([*pieces, text[position:]])


def _lines(messages: Iterable[StoredMessage]) -> Iterable[TranscriptLine]:
    for message in messages:
        words = sanitize_text(visible_text(message)).strip()
        if words:
            yield TranscriptLine(
                f"m{message.seq}",
                message,
                annotate_dates(truncate_middle(words, MAX_MESSAGE_LENGTH), message.created_at),
            )


def _speaker_labels(window: Window) -> dict[str, str]:
    """Return the label of each role's lines. A custom name is followed by the role."""
    named = speaker_names(window.conversation)
    labels = {}
    for role, default in DEFAULT_SPEAKERS.items():
        name = sanitize_line(named[role])[:MAX_SPEAKER_LENGTH].strip()
        labels[role] = default if not name or name == default else f"{escape_closing_tags(name)} ({role})"
    return labels


def _line_header(message: StoredMessage, names: Mapping[str, str]) -> str:
    at = message.created_at.astimezone(UTC)
    return f"{_WEEKDAYS[at.weekday()]} {at.isoformat(' ')[:16]} | {names[message.role]}"


def _wrap_in_tag(tag: str, lines: Iterable[str]) -> str:
    return "\n".join([f"<{tag}>", *lines, f"</{tag}>"])


def _is_absolute(span: TimeSpan, said_us: int) -> bool:
    """Whether the words mean the same time regardless of when they were said."""
    reread = parse_time_spans(span.text, said_us + _LATER)
    return len(reread) == 1 and (reread[0].start, reread[0].end) == (span.start, span.end)


def _format_span(span: TimeSpan) -> str:
    first, last = (from_micros(us).isoformat() for us in (span.start, span.end - 1))
    if span.precision == "hour" and span.end - span.start <= HOUR:
        return f"{first[:10]} {first[11:16]}"
    if span.precision in ("year", "month"):
        return first[: 4 if span.precision == "year" else 7]
    return first[:10] if first[:10] == last[:10] else f"{first[:10]} to {last[:10]}"


def render_questions(questions: Sequence[Question]) -> str:
    """Render questions as data for a model: facts and candidates, each on a line with its number."""
    lines = ["<questions>"]
    for number, question in enumerate(questions, 1):
        fact = question.fact
        lines.append(
            f"fact {number} | {_format_start(question)}{_CHANGE_NOTES[fact.change]} | {_quote_text(fact.text)}"
        )
        lines.extend(
            f"  candidate {position} | {_format_period(atom)} | {_quote_text(atom.text)}"
            for position, atom in enumerate(question.candidates, 1)
        )
    return "\n".join([*lines, "</questions>"])


def _format_start(question: Question) -> str:
    if question.fact.valid_from is not None:
        return _format_day(question.fact.valid_from)
    return "unknown" if question.valid_from is None else f"stated on {_format_day(question.valid_from)}"


def _format_period(atom: Atom) -> str:
    if atom.category.kind is CategoryKind.EPISODE and atom.valid_to is None:
        return f"on {_format_day(atom.valid_from)}"
    until = f"to {_format_day(atom.valid_to)}" if atom.valid_to else "until now"
    return f"from {_format_day(atom.valid_from)} {until}"


def _format_day(moment: datetime) -> str:
    return moment.isoformat()[:10]


def _quote_text(text: str) -> str:
    return quote_json(truncate_middle(sanitize_text(text), MAX_QUESTION_TEXT))
