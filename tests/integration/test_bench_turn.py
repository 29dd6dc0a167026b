"""The benchmark of turns with memory runs, on little. What it measures is judged by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

BENCH = Path(__file__).parents[2] / "bench"

FEW = ("--rounds", "1", "--size", "60", "--batch-ms", "5", "--skip-install")


def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH / "turn.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=55)


def test_the_turn_benchmark_runs_on_tellback_alone() -> None:
    done = ran(*FEW, "--only", "tellback,tellback-telemetry", "--json")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert result["failed"] == {}
    measured = result["numbers"]["tellback"]
    pairs = {kind: row for kind, row in measured.items() if "/" in kind}
    numbers = {kind: row for kind, row in measured.items() if kind not in pairs}
    assert len(pairs) == 4
    assert all(row["over_ms"]["median"] > 0 and row["under_ms"]["median"] > 0 for row in pairs.values())
    assert {*numbers} == {
        *("loop", "recall", "context", "turn", "turn_memory", "chat_turn", "chat_turn_unbound"),
        *("chat", "chat_spaceless", "chat_skills", "stream_loop", "stream_turn", "chat_stream"),
    }
    assert {*result["numbers"]["tellback-telemetry"]} == {"chat", "chat_spans"}
    assert all(row["cpu_ms"]["median"] > 0 and row["wall_ms"]["min"] > 0 for row in numbers.values())
    assert numbers["chat"]["found"]["median"] >= 0.95
    assert "found" not in numbers["turn"]
    # The table is for people, and has every difference in it.
    assert "A turn with memory" in done.stderr
    assert len(result["differences"]) == 10
    assert all(row["title"] in done.stderr for row in result["differences"])


def test_too_short_conversations_are_refused_without_a_traceback() -> None:
    done = ran("--only", "tellback", "--length", "10")
    assert done.returncode == 2
    assert "an even number, at least 36" in done.stderr
    assert "Traceback" not in done.stderr
