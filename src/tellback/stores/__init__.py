"""Stores: `Store` and its parts, which run operations in SQL, and the engines for SQLite and PostgreSQL.

`open_store` returns the store for a URL. Every higher package may import this one; it imports only `tellback.types`
and `tellback.errors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tellback.stores.events import EventFeed, EventLog
from tellback.stores.operations.access import ApiKeys, IdempotencyStore, RateWindows
from tellback.stores.operations.conversations import AgentSessions, ConversationLog
from tellback.stores.operations.dispatch import EXTRACTION_JOB, Bindings
from tellback.stores.operations.jobs import JobLog
from tellback.stores.operations.memory import MemoryStore
from tellback.stores.rows import SESSION_NOTE
from tellback.stores.store import Store
from tellback.stores.url import open_store
from tellback.stores.values import (
    AddedCitation,
    AppendResult,
    AtomChange,
    AtomDraft,
    AtomFilter,
    DispatchResult,
    EntityDraft,
    IdempotencyClaim,
    JobEnd,
    KnownAtom,
    Reconciliation,
    Replacement,
    SessionTurn,
    SpaceChanges,
    SpaceSearch,
    StoredKey,
    StoredResponse,
    TurnBusy,
    TurnClaim,
    TurnDraft,
    TurnStarted,
)

if TYPE_CHECKING:
    from tellback.stores.postgres import PostgresStore as PostgresStore
    from tellback.stores.sqlite import SqliteStore as SqliteStore

__all__ = [
    "EXTRACTION_JOB",
    "SESSION_NOTE",
    "AddedCitation",
    "AgentSessions",
    "ApiKeys",
    "AppendResult",
    "AtomChange",
    "AtomDraft",
    "AtomFilter",
    "Bindings",
    "ConversationLog",
    "DispatchResult",
    "EntityDraft",
    "EventFeed",
    "EventLog",
    "IdempotencyClaim",
    "IdempotencyStore",
    "JobEnd",
    "JobLog",
    "KnownAtom",
    "MemoryStore",
    "PostgresStore",
    "RateWindows",
    "Reconciliation",
    "Replacement",
    "SessionTurn",
    "SpaceChanges",
    "SpaceSearch",
    "SqliteStore",
    "Store",
    "StoredKey",
    "StoredResponse",
    "TurnBusy",
    "TurnClaim",
    "TurnDraft",
    "TurnStarted",
    "open_store",
]


def __getattr__(name: str) -> Any:
    if name == "SqliteStore":
        from tellback.stores.sqlite import SqliteStore

        return SqliteStore
    if name == "PostgresStore":
        from tellback.stores.postgres import PostgresStore

        return PostgresStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
