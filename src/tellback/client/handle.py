"""What all handles of a user share."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from tellback.client.ids import is_server_id
from tellback.client.transport import Transport, build_path
from tellback.conversations import checks
from tellback.errors import InvalidArgumentError, RemoteUnavailableError


class RemoteHandle:
    """A part of what a server keeps of one user."""

    def __init__(self, transport: Transport, user: str | None) -> None:
        self._transport = transport
        self._user = user

    async def _post(self, path: str, body: Any = None, *, key: str | None = None, has_own_key: bool = False) -> Any:
        headers = None if key is None else {"Idempotency-Key": validate_header("idempotency_key", key)}
        return await self._transport.call(
            "POST", path, user=self._user, body={} if body is None else body, headers=headers, has_own_key=has_own_key
        )

    async def _stream_turn(
        self, path: str, body: Mapping[str, Any], key: str | None, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        """The events of a turn, which must end with its result."""
        key_header = {} if key is None else {"Idempotency-Key": validate_header("idempotency_key", key)}
        has_ended = False
        events = self._transport.stream_events(
            "POST", path, user=self._user, body={**body, "stream": True}, headers={**(headers or {}), **key_header}
        )
        async with aclosing(events):
            async for item in events:
                has_ended = has_ended or item.event == "result"
                yield item.event, json.loads(item.data)
        if not has_ended:
            raise RemoteUnavailableError("The server's stream ended without the turn's result.")

    async def _delete(self, path: str) -> Any:
        return await self._transport.call("DELETE", path, user=self._user)

    async def _get_by_id(self, *parts: str) -> Any:
        """What is at a path whose last part is an id that the server made, or None."""
        return await self._get_by_name(*parts) if is_server_id(parts[-1]) else None

    async def _get_by_name(self, *parts: str) -> Any:
        """What is at a path whose last part is a name that somebody gave, or None."""
        if not checks.is_valid_id(parts[-1]) or not parts[-1]:
            return None
        return await self._transport.call_or_none("GET", build_path(*parts), user=self._user)


def validate_header(name: str, value: str) -> str:
    """A text that may stand in a header: printable ASCII."""
    if not isinstance(value, str) or not value.isascii() or not value.isprintable() or value != value.strip():
        raise InvalidArgumentError(f"{name} is sent in a header, so it is printable ASCII, not {value!r:.80}.")
    return value
