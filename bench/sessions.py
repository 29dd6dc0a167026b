"""Measure what it costs to save a turn of a session and to load a session, by database, for Tellback and its peers.

Saving a turn stores the session's position, five gathered values, and two messages of 120 characters, in one step. With
Tellback that is `Persistence.save`, including its version check. Loading returns the session and its last 30 messages.
Sessions have 10 messages (so only 10 are loaded) and 5,000. A single task awaits each operation before the next.

LangGraph's savers store the state of a graph, including messages, and write one checkpoint here, which favours them: a
run writes several. They load all messages. The sessions of the OpenAI Agents SDK store messages only, without a
position, versions, or a step that writes both.

CPU time is that of the worker's process, all threads, and not of the server. Wall time includes the server and its
disk, and depends on a library's durability settings: Tellback's SQLite does not wait for the disk at each commit,
SQLAlchemy's and the peers' do by default. Redis syncs each write (`appendfsync always`); PostgreSQL, MongoDB and
OpenSearch use their defaults. The servers are those of the tests; a database whose server is not installed is left out,
and the report says so. Rounds are interleaved. There are no goals.

    python bench/sessions.py
    python bench/sessions.py --only tellback-sqlite,langgraph-sqlite --rounds 3 --json
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from contenders import ENVIRONMENTS, WORKERS, Contender, persistence_contenders
from database_servers import start_servers
from report import align_columns, cell, summary
from runner import Progress, Run, build_parser, parse_options, publish, rotate

LENGTHS = (10, 5_000)
MIN_LENGTH = 10
BATCH_MS = 300.0
"""CPU time of one batch."""
MIN_COUNT, MAX_COUNT = 10, 2_000

STORES = {
    "memory": "in memory",
    "sqlite": "SQLite",
    "sqlalchemy": "SQLAlchemy, SQLite",
    "postgres": "PostgreSQL",
    "redis": "Redis",
    "mongo": "MongoDB",
    "opensearch": "OpenSearch",
}
PEER_PACKAGES = {
    "langgraph": ("langgraph-checkpoint-postgres==3.2.0", "psycopg[binary]==3.3.8"),
    "openai-agents": ("redis==8.1.0",),
}
"""Packages that are needed in addition to those of bench/persist.py."""
PEER_STORES = {"langgraph": ("sqlite", "postgres"), "openai-agents": ("sqlite", "redis")}

Task = tuple[str, str, int]
"""The contender, the kind of work, and the length of the session."""


def session_contenders() -> list[Contender]:
    """Return Tellback on each database, and the peers on the databases that they support."""
    worker = WORKERS / "tellback_sessions.py"
    contenders = [
        Contender(f"tellback-{name}", None, worker, "", arguments=(name,), label=f"Tellback, {title}")
        for name, title in STORES.items()
    ]
    for peer in persistence_contenders():
        for store in PEER_STORES.get(peer.name, ()):
            contender = replace(
                peer,
                name=f"{peer.name}-{store}",
                home=ENVIRONMENTS / f"{peer.name}-sessions",
                worker=WORKERS / f"{peer.name.replace('-', '_')}_sessions.py",
                packages=(*peer.packages, *PEER_PACKAGES[peer.name]),
                arguments=(store,),
                label=f"{peer.packages[0].replace('==', ' ')}, {STORES[store]}",
            )
            contenders.append(contender)
    return contenders


class Bench(Run):
    """One run and its samples: by contender, kind and measure."""

    def __init__(
        self,
        contenders: Sequence[Contender],
        progress: Progress,
        folder: Path,
        urls: Mapping[str, str],
        lengths: Sequence[int],
    ) -> None:
        super().__init__(contenders, progress)
        self._folder = folder
        self._urls = urls
        self._lengths = lengths
        self.samples: dict[str, dict[str, dict[str, list[float]]]] = defaultdict(
            lambda: defaultdict(lambda: defaultdict(list))
        )

    def run(self, rounds: int, batch_ms: float) -> None:
        try:
            self.start()
            counts: dict[Task, int] = {}
            for task in self._tasks():
                self.report_progress(f"warming up {task[0]}, {_kind(task)}")
                answer = self._ask(task, None)
                if answer is not None:
                    counts[task] = max(MIN_COUNT, min(MAX_COUNT, round(batch_ms / answer["estimate_ms"])))
            for index in range(rounds):
                for task in rotate([*counts], index):
                    self.report_progress(f"round {index + 1} of {rounds}: {task[0]}, {_kind(task)}")
                    for measure, value in (self._ask(task, counts[task]) or {}).items():
                        self.samples[task[0]][_kind(task)][measure].append(value)
        finally:
            self.stop()

    def numbers(self) -> dict[str, Any]:
        return {
            contender.name: {
                kind: {measure: summary(values) for measure, values in measures.items()}
                for kind, measures in self.samples[contender.name].items()
            }
            for contender in self.remaining
        }

    def _tasks(self) -> list[Task]:
        """Return the tasks; compared tasks run directly after one another, so that the machine's load affects both."""
        names = [contender.name for contender in self.remaining]
        return [(name, kind, length) for kind in ("save", "load") for length in self._lengths for name in names]

    def _ask(self, task: Task, count: int | None) -> dict[str, Any] | None:
        name, kind, length = task
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        params = {"length": length, "folder": str(folder), "url": self._urls.get(_store(name), "")}
        return self.attempt(name, lambda: self.worker(name).ask(kind, count, **params))


def table(result: Mapping[str, Any]) -> str:
    """Return the report of a run as text."""
    kinds = [f"{kind}_{length}" for kind in ("save", "load") for length in result["lengths"]]
    heads = [f"{kind} at {length:,}" for kind in ("save", "load") for length in result["lengths"]]
    lines = [f"Python {result['python']}, {result['rounds']} rounds, interleaved. Median (minimum).", ""]
    for measure, title in (("cpu_ms", "CPU ms"), ("wall_ms", "wall ms")):
        rows = [[title, *heads]]
        for name, label in result["titles"].items():
            kind_numbers = result["numbers"].get(name, {})
            rows.append([f"  {label}", *(cell(kind_numbers.get(kind, {}).get(measure)) for kind in kinds)])
        lines += [*align_columns(rows), ""]
    lines += [f"LEFT OUT {STORES[store]}: {reason}" for store, reason in result["left_out"].items()]
    lines += [f"FAILED {result['titles'][name]}: {reason}" for name, reason in result["failed"].items()]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    contenders = session_contenders()
    options = _options(arguments, [contender.name for contender in contenders])
    progress = Progress()
    ENVIRONMENTS.mkdir(exist_ok=True)
    selected = [contender for contender in contenders if contender.name in options.only]
    with (
        start_servers({_store(contender.name) for contender in selected}, progress) as (urls, left_out),
        # The system's temporary folder may be in memory, which would hide the cost of the disk.
        tempfile.TemporaryDirectory(prefix="sessions-", dir=ENVIRONMENTS) as folder,
    ):
        participants = [contender for contender in selected if _store(contender.name) not in left_out]
        bench = Bench(participants, progress, Path(folder), urls, options.lengths)
        bench.prepare(install=not options.skip_install)
        bench.run(options.rounds, options.batch_ms)
    progress.end()

    result = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "rounds": options.rounds,
        "lengths": options.lengths,
        "titles": bench.titles,
        "versions": bench.versions,
        "left_out": left_out,
        "failed": bench.failed,
        "numbers": bench.numbers(),
    }
    publish(result, table(result), options.json)
    return 1 if bench.failed else 0


def _options(arguments: Sequence[str] | None, names: Sequence[str]) -> argparse.Namespace:
    parser = build_parser(__doc__, names, rounds=5)
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)), help="numbers of messages in a session")
    parser.add_argument(
        "--batch-ms", type=float, default=BATCH_MS, help=f"CPU time of a batch (default: {BATCH_MS:.0f})"
    )
    options = parse_options(parser, arguments, names)
    try:
        options.lengths = sorted({int(length) for length in options.lengths.split(",")})
    except ValueError:
        parser.error("--lengths must be numbers separated by commas")
    if any(length < MIN_LENGTH or length % 2 for length in options.lengths):
        parser.error(f"--lengths must be even numbers of at least {MIN_LENGTH}")
    return options


def _store(name: str) -> str:
    return name.rpartition("-")[2]


def _kind(task: Task) -> str:
    return f"{task[1]}_{task[2]}"


if __name__ == "__main__":
    sys.exit(main())
