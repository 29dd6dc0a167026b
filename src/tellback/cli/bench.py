"""`tellback bench`: how quick this installation is on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from tellback.cli.options import AsJson
from tellback.cli.printing import console, plain, say, show_json, show_table
from tellback.cli.running import run

NOTE = (
    "This measures this installation on this machine, now, and compares nothing: `make bench` in the repository"
    " measures it beside others, in one run."
)


def bench(
    atoms: Annotated[
        int, typer.Option("--atoms", min=10, max=100_000, help="How many memories to recall from.")
    ] = 1_000,
    rounds: Annotated[int, typer.Option("--rounds", min=3, max=10_000, help="How often each thing is done.")] = 100,
    as_json: AsJson = False,
) -> None:
    """Measure this installation: import, append, a turn, recall. It takes some seconds, and leaves nothing behind.

    A turn is with a model that answers at once, so it is what Tellback itself takes. CPU is that of all threads.
    """
    from tellback.cli.measuring import measured

    with console(stderr=True).status("Measuring…") as status:
        found = run(lambda: measured(atoms, rounds, lambda what: status.update(f"Measuring: {what}…")))
    if as_json:
        show_json({"atoms": atoms, "rounds": rounds, "measures": plain(found), "note": NOTE})
        return
    rows = [
        (each.what, str(each.rounds), _ms(each.median_ms), _ms(each.p95_ms), _ms(each.cpu_ms), each.note)
        for each in found
    ]
    show_table(("WHAT", "TIMES", "MEDIAN", "95%", "CPU EACH", ""), rows)
    say(f"\n{NOTE}")


def _ms(value: float) -> str:
    return f"{value:.2f} ms" if value < 100 else f"{value:.0f} ms"
