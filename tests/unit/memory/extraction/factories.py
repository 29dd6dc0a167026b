"""Windows, answers and atoms to test with."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tellback.memory.extraction.values import ExtractedFact, Question, Window
from tellback.types.access import Scope
from tellback.types.blocks import as_blocks
from tellback.types.conversations import Conversation, StoredMessage
from tellback.types.memory import Atom, Category, CategoryKind

NOW = datetime(2026, 3, 5, 14, 2, tzinfo=UTC)
SCOPE = Scope("default", "default", "maya")


def make_conversation(**metadata: Any) -> Conversation:
    return Conversation("conv_1", SCOPE, "chat", "open", NOW, NOW, metadata=metadata)


def make_message(seq: int, role: str, content: Any, **fields: Any) -> StoredMessage:
    created_at = fields.pop("at", NOW)
    return StoredMessage(f"msg_{seq}", "conv_1", seq, f"turn_{seq}", role, as_blocks(content), created_at, **fields)


def make_window(*texts: str, first: int = 1, version: str = "v1", before: tuple[StoredMessage, ...] = ()) -> Window:
    """Build a window in which the user and the assistant take turns, the user first."""
    roles = ("user", "assistant")
    messages = tuple(make_message(first + place, roles[place % 2], text) for place, text in enumerate(texts))
    return Window(make_conversation(), messages, before, version)


def fact_output(text: str = "User lives in Lisbon.", **fields: Any) -> dict[str, Any]:
    """Build a fact of a model's output."""
    return {"messages": ["m1"], "text": text, "kind": "FACT", **fields}


def make_atom(id: str, text: str, **fields: Any) -> Atom:
    since = fields.pop("valid_from", datetime(2025, 1, 1, tzinfo=UTC))
    return Atom(id, "ms_1", SCOPE, text, Category("home", CategoryKind.FACT), since, NOW, NOW, **fields)


def make_question(text: str, *candidates: Atom, **fields: Any) -> Question:
    return Question(ExtractedFact(text, Category("home", CategoryKind.FACT), ("msg_1",), **fields), candidates)
