"""What a child process writes to its standard error, line by line into the log."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque

MAX_LINE = 1_000
MAX_LINES_A_SECOND = 100

log = logging.getLogger("recollect.tools.mcp")


class StderrLog(asyncio.Protocol):
    """Logs lines under the server's name, not more than so many a second, and keeps the last ones."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._rest = b""
        self._second = 0
        self._logged = 0
        self._left_out = 0
        self.last: deque[str] = deque(maxlen=5)
        self.ended = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:MAX_LINE]  # of an endless line the beginning is enough
        for line in lines:
            self._take(line)

    def connection_lost(self, exc: Exception | None) -> None:
        self._take(self._rest)
        self._report_left_out()
        self.ended.set()

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


class StderrPipe:
    """A pipe whose writing end is for a child process, and whose reading end goes to the log."""

    def __init__(self, lines: StderrLog) -> None:
        self._lines = lines
        self._reading: asyncio.ReadTransport | None = None

    async def open(self) -> int:
        """The file descriptor to write to; whoever asked closes it once the child has it."""
        reading, writing = os.pipe()
        try:
            self._reading, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: self._lines, os.fdopen(reading, "rb", 0)
            )
        except BaseException:
            os.close(writing)
            raise
        return writing

    async def close(self) -> None:
        """Take what is still in the pipe, unless somebody the child left behind keeps it open, and close it."""
        if self._reading is None:
            return
        await asyncio.wait({asyncio.ensure_future(self._lines.ended.wait())}, timeout=0.2)
        self._reading.close()
        await self._lines.ended.wait()
