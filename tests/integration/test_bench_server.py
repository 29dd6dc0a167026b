"""The server benchmark runs on small data. Its numbers are not checked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

BENCH = Path(__file__).parents[2] / "bench"


def test_the_server_benchmark_runs() -> None:
    small_run = ("--rounds", "1", "--requests", "40", "--events", "600", "--json")
    command = [sys.executable, str(BENCH / "server.py"), *small_run]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=55)
    assert completed.returncode == 0, completed.stderr
    result: dict[str, Any] = json.loads(completed.stdout)
    assert {*result["numbers"]} == {"append", "echo", "deltas", "feed", "events"}
    assert all(kinds["rate"]["median"] > 0 for kinds in result["numbers"].values())
    assert "of the rate of plain FastAPI, echo" in completed.stderr  # the table
