"""How fast memories are recalled and added, for Tellback and its peers, in one run.

A memory is a chat turn in made-up English (corpus.py), 10,000 of them one user's and 100 another's. A recall is one
question, asked once, that wants 10 hits; end to end, so for Tellback with its default embedder, its SQLite file and
all that its ranking does. Peers are given vectors of the same embedder which were made before the clock started, and
rank by them alone. Tellback is also measured at other sizes (--large adds 100,000).

For Tellback alone: the first recall of a space with 1,000 memories, in a new process (after importing and opening) and
in one that has dropped what it held (the file is opened anew); a recall right after something was added, which it takes
in; and recalls among other users of the same file, who are copied into it by SQL.

Wall times are those of single recalls (p50 and p95 over all rounds), CPU times those of the whole process. Rounds are
interleaved, each contender has a process and an environment of its own, and every answer is checked: as many hits as
were asked for, all of that user, and the memory that answers the question among them. The user with 100 memories is
asked for, too: a contender that gives that user fewer hits than asked for, as one that filters what it found does, is
not held against Tellback's time.

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

from contenders import ENVIRONMENTS, Contender, remembering_contenders
from corpus import SEED, VARIANTS, memories, questions
from measure import Worker
from memory_report import checks, summary, table
from runner import Progress, Run, parsed, parser, publish, rotated
from tellback.embed.static import StaticEmbedder

SIZES = (100, 1_000, 10_000)
PEER_SIZES = (10_000,)
LARGE = 100_000
USERS = 100_000
OTHERS = 100
COLD_SIZE = 1_000
LEAST_SIZE = 50
BATCH_MS = 400.0
"""Wall time of one batch."""
LEAST_COUNT = 5
MOST_COUNT = 100
COUNTS = {"add": 20, "after_add": 20, "dropped": 3, "first": 1}
"""So many at most: they change the space, or take long."""
FILL_PART = 1_000
USERS_PART = 10_000
QUESTIONS = 8_000
ADDED = 4_000
OTHER_ASKED = 20
"""Recalls of the user with few memories."""


@dataclass(frozen=True, slots=True)
class Task:
    """Something to measure: who, what, and in which store."""

    name: str
    kind: str
    store: str
    size: int

    @property
    def key(self) -> str:
        return f"{self.kind}_{self.store}"


class Bench(Run):
    """One run, and the samples so far."""

    def __init__(self, contenders: Sequence[Contender], say: Progress, folder: Path, plan: argparse.Namespace) -> None:
        super().__init__(contenders, say)
        self._folder = folder
        self._plan = plan
        self._firsts = 0
        self.walls: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.cpus: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.others: dict[str, float] = {}

    def run(self) -> None:
        try:
            self.start()
            for contender in self.standing:
                self.attempt(contender.name, partial(self._fill, contender.name))
            counts: dict[Task, int] = {}
            for task in self._tasks():
                self.say(f"warming up {task.name}, {task.key}")
                answer = self.attempt(task.name, partial(self._ask, task, None))
                if answer is not None:
                    most = COUNTS.get(task.kind, MOST_COUNT)
                    fitting = round(self._plan.batch_ms / max(answer["estimate_ms"], 1e-6))
                    counts[task] = min(most, max(LEAST_COUNT, fitting))
            for index in range(self._plan.rounds):
                for task in rotated([*counts], index):
                    self.say(f"round {index + 1} of {self._plan.rounds}: {task.name}, {task.key}")
                    self._sample(task, self.attempt(task.name, partial(self._ask, task, counts[task])))
                if self._is_cold("tellback") and any(one.name == "tellback" for one in self.standing):
                    task = Task("tellback", "first", str(self._plan.cold_size), self._plan.cold_size)
                    self.say(f"round {index + 1} of {self._plan.rounds}: {task.name}, {task.key}")
                    self._sample(task, self.attempt("tellback", partial(self._first, task)))
        finally:
            self.stop()

    def result(self) -> dict[str, Any]:
        numbers = {
            contender.name: {
                key: summary(walls, self.cpus[contender.name][key], self.found[contender.name][key])
                for key, walls in self.walls[contender.name].items()
            }
            for contender in self.standing
        }
        return {
            "python": platform.python_version(),
            "platform": platform.platform(),
            "rounds": self._plan.rounds,
            "sizes": self._plan.sizes,
            "peer_sizes": self._plan.peer_sizes,
            "cold_size": self._plan.cold_size,
            "users": self._plan.users,
            "titles": self.titles,
            "versions": self.versions,
            "failed": self.failed,
            "numbers": numbers,
            "other_hits": self.others,
            "checks": checks(numbers, self.others, self._plan.cold_size, self._plan.users),
        }

    def _tasks(self) -> list[Task]:
        """Those that are compared run one after the other, close in time."""
        names = [contender.name for contender in self.standing]
        sizes = self._plan.sizes
        tasks = []
        for size in sorted({*sizes, *self._plan.peer_sizes}):
            for name in names:
                if size in (sizes if name == "tellback" else self._plan.peer_sizes):
                    tasks += [Task(name, kind, str(size), size) for kind in ("recall", "add")]
        if "tellback" in names:
            cold = self._plan.cold_size
            tasks += [Task("tellback", "after_add", str(size), size) for size in sizes if size > cold]
            if self._is_cold("tellback"):
                tasks.append(Task("tellback", "dropped", str(cold), cold))
                tasks.append(Task("tellback", "recall", self._crowded, cold))
        return tasks

    def _fill(self, name: str) -> None:
        sizes = self._plan.sizes if name == "tellback" else self._plan.peer_sizes
        stores = [(str(size), size) for size in sizes]
        if self._is_cold(name):
            stores.append((self._crowded, self._plan.cold_size))
        for store, size in stores:
            for start, end in _parts(size, FILL_PART):
                self.say(f"filling {name}, {store}: {end:,} of {size:,}")
                self._ask(Task(name, "fill", store, size), 1, part=[start, end])
        if self._is_cold(name):
            for start, end in _parts(self._plan.users, USERS_PART):
                self.say(f"other users: {end:,} of {self._plan.users:,}")
                self._ask(Task(name, "crowd", self._crowded, self._plan.cold_size), end - start, start=start)
        most = max(sizes)
        self.others[name] = self._ask(Task(name, "other", str(most), most), OTHER_ASKED)["hits"]

    def _is_cold(self, name: str) -> bool:
        """Whether first recalls, and recalls among others, are measured."""
        return name == "tellback" and self._plan.cold_size in self._plan.sizes

    @property
    def _crowded(self) -> str:
        return f"{self._plan.cold_size}_among_{self._plan.users}"

    def _ask(self, task: Task, count: int | None, **more: Any) -> dict[str, Any]:
        return self._asked(self.worker(task.name), task, count, **more)

    def _asked(self, worker: Worker, task: Task, count: int | None, **more: Any) -> dict[str, Any]:
        folder = self._folder / task.name / task.store
        folder.mkdir(parents=True, exist_ok=True)
        places = {"folder": str(folder), "material": str(self._folder)}
        return worker.ask(task.kind, count, store=task.store, size=task.size, **places, **more)

    def _first(self, task: Task) -> dict[str, Any]:
        """In a process of its own."""
        [contender] = [one for one in self.standing if one.name == task.name]
        worker = Worker(contender)
        try:
            self._firsts += 1
            return self._asked(worker, task, 1, index=self._firsts)
        finally:
            worker.close()

    def _sample(self, task: Task, answer: dict[str, Any] | None) -> None:
        if answer is not None:
            self.walls[task.name][task.key] += answer["walls_ms"]
            self.cpus[task.name][task.key].append(answer["cpu_ms"])
            if "found" in answer:
                self.found[task.name][task.key].append(answer["found"])


def prepare_material(folder: Path, sizes: Sequence[int], peer_sizes: Sequence[int]) -> None:
    """Texts for all, and vectors for the peers, made by the embedder that Tellback uses."""
    most = max([*sizes, *peer_sizes])
    made = memories(most + ADDED)
    remembered, more = made[:most], made[most:]
    asked = {
        size: questions(remembered[:size], min(QUESTIONS, VARIANTS * size)) for size in sorted({*sizes, *peer_sizes})
    }
    others = [memory.text for memory in memories(OTHERS, seed=SEED + 1)]
    added = [(memory.text, memory.question(0)) for memory in more]
    embedded: list[str] = []
    if peer_sizes:
        peers = max(peer_sizes)
        texts = [memory.text for memory in remembered[:peers]] + others
        texts += [text for size in peer_sizes for text, _ in asked[size]] + [text for pair in added for text in pair]
        embedded = [*dict.fromkeys(texts)]
        np.save(folder / "vectors.npy", StaticEmbedder().vectors(embedded))
    given = {
        "memories": [memory.text for memory in remembered],
        "questions": asked,
        "others": others,
        "added": added,
        "embedded": embedded,
    }
    (folder / "texts.json").write_text(json.dumps(given))


def main(arguments: Sequence[str] | None = None) -> int:
    contenders = remembering_contenders()
    options = _options(arguments, [contender.name for contender in contenders])
    say = Progress()
    ENVIRONMENTS.mkdir(exist_ok=True)
    # Not the system's folder for temporary files, which may be in memory.
    with tempfile.TemporaryDirectory(prefix="memory-", dir=ENVIRONMENTS) as folder:
        bench = Bench([one for one in contenders if one.name in options.only], say, Path(folder), options)
        bench.prepare(install=not options.skip_install)
        say("making texts and vectors")
        peers = [one for one in bench.standing if one.name != "tellback"]
        prepare_material(Path(folder), options.sizes, options.peer_sizes if peers else ())
        bench.run()
    say.end()

    result = bench.result()
    publish(result, table(result), options.json)
    missed = any(check["met"] is False for check in result["checks"])
    return 1 if bench.failed or (options.check and missed) else 0


def _options(arguments: Sequence[str] | None, names: Sequence[str]) -> argparse.Namespace:
    made = parser(__doc__, names, rounds=7)
    made.add_argument("--sizes", default=_listed(SIZES), help="memories of the user, for Tellback")
    made.add_argument("--peer-sizes", default=_listed(PEER_SIZES), help="and for the peers")
    made.add_argument("--large", action="store_true", help=f"Tellback also with {LARGE:,}")
    made.add_argument("--cold-size", type=int, default=COLD_SIZE, help="where Tellback is measured alone")
    made.add_argument("--users", type=int, default=USERS, help=f"other users in the file (default: {USERS:,})")
    made.add_argument("--batch-ms", type=float, default=BATCH_MS, help=f"wall time of one (default: {BATCH_MS:.0f})")
    options = parsed(made, arguments, names)
    try:
        options.sizes, options.peer_sizes = (
            sorted({int(size) for size in given.split(",")}) for given in (options.sizes, options.peer_sizes)
        )
    except ValueError:
        made.error("--sizes and --peer-sizes: numbers with commas between them")
    if options.large:
        options.sizes = sorted({*options.sizes, LARGE})
    if min([*options.sizes, *options.peer_sizes]) < LEAST_SIZE or options.users < 1:
        made.error(f"at least {LEAST_SIZE} memories, and one other user")
    return options


def _parts(total: int, size: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + size, total)) for start in range(0, total, size))


def _listed(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


if __name__ == "__main__":
    sys.exit(main())
