"""Measure what a turn along routes costs, for Tellback's agent and for handwritten agents on LangGraph and Pydantic AI.

There are 5, 50 and 500 routes of 4 states and 3 fields, and 100 guidelines, 80 of them with a condition. A conversation
starts with 20 messages. In the six turns that follow, the user enters a route, changes to another, returns, corrects a
value and completes the route (workers/agent_routes.py). A turn makes two calls to a fake model that takes no time: one
reads the message and takes its result from a table, the other replies. So the benchmark measures the framework, not the
model. After each batch it checks the route, state, values, matched guidelines and number of calls.

For Tellback it measures `agent.respond`, `agent.respond_stream` with 100 deltas, and `agent.respond` with a memory:
1,000 memories in a SQLite file, the best of which are put into the prompt, and the conversation is stored.

LangGraph gets a node that reads the message with structured output over all routes, and conditional edges to one node
for each route, where plain code finds the next state. This is the leanest equivalent. It runs without a checkpointer,
streaming, and with its SQLite saver, which stores the conversation but recalls nothing. Pydantic AI gets one agent that
reads and one that replies, with the same plain code in between, and stores nothing.

The benchmark also counts the tokens sent to the model, with Tellback's own estimate: Tellback's prompts contain only
the routes relevant to a message, not all of them.

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
    """One measurement: the contender, the kind of turn, and the number of routes."""

    name: str
    kind: str
    routes: int

    @property
    def key(self) -> str:
        return key_of(self.kind, self.routes)


def agent_contenders() -> list[Contender]:
    """Return Tellback, LangGraph in the environment that has its SQLite saver, and Pydantic AI."""
    [langgraph] = [contender for contender in persistence_contenders() if contender.name == "langgraph"]
    [pydantic_ai] = [contender for contender in all_contenders() if contender.name == "pydantic-ai-slim"]
    return [
        Contender("tellback", None, WORKERS / "tellback_agent.py", "import tellback"),
        replace(langgraph, worker=WORKERS / "langgraph_agent.py", label=langgraph.packages[0].replace("==", " ")),
        replace(pydantic_ai, worker=WORKERS / "pydantic_ai_agent.py"),
    ]


class Bench(Run):
    """One run and its samples: by contender, key and measure."""

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
        """Return the tasks; compared tasks run directly after one another, so that the machine's load affects both."""
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
    # The system's temporary folder may be in memory, which would hide the cost of the disk.
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
        help=f"numbers of routes (default: {','.join(map(str, SIZES))})",
    )
    parser.add_argument("--memories", type=int, default=MEMORIES, help=f"the user's memories (default: {MEMORIES:,})")
    parser.add_argument(
        "--batch-ms", type=float, default=BATCH_MS, help=f"CPU time of a batch (default: {BATCH_MS:.0f})"
    )
    options = parse_options(parser, arguments, names)
    if not all(MIN_ROUTES <= size <= MAX_ROUTES for size in options.sizes):
        parser.error(f"--sizes must be numbers from {MIN_ROUTES} to {MAX_ROUTES}")
    return options


if __name__ == "__main__":
    sys.exit(main())
