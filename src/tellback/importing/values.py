"""The values of an import: chats as they were read, how far it is, and what came of it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from typing import Literal

Format = Literal["auto", "chatgpt", "claude", "jsonl"]
FORMATS: tuple[Format, ...] = ("auto", "chatgpt", "claude", "jsonl")
Stage = Literal["reading", "importing", "remembering"]


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
        times = [each.created_at for each in self.messages if each.created_at is not None]
        return self.created_at or (min(times) if times else None)

    @property
    def ended_at(self) -> datetime | None:
        """When something was last said in it."""
        times = [each.created_at for each in self.messages if each.created_at is not None]
        return max(times) if times else self.created_at

    @property
    def keys(self) -> tuple[str, ...]:
        """What each message is known by when the chat is imported again; no two are alike."""
        times: Counter[str] = Counter()
        found: dict[str, None] = {}
        for message in self.messages:
            told = message.id or f"sha256:{digest(message.role, message.text)}"
            key = told = told if len(told) <= _KEY_LENGTH else f"sha256:{digest(told)}"
            times[told] += 1
            while key in found:
                key = f"{told}#{times[told]}"
                times[told] += key in found
            found[key] = None
        return tuple(found)

    @property
    def digest(self) -> str:
        """The same for the same messages in the same order."""
        return digest(*self.keys)

    @property
    def session_id(self) -> str:
        """What its conversations are found by."""
        name = f"{self.source}:{self.id}"
        return name if len(name) <= _KEY_LENGTH else f"{self.source}:sha256:{digest(self.id)}"


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
        done = "would be imported" if self.dry_run else "imported"
        told = [f"{_many(self.chats, 'chat')} with {_many(self.messages, 'message')} {done}"]
        if self.continued:
            told.append(f"{self.continued} of them had been imported before, and had grown since")
        if self.already_there:
            told.append(f"{_many(self.already_there, 'chat')} had been imported before, and had nothing new")
        told += [f"skipped {count}: {reason}" for reason, count in sorted(self.skipped.items())]
        told += [f"left out {_many(count, 'message')}: {reason}" for reason, count in sorted(self.left_out.items())]
        if self.memories:
            told.append(f"{self.memories} {'memory' if self.memories == 1 else 'memories'} made")
        if self.failed_jobs:
            told.append(f"{_many(self.failed_jobs, 'job')} failed that should have made memories")
        if self.waiting_jobs:
            told.append(f"{_many(self.waiting_jobs, 'job')} still to make memories")
        return ". ".join(each[0].upper() + each[1:] for each in told) + "."


_KEY_LENGTH = 400
"""Keys may have 500 characters, and a number may follow."""


def digest(*texts: str) -> str:
    """The same for the same texts in the same order, and for no others."""

    def fed(hashed: hashlib._Hash, text: str) -> hashlib._Hash:
        encoded = text.encode(errors="surrogatepass")
        hashed.update(f"{len(encoded)}:".encode() + encoded)
        return hashed

    return reduce(fed, texts, hashlib.sha256()).hexdigest()[:32]


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
