"""The command `recollect`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; says what to install if that is missing."""
    try:
        from recollect.cli.commands import app
    except ModuleNotFoundError as error:
        if error.name not in ("rich", "typer"):
            raise
        sys.exit("The command `recollect` needs its extra: pip install 'recollect[cli]'")
    app()
