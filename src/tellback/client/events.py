"""The feed of changes, of a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from typing import Any, Literal

from tellback.client.handle import RemoteHandle
from tellback.client.transport import Transport, path_of
from tellback.errors import RateLimitedError, RemoteUnavailableError, StoreError
from tellback.types.conversations import Event
from tellback.wire.events import ChangeWire

AGAIN_SECONDS = 1.0


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
        begun = False
        while True:
            pause = AGAIN_SECONDS
            try:
                async with aclosing(self._frames(position, types, user_id)) as frames:
                    async for frame in frames:
                        begun = True
                        if frame.event == "ready" and frame.id is not None:
                            position = int(frame.id)  # where "latest" was: from here on none may be missed
                            continue
                        event: Event = ChangeWire.model_validate(json.loads(frame.data)).value()
                        yield event
                        position = event.position
            except (RemoteUnavailableError, StoreError):
                if not begun:
                    raise
            except RateLimitedError as error:
                if not begun:
                    raise
                pause = max(pause, error.retry_after)
            begun = True
            await asyncio.sleep(pause)

    def _frames(
        self, after: int | str, types: Collection[str] | None, user_id: str | None
    ) -> AsyncGenerator[Any, None]:
        query = {"after": after, "types": ",".join([types] if isinstance(types, str) else types or ()) or None}
        user = self._user if user_id is None else user_id
        if self._everyone and user is None:
            query["everyone"] = "true"
        return self._transport.frames("GET", path_of("ai-events"), user=user, query=query)
