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
    int | None, Query(ge=1, description="How many at most; a page may have fewer, and lead on by nextCursor.")
]
CursorParam = Annotated[str | None, Query(max_length=1_000, description="nextCursor of the page before.")]

_DESCRIPTIONS = {
    400: "The request cannot be read.",
    401: "No credential, or one that is not valid.",
    403: "The credential is not for that.",
    404: "Nothing of that id is in the credential's scope.",
    409: "In conflict with what is there.",
    412: "It has changed meanwhile.",
    413: "The body, or a text in it, is too large.",
    415: "The body is not JSON.",
    422: "A field cannot be used; `errors` says which.",
    429: "Too many requests; see Retry-After.",
    502: "A model's provider failed.",
    503: "The store or a provider is not available now.",
    504: "A model's provider gave no answer in time.",
    507: "The store's disk is full.",
}

CHUNK_BYTES = 256 * 1024


def json_response(value: WireModel, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A value as JSON."""
    return Response(value.to_json(), status, headers, JSON_MEDIA_TYPE)


def encode_cursor(position: str) -> str:
    """A place in a list, for clients to hand back.

    >>> decode_cursor(encode_cursor("conv_1"))
    'conv_1'
    """
    return base64.urlsafe_b64encode(position.encode()).decode().rstrip("=")


def decode_cursor(cursor: str | None) -> str | None:
    """The place that a cursor stands for."""
    if cursor is None:
        return None
    try:
        return base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except (binascii.Error, ValueError):
        raise invalid_cursor_error() from None


def invalid_cursor_error() -> InvalidArgumentError:
    """The error for a cursor that no page gave."""
    return InvalidArgumentError("cursor is what nextCursor of the page before was.")


def parse_position(position: str | None) -> int | None:
    """A place in a list that is a number; what has too many digits is as good as the end."""
    if position is None:
        return None
    if not (position.isascii() and position.isdecimal()):
        raise invalid_cursor_error()
    return int(position[:18])


def resolve_page_size(caller: Caller, limit: int | None) -> int:
    """How many a page has: what was asked for, but not more than the server gives at once."""
    settings = caller.server.settings
    return min(settings.page_size if limit is None else limit, settings.largest_page)


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What a route may answer besides: for OpenAPI."""
    all_statuses = sorted({400, 401, 403, 413, 415, 422, 429, 503, *statuses})
    common = {"content": {"application/problem+json": {}}, "model": Problem}
    return {status: {**common, "description": _DESCRIPTIONS[status]} for status in all_statuses}


class FileDownload(StreamingResponse):
    """An opened file as a download, from its beginning. The file is closed when it was sent, or could not be.

    A client that takes nothing for `stalled_seconds` is left.
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
            with contextlib.suppress(TimeoutError, ClientDisconnect):  # nobody is there to be told
                await super().__call__(scope, receive, send_with_timeout)
        finally:
            self._file.close()


async def _read_chunks(file: BinaryIO) -> AsyncIterator[bytes]:
    while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
        yield chunk
