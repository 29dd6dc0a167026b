"""`rc.events`: the feed of changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Collection
from typing import Any, Literal

from tellback.errors import (
    InvalidArgumentError,
    StoreBusyError,
    StoreClosedError,
    StoreFullError,
    StoreUnavailableError,
)
from tellback.stores.ports import EventLog
from tellback.types.conversations import Event

log = logging.getLogger("tellback.stores")

BATCH = 500
RETRY_SECONDS = 1.0


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
        wanted, after = _names(types), _position(after)
        found: list[Event] = []
        while len(found) < limit:
            events, after = await self._log.read(
                after=after,
                limit=BATCH if wanted else min(BATCH, limit - len(found)),
                tenant_id=tenant_id,
                app_id=app_id,
                user_id=user_id,
            )
            if not events:
                break
            found.extend(event for event in events if wanted is None or event.type in wanted)
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
    ) -> AsyncGenerator[Event, None]:
        """Events after a position, then new ones as they come, until you stop reading or the store is closed.

        While the store cannot be reached it waits, and goes on where it was.

        Without `after` it starts at the beginning, with "latest" at what happens from the first read on.
        """
        wanted = _names(types)
        position = await self._log.latest() if after == "latest" else _position(after or 0)
        changes = self._log.changes()
        begun = False
        try:
            async for _ in changes:
                events = None
                while events is None or len(events) == BATCH:
                    try:
                        events, reached = await self._log.read(
                            after=position, limit=BATCH, tenant_id=tenant_id, app_id=app_id, user_id=user_id
                        )
                    except (StoreUnavailableError, StoreBusyError, StoreFullError):
                        log.warning("events cannot be read now; trying again", exc_info=True)
                        await asyncio.sleep(RETRY_SECONDS)
                        continue
                    except StoreClosedError:
                        if begun:
                            return
                        raise
                    begun = True
                    for event in events:
                        if wanted is None or event.type in wanted:
                            yield event
                    position = reached
        finally:
            await changes.aclose()


def _position(after: Any) -> int:
    if isinstance(after, bool) or not isinstance(after, int):
        raise InvalidArgumentError(f"after is the position of an event, not {after!r:.80}.")
    return max(0, min(after, 2**62))


def _names(types: Collection[str] | None) -> frozenset[str] | None:
    if types is None:
        return None
    return frozenset([types] if isinstance(types, str) else types)
