"""A conversation and a memory as lists, to build contexts from."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast

from tellback.errors import NotFoundError
from tellback.memory.memory import Memory
from tellback.memory.recall_service import RecallRequest
from tellback.memory.working_context import WorkingContextBuilder
from tellback.types.access import Scope
from tellback.types.blocks import as_blocks
from tellback.types.conversations import Conversation, StoredMessage
from tellback.types.ids import from_micros
from tellback.types.memory import Atom, Category, MemorySpace, RecallHit, RecallMode, RecallResult, WorkingContext

SCOPE = Scope("default", "default", "maya")
NOW = datetime(2026, 11, 16, 9, tzinfo=UTC)


class FakeConversations:
    """One conversation as a list."""

    def __init__(self, messages: Sequence[StoredMessage] = (), summary: str | None = None) -> None:
        self.stored = list(messages)
        self.conversation = Conversation("conv_1", SCOPE, "chat", "open", NOW, NOW, rolling_summary=summary)
        self.reads = 0

    async def get(self, id: str) -> Conversation | None:
        return self.conversation if id == "conv_1" else None

    async def raw_turns(self, id: str, limit: int | None = None, before: int | None = None) -> list[StoredMessage]:
        assert limit
        self.reads += 1
        return [m for m in self.stored if m.visibility != "hidden" and (before is None or m.seq < before)][-limit:]


class FakeMemory:
    """One space as a list: the hits have the order of the atoms."""

    _scope = SCOPE

    def __init__(self, *atoms: Atom) -> None:
        self.atoms = atoms
        self._recall = self
        self.queries: list[tuple[str, dict[str, Any]]] = []

    async def get_space(self, space_id: str) -> MemorySpace | None:
        return MemorySpace("ms_1", SCOPE, "default", NOW, NOW) if space_id == "ms_1" else None

    async def list_atoms(self, space_id: str, **filters: Any) -> list[Atom]:
        self._check(space_id, "list", filters)
        return [atom for atom in self.atoms if atom.category.name in filters["categories"]]

    async def by_topic(self, request: RecallRequest, query: str, min_score: float) -> RecallResult:
        now, filter = from_micros(request.now), request.filter
        valid_at = from_micros(filter.valid_at) if filter.must_have_started else None
        self._check(request.space_id, query, {"limit": request.limit, "now": now, "valid_at": valid_at})
        found = self.atoms[: request.limit]
        hits = tuple(RecallHit(atom, score=1 / (place + 1)) for place, atom in enumerate(found))
        hits = tuple(hit for hit in hits if hit.score >= min_score)
        return RecallResult(RecallMode.BY_TOPIC, hits, len(self.atoms), 0.1)

    def _check(self, space_id: str, query: str, filters: dict[str, Any]) -> None:
        self.queries.append((query, filters))
        if space_id != "ms_1":
            raise NotFoundError("space", space_id)


def make_atom(text: str, category: str = "fact", number: int | None = None, **fields: Any) -> Atom:
    id = f"atom_{number if number is not None else abs(hash((text, category)))}"
    valid_from = fields.pop("valid_from", datetime(2026, 3, 1, tzinfo=UTC))
    return Atom(id, "ms_1", SCOPE, text, Category(category, "FACT"), valid_from, NOW, NOW, **fields)  # type: ignore[arg-type]


def make_message(seq: int, turn: int, role: str, content: Any, **fields: Any) -> StoredMessage:
    return StoredMessage(f"msg_{seq}", "conv_1", seq, f"turn_{turn}", role, as_blocks(content), NOW, **fields)


def make_turns(*texts: str) -> list[StoredMessage]:
    """Build turns of a question and an answer each."""
    return [
        message
        for turn, text in enumerate(texts, 1)
        for message in (
            make_message(2 * turn - 1, turn, "user", text),
            make_message(2 * turn, turn, "assistant", f"About {text}"),
        )
    ]


def make_builder(
    conversations: FakeConversations, memory: FakeMemory | None = None, **options: Any
) -> WorkingContextBuilder:
    return WorkingContextBuilder(conversations, cast("Memory", memory or FakeMemory()), clock=lambda: NOW, **options)


async def build_context(
    conversations: FakeConversations, memory: FakeMemory | None = None, /, **options: Any
) -> WorkingContext:
    return await make_builder(conversations, memory).build(
        "conv_1", memory_space_id="ms_1" if memory else None, **options
    )
