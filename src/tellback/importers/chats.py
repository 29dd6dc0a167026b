"""Imported chats: the values, and the builder and field parsers that all formats share."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar

from tellback.types.ids import utc_now
from tellback.types.jsontext import make_storable

K = TypeVar("K")

Format = Literal["auto", "chatgpt", "claude", "jsonl"]
FORMATS: tuple[Format, ...] = ("auto", "chatgpt", "claude", "jsonl")
Stage = Literal["reading", "importing", "remembering"]

_MAX_KEY_LENGTH = 400
"""Keys may have 500 characters, and a number may follow."""

EARLIEST_TIME, MAX_AHEAD = datetime(1990, 1, 1, tzinfo=UTC), timedelta(days=1)
"""A time before the one, or further ahead than the other, is a mistake, and would date memories by it."""

MIN_EPOCH_MILLISECONDS = 100_000_000_000
"""Seconds since 1970 have not come so far; whoever writes such a number counts milliseconds."""

_EPOCH_NUMBER = re.compile(r"-?\d+(\.\d+)?")

MAX_TEXT_LENGTH = 500_000
"""How many characters of a message are kept: servers take no larger requests, and no book is a message."""

MAX_TITLE_LENGTH, MAX_ID_LENGTH, MAX_MODEL_LENGTH = 1_000, 2_000, 200

LEFT_OUT_BRANCH = "on a branch that was not shown"
LEFT_OUT_TOOL_CALL = "a call of a tool"
LEFT_OUT_OVERLONG = f"past {MAX_TEXT_LENGTH:,} characters of a message"
LEFT_OUT_EMPTY = "empty"
LEFT_OUT_MISSING_PARENT = "missing before the first one that is there"
LEFT_OUT_REPEATED = "in another file of the export as well"
LEFT_OUT_TOOL_RESULT = "what a tool gave"
LEFT_OUT_THINKING = "what the model thought"
LEFT_OUT_UNKNOWN_ROLE = "of an unknown role"


@dataclass(frozen=True, slots=True)
class ImportedMessage:
    """A message of a chat that took place elsewhere.

    `role` is "user", "assistant" or "system". `id` is what the export calls it. `visibility` is "internal" for what
    the person did not see.

    >>> ImportedMessage("user", "I moved to Lisbon.").text
    'I moved to Lisbon.'
    """

    role: str
    text: str
    created_at: datetime | None = None
    id: str | None = None
    model: str | None = None
    provider: str | None = None
    visibility: str = "user"


@dataclass(frozen=True, slots=True)
class ImportedChat:
    """A chat as an export tells it: the branch that was shown last, in order.

    `source` is the format, `id` what the export calls the chat. `left_out` counts messages that are not among
    `messages`, by reason.

    >>> chat = ImportedChat("jsonl", "c1", None, (ImportedMessage("user", "Hi"), ImportedMessage("user", "Hi")))
    >>> len(set(chat.keys))
    2
    """

    source: str
    id: str
    title: str | None
    messages: tuple[ImportedMessage, ...]
    created_at: datetime | None = None
    left_out: Mapping[str, int] = field(default_factory=dict, hash=False)

    @property
    def began_at(self) -> datetime | None:
        """When it began: what the export says, or else its first message."""
        times = (message.created_at for message in self.messages if message.created_at is not None)
        return self.created_at or min(times, default=None)

    @property
    def ended_at(self) -> datetime | None:
        """When something was last said in it."""
        times = (message.created_at for message in self.messages if message.created_at is not None)
        return max(times, default=self.created_at)

    @property
    def keys(self) -> tuple[str, ...]:
        """What each message is known by when the chat is imported again; no two are alike."""
        counts: Counter[str] = Counter()
        keys: dict[str, None] = {}
        for message in self.messages:
            base_key = message.id or f"sha256:{digest_texts(message.role, message.text)}"
            key = base_key = base_key if len(base_key) <= _MAX_KEY_LENGTH else f"sha256:{digest_texts(base_key)}"
            counts[base_key] += 1
            while key in keys:
                key = f"{base_key}#{counts[base_key]}"
                counts[base_key] += key in keys
            keys[key] = None
        return tuple(keys)

    @property
    def digest(self) -> str:
        """The same for the same messages in the same order."""
        return digest_texts(*self.keys)

    @property
    def session_id(self) -> str:
        """What its conversations are found by."""
        name = f"{self.source}:{self.id}"
        return name if len(name) <= _MAX_KEY_LENGTH else f"{self.source}:sha256:{digest_texts(self.id)}"


@dataclass(frozen=True, slots=True)
class ImportProgress:
    """How far an import is: `done` of `total` chats are read, imported, or have become memories, as `stage` says."""

    stage: Stage
    done: int
    total: int
    messages: int = 0


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What came of an import. `str(report)` tells it in sentences.

    `chats` and `messages` were imported; `continued` of these chats were there, and had grown. `already_there` chats
    had nothing new. `skipped` counts chats that were not imported, and `left_out` messages of those that were, by
    reason. `memories` were made of it; `failed_jobs` conversations, or parts of them, could not be read for memories,
    and `waiting_jobs` are still to be.
    """

    format: str
    chats: int = 0
    messages: int = 0
    continued: int = 0
    already_there: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict, hash=False)
    left_out: Mapping[str, int] = field(default_factory=dict, hash=False)
    memories: int = 0
    failed_jobs: int = 0
    waiting_jobs: int = 0
    dry_run: bool = False

    def __str__(self) -> str:
        outcome = "would be imported" if self.dry_run else "imported"
        sentences = [f"{_pluralize(self.chats, 'chat')} with {_pluralize(self.messages, 'message')} {outcome}"]
        if self.continued:
            sentences.append(f"{self.continued} of them had been imported before, and had grown since")
        if self.already_there:
            sentences.append(f"{_pluralize(self.already_there, 'chat')} had been imported before, and had nothing new")
        sentences += [f"skipped {count}: {reason}" for reason, count in sorted(self.skipped.items())]
        left_out = sorted(self.left_out.items())
        sentences += [f"left out {_pluralize(count, 'message')}: {reason}" for reason, count in left_out]
        if self.memories:
            sentences.append(f"{self.memories} {'memory' if self.memories == 1 else 'memories'} made")
        if self.failed_jobs:
            sentences.append(f"{_pluralize(self.failed_jobs, 'job')} failed that should have made memories")
        if self.waiting_jobs:
            sentences.append(f"{_pluralize(self.waiting_jobs, 'job')} still to make memories")
        return ". ".join(sentence[0].upper() + sentence[1:] for sentence in sentences) + "."


def digest_texts(*texts: str) -> str:
    """The same for the same texts in the same order, and for no others."""
    hasher = hashlib.sha256()
    for text in texts:
        encoded = text.encode(errors="surrogatepass")
        hasher.update(f"{len(encoded)}:".encode() + encoded)
    return hasher.hexdigest()[:32]


def _pluralize(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def parse_time(value: Any) -> datetime | None:
    """A time, as ISO 8601 (UTC if it says no timezone) or as a number since 1970; None for what is none.

    >>> parse_time(1_700_000_000.5).isoformat()
    '2023-11-14T22:13:20.500000+00:00'
    >>> parse_time("2024-05-01 10:00:00").isoformat()
    '2024-05-01T10:00:00+00:00'
    >>> parse_time(float("nan")) is None
    True
    """
    try:
        if isinstance(value, str):
            text = value.strip()
            parsed = _from_epoch(float(text)) if _EPOCH_NUMBER.fullmatch(text) else datetime.fromisoformat(text)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            parsed = _from_epoch(value)
        else:
            return None
        parsed = parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return parsed if EARLIEST_TIME <= parsed < utc_now() + MAX_AHEAD else None


def _from_epoch(number: float) -> datetime:
    if not math.isfinite(number):
        raise ValueError("not a time")
    seconds = number / 1_000 if abs(number) >= MIN_EPOCH_MILLISECONDS else number
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


def parse_text(value: Any) -> str:
    """A text, without what no database can hold; nothing for what is none."""
    return make_storable(value).strip() if isinstance(value, str) else ""


def parse_short_text(value: Any, length: int) -> str | None:
    """A text of a bounded length, or None if there is none."""
    return parse_text(value)[:length].strip() or None


def as_mapping(value: Any) -> Mapping[str, Any]:
    """An object, empty if it is none."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """A list, empty if it is none."""
    return value if isinstance(value, list) else []


def first_field(value: Mapping[str, Any], *names: str) -> Any:
    """The first of these fields that holds something."""
    return next((value[field] for field in names if value.get(field) not in (None, "", [], {})), None)


def find_newest(times: Iterable[tuple[K, Any]]) -> K | None:
    """The key of the latest time; of those that are as late, or where none tells its time, the last."""

    def timestamp(entry: tuple[K, Any]) -> float:
        time = parse_time(entry[1])
        return 0.0 if time is None else time.timestamp()

    newest = max(reversed(list(times)), key=timestamp, default=None)
    return None if newest is None else newest[0]


def file_placeholder(name: Any) -> str:
    """The place of a file that was sent along.

    >>> file_placeholder("report.pdf"), file_placeholder(None)
    ('[file: report.pdf]', '[file]')
    """
    short_name = parse_short_text(name, 200)
    return f"[file: {' '.join(short_name.split())}]" if short_name else "[file]"


class ChatBuilder:
    """Messages as they come; one that tells no time was said when the one before it was."""

    def __init__(self, source: str, created_at: datetime | None) -> None:
        self._source = source
        self._created_at = created_at
        self._last_time = created_at
        self._messages: list[ImportedMessage] = []
        self._left_out: Counter[str] = Counter()

    def leave_out(self, reason: str, count: int = 1) -> None:
        """Count what does not become a message."""
        if count:
            self._left_out[reason] += count

    def add(
        self, role: str, text: str, time: Any, id: Any, model: Any = None, provider: Any = None, *, hidden: bool = False
    ) -> None:
        """Add the next message, with fields as the export has them. Only an answer has a model and a provider."""
        if not text:
            self.leave_out(LEFT_OUT_EMPTY)
            return
        if len(text) > MAX_TEXT_LENGTH:
            self.leave_out(LEFT_OUT_OVERLONG)
        self._last_time = parse_time(time) or self._last_time
        is_answer = role == "assistant"
        self._messages.append(
            ImportedMessage(
                role,
                text[:MAX_TEXT_LENGTH],
                self._last_time,
                parse_short_text(id, MAX_ID_LENGTH),
                parse_short_text(model, MAX_MODEL_LENGTH) if is_answer else None,
                parse_short_text(provider, MAX_MODEL_LENGTH) if is_answer else None,
                "internal" if hidden else "user",
            )
        )

    def build(self, id: Any, title: Any, raw: Any = None) -> ImportedChat:
        """The chat; one whose export has no id for it is known by what is in it."""
        chat_id = parse_short_text(id, MAX_ID_LENGTH) or f"sha256:{_digest_json(raw)}"
        short_title, messages = parse_short_text(title, MAX_TITLE_LENGTH), tuple(self._messages)
        return ImportedChat(self._source, chat_id, short_title, messages, self._created_at, dict(self._left_out))


def _digest_json(raw: Any) -> str:
    return hashlib.sha256(json.dumps(raw, sort_keys=True).encode()).hexdigest()[:32]
