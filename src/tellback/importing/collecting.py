"""A chat while it is read: its messages so far, and what was left out of it."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import replace
from datetime import datetime
from typing import Any

from tellback.importing.fields import short
from tellback.importing.values import ImportedChat, ImportedMessage

LONGEST_TEXT = 500_000
"""How many characters of a message are kept: servers take no larger requests, and no book is a message."""

TITLE_LENGTH, ID_LENGTH, MODEL_LENGTH = 1_000, 2_000, 200

BRANCH = "on a branch that was not shown"
CALL = "a call of a tool"
CUT_OFF = f"past {LONGEST_TEXT:,} characters of a message"
EMPTY = "empty"
MISSING_PARENT = "missing before the first one that is there"
REPEATED = "in another file of the export as well"
RESULT = "what a tool gave"
THINKING = "what the model thought"
UNKNOWN = "of an unknown role"


class Collecting:
    """Messages as they come; one that tells no time was said when the one before it was."""

    def __init__(self, source: str, created_at: datetime | None) -> None:
        self._source = source
        self._created_at = created_at
        self._at = created_at
        self._messages: list[ImportedMessage] = []
        self._left_out: Counter[str] = Counter()

    def leave_out(self, reason: str, count: int = 1) -> None:
        """Count what does not become a message."""
        if count:
            self._left_out[reason] += count

    def add(self, message: ImportedMessage) -> None:
        """The next message."""
        if len(message.text) > LONGEST_TEXT:
            self.leave_out(CUT_OFF)
            message = replace(message, text=message.text[:LONGEST_TEXT])
        if message.created_at is None:
            message = replace(message, created_at=self._at)
        self._at = message.created_at
        self._messages.append(message)

    def chat(self, id: Any, title: Any, raw: Any = None) -> ImportedChat:
        """The chat; one whose export has no id for it is known by what is in it."""
        told = short(id, ID_LENGTH) or f"sha256:{_digest(raw)}"
        messages = tuple(self._messages)
        return ImportedChat(
            self._source, told, short(title, TITLE_LENGTH), messages, self._created_at, dict(self._left_out)
        )


def _digest(raw: Any) -> str:
    return hashlib.sha256(json.dumps(raw, sort_keys=True).encode()).hexdigest()[:32]
