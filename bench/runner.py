"""Shared code of the benchmarks: the contenders of a run, its failures, and the common options."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from contenders import Contender, ContenderError, prepare
from measure import Worker

T = TypeVar("T")


class Progress:
    """A status line on stderr that is overwritten in a terminal, and printed line by line elsewhere."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()

    def __call__(self, text: str) -> None:
        if self._is_terminal:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


class Run:
    """The contenders of a run, and why some failed. A failed contender is skipped from then on."""

    def __init__(self, contenders: Sequence[Contender], progress: Progress) -> None:
        self.contenders = list(contenders)
        self.report_progress = progress
        self.failed: dict[str, str] = {}
        self.versions: dict[str, dict[str, str]] = {}
        self._workers: dict[str, Worker] = {}

    @property
    def remaining(self) -> list[Contender]:
        return [contender for contender in self.contenders if contender.name not in self.failed]

    @property
    def titles(self) -> dict[str, str]:
        return {contender.name: self._title(contender) for contender in self.contenders}

    def prepare(self, *, install: bool) -> None:
        for contender in self.remaining:
            self.attempt(contender.name, partial(prepare, contender, self.report_progress, install=install))

    def start(self) -> None:
        for contender in self.remaining:
            self.attempt(contender.name, partial(self._start, contender))

    def worker(self, name: str) -> Worker:
        return self._workers[name]

    def stop(self) -> None:
        for worker in self._workers.values():
            worker.close()

    def attempt(self, name: str, work: Callable[[], T]) -> T | None:
        """Return the result of `work`, or None if the contender has failed before or fails now."""
        if name in self.failed:
            return None
        try:
            return work()
        except ContenderError as reason:
            self.failed[name] = str(reason)
            return None

    def _start(self, contender: Contender) -> None:
        worker = self._workers[contender.name] = Worker(contender)
        self.versions[contender.name] = worker.versions

    def _title(self, contender: Contender) -> str:
        if contender.label:
            return contender.label
        if contender.packages:
            return " + ".join(package.replace("==", " ") for package in contender.packages)
        return " ".join([contender.name, *self.versions.get(contender.name, {}).values()])


def rotate(items: Sequence[T], offset: int) -> list[T]:
    """Rotate the order in each round, so that a task does not always run after the same other task."""
    start = offset % len(items) if items else 0
    return [*items[start:], *items[:start]]


def build_parser(title: str | None, names: Sequence[str], *, rounds: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(title or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=rounds, help=f"rounds, interleaved (default: {rounds})")
    parser.add_argument("--only", default=",".join(names), help=f"contenders (default: {','.join(names)})")
    parser.add_argument("--skip-install", action="store_true", help="use existing environments, and create no new ones")
    parser.add_argument(
        "--json",
        nargs="?",
        const="-",
        metavar="PATH",
        help="write all numbers as one JSON object; to stdout if no path is given",
    )
    parser.add_argument(
        "--check", action="store_true", help="exit with status 1 if a target is missed or a contender fails"
    )
    return parser


def parse_options(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None, names: Sequence[str]
) -> argparse.Namespace:
    options = parser.parse_args(arguments)
    options.only = [name.strip() for name in options.only.split(",")]
    unknown = sorted(set(options.only) - set(names))
    if unknown:
        parser.error(f"--only: {', '.join(unknown)} is not one of {', '.join(names)}")
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    return options


def publish(result: dict[str, Any], text: str, json_path: str | None) -> None:
    """Print the table, and write the JSON; if the JSON goes to stdout, the table goes to stderr."""
    print(text, file=sys.stderr if json_path == "-" else sys.stdout)
    if json_path == "-":
        print(json.dumps(result))
    elif json_path:
        Path(json_path).write_text(json.dumps(result, indent=1) + "\n")
