"""The benchmark of extraction runs, on little. What it measures is judged by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

BENCH = Path(__file__).parents[2] / "bench"

FEW = ("--only", "tellback", "--rounds", "1", "--sizes", "60,80", "--count", "2", "--turns", "10", "--jobs", "6")


def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH / "extraction.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=55)


def test_the_extraction_benchmark_runs_on_tellback_alone() -> None:
    done = ran(*FEW, "--json")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert result["failed"] == {}
    numbers = result["numbers"]["tellback"]
    assert {*numbers} == {
        *("learn_60", "learn_80", "together_80"),
        *("turn_none", "turn_on_close", "turn_elsewhere", "paced_none", "paced_on_close", "paced_elsewhere"),
        *("queue_1", "queue_200"),
    }
    assert all(row["cpu_ms"]["median"] > 0 and row["wall_ms"]["min"] > 0 for row in numbers.values())
    for key in ("learn_60", "learn_80", "together_80"):
        assert numbers[key]["calls"] == 2
        assert numbers[key]["became"] == {"added": 2, "superseded": 2, "cited": 1, "unchanged": 0, "left_out": 0}
    # The table is for people, and says of every goal whether it is met.
    assert "A conversation of 10 turns and 5 facts" in done.stderr
    assert all(check["title"] in done.stderr for check in result["checks"])


def test_too_few_memories_are_refused_without_a_traceback() -> None:
    done = ran("--only", "tellback", "--sizes", "10")
    assert done.returncode == 2
    assert "at least 60 memories" in done.stderr
    assert "Traceback" not in done.stderr
