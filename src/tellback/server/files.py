"""Answers that are too large to hold: they are written to a file without a name first, and sent from there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import BinaryIO

from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

CHUNK_BYTES = 256 * 1024


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
