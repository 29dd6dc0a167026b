"""A store: all ports of one place."""

from __future__ import annotations

from typing import Protocol

from tellback.stores.ports.access import ApiKeys, RateWindows
from tellback.stores.ports.admin import UserData
from tellback.stores.ports.answers import IdempotencyStore
from tellback.stores.ports.bindings import Bindings
from tellback.stores.ports.conversations import ConversationLog
from tellback.stores.ports.events import EventLog
from tellback.stores.ports.jobs import JobLog
from tellback.stores.ports.memories import MemoryStore
from tellback.stores.ports.sessions import AgentSessions


class Store(Protocol):
    """A place where everything is kept. `owner` names this opening of it among all processes that use it.

    `open` migrates the schema to this release's version, or raises `SchemaVersionError` for a newer one; it and `close`
    may be called twice. `is_alive` says whether an owner still runs: False only when that is certain, None when nobody
    can tell.
    """

    url: str

    @property
    def owner(self) -> str: ...

    @property
    def conversations(self) -> ConversationLog: ...

    @property
    def sessions(self) -> AgentSessions: ...

    @property
    def memories(self) -> MemoryStore: ...

    @property
    def bindings(self) -> Bindings: ...

    @property
    def jobs(self) -> JobLog: ...

    @property
    def events(self) -> EventLog: ...

    @property
    def user_data(self) -> UserData: ...

    @property
    def api_keys(self) -> ApiKeys: ...

    @property
    def rate_windows(self) -> RateWindows: ...

    @property
    def idempotency(self) -> IdempotencyStore: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def is_alive(self, owner: str) -> bool | None: ...
