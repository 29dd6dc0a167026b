"""What the commands tell, on standard error."""

from __future__ import annotations

import logging

from rich.console import Console
from rich.logging import RichHandler


def log_to_console(*, verbose: bool) -> None:
    """Show what Tellback logs: colours for people, plain lines for files."""
    console = Console(stderr=True)
    handler: logging.Handler
    if console.is_terminal:
        handler = RichHandler(console=console, show_path=False)
    else:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("tellback").setLevel(logging.DEBUG if verbose else logging.INFO)
