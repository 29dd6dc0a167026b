"""The benchmark of turns with memory runs on small data. Its numbers are not checked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

BENCH = Path(__file__).parents[2] / "bench"

SMALL_RUN = ("--rounds", "1", "--size", "60", "--batch-ms", "5", "--skip-install")


def run_benchmark(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH / "turn.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=55)


def test_the_turn_benchmark_runs_on_tellback_alone() -> None:
    completed = run_benchmark(*SMALL_RUN, "--only", "tellback,tellback-telemetry", "--json")
    assert completed.returncode == 0, completed.stderr
    result: dict[str, Any] = json.loads(completed.stdout)
    assert result["failed"] == {}
    rows_by_kind = result["numbers"]["tellback"]
    pairs = {kind: row for kind, row in rows_by_kind.items() if "/" in kind}
    numbers = {kind: row for kind, row in rows_by_kind.items() if kind not in pairs}
    assert len(pairs) == 4
    assert all(row["compared_ms"]["median"] > 0 and row["baseline_ms"]["median"] > 0 for row in pairs.values())
    assert {*numbers} == {
        *("loop", "recall", "context", "turn", "turn_memory", "chat_turn", "chat_turn_unbound"),
        *("chat", "chat_spaceless", "chat_skills", "stream_loop", "stream_turn", "chat_stream"),
    }
    assert {*result["numbers"]["tellback-telemetry"]} == {"chat", "chat_spans"}
    assert all(row["cpu_ms"]["median"] > 0 and row["wall_ms"]["min"] > 0 for row in numbers.values())
    assert numbers["chat"]["found"]["median"] >= 0.95
    assert "found" not in numbers["turn"]
    # The table on stderr contains every difference.
    assert "A turn with memory" in completed.stderr
    assert len(result["differences"]) == 10
    assert all(row["title"] in completed.stderr for row in result["differences"])


def test_too_short_conversations_are_rejected_without_a_traceback() -> None:
    completed = run_benchmark("--only", "tellback", "--length", "10")
    assert completed.returncode == 2
    assert "--length must be an even number of at least 36" in completed.stderr
    assert "Traceback" not in completed.stderr
