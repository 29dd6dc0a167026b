"""The base of all remote handles: encode arguments as JSON, check ids, read lists page by page."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from tellback import validation
from tellback.client.transport import Transport, build_path
from tellback.errors import InvalidArgumentError, NotFoundError, RemoteUnavailableError
from tellback.types.blocks import Content
from tellback.wire.base import WireModel, camel
from tellback.wire.messages import encode_block


def encode_arguments(**arguments: Any) -> dict[str, Any]:
    """The arguments that are not None, by their names on the wire.

    >>> encode_arguments(valid_from=None, min_importance=3)
    {'minImportance': 3}
    """
    return {camel(name): encode_value(value) for name, value in arguments.items() if value is not None}


def encode_content(content: Content) -> Any:
    """A message's content: a text, or a list of blocks. What cannot be one is refused here, as in process."""
    if isinstance(content, str):
        return content
    return [encode_block(block) for block in validation.parse_content(content)]


def encode_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Data of the caller's own: a JSON object, as in process; what is none is refused here."""
    return None if metadata is None else validation.validate_metadata(metadata)


def encode_usage(usage: Any, provider: str | None = None, model: str | None = None) -> dict[str, Any] | None:
    """Usage numbers, in whatever names they come."""
    counted = validation.parse_usage(usage, provider, model)
    return None if counted is None else encode_value(counted)


def encode_datetime(name: str, value: datetime | str | None) -> str | None:
    """A moment, with its timezone."""
    return None if value is None else validation.parse_datetime(name, value).isoformat()


def encode_duration(name: str, value: timedelta | float | None) -> float | None:
    """A length of time in seconds."""
    return None if value is None else validation.parse_duration(name, value).total_seconds()


def encode_value(value: Any) -> Any:
    """Anything that can be sent: values become mappings with the names of the wire, moments become texts.

    What the caller wrote as a mapping keeps its keys.
    """
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str | bool | int | float) or value is None:
        return value
    if isinstance(value, datetime):
        return encode_datetime("a moment", value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {_validate_key(name): encode_value(each) for name, each in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        fields_by_name = {camel(field.name): getattr(value, field.name) for field in fields(value)}
        return {name: encode_value(each) for name, each in fields_by_name.items() if each is not None}
    if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray | memoryview):
        return [encode_value(each) for each in value]
    raise InvalidArgumentError(f"{value!r:.80} cannot be sent to a server.")


def encode_mapping(value: Any) -> Any:
    """A value or a mapping, in either spelling, with the names of the wire."""
    if isinstance(value, Mapping):
        return {camel(_validate_key(name)): encode_value(each) for name, each in value.items()}
    return encode_value(value)


def _validate_key(name: Any) -> str:
    if not isinstance(name, str):
        raise InvalidArgumentError(f"{name!r:.80} cannot be sent as the name of something: names are texts.")
    return name


_SERVER_ID = re.compile(r"[a-z]+_[0-9a-z]+")


def is_server_id(id: Any) -> bool:
    """Whether a server may have made that id.

    >>> is_server_id("conv_018f3c0de0a17b2c4d5e6f708192"), is_server_id("open"), is_server_id("a/b")
    (True, False, False)
    """
    return isinstance(id, str) and _SERVER_ID.fullmatch(id) is not None


def require_server_id(kind: str, id: Any) -> str:
    """An id to act on: one that nothing can have is not found."""
    if not is_server_id(id):
        raise NotFoundError(kind, id)
    checked: str = id
    return checked


PAGE_SIZE = 200
"""How many to ask for at once; a server may give fewer, and tells where it goes on."""


async def list_all(
    transport: Transport,
    path: str,
    model: type[WireModel],
    limit: int | None,
    *,
    user: str | None,
    query: Mapping[str, Any],
    cursor: str | None = None,
) -> list[Any]:
    """Up to `limit` values of a list, or all of them."""
    max_items = None if limit is None else validation.validate_count("limit", limit)
    items: list[Any] = []
    while max_items is None or len(items) < max_items:
        size = PAGE_SIZE if max_items is None else min(PAGE_SIZE, max_items - len(items))
        page = await transport.call("GET", path, user=user, query={**query, "limit": size, "cursor": cursor})
        items.extend(model.model_validate(each).value() for each in page["items"])
        cursor = page["nextCursor"]
        if cursor is None:
            break
    return items


def encode_cursor(position: str | None) -> str | None:
    """A cursor that goes on behind a certain one."""
    return (
        None
        if position is None
        else base64.urlsafe_b64encode(position.encode(errors="surrogatepass")).decode().rstrip("=")
    )


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
        if not validation.is_valid_id(parts[-1]) or not parts[-1]:
            return None
        return await self._transport.call_or_none("GET", build_path(*parts), user=self._user)


def validate_header(name: str, value: str) -> str:
    """A text that may stand in a header: printable ASCII."""
    if not isinstance(value, str) or not value.isascii() or not value.isprintable() or value != value.strip():
        raise InvalidArgumentError(f"{name} is sent in a header, so it is printable ASCII, not {value!r:.80}.")
    return value
