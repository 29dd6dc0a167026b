"""`tellback doctor`: what is set up here, what is missing, and how to mend it."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from tellback.cli.options import DEFAULT_URL, AsJson, Url
from tellback.cli.printing import console, plain, safe, say, show_json
from tellback.cli.running import run

STYLES = {"ok": "green", "off": "dim", "warn": "yellow", "fail": "bold red"}


def doctor(
    url: Url = DEFAULT_URL,
    port: Annotated[int, typer.Option("--port", envvar="TELLBACK_PORT", help="The server's port.")] = 8765,
    as_json: AsJson = False,
) -> None:
    """Look at this installation: Python, extras, store, models, embedder, port. Nothing is changed.

    What is off is not set up, and need not be. A warning is something that you may do without, a failure something
    that will not work: it exits with 1 then. Keys are looked for and never printed.
    """
    from tellback.cli.checkup import checkup

    found = run(lambda: checkup(url, port))
    failures = [check for check in found if check.status == "fail"]
    if as_json:
        show_json({"ok": not failures, "checks": plain(found)})
    else:
        table = Table(box=None, pad_edge=False, show_header=False)
        for _ in range(3):
            table.add_column(overflow="fold")
        for check in found:
            cell = Text(safe(check.found))
            if check.to_do:
                cell.append(f"\n→ {safe(check.to_do)}", style="bold")
            table.add_row(Text(check.status, style=STYLES[check.status]), Text(check.what), cell)
        console().print(table)
        say("All is well." if not failures else f"\n{len(failures)} of these will not work as they are.")
    raise typer.Exit(1 if failures else 0)
