"""The feed of changes, of a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from typing import Any, Literal

from tellback.client.handle import RemoteHandle
from tellback.client.transport import Transport, build_path
from tellback.errors import RateLimitedError, RemoteUnavailableError, StoreError
from tellback.types.conversations import Event
from tellback.wire.events import ChangeWire

RECONNECT_SECONDS = 1.0


class RemoteEvents(RemoteHandle):
    """Changes in the order they were committed. A subscription goes on where it was when a connection is lost."""

    def __init__(self, transport: Transport, user: str | None, *, everyone: bool = False) -> None:
        super().__init__(transport, user)
        self._everyone = everyone

    async def subscribe(
        self,
        after: int | Literal["latest"] | None = None,
        *,
        types: Collection[str] | None = None,
        user_id: str | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Events after a position, then new ones as they come, until you stop reading. None is lost, none comes twice.

        Without `after` it starts at the beginning, with "latest" at what happens from now on. While the server or its
        store cannot be reached it waits, and goes on where it was; it raises if that is so from the start.
        """
        position: int | str = 0 if after is None else after
        has_connected = False
        while True:
            pause = RECONNECT_SECONDS
            try:
                async with aclosing(self._stream(position, types, user_id)) as events:
                    async for item in events:
                        has_connected = True
                        if item.event == "ready" and item.id is not None:
                            position = int(item.id)  # where "latest" was: from here on none may be missed
                            continue
                        event: Event = ChangeWire.model_validate(json.loads(item.data)).value()
                        yield event
                        position = event.position
            except (RemoteUnavailableError, StoreError):
                if not has_connected:
                    raise
            except RateLimitedError as error:
                if not has_connected:
                    raise
                pause = max(pause, error.retry_after)
            has_connected = True
            await asyncio.sleep(pause)

    def _stream(
        self, after: int | str, types: Collection[str] | None, user_id: str | None
    ) -> AsyncGenerator[Any, None]:
        query = {"after": after, "types": ",".join([types] if isinstance(types, str) else types or ()) or None}
        user = self._user if user_id is None else user_id
        if self._everyone and user is None:
            query["everyone"] = "true"
        return self._transport.stream_events("GET", build_path("ai-events"), user=user, query=query)
