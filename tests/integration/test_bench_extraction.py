"""The extraction benchmark runs on small data. Its numbers are not checked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

BENCH = Path(__file__).parents[2] / "bench"

SMALL_RUN = ("--only", "tellback", "--rounds", "1", "--sizes", "60,80", "--count", "2", "--turns", "10", "--jobs", "6")


def run_benchmark(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH / "extraction.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=55)


def test_the_extraction_benchmark_runs_on_tellback_alone() -> None:
    completed = run_benchmark(*SMALL_RUN, "--json")
    assert completed.returncode == 0, completed.stderr
    result: dict[str, Any] = json.loads(completed.stdout)
    assert result["failed"] == {}
    numbers = result["numbers"]["tellback"]
    assert {*numbers} == {
        *("extract_60", "extract_80", "together_80"),
        *("turn_none", "turn_on_close", "turn_elsewhere", "paced_none", "paced_on_close", "paced_elsewhere"),
        *("queue_1", "queue_200"),
    }
    assert all(row["cpu_ms"]["median"] > 0 and row["wall_ms"]["min"] > 0 for row in numbers.values())
    for key in ("extract_60", "extract_80", "together_80"):
        assert numbers[key]["calls"] == 2
        assert numbers[key]["fact_outcomes"] == {"added": 2, "superseded": 2, "cited": 1, "unchanged": 0, "left_out": 0}
    # The table on stderr lists every goal.
    assert "A conversation of 10 turns and 5 facts" in completed.stderr
    assert all(check["title"] in completed.stderr for check in result["checks"])


def test_too_few_memories_are_rejected_without_a_traceback() -> None:
    completed = run_benchmark("--only", "tellback", "--sizes", "10")
    assert completed.returncode == 2
    assert "--sizes must be at least 60" in completed.stderr
    assert "Traceback" not in completed.stderr
