"""Stores: the ports (`ports`), the operations behind them in SQL, and the engines for SQLite and PostgreSQL.

`open_store` gives the store that a URL names. Every package above may import this one; it imports `tellback.types`
and `tellback.errors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tellback.stores.events import EventFeed
from tellback.stores.operations.dispatch import EXTRACTION_JOB
from tellback.stores.ports.conversations import (
    AgentSessions,
    AppendResult,
    ConversationLog,
    SessionTurn,
    TurnBusy,
    TurnClaim,
    TurnDraft,
    TurnStarted,
)
from tellback.stores.ports.jobs import Bindings, DispatchResult, JobEnd, JobLog
from tellback.stores.ports.memory import (
    AddedCitation,
    AtomChange,
    AtomDraft,
    AtomFilter,
    EntityDraft,
    KnownAtom,
    MemoryStore,
    Reconciliation,
    Replacement,
    SpaceChanges,
    SpaceSearch,
)
from tellback.stores.ports.store import (
    ApiKeys,
    EventLog,
    IdempotencyClaim,
    IdempotencyStore,
    RateWindows,
    Store,
    StoredKey,
    StoredResponse,
)
from tellback.stores.rows import SESSION_NOTE
from tellback.stores.url import open_store

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
