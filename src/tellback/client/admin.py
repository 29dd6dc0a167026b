"""Handles for jobs, bindings, API keys, the change feed, exports, erasure and usage on a server."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, Literal

from tellback.admin import atomic_write, resolve_format
from tellback.client.transport import RemoteHandle, Transport
from tellback.errors import InvalidArgumentError, RateLimitedError, RemoteUnavailableError, StoreError
from tellback.types.conversations import Event
from tellback.wire.arguments import encode_arguments
from tellback.wire.operations import AdminOperations, BindingOperations, JobOperations, KeyOperations
from tellback.wire.values import ChangeWire

FIRST_POLL_SECONDS, MAX_POLL_SECONDS = 0.05, 1.0

RECONNECT_SECONDS = 1.0


class RemoteJobs(RemoteHandle, JobOperations):
    """The jobs of all users in the credential's tenant and app."""

    async def wait(self, ids: Sequence[str], timeout: float | None = None) -> bool:  # noqa: ASYNC109
        """Wait until these jobs have finished, successfully or not; return False on a timeout."""
        deadline = None if timeout is None else time.monotonic() + timeout
        interval, pending = FIRST_POLL_SECONDS, [*ids]
        while pending:
            found = [await self.get(id) for id in pending]
            pending = [job.id for job in found if job is not None and not job.status.is_finished]
            if pending and deadline is not None and time.monotonic() >= deadline:
                return False
            if pending:
                await asyncio.sleep(interval)
                interval = min(interval * 1.5, MAX_POLL_SECONDS)
        return True


class RemoteBindings(RemoteHandle, BindingOperations):
    """The bindings of all users in the credential's tenant and app."""


class RemoteKeys(RemoteHandle, KeyOperations):
    """API keys of the credential's tenant and app."""


class RemoteEvents(RemoteHandle):
    """Changes in commit order. A subscription resumes after a lost connection."""

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
        """Yield events after a position, then new ones, without gaps or duplicates.

        Without `after`, it starts with the first event; with `after="latest"`, with the next new event. While the
        server or its store is unavailable, it waits, then resumes. If the first connection fails, it raises the error.
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
                            position = int(item.id)  # the current position of "latest", to resume from
                            continue
                        event: Event = ChangeWire.decode(json.loads(item.data))
                        yield event
                        position = event.position
            except (RemoteUnavailableError, StoreError, RateLimitedError) as error:
                if not has_connected:
                    raise
                if isinstance(error, RateLimitedError):
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
        return self._transport.stream_events("GET", self._path("follow_events"), user=user, query=query)


class RemoteAdmin(RemoteHandle, AdminOperations):
    """Export, erasure and usage of a user's data: the handle's user, or another one if the credential allows it."""

    async def export_user_data(
        self,
        user_id: str | None = None,
        *,
        to: str | PathLike[str] | BinaryIO | None = None,
        format: Literal["json", "zip"] | None = None,
        include_vectors: bool = False,
    ) -> dict[str, Any] | int:
        """Export all data of a user as a dict. With `to`, write a file of any size and return its number of bytes.

        `format` is "json" or "zip"; the default is the extension of the path. The file only appears when it is
        complete.
        """
        query = encode_arguments(user_id=user_id, include_vectors="true" if include_vectors else None)
        if to is None:
            if format is not None:
                raise InvalidArgumentError("format requires a file: pass its path or an open file as `to`.")
            payload: dict[str, Any] = await self._get(self._path("export_user_data"), query)
            return payload
        query["format"] = resolve_format(to, format)
        if not isinstance(to, str | PathLike):
            return await self._copy_export(query, to)
        async with atomic_write(Path(to)) as file:
            return await self._copy_export(query, file)

    async def _copy_export(self, query: Mapping[str, Any], file: BinaryIO) -> int:
        size = 0
        path = self._path("export_user_data")
        async with self._transport.download(path, user=self._user, query=query) as response:
            async for chunk in response.aiter_bytes():
                await asyncio.to_thread(file.write, chunk)
                size += len(chunk)
        return size
