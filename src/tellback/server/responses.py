"""Build responses: JSON values, pages with cursors, file downloads, and their OpenAPI descriptions."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
from collections.abc import AsyncIterator
from typing import Annotated, Any, BinaryIO

from fastapi import Query, Response
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from tellback.errors import InvalidArgumentError
from tellback.server.auth import Caller
from tellback.wire.base import WireModel
from tellback.wire.problems import Problem

JSON_MEDIA_TYPE = "application/json"

LimitParam = Annotated[
    int | None,
    Query(
        ge=1,
        description="The maximum number of items on the page; it may have fewer.",
    ),
]
CursorParam = Annotated[str | None, Query(max_length=1_000, description="The nextCursor of the previous page.")]

_DESCRIPTIONS = {
    400: "The request is malformed.",
    401: "The credential is missing or invalid.",
    403: "The credential does not allow this.",
    404: "The resource does not exist for this user.",
    409: "The request conflicts with the current state.",
    412: "The resource has changed since the given ETag.",
    413: "The body or one of its texts is too large.",
    415: "The body is not JSON.",
    422: "A field is invalid; see `errors`.",
    429: "Too many requests; retry after Retry-After seconds.",
    502: "The model provider failed.",
    503: "The store or a provider is temporarily unavailable.",
    504: "The model provider timed out.",
    507: "The store's disk is full.",
}

CHUNK_BYTES = 256 * 1024


def json_response(value: WireModel, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a value as a JSON response."""
    return Response(value.to_json(), status, headers, JSON_MEDIA_TYPE)


def encode_cursor(position: str) -> str:
    """Encode a position in a list as an opaque cursor.

    >>> decode_cursor(encode_cursor("conv_1"))
    'conv_1'
    """
    return base64.urlsafe_b64encode(position.encode()).decode().rstrip("=")


def decode_cursor(cursor: str | None) -> str | None:
    """Decode a cursor to a position in a list."""
    if cursor is None:
        return None
    try:
        return base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except (binascii.Error, ValueError):
        raise invalid_cursor_error() from None


def invalid_cursor_error() -> InvalidArgumentError:
    """Return the error for an invalid cursor."""
    return InvalidArgumentError("Invalid cursor: pass the previous page's nextCursor.")


def parse_position(position: str | None) -> int | None:
    """Parse a numeric position; very long numbers are cut, since they are past the end anyway."""
    if position is None:
        return None
    if not (position.isascii() and position.isdecimal()):
        raise invalid_cursor_error()
    return int(position[:18])


def resolve_page_size(caller: Caller, limit: int | None) -> int:
    """Return the page size: the requested limit, bounded by the settings."""
    settings = caller.server.settings
    return min(settings.page_size if limit is None else limit, settings.largest_page)


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI descriptions of a route's error responses."""
    all_statuses = sorted({400, 401, 403, 413, 415, 422, 429, 503, *statuses})
    common = {"content": {"application/problem+json": {}}, "model": Problem}
    return {status: {**common, "description": _DESCRIPTIONS[status]} for status in all_statuses}


class FileDownload(StreamingResponse):
    """Sends an open file as a download and closes it at the end.

    It gives up on a client that reads nothing for `stalled_seconds`.
    """

    def __init__(self, file: BinaryIO, size: int, name: str, media_type: str, stalled_seconds: float) -> None:
        headers = {
            "Content-Length": str(size),
            "Content-Disposition": f'attachment; filename="{name}"',
            "Cache-Control": "no-store",
        }
        super().__init__(_read_chunks(file), headers=headers, media_type=media_type)
        self._file = file
        self._stalled_seconds = stalled_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_timeout(message: Message) -> None:
            async with asyncio.timeout(self._stalled_seconds):
                await send(message)

        try:
            with contextlib.suppress(TimeoutError, ClientDisconnect):  # the client has disconnected or stalled
                await super().__call__(scope, receive, send_with_timeout)
        finally:
            self._file.close()


async def _read_chunks(file: BinaryIO) -> AsyncIterator[bytes]:
    while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
        yield chunk
