"""A progress bar on stderr."""

from __future__ import annotations

import shutil
import sys

WIDTH = 30
QUIET_STEPS = 10
"""How many lines there are where stderr is not a terminal."""


class Bar:
    """Written over in a terminal; elsewhere a line now and then."""

    def __init__(self, total: int) -> None:
        self._total = max(total, 1)
        self._done = 0
        self._told = -1
        self._live = sys.stderr.isatty()

    def step(self, title: str, count: int = 1) -> None:
        """So much more is done, of which the title says what it was."""
        self._done = min(self._done + count, self._total)
        share = self._done / self._total
        if self._live:
            filled = round(share * WIDTH)
            line = f"[{'#' * filled}{'.' * (WIDTH - filled)}] {share:4.0%} {title}"
            print(f"\r\x1b[K{line[: shutil.get_terminal_size().columns - 1]}", end="", file=sys.stderr, flush=True)
        elif int(share * QUIET_STEPS) > self._told:
            self._told = int(share * QUIET_STEPS)
            print(f"{share:4.0%} {title}", file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        """A line of its own, above the bar."""
        self.end()
        print(text, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Take the bar away."""
        if self._live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
