"""Measure how fast memories are recalled and added, for Tellback and its peers.

A memory is a chat turn in generated English (corpus.py); one user has 10,000 and another has 100. A recall is one
question, asked once, for 10 hits. It is measured end to end, so for Tellback with its default embedder, its SQLite file
and its full ranking. Peers get vectors of the same embedder, made before the clock starts, and rank by them alone.
Tellback is also measured at other sizes (--large adds 100,000).

Measured for Tellback alone: the first recall in a space with 1,000 memories, in a new process (after importing and
opening) and in one that has dropped its caches (the file is opened again); a recall directly after an addition, which
it has to include; and recalls in a file with many other users, who are copied into it by SQL.

Wall times are those of single recalls (p50 and p95 over all rounds), CPU times those of the whole process. Rounds are
interleaved, and each contender has a separate process and environment. Every answer is checked: the number of hits, the
user they belong to, and that they include the memory that answers the question. Recalls of the user with 100 memories
are checked as well. A contender that returns too few hits for that user, because it filters after the search, is not
compared with Tellback's time.

    python bench/memory.py
    python bench/memory.py --only tellback,mem0-faiss --rounds 3 --json
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from contenders import ENVIRONMENTS, Contender, memory_contenders
from corpus import SEED, VARIANTS, build_memories, build_questions
from measure import Worker
from memory_report import checks, summary, table
from runner import Progress, Run, build_parser, parse_options, publish, rotate
from tellback.embed.static import StaticEmbedder

SIZES = (100, 1_000, 10_000)
PEER_SIZES = (10_000,)
LARGE = 100_000
USERS = 100_000
OTHERS = 100
COLD_SIZE = 1_000
MIN_SIZE = 50
BATCH_MS = 400.0
"""Wall time of one batch."""
MIN_COUNT = 5
MAX_COUNT = 100
COUNTS = {"add": 20, "after_add": 20, "dropped": 3, "first": 1}
"""Upper limits for kinds that change the space or are slow."""
FILL_CHUNK = 1_000
USERS_CHUNK = 10_000
QUESTIONS = 8_000
ADDED = 4_000
OTHER_RECALLS = 20
"""The number of recalls of the user with few memories."""


@dataclass(frozen=True, slots=True)
class Task:
    """One measurement: the contender, the kind, and the store."""

    name: str
    kind: str
    store: str
    size: int

    @property
    def key(self) -> str:
        return f"{self.kind}_{self.store}"


class Bench(Run):
    """One run and its samples."""

    def __init__(
        self, contenders: Sequence[Contender], progress: Progress, folder: Path, options: argparse.Namespace
    ) -> None:
        super().__init__(contenders, progress)
        self._folder = folder
        self._options = options
        self._first_count = 0
        self.walls: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.cpus: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.found_shares: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.others: dict[str, float] = {}

    def run(self) -> None:
        try:
            self.start()
            for contender in self.remaining:
                self.attempt(contender.name, partial(self._fill, contender.name))
            counts: dict[Task, int] = {}
            for task in self._tasks():
                self.report_progress(f"warming up {task.name}, {task.key}")
                answer = self.attempt(task.name, partial(self._ask, task, None))
                if answer is not None:
                    max_count = COUNTS.get(task.kind, MAX_COUNT)
                    target_count = round(self._options.batch_ms / max(answer["estimate_ms"], 1e-6))
                    counts[task] = min(max_count, max(MIN_COUNT, target_count))
            for index in range(self._options.rounds):
                for task in rotate([*counts], index):
                    self.report_progress(f"round {index + 1} of {self._options.rounds}: {task.name}, {task.key}")
                    self._sample(task, self.attempt(task.name, partial(self._ask, task, counts[task])))
                if self._is_cold("tellback") and any(contender.name == "tellback" for contender in self.remaining):
                    task = Task("tellback", "first", str(self._options.cold_size), self._options.cold_size)
                    self.report_progress(f"round {index + 1} of {self._options.rounds}: {task.name}, {task.key}")
                    self._sample(task, self.attempt("tellback", partial(self._first, task)))
        finally:
            self.stop()

    def result(self) -> dict[str, Any]:
        numbers = {
            contender.name: {
                key: summary(walls, self.cpus[contender.name][key], self.found_shares[contender.name][key])
                for key, walls in self.walls[contender.name].items()
            }
            for contender in self.remaining
        }
        return {
            "python": platform.python_version(),
            "platform": platform.platform(),
            "rounds": self._options.rounds,
            "sizes": self._options.sizes,
            "peer_sizes": self._options.peer_sizes,
            "cold_size": self._options.cold_size,
            "users": self._options.users,
            "titles": self.titles,
            "versions": self.versions,
            "failed": self.failed,
            "numbers": numbers,
            "other_hits": self.others,
            "checks": checks(numbers, self.others, self._options.cold_size, self._options.users),
        }

    def _tasks(self) -> list[Task]:
        """Return the tasks; compared tasks run directly after one another, so that the machine's load affects both."""
        names = [contender.name for contender in self.remaining]
        sizes = self._options.sizes
        tasks = []
        for size in sorted({*sizes, *self._options.peer_sizes}):
            for name in names:
                if size in (sizes if name == "tellback" else self._options.peer_sizes):
                    tasks += [Task(name, kind, str(size), size) for kind in ("recall", "add")]
        if "tellback" in names:
            cold = self._options.cold_size
            tasks += [Task("tellback", "after_add", str(size), size) for size in sizes if size > cold]
            if self._is_cold("tellback"):
                tasks.append(Task("tellback", "dropped", str(cold), cold))
                tasks.append(Task("tellback", "recall", self._crowded_store, cold))
        return tasks

    def _fill(self, name: str) -> None:
        sizes = self._options.sizes if name == "tellback" else self._options.peer_sizes
        stores = [(str(size), size) for size in sizes]
        if self._is_cold(name):
            stores.append((self._crowded_store, self._options.cold_size))
        for store, size in stores:
            for start, end in _chunks(size, FILL_CHUNK):
                self.report_progress(f"filling {name}, {store}: {end:,} of {size:,}")
                self._ask(Task(name, "fill", store, size), 1, part=[start, end])
        if self._is_cold(name):
            for start, end in _chunks(self._options.users, USERS_CHUNK):
                self.report_progress(f"other users: {end:,} of {self._options.users:,}")
                self._ask(Task(name, "crowd", self._crowded_store, self._options.cold_size), end - start, start=start)
        largest = max(sizes)
        self.others[name] = self._ask(Task(name, "other", str(largest), largest), OTHER_RECALLS)["hits"]

    def _is_cold(self, name: str) -> bool:
        """Whether first recalls, and recalls among other users, are measured."""
        return name == "tellback" and self._options.cold_size in self._options.sizes

    @property
    def _crowded_store(self) -> str:
        return f"{self._options.cold_size}_among_{self._options.users}"

    def _ask(self, task: Task, count: int | None, **params: Any) -> dict[str, Any]:
        return self._ask_worker(self.worker(task.name), task, count, **params)

    def _ask_worker(self, worker: Worker, task: Task, count: int | None, **params: Any) -> dict[str, Any]:
        folder = self._folder / task.name / task.store
        folder.mkdir(parents=True, exist_ok=True)
        paths = {"folder": str(folder), "data_folder": str(self._folder)}
        return worker.ask(task.kind, count, store=task.store, size=task.size, **paths, **params)

    def _first(self, task: Task) -> dict[str, Any]:
        """Measure a first recall in a new process."""
        [contender] = [contender for contender in self.remaining if contender.name == task.name]
        worker = Worker(contender)
        try:
            self._first_count += 1
            return self._ask_worker(worker, task, 1, index=self._first_count)
        finally:
            worker.close()

    def _sample(self, task: Task, answer: dict[str, Any] | None) -> None:
        if answer is not None:
            self.walls[task.name][task.key] += answer["walls_ms"]
            self.cpus[task.name][task.key].append(answer["cpu_ms"])
            if "found" in answer:
                self.found_shares[task.name][task.key].append(answer["found"])


def prepare_data(folder: Path, sizes: Sequence[int], peer_sizes: Sequence[int]) -> None:
    """Write the texts for all contenders, and the vectors for the peers, made by Tellback's embedder."""
    largest = max([*sizes, *peer_sizes])
    all_memories = build_memories(largest + ADDED)
    stored_memories, new_memories = all_memories[:largest], all_memories[largest:]
    questions_by_size = {
        size: build_questions(stored_memories[:size], min(QUESTIONS, VARIANTS * size))
        for size in sorted({*sizes, *peer_sizes})
    }
    others = [memory.text for memory in build_memories(OTHERS, seed=SEED + 1)]
    added = [(memory.text, memory.question(0)) for memory in new_memories]
    embedded: list[str] = []
    if peer_sizes:
        largest_peer = max(peer_sizes)
        texts = [memory.text for memory in stored_memories[:largest_peer]] + others
        texts += [text for size in peer_sizes for text, _ in questions_by_size[size]] + [
            text for pair in added for text in pair
        ]
        embedded = [*dict.fromkeys(texts)]
        np.save(folder / "vectors.npy", StaticEmbedder().vectors(embedded))
    data = {
        "memories": [memory.text for memory in stored_memories],
        "questions": questions_by_size,
        "others": others,
        "added": added,
        "embedded": embedded,
    }
    (folder / "texts.json").write_text(json.dumps(data))


def main(arguments: Sequence[str] | None = None) -> int:
    contenders = memory_contenders()
    options = _options(arguments, [contender.name for contender in contenders])
    progress = Progress()
    ENVIRONMENTS.mkdir(exist_ok=True)
    # The system's temporary folder may be in memory, which would hide the cost of the disk.
    with tempfile.TemporaryDirectory(prefix="memory-", dir=ENVIRONMENTS) as folder:
        bench = Bench(
            [contender for contender in contenders if contender.name in options.only], progress, Path(folder), options
        )
        bench.prepare(install=not options.skip_install)
        progress("making texts and vectors")
        peers = [contender for contender in bench.remaining if contender.name != "tellback"]
        prepare_data(Path(folder), options.sizes, options.peer_sizes if peers else ())
        bench.run()
    progress.end()

    result = bench.result()
    publish(result, table(result), options.json)
    missed = any(check["met"] is False for check in result["checks"])
    return 1 if bench.failed or (options.check and missed) else 0


def _options(arguments: Sequence[str] | None, names: Sequence[str]) -> argparse.Namespace:
    parser = build_parser(__doc__, names, rounds=7)
    parser.add_argument("--sizes", default=_join_numbers(SIZES), help="numbers of the user's memories, for Tellback")
    parser.add_argument("--peer-sizes", default=_join_numbers(PEER_SIZES), help="the same for the peers")
    parser.add_argument("--large", action="store_true", help=f"also measure Tellback with {LARGE:,} memories")
    parser.add_argument("--cold-size", type=int, default=COLD_SIZE, help="memories where Tellback is measured alone")
    parser.add_argument("--users", type=int, default=USERS, help=f"other users in the file (default: {USERS:,})")
    parser.add_argument("--batch-ms", type=float, default=BATCH_MS, help=f"ms of a batch (default: {BATCH_MS:.0f})")
    options = parse_options(parser, arguments, names)
    try:
        options.sizes, options.peer_sizes = (
            sorted({int(size) for size in text.split(",")}) for text in (options.sizes, options.peer_sizes)
        )
    except ValueError:
        parser.error("--sizes and --peer-sizes must be numbers separated by commas")
    if options.large:
        options.sizes = sorted({*options.sizes, LARGE})
    if min([*options.sizes, *options.peer_sizes]) < MIN_SIZE or options.users < 1:
        parser.error(f"--sizes and --peer-sizes must be at least {MIN_SIZE}, and --users at least 1")
    return options


def _chunks(total: int, size: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + size, total)) for start in range(0, total, size))


def _join_numbers(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


if __name__ == "__main__":
    sys.exit(main())
