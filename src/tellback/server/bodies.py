"""The body of a request: as much as may be, in time, and with one answer whatever becomes of it."""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive, Send

from tellback.errors import RequestTooLargeError
from tellback.server.heads import RequestRejectedError


class BoundedExchange:
    """A request's body as far as it may go, and its answer.

    A body that is too large or too slow is refused where it is read. If no answer has begun, the `refusal` is the
    answer, whatever the reader makes of it; if one has, the reader is told that the client has gone.
    """

    __slots__ = ("_deadline", "_is_complete", "_max_bytes", "_receive", "_seconds", "_send", "_size", "has_started", "rejection")

    def __init__(self, receive: Receive, send: Send, max_bytes: int, seconds: float) -> None:
        self._receive = receive
        self._send = send
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._deadline: float | None = None
        self._size = 0
        self._is_complete = False
        self.has_started = False
        self.rejection: RequestRejectedError | None = None

    def check_length(self, length: bytes | None) -> None:
        """Refuse what says that it is too large."""
        if length is None:
            return
        if not length.isdigit() or len(length) > 20:
            raise RequestRejectedError(400, "malformed", "Content-Length is a number of bytes.")
        if int(length) > self._max_bytes:
            raise RequestTooLargeError(f"The body has {int(length)} bytes; {self._max_bytes} is the limit here.")

    async def receive(self) -> Message:
        """The next part, or what follows the body."""
        if self._is_complete:
            return await self._receive()
        if self.rejection is not None:
            return self._reject(self.rejection)
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + self._seconds
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            detail = f"The body did not come within {self._seconds:g} seconds."
            return self._reject(RequestRejectedError(408, "body-timeout", detail, {"Connection": "close"}))
        self._size += len(message.get("body", b""))
        if self._size > self._max_bytes:
            detail = f"The body has more than {self._max_bytes} bytes, which is the limit here."
            return self._reject(RequestRejectedError(413, "too-large", detail))
        self._is_complete = not message.get("more_body", False)
        return message

    def _reject(self, rejection: RequestRejectedError) -> Message:
        self.rejection = rejection
        if self.has_started:
            return {"type": "http.disconnect"}
        raise rejection

    async def send(self, message: Message) -> None:
        """Pass an answer on, unless the body was refused before it began."""
        if not self.has_started:
            if self.rejection is not None:
                return
            self.has_started = True
        await self._send(message)
