"""`EventLog`, the stored log of all changes, and `EventFeed`, which applications read and subscribe to."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Collection
from functools import partial
from typing import Any, Literal

from tellback.errors import (
    InvalidArgumentError,
    StoreBusyError,
    StoreClosedError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from tellback.portal import Handle
from tellback.stores import rows
from tellback.stores.engine import Operation, StorePart
from tellback.types.conversations import Event

log = logging.getLogger("tellback.stores")

READ_BATCH = 500
RETRY_SECONDS = 1.0


class EventLog(StorePart):
    """Every change, in the order of commits.

    - `read` returns events after a position, oldest first, and the position to continue from, which skips events of
      other scopes. An event never appears before a position already returned: a reader that continues misses no event
      and gets no event twice.
    - `latest` returns the newest position, 0 if there are no events.
    - `changes` yields once at the start, and then whenever any process may have written events.

    >>> from tellback import Tellback
    >>> async def main():
    ...     async with Tellback(":memory:") as tb:
    ...         await tb.user("maya").conversations.create("chat")
    ...         events, position = await tb.store.events.read(after=0, limit=10)
    ...         print([event.type for event in events], position == await tb.store.events.latest())
    >>> asyncio.run(main())
    ['conversation.created'] True
    """

    async def read(
        self,
        *,
        after: int,
        limit: int,
        tenant_id: str | None = None,
        app_id: str | None = None,
        user_id: str | None = None,
    ) -> tuple[list[Event], int]:
        await self._assign_positions()
        values = {"after": after, "limit": limit, "tenant": tenant_id, "app": app_id, "user": user_id}
        return await self._engine.read(None, partial(_read_events, values))

    async def latest(self) -> int:
        await self._assign_positions()
        return await self._engine.read(None, _latest_position)

    def changes(self) -> AsyncGenerator[None, None]:
        return self._engine.changes()

    async def _assign_positions(self) -> None:
        with contextlib.suppress(StoreReadOnlyError):  # events that already have positions can still be read
            while self._engine.positions_after_commit and await self._engine.write(None, _assign_positions):
                pass


def _assign_positions() -> Operation[bool]:
    yield "platform_events_lock", {}
    positioned = yield "platform_events_sequence", {}
    return len(positioned) >= 5_000


def _read_events(values: dict[str, Any]) -> Operation[tuple[list[Event], int]]:
    # Read the end first: events committed in between come after it, and the next call reads them.
    until = yield from _latest_position()
    events = rows.EVENT.read_all((yield "platform_events_read", {**values, "until": until}))
    if len(events) == values["limit"] and events:
        return events, events[-1].position
    return events, max(until, values["after"])


def _latest_position() -> Operation[int]:
    [row] = yield "platform_events_latest", {}
    return int(row["position"])


class EventFeed(Handle):
    """Every change in the order of commits, from all processes.

    Each event has a `position`. Store the last one you have handled: `subscribe(after=position)` continues from there,
    even in another process or after a restart. No event is lost or repeated.

    >>> from tellback import Tellback
    >>> with Tellback(":memory:") as tb:
    ...     log = tb.user("maya").conversations
    ...     conversation = log.create("chat")
    ...     [created] = tb.events.read()
    ...     closed = log.close(conversation.id)
    ...     later = tb.events.read(after=created.position)
    >>> created.type, [event.type for event in later]
    ('conversation.created', ['conversation.closed'])
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log

    async def read(
        self,
        after: int = 0,
        *,
        limit: int = READ_BATCH,
        types: Collection[str] | None = None,
        tenant_id: str | None = None,
        app_id: str | None = None,
        user_id: str | None = None,
    ) -> list[Event]:
        """Return up to `limit` events after a position, without waiting for more.

        >>> from tellback import Tellback
        >>> with Tellback(":memory:") as tb:
        ...     conversation = tb.user("maya").conversations.create("chat")
        ...     events = tb.events.read(types=["conversation.created"], user_id="maya")
        >>> [event.subject_id == conversation.id for event in events]
        [True]
        """
        wanted_types, after = _to_type_set(types), _validate_position(after)
        collected: list[Event] = []
        while len(collected) < limit:
            events, after = await self._log.read(
                after=after,
                limit=READ_BATCH if wanted_types else min(READ_BATCH, limit - len(collected)),
                tenant_id=tenant_id,
                app_id=app_id,
                user_id=user_id,
            )
            if not events:
                break
            collected.extend(event for event in events if wanted_types is None or event.type in wanted_types)
        return collected[:limit]

    async def latest(self) -> int:
        """Return the position of the newest event, 0 if there are no events.

        >>> from tellback import Tellback
        >>> with Tellback(":memory:") as tb:
        ...     before = tb.events.latest()
        ...     conversation = tb.user("maya").conversations.create("chat")
        ...     events = tb.events.read(after=before)
        >>> before, [event.type for event in events]
        (0, ['conversation.created'])
        """
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
        """Yield events after a position, then new ones as they arrive, until you stop reading or the store is closed.

        While the store cannot be reached, it waits, and then continues where it stopped.

        Without `after` it starts at the first event, with "latest" at events written after the first read.

        >>> from tellback import Tellback
        >>> with Tellback(":memory:") as tb:
        ...     conversation = tb.user("maya").conversations.create("chat")
        ...     for event in tb.events.subscribe(types=["conversation.created"]):
        ...         print(event.type)
        ...         break
        conversation.created
        """
        wanted_types = _to_type_set(types)
        position = await self._log.latest() if after == "latest" else _validate_position(after or 0)
        changes = self._log.changes()
        has_read = False
        try:
            async for _ in changes:
                events = None
                while events is None or len(events) == READ_BATCH:
                    try:
                        events, next_position = await self._log.read(
                            after=position, limit=READ_BATCH, tenant_id=tenant_id, app_id=app_id, user_id=user_id
                        )
                    except (StoreUnavailableError, StoreBusyError, StoreFullError):
                        log.warning("Reading events failed; retrying", exc_info=True)
                        await asyncio.sleep(RETRY_SECONDS)
                        continue
                    except StoreClosedError:
                        if has_read:
                            return
                        raise
                    has_read = True
                    for event in events:
                        if wanted_types is None or event.type in wanted_types:
                            yield event
                    position = next_position
        finally:
            await changes.aclose()


def _validate_position(after: Any) -> int:
    if isinstance(after, bool) or not isinstance(after, int):
        raise InvalidArgumentError(f"after must be the position of an event, got {after!r:.80}.")
    return max(0, min(after, 2**62))


def _to_type_set(types: Collection[str] | None) -> frozenset[str] | None:
    if types is None:
        return None
    return frozenset([types] if isinstance(types, str) else types)
