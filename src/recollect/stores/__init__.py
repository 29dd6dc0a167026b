"""Where everything is kept: the ports, and the stores that serve them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recollect.stores.feed import EventFeed
from recollect.stores.opening import open_store
from recollect.stores.ports import (
    Appended,
    AtomDraft,
    AtomFilter,
    ConversationLog,
    EntityDraft,
    EventLog,
    Memories,
    Search,
    SpaceChanges,
    Store,
    TurnBusy,
    TurnClaim,
    TurnDraft,
    TurnStarted,
)

if TYPE_CHECKING:
    from recollect.stores.postgres import PostgresStore as PostgresStore
    from recollect.stores.sqlite import SqliteStore as SqliteStore

__all__ = [
    "Appended",
    "AtomDraft",
    "AtomFilter",
    "ConversationLog",
    "EntityDraft",
    "EventFeed",
    "EventLog",
    "Memories",
    "PostgresStore",
    "Search",
    "SpaceChanges",
    "SqliteStore",
    "Store",
    "TurnBusy",
    "TurnClaim",
    "TurnDraft",
    "TurnStarted",
    "open_store",
]


def __getattr__(name: str) -> Any:
    if name == "SqliteStore":
        from recollect.stores.sqlite import SqliteStore

        return SqliteStore
    if name == "PostgresStore":
        from recollect.stores.postgres import PostgresStore

        return PostgresStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
