"""The event log in SQL: `EventLog` on any engine."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any

from tellback.errors import StoreReadOnlyError
from tellback.stores import rows
from tellback.stores.engine import Operation, SqlEngine
from tellback.types.conversations import Event


class SqlEventLog:
    """`EventLog` on an engine. `sequenced` says that the engine gives positions only once events are committed."""

    def __init__(self, engine: SqlEngine, *, positions_after_commit: bool) -> None:
        self._engine = engine
        self._positions_after_commit = positions_after_commit

    async def read(
        self,
        *,
        after: int,
        limit: int,
        tenant_id: str | None = None,
        app_id: str | None = None,
        user_id: str | None = None,
    ) -> tuple[list[Event], int]:
        await self._ensure_positions()
        values = {"after": after, "limit": limit, "tenant": tenant_id, "app": app_id, "user": user_id}
        return await self._engine.read(None, partial(_read_events, values))

    async def latest(self) -> int:
        await self._ensure_positions()
        return await self._engine.read(None, _latest_position)

    def changes(self) -> AsyncGenerator[None, None]:
        return self._engine.changes()

    async def _ensure_positions(self) -> None:
        with contextlib.suppress(StoreReadOnlyError):  # what has a position can be read all the same
            while self._positions_after_commit and await self._engine.write(None, _assign_positions):
                pass


def _read_events(values: dict[str, Any]) -> Operation[tuple[list[Event], int]]:
    # The end is read first: what is committed in between lies after it, and is left for the next time.
    until = yield from _latest_position()
    found = yield "platform_events_read", {**values, "until": until}
    events = rows.events_from_rows(found)
    if len(events) == values["limit"] and events:
        return events, events[-1].position
    return events, max(until, values["after"])


def _latest_position() -> Operation[int]:
    found = yield "platform_events_latest", {}
    return int(found[0][0])


def _assign_positions() -> Operation[bool]:
    yield "platform_events_lock", {}
    positioned = yield "platform_events_sequence", {}
    return len(positioned) >= 5_000
