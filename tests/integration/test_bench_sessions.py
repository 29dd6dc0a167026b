"""The session benchmark runs on small data. Its numbers are not checked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers.redis import RedisServer

BENCH = Path(__file__).parents[2] / "bench"
SMALL_RUN = ("--rounds", "1", "--lengths", "10,40", "--batch-ms", "5", "--skip-install")


def run_benchmark(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH / "sessions.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=55)


def test_the_session_benchmark_runs_without_a_server() -> None:
    names = ["tellback-memory", "tellback-sqlite", "tellback-sqlalchemy"]
    completed = run_benchmark("--only", ",".join(names), *SMALL_RUN, "--json")
    assert completed.returncode == 0, completed.stderr
    result: dict[str, Any] = json.loads(completed.stdout)
    assert (result["failed"], result["left_out"]) == ({}, {})
    assert [*result["numbers"]] == names
    for kinds in result["numbers"].values():
        assert {*kinds} == {"save_10", "save_40", "load_10", "load_40"}
        assert all(row["cpu_ms"]["median"] > 0 and row["wall_ms"]["min"] > 0 for row in kinds.values())
    # The table goes to stderr.
    assert "Tellback, SQLAlchemy, SQLite" in completed.stderr


@pytest.mark.skipif(RedisServer.missing_reason() is not None, reason="there is no Redis server here")
def test_the_session_benchmark_runs_on_a_database_server() -> None:
    completed = run_benchmark("--only", "tellback-redis", *SMALL_RUN, "--json")
    assert completed.returncode == 0, completed.stderr
    result: dict[str, Any] = json.loads(completed.stdout)
    assert (result["failed"], result["left_out"], [*result["numbers"]]) == ({}, {}, ["tellback-redis"])


def test_odd_lengths_are_rejected_without_a_traceback() -> None:
    completed = run_benchmark("--only", "tellback-memory", "--lengths", "11")
    assert completed.returncode == 2
    assert "--lengths must be even numbers of at least 10" in completed.stderr
    assert "Traceback" not in completed.stderr
