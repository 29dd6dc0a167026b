"""The command `tellback`.

One module per group of commands; `app` puts them together, `options`, `output` and `runner` are shared.
The top layer: nothing imports it.
"""

from __future__ import annotations

import io
import sys

MIN_PYTHON = (3, 11)


def main() -> None:
    """Run the command line; exit with an installation hint if the CLI packages are missing."""
    if sys.version_info < MIN_PYTHON:
        required, running = (".".join(map(str, version[:2])) for version in (MIN_PYTHON, sys.version_info))
        sys.exit(f"Tellback requires Python {required} or later, but this is Python {running}.")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # the terminal's encoding may lack a character
    try:
        from tellback.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in ("rich", "typer"):
            raise
        sys.exit("The `tellback` command requires the cli extra: pip install 'tellback[cli]'")
    except KeyboardInterrupt:
        sys.exit(130)
    app()
