"""HTTP as it comes in: how long and how large a request's head may be, and how long a client may take nothing."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADER_SECONDS = 20.0
MAX_HEADER_BYTES = 64 * 1024
"""How long the head of a request may take, and how large it may be. A body has as long once its request is answered."""

STALLED_SECONDS = 60.0
"""For how long a client may take nothing of an answer that waits for it."""


class BoundedProtocol(HttpToolsProtocol):
    """Ends connections whose request does not come, or whose answer is not taken: uvicorn waits without end."""

    header_seconds = HEADER_SECONDS
    stalled_seconds = STALLED_SECONDS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_headers = True
        self._header_size = 0
        self._has_progressed = False
        self._deadline: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there."""
        super().connection_made(transport)
        self._start_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """A client is gone."""
        self._cancel_deadline()
        self._set_stall_timer(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A client said something."""
        self._has_progressed = False
        super().data_received(data)
        if not self._in_headers:
            return
        # What ended a head or a body is no part of the next head, as far as can be told.
        self._header_size = 0 if self._has_progressed else self._header_size + len(data)
        if self._header_size > MAX_HEADER_BYTES and not self.transport.is_closing():
            self.send_400_response(f"The head of a request has at most {MAX_HEADER_BYTES} bytes here.")
        elif self._header_size and self._deadline is None:  # a connection that is idle is uvicorn's to end
            self._start_deadline()

    def on_headers_complete(self) -> None:
        """The head is read."""
        self._in_headers, self._header_size, self._has_progressed = False, 0, True
        self._cancel_deadline()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The body is read, and what follows is another head."""
        self._in_headers = self._has_progressed = True
        self._cancel_deadline()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """An answer is given. Nobody reads the rest of its request's body, and uvicorn waits for that without end."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._abort_if_stalled()
        elif not self._in_headers and self.cycle.response_complete:
            self._start_deadline()

    def pause_writing(self) -> None:
        """The client does not take what is sent."""
        super().pause_writing()
        self._set_stall_timer(self.loop.call_later(self.stalled_seconds, self.transport.abort))

    def resume_writing(self) -> None:
        """It does again."""
        self._set_stall_timer(None)
        super().resume_writing()
        if self.transport.is_closing():
            self._abort_if_stalled()

    def timeout_keep_alive_handler(self) -> None:
        """No other request came."""
        super().timeout_keep_alive_handler()
        self._abort_if_stalled()

    def _abort_if_stalled(self, previous_size: int | None = None) -> None:
        """Abort if the client takes none of the last bytes: a transport that is closed waits for that without end."""
        size = self.transport.get_write_buffer_size()
        if size and size == previous_size:
            self.transport.abort()
        elif size:
            self._set_stall_timer(self.loop.call_later(self.stalled_seconds, self._abort_if_stalled, size))

    def _set_stall_timer(self, timer: asyncio.TimerHandle | None) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
        self._stall_timer = timer

    def _start_deadline(self) -> None:
        self._deadline = self.loop.call_later(self.header_seconds, self._close_on_deadline)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close_on_deadline(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._start_deadline()  # the request before it is still answered
        elif not self.transport.is_closing():
            self.transport.close()
            self._abort_if_stalled()
