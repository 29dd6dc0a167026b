"""A progress bar on stderr."""

from __future__ import annotations

import shutil
import sys

WIDTH = 30
LOG_STEPS = 10
"""The number of printed lines if stderr is not a terminal."""


class ProgressBar:
    """A bar that is redrawn in a terminal; elsewhere, a line is printed at each tenth."""

    def __init__(self, total: int) -> None:
        self._total = max(total, 1)
        self._done = 0
        self._last_step = -1
        self._is_terminal = sys.stderr.isatty()

    def step(self, title: str, count: int = 1) -> None:
        """Advance the bar by `count`, and show the title of the finished step."""
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
        """Print a line above the bar."""
        self.end()
        print(text, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Remove the bar."""
        if self._is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
