"""What a turn along routes costs, for Tellback's agent and for what is written by hand with its peers, in one run.

There are 5, 50 and 500 routes of 4 states and 3 fields, and 100 guidelines, 80 of them with a condition. A conversation
holds 20 messages when it begins; then a route is entered, left for another, taken up again, corrected and completed, in
six turns (workers/agent_routes.py). A turn is two calls to a model that takes no time: one reads the message, and what
it reads is in a table; the other replies. What is measured is the framework, and no model. Route, state, values, the
guidelines that hold and the number of calls are checked after each batch.

For Tellback that is `agent.respond`, `agent.respond_stream` with 100 deltas, and `agent.respond` with a memory: 1,000
memories in a SQLite file, of which the best are put into the prompt, and the conversation is kept.

LangGraph gets a node that reads the message with structured output over all routes, and conditional edges to one node
for each route, in which plain code finds the next state: the leanest that does the same. It is measured without a
checkpointer, streaming, and with its SQLite saver, which keeps the conversation and remembers nothing. Pydantic AI gets
an agent that reads and one that replies, with the same plain code in between, and keeps nothing.

Besides, how many tokens the model is sent, by the estimate that Tellback uses: its prompts hold the routes that a
message has to do with, not all of them.

CPU time is that of the whole process, all threads. Rounds are interleaved. The goal is a turn under 3 ms of CPU time
with 50 routes.

    python bench/agent.py
    python bench/agent.py --only tellback --rounds 3 --json
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent_report import GOAL_ROUTES, PERSISTED_KINDS, PROMPTS, goal, key_of, table
from contenders import ENVIRONMENTS, WORKERS, Contender, all_contenders, persistence_contenders
from memory import prepare_data
from report import summary
from runner import Progress, Run, build_parser, parse_options, publish, rotate
from tellback.chat.options import count_tokens_heuristic
from tellback.types import user_message

SIZES = (5, GOAL_ROUTES, 500)
MIN_ROUTES, MAX_ROUTES = 2, 500
MEMORIES = 1_000
BATCH_MS = 400.0
"""CPU time of one batch."""
MIN_COUNT = 4
MAX_COUNT = 100
"""Conversations in a batch."""


@dataclass(frozen=True, slots=True)
class Task:
    """Something to measure: who, what, and with how many routes."""

    name: str
    kind: str
    routes: int

    @property
    def key(self) -> str:
        return key_of(self.kind, self.routes)


def agent_contenders() -> list[Contender]:
    """Tellback, LangGraph in the environment that has its SQLite saver, and Pydantic AI."""
    [langgraph] = [contender for contender in persistence_contenders() if contender.name == "langgraph"]
    [pydantic_ai] = [contender for contender in all_contenders() if contender.name == "pydantic-ai-slim"]
    return [
        Contender("tellback", None, WORKERS / "tellback_agent.py", "import tellback"),
        replace(langgraph, worker=WORKERS / "langgraph_agent.py", label=langgraph.packages[0].replace("==", " ")),
        replace(pydantic_ai, worker=WORKERS / "pydantic_ai_agent.py"),
    ]


class Bench(Run):
    """One run, and the samples so far: by contender, key and measure."""

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
                if "fill" in self.worker(contender.name).kinds:
                    self.report_progress(f"filling {contender.name}")
                    self._ask(Task(contender.name, "fill", 0), 1)
            counts: dict[Task, int] = {}
            for task in self._tasks():
                self.report_progress(f"warming up {task.name}, {task.key}")
                answer = self._ask(task, None)
                if answer is not None:
                    target_count = round(self._options.batch_ms / answer["estimate_ms"])
                    counts[task] = max(MIN_COUNT, min(MAX_COUNT, target_count))
            for index in range(self._options.rounds):
                for task in rotate([*counts], index):
                    self.report_progress(f"round {index + 1} of {self._options.rounds}: {task.name}, {task.key}")
                    self._sample(task, self._ask(task, counts[task]))
        finally:
            self.stop()

    def result(self) -> dict[str, Any]:
        numbers = {
            contender.name: {
                key: {measure: summary(values) for measure, values in measures.items()}
                for key, measures in self.samples[contender.name].items()
            }
            for contender in self.remaining
        }
        return {
            "python": platform.python_version(),
            "platform": platform.platform(),
            "rounds": self._options.rounds,
            "sizes": self._options.sizes,
            "memories": self._options.memories,
            "titles": self.titles,
            "versions": self.versions,
            "failed": self.failed,
            "numbers": numbers,
            "goal": goal(numbers),
        }

    def _tasks(self) -> list[Task]:
        """Those that are compared run one after the other, close in time."""
        kinds_and_sizes = [("respond", size) for size in self._options.sizes]
        kinds_and_sizes += [
            (kind, GOAL_ROUTES) for kind in ("stream", *PERSISTED_KINDS) if GOAL_ROUTES in self._options.sizes
        ]
        return [
            Task(contender.name, kind, size)
            for kind, size in kinds_and_sizes
            for contender in self.remaining
            if kind in self.worker(contender.name).kinds
        ]

    def _ask(self, task: Task, count: int | None) -> dict[str, Any] | None:
        params = {
            "folder": str(self._folder / task.name),
            "data_folder": str(self._folder),
            "size": self._options.memories,
            "routes": task.routes,
        }
        return self.attempt(task.name, lambda: self.worker(task.name).ask(task.kind, count, **params))

    def _sample(self, task: Task, answer: dict[str, Any] | None) -> None:
        if answer is None:
            return
        measures = self.samples[task.name][task.key]
        for measure in ("cpu_ms", "wall_ms"):
            measures[measure].append(answer[measure])
        for measure in PROMPTS:
            measures[f"{measure}_tokens"].append(_tokens(round(answer[f"{measure}_chars"])))


def _tokens(characters: int) -> int:
    return count_tokens_heuristic([user_message("x" * characters)])


def main(arguments: Sequence[str] | None = None) -> int:
    contenders = agent_contenders()
    options = _options(arguments, [contender.name for contender in contenders])
    progress = Progress()
    ENVIRONMENTS.mkdir(exist_ok=True)
    # Not the system's folder for temporary files, which may be in memory.
    with tempfile.TemporaryDirectory(prefix="agent-", dir=ENVIRONMENTS) as folder:
        bench = Bench(
            [contender for contender in contenders if contender.name in options.only], progress, Path(folder), options
        )
        bench.prepare(install=not options.skip_install)
        progress("making texts")
        prepare_data(Path(folder), [options.memories], ())
        bench.run()
    progress.end()

    result = bench.result()
    publish(result, table(result), options.json)
    return 1 if bench.failed or (options.check and not result["goal"]["met"]) else 0


def _options(arguments: Sequence[str] | None, names: Sequence[str]) -> argparse.Namespace:
    parser = build_parser(__doc__, names, rounds=7)
    parser.add_argument(
        "--sizes",
        type=lambda text: sorted({int(size) for size in text.split(",")}),
        default=list(SIZES),
        help=f"how many routes (default: {','.join(map(str, SIZES))})",
    )
    parser.add_argument("--memories", type=int, default=MEMORIES, help=f"of the user (default: {MEMORIES:,})")
    parser.add_argument(
        "--batch-ms", type=float, default=BATCH_MS, help=f"CPU time of a batch (default: {BATCH_MS:.0f})"
    )
    options = parse_options(parser, arguments, names)
    if not all(MIN_ROUTES <= size <= MAX_ROUTES for size in options.sizes):
        parser.error(f"{MIN_ROUTES} to {MAX_ROUTES} routes")
    return options


if __name__ == "__main__":
    sys.exit(main())
