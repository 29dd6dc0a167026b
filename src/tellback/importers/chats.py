"""The values of an import, and the chat builder and field parsers shared by all formats."""

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
"""Keys are limited to 500 characters, and a suffix may be appended."""

EARLIEST_TIME, MAX_AHEAD = datetime(1990, 1, 1, tzinfo=UTC), timedelta(days=1)
"""Times outside this range are errors in the export and are ignored: memories would get wrong dates."""

MIN_EPOCH_MILLISECONDS = 100_000_000_000
"""Epoch numbers from here on are milliseconds: as seconds, they would be thousands of years in the future."""

_EPOCH_NUMBER = re.compile(r"-?\d+(\.\d+)?")

MAX_TEXT_LENGTH = 500_000
"""Longer messages are truncated to this many characters, because of the request size limit of servers."""

MAX_TITLE_LENGTH, MAX_ID_LENGTH, MAX_MODEL_LENGTH = 1_000, 2_000, 200

LEFT_OUT_BRANCH = "not on the branch shown last"
LEFT_OUT_TOOL_CALL = "tool call"
LEFT_OUT_OVERLONG = f"truncated to {MAX_TEXT_LENGTH:,} characters"
LEFT_OUT_EMPTY = "empty"
LEFT_OUT_MISSING_PARENT = "parent message missing in the export"
LEFT_OUT_REPEATED = "repeated in another file of the export"
LEFT_OUT_TOOL_RESULT = "tool result"
LEFT_OUT_THINKING = "model reasoning"
LEFT_OUT_UNKNOWN_ROLE = "unknown role"


@dataclass(frozen=True, slots=True)
class ImportedMessage:
    """A message of an imported chat.

    `role` is "user", "assistant" or "system". `id` is the message's id in the export. `visibility` is "internal" for
    messages that the person did not see.

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
    """A chat of an export: the messages of the branch shown last, in order.

    `source` is the format, and `id` is the chat's id in the export. `left_out` counts what was omitted, by reason.

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
        """The start of the chat: the time in the export, or the time of the first message."""
        times = (message.created_at for message in self.messages if message.created_at is not None)
        return self.created_at or min(times, default=None)

    @property
    def ended_at(self) -> datetime | None:
        """The time of the last message, or the start of the chat if no message has a time."""
        times = (message.created_at for message in self.messages if message.created_at is not None)
        return max(times, default=self.created_at)

    @property
    def keys(self) -> tuple[str, ...]:
        """A unique key for each message, which identifies it in later imports."""
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
        """A digest of the messages and their order."""
        return digest_texts(*self.keys)

    @property
    def session_id(self) -> str:
        """The session id of the chat's conversations."""
        name = f"{self.source}:{self.id}"
        return name if len(name) <= _MAX_KEY_LENGTH else f"{self.source}:sha256:{digest_texts(self.id)}"


@dataclass(frozen=True, slots=True)
class ImportProgress:
    """The progress of an import: `done` of `total` chats have finished the `stage`.

    >>> import asyncio, pathlib, tempfile
    >>> from tellback import Tellback
    >>> from tellback.importers import import_chats
    >>> async def main():
    ...     with tempfile.TemporaryDirectory() as folder:
    ...         file = pathlib.Path(folder, "chats.jsonl")
    ...         file.write_text('{"role": "user", "content": "I moved to Lisbon."}')
    ...         async with Tellback(":memory:") as tb:
    ...             steps = []
    ...             await import_chats(tb.user("maya"), file, extract=False, on_progress=steps.append)
    ...             return steps
    >>> asyncio.run(main())[-1]
    ImportProgress(stage='importing', done=1, total=1, messages=1)
    """

    stage: Stage
    done: int
    total: int
    messages: int = 0


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The result of an import. `str(report)` describes it in sentences.

    `chats` and `messages` count the imported ones. `continued` of these chats had been imported before and had new
    messages; `already_there` chats had none. `skipped` counts chats that were not imported, and `left_out` counts
    omitted or truncated messages of imported chats, by reason; some formats also count omitted parts of messages.
    `memories` counts the extracted memories, and `failed_jobs` and `waiting_jobs` the extraction jobs that failed or
    are not done yet.

    >>> import asyncio, pathlib, tempfile
    >>> from tellback import Tellback
    >>> from tellback.importers import import_chats
    >>> async def main():
    ...     with tempfile.TemporaryDirectory() as folder:
    ...         file = pathlib.Path(folder, "chats.jsonl")
    ...         file.write_text('{"role": "user", "content": "I moved to Lisbon."}')
    ...         async with Tellback(":memory:") as tb:
    ...             return await import_chats(tb.user("maya"), file, dry_run=True)
    >>> report = asyncio.run(main())
    >>> report.chats, report.messages, str(report)
    (1, 1, 'Would import 1 chat with 1 message.')
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
        verb = "Would import" if self.dry_run else "Imported"
        sentences = [f"{verb} {_pluralize(self.chats, 'chat')} with {_pluralize(self.messages, 'message')}"]
        if self.continued:
            sentences.append(f"{self.continued} of them had new messages since an earlier import")
        if self.already_there:
            sentences.append(f"{_pluralize(self.already_there, 'chat')} already imported")
        skipped, left_out = sorted(self.skipped.items()), sorted(self.left_out.items())
        sentences += [f"Skipped {_pluralize(count, 'chat')}: {reason}" for reason, count in skipped]
        for reason, count in left_out:
            messages = _pluralize(count, "message")
            sentences.append(
                f"{messages} {reason}" if reason == LEFT_OUT_OVERLONG else f"Left out {messages}: {reason}"
            )
        if self.memories:
            sentences.append(f"Extracted {self.memories} {'memory' if self.memories == 1 else 'memories'}")
        if self.failed_jobs:
            sentences.append(f"{_pluralize(self.failed_jobs, 'extraction job')} failed")
        if self.waiting_jobs:
            sentences.append(f"{_pluralize(self.waiting_jobs, 'extraction job')} not finished yet")
        return ". ".join(sentences) + "."


def digest_texts(*texts: str) -> str:
    """Return a digest of the texts and their order."""
    hasher = hashlib.sha256()
    for text in texts:
        encoded = text.encode(errors="surrogatepass")
        hasher.update(f"{len(encoded)}:".encode() + encoded)
    return hasher.hexdigest()[:32]


def _pluralize(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def parse_time(value: Any) -> datetime | None:
    """Parse an ISO 8601 time (UTC if it has no time zone) or an epoch number; return None for anything else.

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
    """Return a text without characters that a database cannot store; empty if the value is not a text."""
    return make_storable(value).strip() if isinstance(value, str) else ""


def parse_short_text(value: Any, length: int) -> str | None:
    """Return a truncated text, or None if it is empty."""
    return parse_text(value)[:length].strip() or None


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is an object, otherwise an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return the value if it is a list, otherwise an empty one."""
    return value if isinstance(value, list) else []


def first_field(value: Mapping[str, Any], *names: str) -> Any:
    """Return the first of these fields that is not empty."""
    return next((value[field] for field in names if value.get(field) not in (None, "", [], {})), None)


def find_newest(times: Iterable[tuple[K, Any]]) -> K | None:
    """Return the key of the latest time. Among equal or missing times, the last one wins."""

    def timestamp(entry: tuple[K, Any]) -> float:
        time = parse_time(entry[1])
        return 0.0 if time is None else time.timestamp()

    newest = max(reversed(list(times)), key=timestamp, default=None)
    return None if newest is None else newest[0]


def file_placeholder(name: Any) -> str:
    """Return the placeholder for an attached file.

    >>> file_placeholder("report.pdf"), file_placeholder(None)
    ('[file: report.pdf]', '[file]')
    """
    short_name = parse_short_text(name, 200)
    return f"[file: {' '.join(short_name.split())}]" if short_name else "[file]"


class ChatBuilder:
    """Collects the messages of a chat. A message without a time gets the time of the previous one."""

    def __init__(self, source: str, created_at: datetime | None) -> None:
        self._source = source
        self._created_at = created_at
        self._last_time = created_at
        self._messages: list[ImportedMessage] = []
        self._left_out: Counter[str] = Counter()

    def leave_out(self, reason: str, count: int = 1) -> None:
        """Count omitted messages or parts of messages."""
        if count:
            self._left_out[reason] += count

    def add(
        self, role: str, text: str, time: Any, id: Any, model: Any = None, provider: Any = None, *, hidden: bool = False
    ) -> None:
        """Add the next message, with raw fields of the export. Only answers get a model and a provider."""
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
        """Return the chat. Without an id in the export, its id is a digest of its content."""
        chat_id = parse_short_text(id, MAX_ID_LENGTH) or f"sha256:{_digest_json(raw)}"
        short_title, messages = parse_short_text(title, MAX_TITLE_LENGTH), tuple(self._messages)
        return ImportedChat(self._source, chat_id, short_title, messages, self._created_at, dict(self._left_out))


def _digest_json(raw: Any) -> str:
    return hashlib.sha256(json.dumps(raw, sort_keys=True).encode()).hexdigest()[:32]
