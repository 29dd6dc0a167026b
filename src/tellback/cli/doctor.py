"""`tellback doctor`: what is set up here, what is missing, and how to mend it."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from tellback.cli.options import DEFAULT_URL, JsonOption, UrlOption
from tellback.cli.printing import create_console, escape_controls, print_json, print_line, to_json_value
from tellback.cli.running import run_async

STATUS_STYLES = {"ok": "green", "off": "dim", "warn": "yellow", "fail": "bold red"}


def doctor(
    url: UrlOption = DEFAULT_URL,
    port: Annotated[int, typer.Option("--port", envvar="TELLBACK_PORT", help="The server's port.")] = 8765,
    as_json: JsonOption = False,
) -> None:
    """Look at this installation: Python, extras, store, models, embedder, port. Nothing is changed.

    What is off is not set up, and need not be. A warning is something that you may do without, a failure something
    that will not work: it exits with 1 then. Keys are looked for and never printed.
    """
    from tellback.cli.checkup import run_checks

    checks = run_async(lambda: run_checks(url, port))
    failures = [check for check in checks if check.status == "fail"]
    if as_json:
        print_json({"ok": not failures, "checks": to_json_value(checks)})
    else:
        table = Table(box=None, pad_edge=False, show_header=False)
        for _ in range(3):
            table.add_column(overflow="fold")
        for check in checks:
            cell = Text(escape_controls(check.found))
            if check.to_do:
                cell.append(f"\n→ {escape_controls(check.to_do)}", style="bold")
            table.add_row(Text(check.status, style=STATUS_STYLES[check.status]), Text(check.what), cell)
        create_console().print(table)
        print_line("All is well." if not failures else f"\n{len(failures)} of these will not work as they are.")
    raise typer.Exit(1 if failures else 0)
