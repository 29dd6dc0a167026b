"""Server-sent events: many at once in few writes, none for a client that has gone, a sign of life in between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tellback.background import stopped
from tellback.server.disconnects import until_gone
from tellback.server.problems import problem_for
from tellback.server.settings import ServerSettings
from tellback.server.stopping import Stopping, refusal

log = logging.getLogger("tellback.server")

MEDIA_TYPE = "text/event-stream"
HEARTBEAT = b": \n\n"
BUFFER_BYTES = 64 * 1024
"""How much may wait for a client that reads slowly, before what makes it has to wait too."""

RETRY_MS = 2_000
"""After how long a browser connects again."""


def frame(event: str | None, data: bytes, id: int | str | None = None) -> bytes:
    """An event. `data` is JSON, which has no line breaks; a name or an id that could break the frame is refused.

    >>> frame("text", b'{"text":"Hi"}', 7)
    b'id: 7\\nevent: text\\ndata: {"text":"Hi"}\\n\\n'
    """
    head = ""
    if id is not None:
        head = f"id: {id}\n"
    if event is not None:
        head += f"event: {event}\n"
    is_plain = id is None or isinstance(id, int) or id.isprintable()
    if b"\n" in data or b"\r" in data or not is_plain or not (event is None or event.isprintable()):
        raise ValueError("what is in a frame has no line breaks")
    return b"%bdata: %b\n\n" % (head.encode(), data)


def error_frame(error: Exception, request_id: str | None) -> bytes:
    """The last frame of a stream that failed."""
    return frame("error", bytes(problem_for(error, request_id).body))


class EventStream(Response):
    """An answer of frames, as an iterator gives them.

    The iterator is closed at once when the client goes away or takes nothing for too long. What it raises before its
    first frame is answered like any other error, unless that takes longer than a heartbeat; later it becomes the last
    frame, by `on_error`. `retry` is after how many milliseconds a browser should connect again.
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
        self._first = b"" if retry is None else b"retry: %d\n\n" % retry
        self._on_error = on_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = scope.get("state", {}).get("request_id")
        if Stopping.of(scope["app"]).is_set:
            await self._frames.aclose()
            await refusal(request_id)(scope, receive, send)
            return
        buffer = _Buffer()
        tasks = (
            asyncio.create_task(_fill(buffer, self._frames), name="tellback frames"),
            asyncio.create_task(_watch(buffer, receive), name="tellback disconnect"),
        )
        try:
            await self._send_all(buffer, send, request_id)
        finally:
            await stopped(*tasks)

    async def _send_all(self, buffer: _Buffer, send: Send, request_id: str | None) -> None:
        has_begun = False
        while True:
            has_news = await buffer.news(self._settings.heartbeat_seconds)
            if buffer.is_gone:
                return
            body = buffer.take() if has_news else HEARTBEAT
            error = buffer.error if buffer.is_over else None
            if not has_begun:
                if error is not None and not body:
                    raise error
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                has_begun, body = True, self._first + body
            if error is not None:
                body += self._on_error(error, request_id)
            message = {"type": "http.response.body", "body": body, "more_body": not buffer.is_over}
            try:
                async with asyncio.timeout(self._settings.stalled_seconds):
                    await send(message)
            except TimeoutError:
                log.warning("a client took nothing for %g seconds, and was left", self._settings.stalled_seconds)
                return
            if not message["more_body"]:
                return


class _Buffer:
    """What waits to be sent."""

    def __init__(self) -> None:
        self._frames: list[bytes] = []
        self._size = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self.is_over = False
        self.is_gone = False
        self.error: Exception | None = None

    def put(self, piece: bytes) -> bool:
        """Whether there is room for more."""
        self._frames.append(piece)
        self._size += len(piece)
        self._news.set()
        return self._size < BUFFER_BYTES

    async def room(self) -> None:
        """Wait until what is there has been taken."""
        self._room.clear()
        await self._room.wait()

    def take(self) -> bytes:
        """All that is there."""
        taken = b"".join(self._frames)
        self._frames.clear()
        self._size = 0
        self._news.clear()
        self._room.set()
        return taken

    def end(self, error: Exception | None) -> None:
        """Nothing more comes."""
        self.is_over, self.error = True, error
        self._news.set()

    def leave(self) -> None:
        """Nobody reads it any more."""
        self.is_gone = True
        self._news.set()

    async def news(self, seconds: float) -> bool:
        """Wait for something to send, or for the end; False if nothing came for so long."""
        if self._news.is_set():
            return True
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return self._news.is_set()
        return True


async def _fill(buffer: _Buffer, frames: AsyncGenerator[bytes, None]) -> None:
    try:
        async with aclosing(frames):
            async for piece in frames:
                if not buffer.put(piece):
                    await buffer.room()
    except Exception as error:  # noqa: BLE001 - whatever it is, the client is told that it has failed
        buffer.end(error)
    else:
        buffer.end(None)


async def _watch(buffer: _Buffer, receive: Receive) -> None:
    await until_gone(receive)
    buffer.leave()
