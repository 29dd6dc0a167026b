"""`Store`: all stored data, in one database."""

from __future__ import annotations

from tellback.stores.engine import SqlEngine
from tellback.stores.events import EventLog
from tellback.stores.operations.access import ApiKeys, IdempotencyStore, RateWindows
from tellback.stores.operations.conversations import AgentSessions, ConversationLog
from tellback.stores.operations.dispatch import Bindings
from tellback.stores.operations.jobs import JobLog
from tellback.stores.operations.memory import MemoryStore
from tellback.stores.operations.user_data import UserData


class Store:
    """All stored data of Tellback, on the engine of one database.

    `open` migrates the schema to this release's version, or raises `SchemaVersionError` if it is newer. `open` and
    `close` may be called twice. `instance_id` identifies this open store among all processes that use the database.
    `is_instance_alive` returns whether an instance still runs: False only if that is certain, None if it is unknown.

    Rules for the methods of all parts:

    - They are safe to call from many tasks at the same time.
    - A change is durable when its call returns. If the call raises, all of it is rolled back.
    - An id of another scope is treated exactly like an id that does not exist.
    - Database failures are raised as `StoreError`, never as the driver's own error. After one, the store works again as
      soon as the cause is gone.

    `SqliteStore` and `PostgresStore` follow these rules. `tellback.testing.stores` checks them for any other engine.

    >>> import asyncio
    >>> from tellback.stores import open_store
    >>> from tellback.types.access import Scope
    >>> async def main():
    ...     store = open_store(":memory:")
    ...     await store.open()
    ...     maya = Scope("acme", "default", "maya")
    ...     print(await store.conversations.get(maya, "conv_1"), await store.events.latest())
    ...     await store.close()
    >>> asyncio.run(main())
    None 0
    """

    def __init__(self, url: str, engine: SqlEngine) -> None:
        self._engine = engine
        self.url = url
        self.instance_id = ""
        self.conversations = ConversationLog(engine)
        self.sessions = AgentSessions(engine)
        self.memories = MemoryStore(engine)
        self.bindings = Bindings(engine)
        self.jobs = JobLog(engine)
        self.events = EventLog(engine)
        self.user_data = UserData(engine)
        self.api_keys = ApiKeys(engine)
        self.rate_windows = RateWindows(engine)
        self.idempotency = IdempotencyStore(engine)

    async def open(self) -> None:
        await self._engine.open()
        self.instance_id = self._engine.instance_id

    async def close(self) -> None:
        await self._engine.close()

    async def is_instance_alive(self, instance_id: str) -> bool | None:
        return await self._engine.is_instance_alive(instance_id)
