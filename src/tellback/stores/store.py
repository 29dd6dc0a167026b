"""`Store`: the place where everything is kept."""

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
    """A place where everything is kept, on the engine of a database.

    `open` migrates the schema to this release's version, or raises `SchemaVersionError` for a newer one; it and `close`
    may be called twice. `instance_id` names this opening of it among all processes that use it. `is_instance_alive`
    says whether an instance still runs: False only when that is certain, None when it cannot be known.

    Common to the methods of all its parts: they are safe to call from many tasks at once. A change is durable when its
    call returns, and undone as a whole when it raises. An id of another scope is treated exactly like one that does not
    exist. What goes wrong below is raised as a `StoreError`, never as the driver's own error; after one, the store goes
    on working as soon as its cause is gone.

    `SqliteStore` and `PostgresStore` keep these promises, and `tellback.testing.stores` checks them for any other
    engine.
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
