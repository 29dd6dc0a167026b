"""Measure what it costs to extract memories from conversations, for Tellback and mem0.

A conversation has 10 turns, and a fake model that takes no time finds 5 facts in it: two are new, one repeats a known
fact, one changes a value, and one is so similar to a known fact that a model has to decide (conversations.py). The user
has 100, 1,000 or 10,000 memories before. For Tellback the clock runs from close() to the end of drain(), with its
default embedder and a SQLite file. For mem0 it runs over `Memory.add(messages, infer=True)`, on a local vector store,
with precomputed vectors.

The work differs. Tellback dispatches the conversation's events, queues a job and claims it, compares every fact with
the known facts, cites repeated facts, replaces changed ones, stores two entities, and writes events about all of this.
mem0 looks up ten memories similar to the whole conversation, and adds facts. It stores no entities here, because it
would need spaCy for that. mem0 stores the last messages within the measured time, Tellback all of them before.

Measured for Tellback alone: ten conversations of a user that close at the same time; a turn with and without a binding,
for turns in quick succession and for single turns; and queued jobs of the `verbatim` extractor, run by one process.

CPU times are those of the whole process. Rounds are interleaved, each contender has a separate process and environment,
and the outcome of every fact is checked. Adding on disk is limited by the disk, so wall times are only shown.

    python bench/extraction.py
    python bench/extraction.py --only tellback --rounds 3 --json
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from contenders import ENVIRONMENTS, WORKERS, Contender, memory_contenders
from conversations import DECISION, MIN_SIZE, build_conversations, build_known_facts
from extraction_report import checks, table
from report import summary
from runner import Progress, Run, build_parser, parse_options, publish, rotate
from tellback.embed.static import StaticEmbedder

SIZES = (100, 1_000, 10_000)
COUNT = 10
"""Conversations in one batch."""
BINDINGS = ("none", "on_close", "elsewhere")
TURN_COUNT = 300
PACED_SHARE = 10
PAUSE_SECONDS = 0.08
"""Single turns: a tenth as many, with pauses, so that the events of each turn are processed separately."""
JOBS = 2_000
QUEUE_USERS = (1, 200)
QUEUE_ROUNDS = 2
"""The maximum number of rounds of the queue measurements, which are slow."""
FILL_CHUNK = 1_000
WARM_UP_CONVERSATIONS = 2
"""Warm-up conversations before each batch, as many as the workers run."""


@dataclass(frozen=True, slots=True)
class Task:
    """One measurement: the contender, the kind, the count and the settings."""

    name: str
    kind: str
    key: str
    count: int
    settings: dict[str, Any] = field(default_factory=dict, hash=False)


class Bench(Run):
    """One run and its samples."""

    def __init__(
        self, contenders: Sequence[Contender], progress: Progress, folder: Path, options: argparse.Namespace
    ) -> None:
        super().__init__(contenders, progress)
        self._folder = folder
        self._options = options
        self.samples: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))

    def run(self) -> None:
        try:
            self.start()
            for contender in self.remaining:
                self.attempt(contender.name, partial(self._fill, contender.name))
            tasks = self._tasks()
            for task in tasks:
                if task.kind != "queue":
                    self.report_progress(f"warming up {task.name}, {task.key}")
                    self.attempt(task.name, partial(self._ask, task))
            for index in range(self._options.rounds):
                for task in rotate(tasks, index):
                    if task.kind == "queue" and index >= QUEUE_ROUNDS:
                        continue
                    self.report_progress(f"round {index + 1} of {self._options.rounds}: {task.name}, {task.key}")
                    answer = self.attempt(task.name, partial(self._ask, task))
                    if answer is not None:
                        self.samples[task.name][task.key].append(answer)
        finally:
            self.stop()

    def result(self) -> dict[str, Any]:
        numbers = {
            contender.name: {key: _summarize(answers) for key, answers in self.samples[contender.name].items()}
            for contender in self.remaining
        }
        return {
            "python": platform.python_version(),
            "platform": platform.platform(),
            "rounds": self._options.rounds,
            "sizes": self._options.sizes,
            "jobs": self._options.jobs,
            "titles": self.titles,
            "versions": self.versions,
            "failed": self.failed,
            "numbers": numbers,
            "checks": checks(numbers, self._options.sizes),
        }

    def _tasks(self) -> list[Task]:
        """Return the tasks; compared tasks run directly after one another, so that the machine's load affects both."""
        names = [contender.name for contender in self.remaining]
        count = self._options.count
        tasks = [
            Task(name, "extract", f"extract_{size}", count, {"size": size})
            for size in self._options.sizes
            for name in names
        ]
        if "tellback" in names:
            size = self._options.sizes[len(self._options.sizes) // 2]
            tasks.append(Task("tellback", "together", f"together_{size}", count, {"size": size}))
            turns = self._options.turns
            for kind, count, pause in (("turn", turns, 0), ("paced", max(1, turns // PACED_SHARE), PAUSE_SECONDS)):
                tasks += [
                    Task("tellback", "turns", f"{kind}_{name}", count, {"binding": name, "pause": pause})
                    for name in BINDINGS
                ]
            jobs = self._options.jobs
            tasks += [Task("tellback", "queue", f"queue_{users}", jobs, {"users": users}) for users in QUEUE_USERS]
        return tasks

    def _fill(self, name: str) -> None:
        for size in self._options.sizes:
            for start, end in _chunks(size, FILL_CHUNK):
                self.report_progress(f"filling {name}: {end:,} of {size:,}")
                self._ask(Task(name, "fill", "fill", 1, {"size": size, "part": [start, end]}))

    def _ask(self, task: Task) -> dict[str, Any]:
        folder = self._folder / task.name / str(task.settings.get("size", task.kind))
        paths = {"folder": str(folder), "data_folder": str(self._folder)}
        return self.worker(task.name).ask(task.kind, task.count, **paths, **task.settings)


def extraction_contenders() -> list[Contender]:
    """Return Tellback, and mem0 with each of its stores, in the environments of bench/memory.py."""
    workers = {"tellback": "tellback_extract.py", "mem0": "mem0_extract.py"}
    return [
        replace(contender, worker=WORKERS / workers[library])
        for contender in memory_contenders()
        if (library := contender.name.partition("-")[0]) in workers
    ]


def prepare_data(folder: Path, sizes: Sequence[int], count: int, *, vectors: bool) -> None:
    """Write the texts for all contenders, and the vectors for the peers, made by Tellback's embedder."""
    known_facts = {size: build_known_facts(size) for size in sizes}
    conversations = {size: build_conversations(count, size) for size in sizes}
    texts = [each["text"] for facts in known_facts.values() for each in facts]
    for conversation in (conversation for each in conversations.values() for conversation in each):
        texts += [*conversation["facts"], _transcript(conversation["turns"])]
    embedded = [*dict.fromkeys(texts)] if vectors else []
    if vectors:
        np.save(folder / "vectors.npy", StaticEmbedder().vectors(embedded))
    data = {"known": known_facts, "conversations": conversations, "decision": DECISION, "embedded": embedded}
    (folder / "conversations.json").write_text(json.dumps(data))


def main(arguments: Sequence[str] | None = None) -> int:
    contenders = extraction_contenders()
    options = _options(arguments, [contender.name for contender in contenders])
    progress = Progress()
    ENVIRONMENTS.mkdir(exist_ok=True)
    # The system's temporary folder may be in memory, which would hide the cost of the disk.
    with tempfile.TemporaryDirectory(prefix="extraction-", dir=ENVIRONMENTS) as folder:
        bench = Bench(
            [contender for contender in contenders if contender.name in options.only], progress, Path(folder), options
        )
        bench.prepare(install=not options.skip_install)
        progress("making texts and vectors")
        peers = [contender for contender in bench.remaining if contender.name != "tellback"]
        # Sequential and concurrent runs in the same store, and one warm-up round.
        needed = 2 * (options.count + WARM_UP_CONVERSATIONS) * (options.rounds + 1)
        prepare_data(Path(folder), options.sizes, needed, vectors=bool(peers))
        bench.run()
    progress.end()

    result = bench.result()
    publish(result, table(result), options.json)
    missed = any(check["met"] is False for check in result["checks"])
    return 1 if bench.failed or (options.check and missed) else 0


def _options(arguments: Sequence[str] | None, names: Sequence[str]) -> argparse.Namespace:
    parser = build_parser(__doc__, names, rounds=7)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="numbers of memories the user has before")
    parser.add_argument("--count", type=int, default=COUNT, help=f"conversations in a batch (default: {COUNT})")
    parser.add_argument("--turns", type=int, default=TURN_COUNT, help=f"turns in a batch (default: {TURN_COUNT})")
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"queued jobs (default: {JOBS:,})")
    options = parse_options(parser, arguments, names)
    try:
        options.sizes = sorted({int(size) for size in options.sizes.split(",")})
    except ValueError:
        parser.error("--sizes must be numbers separated by commas")
    if min(options.sizes) < MIN_SIZE or not 1 <= options.count <= COUNT:
        parser.error(f"--sizes must be at least {MIN_SIZE}, and --count from 1 to {COUNT}")
    return options


def _summarize(answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    summaries: dict[str, Any] = {
        measure: summary([answer[measure] for answer in answers]) for measure in ("cpu_ms", "wall_ms")
    }
    if "calls" in answers[0]:
        summaries["calls"] = max(answer["calls"] for answer in answers)
        outcomes = [answer["fact_outcomes"] for answer in answers]
        summaries["fact_outcomes"] = {
            name: sum(each[name] for each in outcomes) / len(outcomes) for name in outcomes[0]
        }
    return summaries


def _transcript(turns: Sequence[tuple[str, str]]) -> str:
    """Return a conversation as the text that mem0 embeds."""
    return "".join(f"user: {question}\nassistant: {answer}\n" for question, answer in turns)


def _chunks(total: int, size: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + size, total)) for start in range(0, total, size))


if __name__ == "__main__":
    sys.exit(main())
