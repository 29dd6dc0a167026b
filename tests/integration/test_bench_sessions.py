"""The benchmark of session adapters runs, on little. What it measures is judged by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

BENCH = Path(__file__).parents[2] / "bench"


def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH / "sessions.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=55)


def test_the_benchmark_of_sessions_runs_on_what_needs_no_server() -> None:
    names = ["tellback-memory", "tellback-sqlite", "tellback-sqlalchemy"]
    few = ("--rounds", "1", "--lengths", "10,40", "--batch-ms", "5", "--skip-install")
    done = ran("--only", ",".join(names), *few, "--json")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert (result["failed"], result["left_out"]) == ({}, {})
    assert [*result["numbers"]] == names
    for kinds in result["numbers"].values():
        assert {*kinds} == {"save_10", "save_40", "load_10", "load_40"}
        assert all(row["cpu_ms"]["median"] > 0 and row["wall_ms"]["min"] > 0 for row in kinds.values())
    # The table is for people.
    assert "Tellback, SQLAlchemy, SQLite" in done.stderr


def test_odd_lengths_are_refused_without_a_traceback() -> None:
    done = ran("--only", "tellback-memory", "--lengths", "11")
    assert done.returncode == 2
    assert "an even number, at least 10" in done.stderr
    assert "Traceback" not in done.stderr
