"""The loop and persistence benchmarks run without errors. Their numbers are not checked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[2] / "bench"


def test_the_loop_benchmark_runs_on_tellback_alone() -> None:
    command = [sys.executable, str(BENCH / "loop.py"), "--only", "tellback", "--rounds", "1", "--import-rounds", "1"]
    completed = subprocess.run([*command, "--json", "-"], capture_output=True, text=True, timeout=55)
    assert completed.returncode == 0, completed.stderr
    result = json.loads(completed.stdout)
    assert result["failed"] == {}
    assert result["loaded"] == []
    assert set(result["numbers"]["tellback"]) >= {"plain", "tool", "stream_callback", "stream_iterator", "import"}


def test_the_persistence_benchmark_runs_on_tellback_alone() -> None:
    command = [sys.executable, str(BENCH / "persist.py"), "--only", "tellback", "--rounds", "1", "--json", "-"]
    small_run = ["--lengths", "10", "--longest", "100", "--batch-ms", "5"]
    completed = subprocess.run([*command, *small_run], capture_output=True, text=True, timeout=55)
    assert completed.returncode == 0, completed.stderr
    result = json.loads(completed.stdout)
    assert result["failed"] == {}
    numbers = result["numbers"]["tellback"]
    assert set(numbers) == {"turn_10", "turn_100", "append_raw", "append_single", "append_batched"}
    assert set(numbers["turn_10"]) == {"cpu_ms", "wall_ms", "bytes"}
    assert len(result["checks"]) == 3
