"""What a turn, a tool call, a streamed delta and an import cost, for Recollect and its peers, in one run.

Every contender answers from a fake model that takes no time, so what is left is the framework. Each runs in a process
and an environment of its own; rounds are interleaved, so that ratios hold while other work slows the machine.

    python bench/loop.py
    python bench/loop.py --only recollect,agno --rounds 3 --json -
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from contenders import Contender, Failed, all_contenders, prepare
from measure import Worker, loaded_modules, time_import
from report import compare, summary, table

BATCH_MS = 150.0
"""CPU time of one batch: long enough for the clock, short enough to interleave."""
LEAST_COUNT = 2
MOST_COUNT = 5_000

SUSPECTS = (
    *("anthropic", "openai", "google.genai", "httpx", "httpx2", "numpy", "fastapi", "starlette", "uvicorn"),
    "pydantic",
)
"""What `import recollect` must not load."""

USED = "from recollect import ChatOptions, run_loop, tool\nChatOptions(model='claude-sonnet-4-5')"
WITH_TOOL = f"{USED}\n@tool\nasync def add(x: int, y: int) -> str:\n    'Add.'\n    return str(x + y)"
OUR_IMPORTS = {
    "the interpreter and nothing else": "pass",
    "recollect: ChatOptions, run_loop, tool; one ChatOptions made": USED,
    "recollect: the same, and one @tool": WITH_TOOL,
}
"""Names are loaded when first used, so `import recollect` alone would hide what a program pays."""


class Progress:
    """One line on stderr that is written over; whole lines where that is not a terminal."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()

    def __call__(self, text: str) -> None:
        if self._live:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


class Bench:
    """One run: who takes part, who has failed, and the samples so far."""

    def __init__(self, contenders: Sequence[Contender], say: Progress) -> None:
        self._contenders = list(contenders)
        self._say = say
        self.failed: dict[str, str] = {}
        self.versions: dict[str, dict[str, str]] = {}
        self.cpu: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.wall: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.imports: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        self.loaded: list[str] | None = None

    @property
    def standing(self) -> list[Contender]:
        return [contender for contender in self._contenders if contender.name not in self.failed]

    def prepare(self, *, install: bool) -> None:
        for contender in self.standing:
            try:
                prepare(contender, self._say, install=install)
            except Failed as reason:
                self.failed[contender.name] = str(reason)

    def run_operations(self, rounds: int) -> None:
        workers: dict[str, Worker] = {}
        counts: dict[tuple[str, str], int] = {}
        try:
            for contender in self.standing:
                self._say(f"warming up {contender.name}")
                try:
                    worker = workers[contender.name] = Worker(contender)
                    self.versions[contender.name] = worker.versions
                    for kind in worker.kinds:
                        counts[contender.name, kind] = _count(worker.warm_up(kind))
                except Failed as reason:
                    self.failed[contender.name] = str(reason)
            for index in range(rounds):
                self._say(f"turns and deltas: round {index + 1} of {rounds}")
                for name, kind in _rotated(_by_kind(counts), index):
                    if name in self.failed:
                        continue
                    try:
                        cpu, wall = workers[name].run(kind, counts[name, kind])
                    except Failed as reason:
                        self.failed[name] = str(reason)
                        continue
                    self.cpu[name][kind].append(cpu)
                    self.wall[name][kind].append(wall)
        finally:
            for worker in workers.values():
                worker.close()

    def run_imports(self, rounds: int) -> None:
        for index in range(-1, rounds):
            # The first time fills the disk cache and writes bytecode, and does not count.
            self._say(f"imports: round {index + 1} of {rounds}" if index >= 0 else "imports: first time")
            for contender in self.standing:
                ways = {contender.imports: contender.imports}
                if contender.name == "recollect":
                    ways |= OUR_IMPORTS
                try:
                    for title, statements in ways.items():
                        times = time_import(contender, statements)
                        if index >= 0:
                            self.imports[contender.name, title].append(times)
                    if contender.name == "recollect" and self.loaded is None:
                        self.loaded = loaded_modules(contender, contender.imports, SUSPECTS)
                except Failed as reason:
                    self.failed[contender.name] = str(reason)

    def result(self, rounds: int) -> dict[str, Any]:
        numbers: dict[str, dict[str, Any]] = {}
        for contender in self.standing:
            numbers[contender.name] = {kind: summary(samples) for kind, samples in self.cpu[contender.name].items()}
            times = self.imports[contender.name, contender.imports]
            if times:
                numbers[contender.name]["import"] = summary([whole for whole, _ in times])
        return {
            "python": platform.python_version(),
            "platform": platform.platform(),
            "rounds": rounds,
            "titles": {contender.name: self._title(contender) for contender in self._contenders},
            "versions": self.versions,
            "failed": self.failed,
            "numbers": numbers,
            "wall": {
                contender.name: {kind: summary(samples) for kind, samples in self.wall[contender.name].items()}
                for contender in self.standing
            },
            "imports": [
                {
                    "contender": name,
                    "title": title,
                    "whole": summary([whole for whole, _ in times]),
                    "alone": summary([alone for _, alone in times]),
                }
                for (name, title), times in self.imports.items()
                if name not in self.failed and times
            ],
            "suspects": SUSPECTS,
            "loaded": self.loaded,
            "compared": compare(numbers),
        }

    def _title(self, contender: Contender) -> str:
        if contender.packages:
            return " + ".join(package.replace("==", " ") for package in contender.packages)
        return " ".join([contender.name, *self.versions.get(contender.name, {}).values()])


def main(arguments: Sequence[str] | None = None) -> int:
    contenders = all_contenders()
    options = _options(arguments, [contender.name for contender in contenders])
    say = Progress()
    bench = Bench([contender for contender in contenders if contender.name in options.only], say)
    bench.prepare(install=not options.skip_install)
    bench.run_operations(options.rounds)
    bench.run_imports(options.import_rounds)
    say.end()

    result = bench.result(options.rounds)
    # With the JSON on stdout, the table must not spoil it.
    print(table(result), file=sys.stderr if options.json == "-" else sys.stdout)
    if options.json == "-":
        print(json.dumps(result))
    elif options.json:
        Path(options.json).write_text(json.dumps(result, indent=1) + "\n")
    missed = [key for key, compared in result["compared"].items() if not compared["met"]]
    return 1 if options.check and (missed or bench.failed or bench.loaded != []) else 0


def _options(arguments: Sequence[str] | None, names: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9, help="rounds of turns and deltas (default: 9)")
    parser.add_argument("--import-rounds", type=int, default=5, help="fresh interpreters for each import (default: 5)")
    parser.add_argument("--only", default=",".join(names), help=f"some of {','.join(names)}")
    parser.add_argument("--skip-install", action="store_true", help="use the environments that are there, make none")
    parser.add_argument("--json", metavar="PATH", help="write all numbers as one JSON object; - for stdout")
    parser.add_argument(
        "--check", action="store_true", help="exit with 1 if a target is missed, or a contender could not be measured"
    )
    options = parser.parse_args(arguments)
    options.only = [name.strip() for name in options.only.split(",")]
    unknown = sorted(set(options.only) - set(names))
    if unknown:
        parser.error(f"--only: {', '.join(unknown)} is not one of {', '.join(names)}")
    if options.rounds < 1 or options.import_rounds < 1:
        parser.error("at least one round")
    return options


def _count(estimate_ms: float) -> int:
    return max(LEAST_COUNT, min(MOST_COUNT, round(BATCH_MS / estimate_ms)))


def _by_kind(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Those that are compared run one after the other, close in time."""
    return sorted(pairs, key=lambda pair: pair[1])


def _rotated(pairs: list[tuple[str, str]], by: int) -> list[tuple[str, str]]:
    """Another order each round, so that nobody always follows the same neighbour's cache and heat."""
    start = by % len(pairs) if pairs else 0
    return pairs[start:] + pairs[:start]


if __name__ == "__main__":
    sys.exit(main())
