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
        self._partial_line = b""
        self._current_second = 0
        self._logged_lines = 0
        self._skipped_lines = 0
        self.last_lines: deque[str] = deque(maxlen=5)

    def data_received(self, data: bytes) -> None:
        """Take what was written."""
        *lines, rest = (self._partial_line + data).split(b"\n")
        self._partial_line = rest[:MAX_LINE]  # of an endless line the beginning is enough
        for line in lines:
            self._log_line(line)

    def connection_lost(self, exc: Exception | None) -> None:
        """Take what has no line's end."""
        self._log_line(self._partial_line)
        self._report_skipped()

    def _log_line(self, line: bytes) -> None:
        text = line[:MAX_LINE].decode(errors="replace").strip()
        if not text:
            return
        self.last_lines.append(text)
        second = int(asyncio.get_running_loop().time())
        if second != self._current_second:
            self._report_skipped()
            self._current_second, self._logged_lines = second, 0
        if self._logged_lines < MAX_LINES_A_SECOND:
            self._logged_lines += 1
            log.info("%s: %s", self._server, text)
        else:
            self._skipped_lines += 1

    def _report_skipped(self) -> None:
        if self._skipped_lines:
            log.info("%s: %d more lines were left out", self._server, self._skipped_lines)
            self._skipped_lines = 0
