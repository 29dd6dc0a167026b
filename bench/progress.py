"""A progress bar on stderr."""

from __future__ import annotations

import shutil
import sys

WIDTH = 30
LOG_STEPS = 10
"""How many lines there are where stderr is not a terminal."""


class ProgressBar:
    """Written over in a terminal; elsewhere a line now and then."""

    def __init__(self, total: int) -> None:
        self._total = max(total, 1)
        self._done = 0
        self._last_step = -1
        self._is_terminal = sys.stderr.isatty()

    def step(self, title: str, count: int = 1) -> None:
        """So much more is done, of which the title says what it was."""
        self._done = min(self._done + count, self._total)
        share = self._done / self._total
        if self._is_terminal:
            filled = round(share * WIDTH)
            line = f"[{'#' * filled}{'.' * (WIDTH - filled)}] {share:4.0%} {title}"
            print(f"\r\x1b[K{line[: shutil.get_terminal_size().columns - 1]}", end="", file=sys.stderr, flush=True)
        elif int(share * LOG_STEPS) > self._last_step:
            self._last_step = int(share * LOG_STEPS)
            print(f"{share:4.0%} {title}", file=sys.stderr, flush=True)

    def print_line(self, text: str) -> None:
        """A line of its own, above the bar."""
        self.end()
        print(text, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Take the bar away."""
        if self._is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
