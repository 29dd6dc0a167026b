"""What making memories of conversations costs, for Tellback and mem0, in one run.

A conversation has 10 turns, and a model that takes no time finds 5 facts in it: two are new, one repeats what is known,
one changes what is so, and one is so much like something known that somebody has to judge (conversations.py). The user
has 100, 1,000 or 10,000 memories before. For Tellback the clock runs from close() to the end of drain(), with its
default embedder and a SQLite file; for mem0 over `Memory.add(messages, infer=True)`, on a local vector store, with
vectors that were made before the clock started. What differs: Tellback has the conversation's events dispatched, queues
a job and claims it, compares every fact with what is known, cites what is repeated, replaces what has changed, keeps
two entities, and tells of it all in events; mem0 looks up ten memories that are like the whole conversation, and adds.
It keeps no entities here, which it would need spaCy for. It stores the last messages within that time, Tellback all of
them before.

For Tellback alone: ten conversations of a user that end at once; what a turn costs with a binding and without one,
where turns follow at once and where they come one by one; and jobs that were queued, of the `verbatim` extractor, run
by one process.

CPU times are those of the whole process. Rounds are interleaved, each contender has a process and an environment of its
own, and what became of every fact is checked. Adds on disk are bound by the disk: wall times are only shown.

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
"""Conversations of one batch."""
BINDINGS = ("none", "on_close", "elsewhere")
TURN_COUNT = 300
PACED_SHARE = 10
PAUSE_SECONDS = 0.08
"""Turns that come one by one, a tenth as many: each has its events looked at by itself."""
JOBS = 2_000
QUEUE_USERS = (1, 200)
QUEUE_ROUNDS = 2
"""At most so many: they take long."""
FILL_CHUNK = 1_000
WARM_UP_CONVERSATIONS = 2
"""Conversations before each batch, which the workers take as well."""


@dataclass(frozen=True, slots=True)
class Task:
    """Something to measure: who, what, how many, and with which settings."""

    name: str
    kind: str
    key: str
    count: int
    settings: dict[str, Any] = field(default_factory=dict, hash=False)


class Bench(Run):
    """One run, and the samples so far."""

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
        """Those that are compared run one after the other, close in time."""
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
    """Tellback, and mem0 with each of its stores, in the environments of bench/memory.py."""
    workers = {"tellback": "tellback_extract.py", "mem0": "mem0_extract.py"}
    return [
        replace(contender, worker=WORKERS / workers[library])
        for contender in memory_contenders()
        if (library := contender.name.partition("-")[0]) in workers
    ]


def prepare_data(folder: Path, sizes: Sequence[int], count: int, *, vectors: bool) -> None:
    """Texts for all, and vectors for the peers, made by the embedder that Tellback uses."""
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
    # Not the system's folder for temporary files, which may be in memory.
    with tempfile.TemporaryDirectory(prefix="extraction-", dir=ENVIRONMENTS) as folder:
        bench = Bench(
            [contender for contender in contenders if contender.name in options.only], progress, Path(folder), options
        )
        bench.prepare(install=not options.skip_install)
        progress("making texts and vectors")
        peers = [contender for contender in bench.remaining if contender.name != "tellback"]
        # One after the other and at once, in the same store; and a round to warm up.
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
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="memories of the user before")
    parser.add_argument("--count", type=int, default=COUNT, help=f"conversations of a batch (default: {COUNT})")
    parser.add_argument("--turns", type=int, default=TURN_COUNT, help=f"turns of a batch (default: {TURN_COUNT})")
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"jobs that are queued (default: {JOBS:,})")
    options = parse_options(parser, arguments, names)
    try:
        options.sizes = sorted({int(size) for size in options.sizes.split(",")})
    except ValueError:
        parser.error("--sizes: numbers with commas between them")
    if min(options.sizes) < MIN_SIZE or not 1 <= options.count <= COUNT:
        parser.error(f"at least {MIN_SIZE} memories, and from 1 to {COUNT} conversations")
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
    """A conversation as mem0 has it embedded."""
    return "".join(f"user: {question}\nassistant: {answer}\n" for question, answer in turns)


def _chunks(total: int, size: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + size, total)) for start in range(0, total, size))


if __name__ == "__main__":
    sys.exit(main())
