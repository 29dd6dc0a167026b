"""HTTP as it comes in: how long and how large a request's head may be, and how long a client may take nothing."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS = 20.0
HEAD_BYTES = 64 * 1024
"""How long the head of a request may take, and how large it may be. A body has as long once its request is answered."""

STALLED_SECONDS = 60.0
"""For how long a client may take nothing of an answer that waits for it."""


class BoundedProtocol(HttpToolsProtocol):
    """Ends connections whose request does not come, or whose answer is not taken: uvicorn waits without end."""

    head_seconds = HEAD_SECONDS
    stalled_seconds = STALLED_SECONDS

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._in_head = True
        self._head_size = 0
        self._has_moved = False
        self._deadline: asyncio.TimerHandle | None = None
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there."""
        super().connection_made(transport)
        self._begin_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """A client is gone."""
        self._end_waiting()
        self._lose_patience(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A client said something."""
        self._has_moved = False
        super().data_received(data)
        if not self._in_head:
            return
        # What ended a head or a body is no part of the next head, as far as can be told.
        self._head_size = 0 if self._has_moved else self._head_size + len(data)
        if self._head_size > HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response(f"The head of a request has at most {HEAD_BYTES} bytes here.")
        elif self._head_size and self._deadline is None:  # a connection that is idle is uvicorn's to end
            self._begin_waiting()

    def on_headers_complete(self) -> None:
        """The head is read."""
        self._in_head, self._head_size, self._has_moved = False, 0, True
        self._end_waiting()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The body is read, and what follows is another head."""
        self._in_head = self._has_moved = True
        self._end_waiting()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """An answer is given. Nobody reads the rest of its request's body, and uvicorn waits for that without end."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._see_off()
        elif not self._in_head and self.cycle.response_complete:
            self._begin_waiting()

    def pause_writing(self) -> None:
        """The client does not take what is sent."""
        super().pause_writing()
        self._lose_patience(self.loop.call_later(self.stalled_seconds, self.transport.abort))

    def resume_writing(self) -> None:
        """It does again."""
        self._lose_patience(None)
        super().resume_writing()
        if self.transport.is_closing():
            self._see_off()

    def timeout_keep_alive_handler(self) -> None:
        """No other request came."""
        super().timeout_keep_alive_handler()
        self._see_off()

    def _see_off(self, left: int | None = None) -> None:
        """Abort if the client takes none of the last bytes: a transport that is closed waits for that without end."""
        size = self.transport.get_write_buffer_size()
        if size and size == left:
            self.transport.abort()
        elif size:
            self._lose_patience(self.loop.call_later(self.stalled_seconds, self._see_off, size))

    def _lose_patience(self, timer: asyncio.TimerHandle | None) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self._patience = timer

    def _begin_waiting(self) -> None:
        self._deadline = self.loop.call_later(self.head_seconds, self._give_up)

    def _end_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._begin_waiting()  # the request before it is still answered
        elif not self.transport.is_closing():
            self.transport.close()
            self._see_off()
