"""Measure what a turn, a tool call, a streamed delta and an import cost, for Tellback and its peers.

Every contender uses a fake model that takes no time, so only the framework is measured. Each runs in a separate process
and environment. Rounds are interleaved, so that ratios stay valid while other work slows the machine.

    python bench/loop.py
    python bench/loop.py --only tellback,agno --rounds 3 --json -
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from contenders import Contender, ContenderError, all_contenders
from measure import loaded_modules, time_import
from report import compare, summary, table
from runner import Progress, Run, build_parser, parse_options, publish, rotate

BATCH_MS = 150.0
"""CPU time of one batch: long enough for the clock, short enough to interleave."""
MIN_COUNT = 2
MAX_COUNT = 5_000

HEAVY_MODULES = (
    *("anthropic", "openai", "google.genai", "httpx", "httpx2", "numpy", "fastapi", "starlette", "uvicorn"),
    "pydantic",
)
"""Modules that `import tellback` must not load."""

BASIC_USE = "from tellback import ChatOptions, run_loop, tool\nChatOptions(model='claude-sonnet-4-5')"
WITH_TOOL = f"{BASIC_USE}\n@tool\nasync def add(x: int, y: int) -> str:\n    'Add.'\n    return str(x + y)"
OUR_IMPORTS = {
    "the interpreter alone": "pass",
    "tellback: ChatOptions, run_loop, tool; one ChatOptions created": BASIC_USE,
    "tellback: the same, and one @tool": WITH_TOOL,
}
"""Names are loaded on first use, so `import tellback` alone would hide the real cost."""


class Bench(Run):
    """One run and its samples."""

    def __init__(self, contenders: Sequence[Contender], progress: Progress) -> None:
        super().__init__(contenders, progress)
        self.cpu: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.wall: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.imports: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        self.loaded: list[str] | None = None

    def run_operations(self, rounds: int) -> None:
        counts: dict[tuple[str, str], int] = {}
        try:
            self.start()
            for contender in self.remaining:
                self.report_progress(f"warming up {contender.name}")
                for kind in self.worker(contender.name).kinds:
                    estimate = self.attempt(contender.name, partial(self.worker(contender.name).warm_up, kind))
                    if estimate is not None:
                        counts[contender.name, kind] = _count(estimate)
            for index in range(rounds):
                self.report_progress(f"turns and deltas: round {index + 1} of {rounds}")
                for name, kind in rotate(_by_kind(counts), index):
                    times = self.attempt(name, partial(self.worker(name).run, kind, counts[name, kind]))
                    if times is not None:
                        self.cpu[name][kind].append(times[0])
                        self.wall[name][kind].append(times[1])
        finally:
            self.stop()

    def run_imports(self, rounds: int) -> None:
        for index in range(-1, rounds):
            # The first import fills the disk cache and writes bytecode, so it does not count.
            self.report_progress(f"imports: round {index + 1} of {rounds}" if index >= 0 else "imports: first time")
            for contender in self.remaining:
                statements_by_title = {contender.imports: contender.imports}
                if contender.name == "tellback":
                    statements_by_title |= OUR_IMPORTS
                try:
                    for title, statements in statements_by_title.items():
                        times = time_import(contender, statements)
                        if index >= 0:
                            self.imports[contender.name, title].append(times)
                    if contender.name == "tellback" and self.loaded is None:
                        self.loaded = loaded_modules(contender, contender.imports, HEAVY_MODULES)
                except ContenderError as reason:
                    self.failed[contender.name] = str(reason)

    def result(self, rounds: int) -> dict[str, Any]:
        numbers: dict[str, dict[str, Any]] = {}
        for contender in self.remaining:
            numbers[contender.name] = {kind: summary(samples) for kind, samples in self.cpu[contender.name].items()}
            times = self.imports[contender.name, contender.imports]
            if times:
                numbers[contender.name]["import"] = summary([whole for whole, _ in times])
        return {
            "python": platform.python_version(),
            "platform": platform.platform(),
            "rounds": rounds,
            "titles": self.titles,
            "versions": self.versions,
            "failed": self.failed,
            "numbers": numbers,
            "wall": {
                contender.name: {kind: summary(samples) for kind, samples in self.wall[contender.name].items()}
                for contender in self.remaining
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
            "heavy_modules": HEAVY_MODULES,
            "loaded": self.loaded,
            "compared": compare(numbers),
        }


def main(arguments: Sequence[str] | None = None) -> int:
    contenders = all_contenders()
    options = _options(arguments, [contender.name for contender in contenders])
    progress = Progress()
    bench = Bench([contender for contender in contenders if contender.name in options.only], progress)
    bench.prepare(install=not options.skip_install)
    bench.run_operations(options.rounds)
    bench.run_imports(options.import_rounds)
    progress.end()

    result = bench.result(options.rounds)
    publish(result, table(result), options.json)
    missed = [key for key, compared in result["compared"].items() if not compared["met"]]
    return 1 if options.check and (missed or bench.failed or bench.loaded != []) else 0


def _options(arguments: Sequence[str] | None, names: Sequence[str]) -> argparse.Namespace:
    parser = build_parser(__doc__, names, rounds=9)
    parser.add_argument("--import-rounds", type=int, default=5, help="fresh interpreters for each import (default: 5)")
    options = parse_options(parser, arguments, names)
    if options.import_rounds < 1:
        parser.error("--import-rounds must be at least 1")
    return options


def _count(estimate_ms: float) -> int:
    return max(MIN_COUNT, min(MAX_COUNT, round(BATCH_MS / estimate_ms)))


def _by_kind(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Sort by kind, so that compared operations run directly after one another."""
    return sorted(pairs, key=lambda pair: pair[1])


if __name__ == "__main__":
    sys.exit(main())
