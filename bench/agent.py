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

from agent_report import GOAL_ROUTES, KEPT, PROMPTS, goal, key_of, table
from contenders import ENVIRONMENTS, WORKERS, Contender, all_contenders, persisting_contenders
from memory import prepare_material
from report import summary
from runner import Progress, Run, parsed, parser, publish, rotated
from tellback.chat.budget import count_tokens_heuristic
from tellback.types import user_message

SIZES = (5, GOAL_ROUTES, 500)
LEAST_ROUTES, MOST_ROUTES = 2, 500
MEMORIES = 1_000
BATCH_MS = 400.0
"""CPU time of one batch."""
LEAST_COUNT = 4
MOST_COUNT = 100
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


def guiding_contenders() -> list[Contender]:
    """Tellback, LangGraph in the environment that has its SQLite saver, and Pydantic AI."""
    [graphs] = [one for one in persisting_contenders() if one.name == "langgraph"]
    [typed] = [one for one in all_contenders() if one.name == "pydantic-ai-slim"]
    return [
        Contender("tellback", None, WORKERS / "tellback_agent.py", "import tellback"),
        replace(graphs, worker=WORKERS / "langgraph_agent.py", label=graphs.packages[0].replace("==", " ")),
        replace(typed, worker=WORKERS / "pydantic_ai_agent.py"),
    ]


class Bench(Run):
    """One run, and the samples so far: by contender, key and measure."""

    def __init__(self, contenders: Sequence[Contender], say: Progress, folder: Path, plan: argparse.Namespace) -> None:
        super().__init__(contenders, say)
        self._folder = folder
        self._plan = plan
        self.samples: dict[str, dict[str, dict[str, list[float]]]] = defaultdict(
            lambda: defaultdict(lambda: defaultdict(list))
        )

    def run(self) -> None:
        try:
            self.start()
            for contender in self.standing:
                if "fill" in self.worker(contender.name).kinds:
                    self.say(f"filling {contender.name}")
                    self._ask(Task(contender.name, "fill", 0), 1)
            counts: dict[Task, int] = {}
            for task in self._tasks():
                self.say(f"warming up {task.name}, {task.key}")
                answer = self._ask(task, None)
                if answer is not None:
                    fitting = round(self._plan.batch_ms / answer["estimate_ms"])
                    counts[task] = max(LEAST_COUNT, min(MOST_COUNT, fitting))
            for index in range(self._plan.rounds):
                for task in rotated([*counts], index):
                    self.say(f"round {index + 1} of {self._plan.rounds}: {task.name}, {task.key}")
                    self._sample(task, self._ask(task, counts[task]))
        finally:
            self.stop()

    def result(self) -> dict[str, Any]:
        numbers = {
            contender.name: {
                key: {measure: summary(values) for measure, values in measures.items()}
                for key, measures in self.samples[contender.name].items()
            }
            for contender in self.standing
        }
        return {
            "python": platform.python_version(),
            "platform": platform.platform(),
            "rounds": self._plan.rounds,
            "sizes": self._plan.sizes,
            "memories": self._plan.memories,
            "titles": self.titles,
            "versions": self.versions,
            "failed": self.failed,
            "numbers": numbers,
            "goal": goal(numbers),
        }

    def _tasks(self) -> list[Task]:
        """Those that are compared run one after the other, close in time."""
        wanted = [("respond", size) for size in self._plan.sizes]
        wanted += [(kind, GOAL_ROUTES) for kind in ("stream", *KEPT) if GOAL_ROUTES in self._plan.sizes]
        return [
            Task(contender.name, kind, size)
            for kind, size in wanted
            for contender in self.standing
            if kind in self.worker(contender.name).kinds
        ]

    def _ask(self, task: Task, count: int | None) -> dict[str, Any] | None:
        given = {
            "folder": str(self._folder / task.name),
            "material": str(self._folder),
            "size": self._plan.memories,
            "routes": task.routes,
        }
        return self.attempt(task.name, lambda: self.worker(task.name).ask(task.kind, count, **given))

    def _sample(self, task: Task, answer: dict[str, Any] | None) -> None:
        if answer is None:
            return
        found = self.samples[task.name][task.key]
        for measure in ("cpu_ms", "wall_ms"):
            found[measure].append(answer[measure])
        for measure in PROMPTS:
            found[f"{measure}_tokens"].append(_tokens(round(answer[f"{measure}_chars"])))


def _tokens(characters: int) -> int:
    return count_tokens_heuristic([user_message("x" * characters)])


def main(arguments: Sequence[str] | None = None) -> int:
    contenders = guiding_contenders()
    options = _options(arguments, [contender.name for contender in contenders])
    say = Progress()
    ENVIRONMENTS.mkdir(exist_ok=True)
    # Not the system's folder for temporary files, which may be in memory.
    with tempfile.TemporaryDirectory(prefix="agent-", dir=ENVIRONMENTS) as folder:
        bench = Bench([one for one in contenders if one.name in options.only], say, Path(folder), options)
        bench.prepare(install=not options.skip_install)
        say("making texts")
        prepare_material(Path(folder), [options.memories], ())
        bench.run()
    say.end()

    result = bench.result()
    publish(result, table(result), options.json)
    return 1 if bench.failed or (options.check and not result["goal"]["met"]) else 0


def _options(arguments: Sequence[str] | None, names: Sequence[str]) -> argparse.Namespace:
    made = parser(__doc__, names, rounds=7)
    made.add_argument(
        "--sizes",
        type=lambda given: sorted({int(size) for size in given.split(",")}),
        default=list(SIZES),
        help=f"how many routes (default: {','.join(map(str, SIZES))})",
    )
    made.add_argument("--memories", type=int, default=MEMORIES, help=f"of the user (default: {MEMORIES:,})")
    made.add_argument("--batch-ms", type=float, default=BATCH_MS, help=f"CPU time of a batch (default: {BATCH_MS:.0f})")
    options = parsed(made, arguments, names)
    if not all(LEAST_ROUTES <= size <= MOST_ROUTES for size in options.sizes):
        made.error(f"{LEAST_ROUTES} to {MOST_ROUTES} routes")
    return options


if __name__ == "__main__":
    sys.exit(main())
