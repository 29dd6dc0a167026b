"""The body of a request: as much as may be, in time, and with one answer whatever becomes of it."""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive, Send

from tellback.errors import RequestTooLargeError
from tellback.server.heads import Refused


class Exchange:
    """A request's body as far as it may go, and its answer.

    A body that is too large or too slow is refused where it is read. If no answer has begun, the `refusal` is the
    answer, whatever the reader makes of it; if one has, the reader is told that the client has gone.
    """

    __slots__ = ("_deadline", "_is_over", "_most", "_receive", "_seconds", "_send", "_size", "has_begun", "refusal")

    def __init__(self, receive: Receive, send: Send, most: int, seconds: float) -> None:
        self._receive = receive
        self._send = send
        self._most = most
        self._seconds = seconds
        self._deadline: float | None = None
        self._size = 0
        self._is_over = False
        self.has_begun = False
        self.refusal: Refused | None = None

    def check(self, length: bytes | None) -> None:
        """Refuse what says that it is too large."""
        if length is None:
            return
        if not length.isdigit() or len(length) > 20:
            raise Refused(400, "malformed", "Content-Length is a number of bytes.")
        if int(length) > self._most:
            raise RequestTooLargeError(f"The body has {int(length)} bytes; {self._most} is the limit here.")

    async def receive(self) -> Message:
        """The next part, or what follows the body."""
        if self._is_over:
            return await self._receive()
        if self.refusal is not None:
            return self._refuse(self.refusal)
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + self._seconds
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            detail = f"The body did not come within {self._seconds:g} seconds."
            return self._refuse(Refused(408, "body-timeout", detail, {"Connection": "close"}))
        self._size += len(message.get("body", b""))
        if self._size > self._most:
            detail = f"The body has more than {self._most} bytes, which is the limit here."
            return self._refuse(Refused(413, "too-large", detail))
        self._is_over = not message.get("more_body", False)
        return message

    def _refuse(self, refusal: Refused) -> Message:
        self.refusal = refusal
        if self.has_begun:
            return {"type": "http.disconnect"}
        raise refusal

    async def send(self, message: Message) -> None:
        """Pass an answer on, unless the body was refused before it began."""
        if not self.has_begun:
            if self.refusal is not None:
                return
            self.has_begun = True
        await self._send(message)
