"""Where everything is kept: the ports, and the stores that serve them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tellback.stores.feed import EventFeed
from tellback.stores.opening import open_store
from tellback.stores.planning import EXTRACT
from tellback.stores.ports import (
    AddedCitation,
    AgentSessions,
    ApiKeys,
    Appended,
    AtomChange,
    AtomDraft,
    AtomFilter,
    Begun,
    Bindings,
    ConversationLog,
    Dispatched,
    EntityDraft,
    EventLog,
    JobEnd,
    JobLog,
    KeptAnswer,
    KeptAnswers,
    KnownAtom,
    Memories,
    RateWindows,
    Reconciliation,
    Replacement,
    Search,
    SessionTurn,
    SpaceChanges,
    Store,
    StoredKey,
    TurnBusy,
    TurnClaim,
    TurnDraft,
    TurnStarted,
)
from tellback.stores.session_rows import NOTE as SESSION_NOTE

if TYPE_CHECKING:
    from tellback.stores.postgres import PostgresStore as PostgresStore
    from tellback.stores.sqlite import SqliteStore as SqliteStore

__all__ = [
    "EXTRACT",
    "SESSION_NOTE",
    "AddedCitation",
    "AgentSessions",
    "ApiKeys",
    "Appended",
    "AtomChange",
    "AtomDraft",
    "AtomFilter",
    "Begun",
    "Bindings",
    "ConversationLog",
    "Dispatched",
    "EntityDraft",
    "EventFeed",
    "EventLog",
    "JobEnd",
    "JobLog",
    "KeptAnswer",
    "KeptAnswers",
    "KnownAtom",
    "Memories",
    "PostgresStore",
    "RateWindows",
    "Reconciliation",
    "Replacement",
    "Search",
    "SessionTurn",
    "SpaceChanges",
    "SqliteStore",
    "Store",
    "StoredKey",
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
