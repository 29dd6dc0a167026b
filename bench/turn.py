"""Measure what a turn with memory costs, for Tellback and for a handwritten combination of LangGraph and mem0.

In a turn a question about an old message arrives, 8 of the user's 1,000 memories are found for it and put into the
system prompt, a fake model that takes no time answers, and question and answer are stored in a SQLite file. The
conversation has 40 messages, and all questions differ. The benchmark measures the framework, not the model.

For Tellback it measures `user.chat`, with its default embedder, and each layer under it: `run_chat_turn`, `run_turn`
with and without a memory space, and `run_loop_messages` alone. It also measures 20 skills that are offered and not
read, binding the request, OpenTelemetry, and 1,000 streamed deltas through `chat_stream`, compared with `stream_loop`.

LangGraph runs with its SQLite saver, as a graph of one node and through `create_agent`, with the results of mem0's
search. mem0 gets precomputed vectors, so embedding costs it nothing. LangGraph sends the model the whole conversation,
Tellback the last 30 messages. No memories are made while the clock runs: Tellback makes them when a conversation
closes, mem0 on request.

CPU time is that of the whole process, all threads, so it includes Tellback's worker, which processes events. Each batch
of turns runs in a fresh file, Tellback's in a copy of the one with the memories. Rounds are interleaved; where the
difference is small, single turns of both kinds alternate within a batch, and their medians are compared. The benchmark
checks the messages sent to the model, that they include the memory with the answer, and the stored messages. There are
no goals.

    python bench/turn.py
    python bench/turn.py --only tellback --rounds 3 --json
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contenders import ENVIRONMENTS, WORKERS, Contender, memory_contenders, persistence_contenders
from memory import prepare_data
from report import summary
from runner import Progress, Run, build_parser, parse_options, publish, rotate
from turn_report import KINDS, OURS, PAIRED, differences, table

SIZE = 1_000
MIN_SIZE = 50
LENGTH = 40
MIN_LENGTH = 36
"""The minimum, so that every conversation has more messages than Tellback sends."""
BATCH_MS = 400.0
"""CPU time of one batch."""
MIN_COUNT = 20
MAX_COUNT = 1_000

Task = tuple[str, str]
"""The contender and the kind of turn."""


def turn_contenders() -> list[Contender]:
    """Return Tellback without and with OpenTelemetry, and LangGraph with each of mem0's stores."""
    worker = WORKERS / "tellback_turn.py"
    contenders = [
        Contender("tellback", None, worker, "import tellback"),
        Contender("tellback-telemetry", None, worker, "import tellback", arguments=("telemetry",)),
    ]
    [langgraph] = [contender for contender in persistence_contenders() if contender.name == "langgraph"]
    contenders.extend(
        Contender(
            f"langgraph-{mem0.name}",
            ENVIRONMENTS / "langgraph-mem0-turn",
            WORKERS / "langgraph_mem0_turn.py",
            langgraph.imports,
            (*langgraph.packages, *mem0.packages),
            arguments=mem0.arguments,
            label=f"{langgraph.packages[0].replace('==', ' ')} + {mem0.label}",
        )
        for mem0 in memory_contenders()
        if mem0.name.startswith("mem0-")
    )
    return contenders


class Bench(Run):
    """One run and its samples: by contender, kind and measure."""

    def __init__(
        self, contenders: Sequence[Contender], progress: Progress, folder: Path, options: argparse.Namespace
    ) -> None:
        super().__init__(contenders, progress)
        self._folder = folder
        self._options = options
        self.samples: dict[str, dict[str, dict[str, list[float]]]] = defaultdict(
            lambda: defaultdict(lambda: defaultdict(list))
        )

    def run(self) -> None:
        try:
            self.start()
            for contender in self.remaining:
                self.report_progress(f"filling {contender.name}")
                self._ask((contender.name, "fill"), 1)
            counts: dict[Task, int] = {}
            for task in self._tasks():
                self.report_progress(f"warming up {task[0]}, {task[1]}")
                answer = self._ask(task, None)
                if answer is not None:
                    target_count = round(self._options.batch_ms / answer["estimate_ms"])
                    counts[task] = max(MIN_COUNT, min(MAX_COUNT, target_count))
            for kind, baseline in PAIRED:
                if (OURS, kind) in counts:
                    counts[OURS, f"{kind}/{baseline}"] = counts[OURS, kind]
            for index in range(self._options.rounds):
                for task in rotate([*counts], index):
                    self.report_progress(f"round {index + 1} of {self._options.rounds}: {task[0]}, {task[1]}")
                    for measure, value in (self._ask(task, counts[task]) or {}).items():
                        if value is not None:
                            self.samples[task[0]][task[1]][measure].append(value)
        finally:
            self.stop()

    def result(self) -> dict[str, Any]:
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
            "rounds": self._options.rounds,
            "size": self._options.size,
            "length": self._options.length,
            "titles": self.titles,
            "versions": self.versions,
            "failed": self.failed,
            "numbers": numbers,
            "differences": differences(numbers),
        }

    def _tasks(self) -> list[Task]:
        return [
            (contender.name, kind)
            for contender in self.remaining
            for kind in KINDS
            if kind in self.worker(contender.name).kinds
        ]

    def _ask(self, task: Task, count: int | None) -> dict[str, Any] | None:
        name, kind = task
        paths = {"folder": str(self._folder / name), "data_folder": str(self._folder)}
        params = {name: getattr(self._options, name) for name in ("size", "length", "batch_ms")}
        return self.attempt(name, lambda: self.worker(name).ask(kind, count, **paths, **params))


def main(arguments: Sequence[str] | None = None) -> int:
    contenders = turn_contenders()
    options = _options(arguments, [contender.name for contender in contenders])
    progress = Progress()
    ENVIRONMENTS.mkdir(exist_ok=True)
    # The system's temporary folder may be in memory, which would hide the cost of the disk.
    with tempfile.TemporaryDirectory(prefix="turn-", dir=ENVIRONMENTS) as folder:
        bench = Bench(
            [contender for contender in contenders if contender.name in options.only], progress, Path(folder), options
        )
        bench.prepare(install=not options.skip_install)
        progress("making texts and vectors")
        peers = [contender for contender in bench.remaining if contender.home is not None]
        prepare_data(Path(folder), [options.size], [options.size] if peers else ())
        bench.run()
    progress.end()

    result = bench.result()
    publish(result, table(result), options.json)
    return 1 if bench.failed else 0


def _options(arguments: Sequence[str] | None, names: Sequence[str]) -> argparse.Namespace:
    parser = build_parser(__doc__, names, rounds=7)
    parser.add_argument("--size", type=int, default=SIZE, help=f"the user's memories (default: {SIZE:,})")
    parser.add_argument("--length", type=int, default=LENGTH, help=f"messages in a conversation (default: {LENGTH})")
    parser.add_argument(
        "--batch-ms", type=float, default=BATCH_MS, help=f"CPU time of a batch (default: {BATCH_MS:.0f})"
    )
    options = parse_options(parser, arguments, names)
    if options.size < MIN_SIZE:
        parser.error(f"--size must be at least {MIN_SIZE}")
    if options.length < MIN_LENGTH or options.length % 2:
        parser.error(f"--length must be an even number of at least {MIN_LENGTH}")
    return options


if __name__ == "__main__":
    sys.exit(main())
