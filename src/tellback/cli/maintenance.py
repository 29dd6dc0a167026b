"""The `tellback doctor`, `migrate` and `bench` commands: check the installation, migrate a store, run benchmarks."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from tellback.cli.options import DEFAULT_URL, JsonOption, UrlOption
from tellback.cli.output import (
    create_console,
    escape_controls,
    format_count,
    print_json,
    print_line,
    print_table,
    to_json_value,
)
from tellback.cli.runner import fail, open_app, run_async

if TYPE_CHECKING:
    from tellback.app import Tellback

STATUS_STYLES = {"ok": "green", "off": "dim", "warn": "yellow", "fail": "bold red"}

BENCH_NOTE = (
    "These numbers are for this installation on this machine. To compare Tellback with other libraries, run"
    " `make bench` in the repository."
)
INTERPRETER_STARTS = 5
"""How many interpreters the import benchmark starts: few, since starting one is slow, and the times vary little."""

SUBJECTS = ("Maya", "Tom", "Lena", "the dentist", "grandmother", "the landlord", "Ravi", "the choir")
ACTIONS = ("moved to", "called about", "booked a table in", "wrote from", "dreams of", "was born in", "works in")
PLACES = ("Lisbon", "Porto", "Hamburg", "a village near Turin", "the old town", "Kyoto", "Cork", "the harbour")


@dataclass(frozen=True, slots=True)
class Measure:
    """The duration of one operation in milliseconds: the median and the 95th percentile.

    `cpu_ms` is the mean CPU time of all threads of the process.
    """

    what: str
    rounds: int
    median_ms: float
    p95_ms: float
    cpu_ms: float
    note: str = ""


def doctor(
    url: UrlOption = DEFAULT_URL,
    port: Annotated[int, typer.Option("--port", envvar="TELLBACK_PORT", help="Port of the server.")] = 8765,
    as_json: JsonOption = False,
) -> None:
    """Check this installation: Python, extras, store, models, embedder and port. Changes nothing.

    Each line has a status. off: optional, and not set up. warn: works, with limits. fail: does not work.
    The exit code is 1 if a check fails. API keys are never printed.
    """
    from tellback.cli.diagnostics import run_checks

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
        count = format_count(len(failures), "check")
        print_line(f"\n{count} failed." if failures else "\nNo check failed.")
    raise typer.Exit(1 if failures else 0)


def migrate(
    url: UrlOption = DEFAULT_URL,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit with 1 if a migration is needed.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Migrate a store's schema to the version of this release.

    Opening a store also migrates it. If several processes share a store, migrate it before they start. Back up the
    file or the database first: older releases cannot open a migrated store.
    """
    from tellback.cli.diagnostics import inspect_store

    before = run_async(lambda: inspect_store(url))
    if before.is_ahead:
        fail(
            f"{before.place} has schema version {before.version}, but this release supports only {before.needed} or"
            " lower: upgrade Tellback."
        )
    after = before
    if not before.exists and before.kind == "SQLite":
        fail(f"There is no store at {before.place}: pass --url or set TELLBACK_URL.")
    if not check and (before.is_behind or not before.exists):
        run_async(lambda: _migrate_store(url))
        after = run_async(lambda: inspect_store(url))
    is_behind = after.version < after.needed
    if as_json:
        store = {name: getattr(after, name) for name in ("kind", "place", "version", "needed")}
        print_json({**store, "migrated_from": before.version if after.version != before.version else None})
    elif is_behind:
        print_line(
            f"{after.place} has schema version {after.version}, but this release needs {after.needed}:"
            " run `tellback migrate`."
        )
    elif after.version != before.version:
        print_line(f"Migrated {after.place} from schema version {before.version} to {after.version}.")
    else:
        print_line(f"{after.place} is up to date (schema version {after.version}).")
    raise typer.Exit(1 if is_behind else 0)


async def _migrate_store(url: str) -> None:
    async with open_app(url, embedder=None):
        pass  # opening the store migrates it


def bench(
    atoms: Annotated[int, typer.Option("--atoms", min=10, max=100_000, help="Number of memories to search.")] = 1_000,
    rounds: Annotated[
        int, typer.Option("--rounds", min=3, max=10_000, help="How many times to repeat each operation.")
    ] = 100,
    as_json: JsonOption = False,
) -> None:
    """Measure how long it takes to load the package, store a message, run a turn and recall. Takes a few seconds.

    The benchmark of a turn uses a fake model that answers immediately, so the result contains no model time. The column
    CPU is the processor time of all threads together. The benchmark uses temporary files, and does not use your store.
    """
    with create_console(stderr=True).status("Measuring…") as status:
        measures = run_async(lambda: _measure_all(atoms, rounds, lambda step: status.update(f"Measuring: {step}…")))
    if as_json:
        print_json({"atoms": atoms, "rounds": rounds, "measures": to_json_value(measures), "note": BENCH_NOTE})
        return
    rows = [
        (each.what, str(each.rounds), *map(_format_ms, (each.median_ms, each.p95_ms, each.cpu_ms)), each.note)
        for each in measures
    ]
    print_table(("OPERATION", "ROUNDS", "MEDIAN", "P95", "CPU", "NOTE"), rows)
    print_line(f"\n{BENCH_NOTE}")


def _format_ms(value: float) -> str:
    return f"{value:.2f} ms" if value < 100 else f"{value:.0f} ms"


async def _measure_all(atoms: int, rounds: int, on_step: Callable[[str], None]) -> list[Measure]:
    from tellback.app import Tellback
    from tellback.testing import FunctionModel

    on_step("import")
    measures = [await asyncio.to_thread(_measure_import)]
    with tempfile.TemporaryDirectory(prefix="tellback-bench-") as folder:
        model = FunctionModel(lambda _: "All is well.")
        async with Tellback(Path(folder) / "bench.db", model=model, summary_every=None, patterns=None) as tb:
            on_step("append")
            measures.append(await _measure_append(tb, rounds))
            on_step("a turn")
            measures.append(await _measure_turn(tb, rounds))
            on_step(f"recall from {atoms} memories")
            measures.append(await _measure_recall(tb, atoms, rounds))
    return measures


def _measure_import() -> Measure:
    program = (
        "import time; began = time.perf_counter(), time.process_time(); from tellback import Tellback;"
        "print(time.perf_counter() - began[0], time.process_time() - began[1])"
    )
    wall_ms, cpu_ms = [], []
    for _ in range(INTERPRETER_STARTS):
        completed = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ
        )
        wall, cpu = map(float, completed.stdout.split())
        wall_ms.append(wall * 1_000)
        cpu_ms.append(cpu * 1_000)
    return _summarize("import Tellback", wall_ms, sum(cpu_ms) / len(cpu_ms), "in a fresh interpreter")


async def _measure_append(tb: Tellback, rounds: int) -> Measure:
    user = tb.user("bench-append")
    conversation = await user.conversations.create("bench")
    await user.conversations.append_user_message(conversation.id, "The first one warms up.")

    async def append(number: int) -> None:
        text = f"Message {number} is about {_sample_fact(number)}"
        await user.conversations.append_user_message(conversation.id, text)

    return await _time_rounds("append a message", rounds, append, "committed to a file")


async def _measure_turn(tb: Tellback, rounds: int) -> Measure:
    user = tb.user("bench-turn")
    await user.chat("Hello.")
    return await _time_rounds(
        "a turn", rounds, lambda number: user.chat(_sample_fact(number)), "recall, store, answer, store"
    )


async def _measure_recall(tb: Tellback, atoms: int, rounds: int) -> Measure:
    memory = tb.user("bench-recall").memory
    space = await memory.create_space("bench")
    await memory.add_atoms(space.id, [{"text": _sample_fact(number)} for number in range(atoms)])
    await memory.recall_by_topic(space.id, "Who moved to Lisbon?")

    async def recall(number: int) -> None:
        subject, place = SUBJECTS[number % len(SUBJECTS)], PLACES[number // 8 % len(PLACES)]
        await memory.recall_by_topic(space.id, f"What did {subject} do in {place}?")

    return await _time_rounds(f"recall from {atoms:,}", rounds, recall, "by topic, 10 hits")


async def _time_rounds(label: str, rounds: int, work: Callable[[int], Awaitable[object]], note: str) -> Measure:
    wall_ms = []
    cpu_started = time.process_time()
    for number in range(rounds):
        started = time.perf_counter()
        await work(number)
        wall_ms.append((time.perf_counter() - started) * 1_000)
    return _summarize(label, wall_ms, (time.process_time() - cpu_started) * 1_000 / rounds, note)


def _summarize(label: str, wall_ms: list[float], cpu_ms: float, note: str) -> Measure:
    from statistics import median  # slow to import, and only this command needs it

    ordered = sorted(wall_ms)
    p95 = ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))]
    return Measure(label, len(wall_ms), round(median(wall_ms), 3), round(p95, 3), round(cpu_ms, 3), note)


def _sample_fact(number: int) -> str:
    subject, action = SUBJECTS[number % len(SUBJECTS)], ACTIONS[number // 8 % len(ACTIONS)]
    return f"{subject} {action} {PLACES[number // 56 % len(PLACES)]} on day {number}."
