"""A chat while it is read: its messages so far, and what was left out of it."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import replace
from datetime import datetime
from typing import Any

from tellback.importing.fields import parse_short_text
from tellback.importing.values import ImportedChat, ImportedMessage

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

    def add(self, message: ImportedMessage) -> None:
        """The next message."""
        if len(message.text) > MAX_TEXT_LENGTH:
            self.leave_out(LEFT_OUT_OVERLONG)
            message = replace(message, text=message.text[:MAX_TEXT_LENGTH])
        if message.created_at is None:
            message = replace(message, created_at=self._last_time)
        self._last_time = message.created_at
        self._messages.append(message)

    def build(self, id: Any, title: Any, raw: Any = None) -> ImportedChat:
        """The chat; one whose export has no id for it is known by what is in it."""
        chat_id = parse_short_text(id, MAX_ID_LENGTH) or f"sha256:{_digest_json(raw)}"
        messages = tuple(self._messages)
        return ImportedChat(
            self._source,
            chat_id,
            parse_short_text(title, MAX_TITLE_LENGTH),
            messages,
            self._created_at,
            dict(self._left_out),
        )


def _digest_json(raw: Any) -> str:
    return hashlib.sha256(json.dumps(raw, sort_keys=True).encode()).hexdigest()[:32]
