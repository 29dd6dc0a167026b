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
        times = [message.created_at for message in self.messages if message.created_at is not None]
        return self.created_at or (min(times) if times else None)

    @property
    def ended_at(self) -> datetime | None:
        """When something was last said in it."""
        times = [message.created_at for message in self.messages if message.created_at is not None]
        return max(times) if times else self.created_at

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
        sentences += [
            f"left out {_pluralize(count, 'message')}: {reason}" for reason, count in sorted(self.left_out.items())
        ]
        if self.memories:
            sentences.append(f"{self.memories} {'memory' if self.memories == 1 else 'memories'} made")
        if self.failed_jobs:
            sentences.append(f"{_pluralize(self.failed_jobs, 'job')} failed that should have made memories")
        if self.waiting_jobs:
            sentences.append(f"{_pluralize(self.waiting_jobs, 'job')} still to make memories")
        return ". ".join(sentence[0].upper() + sentence[1:] for sentence in sentences) + "."


_MAX_KEY_LENGTH = 400
"""Keys may have 500 characters, and a number may follow."""


def digest_texts(*texts: str) -> str:
    """The same for the same texts in the same order, and for no others."""

    def update_hash(hasher: hashlib._Hash, text: str) -> hashlib._Hash:
        encoded = text.encode(errors="surrogatepass")
        hasher.update(f"{len(encoded)}:".encode() + encoded)
        return hasher

    return reduce(update_hash, texts, hashlib.sha256()).hexdigest()[:32]


def _pluralize(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
