"""Server-sent events: a response that batches frames, sends heartbeats, and stops when the client disconnects.

sse-starlette is not used: it sends each event separately, and responds with 200 before the first one. Here an error
before the first event becomes a response with the error's status.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tellback.concurrency import cancel_and_wait
from tellback.server.lifecycle import ShutdownSignal, shutdown_response, wait_for_disconnect
from tellback.server.problems import any_error_response
from tellback.server.settings import ServerSettings

log = logging.getLogger("tellback.server")

MEDIA_TYPE = "text/event-stream"
HEARTBEAT = b": \n\n"
BUFFER_BYTES = 64 * 1024
"""The size of a slow client's buffer; when it is full, the producer waits."""

RETRY_MS = 2_000
"""The reconnection delay of browsers."""


def encode_frame(event: str | None, data: bytes, id: int | str | None = None) -> bytes:
    """Encode an event. `data` is JSON without line breaks. Raises `ValueError` for line breaks in names, ids or data.

    >>> encode_frame("text", b'{"text":"Hi"}', 7)
    b'id: 7\\nevent: text\\ndata: {"text":"Hi"}\\n\\n'
    """
    fields = ""
    if id is not None:
        fields = f"id: {id}\n"
    if event is not None:
        fields += f"event: {event}\n"
    is_plain = id is None or isinstance(id, int) or id.isprintable()
    if b"\n" in data or b"\r" in data or not is_plain or not (event is None or event.isprintable()):
        raise ValueError("a frame must not contain line breaks")
    return b"%bdata: %b\n\n" % (fields.encode(), data)


def error_frame(error: Exception, request_id: str | None) -> bytes:
    """Return the last frame of a failed stream."""
    return encode_frame("error", bytes(any_error_response(error, request_id).body))


class EventStream(Response):
    """A response that streams frames from an iterator.

    The iterator is closed as soon as the client disconnects or reads nothing for too long. An error before the first
    frame becomes an ordinary error response, unless that frame takes longer than a heartbeat. `on_error` encodes later
    errors as the last frame. `retry` is the browser's reconnection delay in milliseconds.
    """

    media_type = MEDIA_TYPE

    def __init__(
        self,
        frames: AsyncGenerator[bytes, None],
        settings: ServerSettings,
        *,
        headers: Mapping[str, str] | None = None,
        retry: int | None = RETRY_MS,
        on_error: Callable[[Exception, str | None], bytes] = error_frame,
    ) -> None:
        self.status_code = 200
        self.background = None
        self.init_headers({"Cache-Control": "no-store", "X-Accel-Buffering": "no", **(headers or {})})
        self._frames = frames
        self._settings = settings
        self._preamble = b"" if retry is None else b"retry: %d\n\n" % retry
        self._on_error = on_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = scope.get("state", {}).get("request_id")
        if ShutdownSignal.for_app(scope["app"]).is_set:
            await self._frames.aclose()
            await shutdown_response(request_id)(scope, receive, send)
            return
        buffer = _Buffer()
        tasks = (
            asyncio.create_task(_fill_buffer(buffer, self._frames), name="tellback frames"),
            asyncio.create_task(_watch_disconnect(buffer, receive), name="tellback disconnect"),
        )
        try:
            await self._send_all(buffer, send, request_id)
        finally:
            await cancel_and_wait(*tasks)

    async def _send_all(self, buffer: _Buffer, send: Send, request_id: str | None) -> None:
        has_started = False
        while True:
            has_data = await buffer.wait_for_data(self._settings.heartbeat_seconds)
            if buffer.is_disconnected:
                return
            body = buffer.take() if has_data else HEARTBEAT
            error = buffer.error if buffer.is_ended else None
            if not has_started:
                if error is not None and not body:
                    raise error
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                has_started, body = True, self._preamble + body
            if error is not None:
                body += self._on_error(error, request_id)
            message = {"type": "http.response.body", "body": body, "more_body": not buffer.is_ended}
            try:
                async with asyncio.timeout(self._settings.stalled_seconds):
                    await send(message)
            except TimeoutError:
                log.warning("A client read nothing for %g seconds and was disconnected", self._settings.stalled_seconds)
                return
            if not message["more_body"]:
                return


class _Buffer:
    """Frames that wait to be sent."""

    def __init__(self) -> None:
        self._frames: list[bytes] = []
        self._size = 0
        self._has_data = asyncio.Event()
        self._room = asyncio.Event()
        self.is_ended = False
        self.is_disconnected = False
        self.error: Exception | None = None

    def put(self, frame_bytes: bytes) -> bool:
        """Add a frame, and return whether there is room for more."""
        self._frames.append(frame_bytes)
        self._size += len(frame_bytes)
        self._has_data.set()
        return self._size < BUFFER_BYTES

    async def wait_for_room(self) -> None:
        self._room.clear()
        await self._room.wait()

    def take(self) -> bytes:
        data = b"".join(self._frames)
        self._frames.clear()
        self._size = 0
        self._has_data.clear()
        self._room.set()
        return data

    def end(self, error: Exception | None) -> None:
        self.is_ended, self.error = True, error
        self._has_data.set()

    def disconnect(self) -> None:
        self.is_disconnected = True
        self._has_data.set()

    async def wait_for_data(self, seconds: float) -> bool:
        """Wait for data or the end; return False on a timeout."""
        if self._has_data.is_set():
            return True
        try:
            async with asyncio.timeout(seconds):
                await self._has_data.wait()
        except TimeoutError:
            return self._has_data.is_set()
        return True


async def _fill_buffer(buffer: _Buffer, frames: AsyncGenerator[bytes, None]) -> None:
    try:
        async with aclosing(frames):
            async for frame_bytes in frames:
                if not buffer.put(frame_bytes):
                    await buffer.wait_for_room()
    except Exception as error:  # noqa: BLE001 - sent to the client as the last frame
        buffer.end(error)
    else:
        buffer.end(None)


async def _watch_disconnect(buffer: _Buffer, receive: Receive) -> None:
    await wait_for_disconnect(receive)
    buffer.disconnect()
