"""Measure what a turn costs when it is stored on disk, and how fast appends are, for Tellback and its peers.

In a turn the user's message arrives, a fake model that takes no time receives the history from the library and answers,
and both messages are stored in a SQLite file. Conversations have 10, 100 and 1,000 messages, Tellback's also 10,000.
Every batch of turns runs in a fresh file, on conversations filled before the clock starts (workers/persist_batches.py).

CPU time is that of the whole process, all threads. Bytes are the growth of the database: while the clock is
stopped before and after a batch, a second connection empties the log into the file, and the sizes of both files are
added up. So they count whole pages that remain on disk, not all bytes written on the way.

Appends are single messages from 8 tasks into one conversation, each awaited. They are compared with plain SQLite in the
same run: one connection, WAL, synchronous=NORMAL, one such row per transaction, in a table without other indexes.

    python bench/persist.py
    python bench/persist.py --only tellback,agno --rounds 3 --json -
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from contenders import ENVIRONMENTS, Contender, persistence_contenders
from persist_report import APPENDS, checks, kind_of, table
from report import summary
from runner import Progress, Run, build_parser, parse_options, publish, rotate

LENGTHS = (10, 100, 1_000)
LONGEST = 10_000
MIN_LENGTH = 10
BATCH_MS = 300.0
"""CPU time of one batch: enough turns that a page more or less does not matter, few enough to interleave."""
MIN_COUNT = 20
MAX_COUNT = 10_000

Task = tuple[str, str, int | None]
"""The contender, the kind of work, and the length of the conversation."""


class Bench(Run):
    """One run and its samples: by contender, kind and measure."""

    def __init__(self, contenders: Sequence[Contender], progress: Progress, folder: Path) -> None:
        super().__init__(contenders, progress)
        self._folder = folder
        self.samples: dict[str, dict[str, dict[str, list[float]]]] = defaultdict(
            lambda: defaultdict(lambda: defaultdict(list))
        )

    def run(self, rounds: int, lengths: Sequence[int], longest: int, batch_ms: float) -> None:
        try:
            self.start()
            counts: dict[Task, int] = {}
            for task in self._tasks(lengths, longest):
                self.report_progress(f"warming up {_task_title(task)}")
                answer = self._ask(task, None)
                if answer is not None:
                    counts[task] = max(MIN_COUNT, min(MAX_COUNT, round(batch_ms / answer["estimate_ms"])))
            for index in range(rounds):
                for task in rotate([*counts], index):
                    self.report_progress(f"round {index + 1} of {rounds}: {_task_title(task)}")
                    for measure, value in (self._ask(task, counts[task]) or {}).items():
                        self.samples[task[0]][kind_of(*task[1:])][measure].append(value)
        finally:
            self.stop()

    def result(self, rounds: int, lengths: Sequence[int], longest: int) -> dict[str, Any]:
        numbers = {
            contender.name: {
                kind: {measure: summary(values) for measure, values in measures.items()}
                for kind, measures in self.samples[contender.name].items()
            }
            for contender in self.remaining
        }
        return {
            "python": platform.python_version(),
            "platform": platform.platform(),
            "rounds": rounds,
            "lengths": [*lengths],
            "longest": longest,
            "titles": self.titles,
            "versions": self.versions,
            "failed": self.failed,
            "numbers": numbers,
            "checks": checks(numbers, lengths, longest),
        }

    def _tasks(self, lengths: Sequence[int], longest: int) -> list[Task]:
        """Return the tasks; compared tasks run directly after one another, so that the machine's load affects both."""
        names = [contender.name for contender in self.remaining]
        tasks: list[Task] = [(name, "turn", length) for length in lengths for name in names]
        if "tellback" in names:
            if longest not in lengths:
                tasks.append(("tellback", "turn", longest))
            tasks.extend(("tellback", kind, None) for kind in APPENDS)
        return tasks

    def _ask(self, task: Task, count: int | None) -> dict[str, Any] | None:
        name, kind, length = task
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        return self.attempt(name, partial(self.worker(name).ask, kind, count, length=length, folder=str(folder)))


def main(arguments: Sequence[str] | None = None) -> int:
    contenders = persistence_contenders()
    options = _options(arguments, [contender.name for contender in contenders])
    progress = Progress()
    ENVIRONMENTS.mkdir(exist_ok=True)
    # The system's temporary folder may be in memory, which would hide the cost of the disk.
    with tempfile.TemporaryDirectory(prefix="persist-", dir=ENVIRONMENTS) as folder:
        bench = Bench([contender for contender in contenders if contender.name in options.only], progress, Path(folder))
        bench.prepare(install=not options.skip_install)
        bench.run(options.rounds, options.lengths, options.longest, options.batch_ms)
    progress.end()

    result = bench.result(options.rounds, options.lengths, options.longest)
    publish(result, table(result), options.json)
    missed = any(check["met"] is not True for check in result["checks"])
    return 1 if bench.failed or (options.check and missed) else 0


def _options(arguments: Sequence[str] | None, names: Sequence[str]) -> argparse.Namespace:
    parser = build_parser(__doc__, names, rounds=7)
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)), help="messages in a conversation, for all")
    parser.add_argument("--longest", type=int, default=LONGEST, help=f"for Tellback alone (default: {LONGEST})")
    parser.add_argument(
        "--batch-ms", type=float, default=BATCH_MS, help=f"CPU time of a batch (default: {BATCH_MS:.0f})"
    )
    options = parse_options(parser, arguments, names)
    try:
        options.lengths = sorted({int(length) for length in options.lengths.split(",")})
    except ValueError:
        parser.error("--lengths must be numbers separated by commas")
    if any(length < MIN_LENGTH or length % 2 for length in [*options.lengths, options.longest]):
        parser.error(f"--lengths and --longest must be even numbers of at least {MIN_LENGTH}")
    return options


def _task_title(task: Task) -> str:
    return f"{task[0]}, {kind_of(*task[1:])}"


if __name__ == "__main__":
    sys.exit(main())
