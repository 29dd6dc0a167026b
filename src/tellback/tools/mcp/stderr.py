"""What a child process writes to its standard error, line by line into the log."""

from __future__ import annotations

import asyncio
import logging
from collections import deque

MAX_LINE = 1_000
MAX_LINES_A_SECOND = 100

log = logging.getLogger("tellback.tools.mcp")


class StderrLog:
    """Logs lines under the server's name, not more than so many a second, and keeps the last ones."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._rest = b""
        self._second = 0
        self._logged = 0
        self._left_out = 0
        self.last: deque[str] = deque(maxlen=5)

    def data_received(self, data: bytes) -> None:
        """Take what was written."""
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:MAX_LINE]  # of an endless line the beginning is enough
        for line in lines:
            self._take(line)

    def connection_lost(self, exc: Exception | None) -> None:
        """Take what has no line's end."""
        self._take(self._rest)
        self._report_left_out()

    def _take(self, line: bytes) -> None:
        text = line[:MAX_LINE].decode(errors="replace").strip()
        if not text:
            return
        self.last.append(text)
        second = int(asyncio.get_running_loop().time())
        if second != self._second:
            self._report_left_out()
            self._second, self._logged = second, 0
        if self._logged < MAX_LINES_A_SECOND:
            self._logged += 1
            log.info("%s: %s", self._server, text)
        else:
            self._left_out += 1

    def _report_left_out(self) -> None:
        if self._left_out:
            log.info("%s: %d more lines were left out", self._server, self._left_out)
            self._left_out = 0
