"""What an export consists of, whichever way it is handed out."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tellback.stores.ports.admin import COLLECTIONS, Collection, UserData
from tellback.types.scope import Scope

FORMAT_VERSION = 1
"""Grows when a reader of earlier exports would misread a new one."""

ExportProgressCallback = Callable[[int], Any]
Record = dict[str, Any]

NESTED_COLLECTION: Collection = "messages"
TOP_COLLECTIONS: tuple[Collection, ...] = tuple(name for name in COLLECTIONS if name != NESTED_COLLECTION)
"""The collections that stand for themselves: messages are part of their conversations."""


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What was written: where (None for an opened file), in which format, and how many records of each collection."""

    path: str | None
    format: str
    counts: Mapping[str, int] = field(hash=False)


@dataclass(slots=True)
class UserDataExport:
    """One user's data on their way out, counted as they pass."""

    data: UserData
    scope: Scope
    now: datetime
    include_vectors: bool = False
    on_progress: ExportProgressCallback | None = None
    record_counts: Counter[str] = field(default_factory=Counter)

    @property
    def header(self) -> Record:
        """Whose data it is, and when they were exported."""
        scope = self.scope
        user = {"tenant_id": scope.tenant_id, "app_id": scope.app_id, "user_id": scope.user_id}
        return {"format_version": FORMAT_VERSION, "user": user, "exported_at": self.now.isoformat()}

    @property
    def counts(self) -> dict[str, int]:
        """How many records of each collection have passed."""
        return {name: self.record_counts[name] for name in COLLECTIONS}

    async def collection(self, name: Collection, parent_id: str | None = None) -> AsyncGenerator[Record, None]:
        """The records of one collection, or those that belong to one conversation or space."""
        async for record in self.data.records(
            self.scope, name, parent_id=parent_id, include_vectors=self.include_vectors
        ):
            self.record_counts[name] += 1
            if self.on_progress is not None:
                self.on_progress(self.record_counts.total())
            yield record

    async def records(self) -> AsyncGenerator[tuple[Collection, Record], None]:
        """Every record with its collection; messages follow their conversation."""
        for name in TOP_COLLECTIONS:
            async for record in self.collection(name):
                yield name, record
                if name == "conversations":
                    async for message in self.collection(NESTED_COLLECTION, record["id"]):
                        yield NESTED_COLLECTION, message


async def collect_export(export: UserDataExport) -> Record:
    """All of it, in memory."""
    collections: dict[str, list[Record]] = {name: [] for name in TOP_COLLECTIONS}
    async for name, record in export.records():
        if name == NESTED_COLLECTION:
            collections["conversations"][-1][NESTED_COLLECTION].append(record)
        else:
            collections[name].append({**record, NESTED_COLLECTION: []} if name == "conversations" else record)
    return {**export.header, **collections}
