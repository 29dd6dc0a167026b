"""`rc.events`: the feed of changes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from typing import Literal

from recollect.stores.ports import EventLog
from recollect.types.conversations import Event

BATCH = 500


class EventFeed:
    """Every change in the order it was committed, whichever process made it.

    Each event has a `position`. Keep the last one you have dealt with, and `subscribe(after=position)` goes on from
    there, also in another process or after a restart: no event is lost and none comes twice.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log

    async def read(
        self,
        after: int = 0,
        *,
        limit: int = BATCH,
        types: Collection[str] | None = None,
        tenant_id: str | None = None,
        app_id: str | None = None,
        user_id: str | None = None,
    ) -> list[Event]:
        """Up to `limit` events after a position, without waiting for more."""
        found: list[Event] = []
        while len(found) < limit:
            events = await self._log.read(
                after=after, limit=min(BATCH, limit), tenant_id=tenant_id, app_id=app_id, user_id=user_id
            )
            found.extend(event for event in events if types is None or event.type in types)
            if len(events) < min(BATCH, limit):
                break
            after = events[-1].position
        return found[:limit]

    async def latest(self) -> int:
        """The position of the newest event, 0 when there is none."""
        return await self._log.latest()

    async def subscribe(
        self,
        after: int | Literal["latest"] | None = None,
        *,
        types: Collection[str] | None = None,
        tenant_id: str | None = None,
        app_id: str | None = None,
        user_id: str | None = None,
    ) -> AsyncIterator[Event]:
        """Events after a position, then new ones as they come, until you stop reading.

        Without `after` it starts at the beginning, with "latest" at what happens from now on.
        """
        position = await self._log.latest() if after == "latest" else after or 0
        changes = self._log.changes()
        try:
            async for _ in changes:
                while True:
                    events = await self._log.read(
                        after=position, limit=BATCH, tenant_id=tenant_id, app_id=app_id, user_id=user_id
                    )
                    for event in events:
                        position = event.position
                        if types is None or event.type in types:
                            yield event
                    if len(events) < BATCH:
                        break
        finally:
            await changes.aclose()  # type: ignore[attr-defined]
