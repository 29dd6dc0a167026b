"""What all handles of a user share."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from tellback.client.ids import is_made
from tellback.client.transport import Transport, path_of
from tellback.conversations import checks
from tellback.errors import InvalidArgumentError, RemoteUnavailableError


class RemoteHandle:
    """A part of what a server keeps of one user."""

    def __init__(self, transport: Transport, user: str | None) -> None:
        self._transport = transport
        self._user = user

    async def _post(self, path: str, body: Any = None, *, key: str | None = None, native: bool = False) -> Any:
        headers = None if key is None else {"Idempotency-Key": header_text("idempotency_key", key)}
        return await self._transport.call(
            "POST", path, user=self._user, body={} if body is None else body, headers=headers, is_native=native
        )

    async def _streamed(
        self, path: str, body: Mapping[str, Any], key: str | None, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        """The events of a turn, which must end with its result."""
        more = {} if key is None else {"Idempotency-Key": header_text("idempotency_key", key)}
        has_ended = False
        frames = self._transport.frames(
            "POST", path, user=self._user, body={**body, "stream": True}, headers={**(headers or {}), **more}
        )
        async with aclosing(frames):
            async for frame in frames:
                has_ended = has_ended or frame.event == "result"
                yield frame.event, json.loads(frame.data)
        if not has_ended:
            raise RemoteUnavailableError("The server's stream ended without the turn's result.")

    async def _delete(self, path: str) -> Any:
        return await self._transport.call("DELETE", path, user=self._user)

    async def _found(self, *parts: str) -> Any:
        """What is at a path whose last part is an id that the server made, or None."""
        return await self._named(*parts) if is_made(parts[-1]) else None

    async def _named(self, *parts: str) -> Any:
        """What is at a path whose last part is a name that somebody gave, or None."""
        if not checks.is_id(parts[-1]) or not parts[-1]:
            return None
        return await self._transport.found("GET", path_of(*parts), user=self._user)


def header_text(what: str, value: str) -> str:
    """A text that may stand in a header: printable ASCII."""
    if not isinstance(value, str) or not value.isascii() or not value.isprintable() or value != value.strip():
        raise InvalidArgumentError(f"{what} is sent in a header, so it is printable ASCII, not {value!r:.80}.")
    return value
