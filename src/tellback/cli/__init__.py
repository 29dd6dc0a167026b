"""The command `tellback`."""

from __future__ import annotations

import io
import sys

OLDEST = (3, 11)


def main() -> None:
    """Run the command line; says what to install if that is missing."""
    if sys.version_info < OLDEST:
        wanted, there = (".".join(map(str, version[:2])) for version in (OLDEST, sys.version_info))
        sys.exit(f"Tellback needs Python {wanted} or later, and this is {there}: install a newer one.")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # not every terminal can show every character
    try:
        from tellback.cli.commands import app
    except ModuleNotFoundError as error:
        if error.name not in ("rich", "typer"):
            raise
        sys.exit("The command `tellback` needs its extra: pip install 'tellback[cli]'")
    except KeyboardInterrupt:
        sys.exit(130)
    app()
