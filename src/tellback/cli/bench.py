"""`tellback bench`: how quick this installation is on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from tellback.cli.options import JsonOption
from tellback.cli.printing import create_console, print_json, print_line, print_table, to_json_value
from tellback.cli.running import run_async

BENCH_NOTE = (
    "This measures this installation on this machine, now, and compares nothing: `make bench` in the repository"
    " measures it beside others, in one run."
)


def bench(
    atoms: Annotated[
        int, typer.Option("--atoms", min=10, max=100_000, help="How many memories to recall from.")
    ] = 1_000,
    rounds: Annotated[int, typer.Option("--rounds", min=3, max=10_000, help="How often each thing is done.")] = 100,
    as_json: JsonOption = False,
) -> None:
    """Measure this installation: import, append, a turn, recall. It takes some seconds, and leaves nothing behind.

    A turn is with a model that answers at once, so it is what Tellback itself takes. CPU is that of all threads.
    """
    from tellback.cli.measuring import measure_all

    with create_console(stderr=True).status("Measuring…") as status:
        measures = run_async(lambda: measure_all(atoms, rounds, lambda step: status.update(f"Measuring: {step}…")))
    if as_json:
        print_json({"atoms": atoms, "rounds": rounds, "measures": to_json_value(measures), "note": BENCH_NOTE})
        return
    rows = [
        (
            each.what,
            str(each.rounds),
            _format_ms(each.median_ms),
            _format_ms(each.p95_ms),
            _format_ms(each.cpu_ms),
            each.note,
        )
        for each in measures
    ]
    print_table(("WHAT", "TIMES", "MEDIAN", "95%", "CPU EACH", ""), rows)
    print_line(f"\n{BENCH_NOTE}")


def _format_ms(value: float) -> str:
    return f"{value:.2f} ms" if value < 100 else f"{value:.0f} ms"
