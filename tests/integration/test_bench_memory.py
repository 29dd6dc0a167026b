"""The memory benchmarks run on small data. Their numbers are not checked; all texts here are invented."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"

TURNS_BY_SESSION = {
    1: [
        ("Ann", "I adopted a parrot called Biscuit last week."),
        ("Bob", "How lovely! I have been repairing my old rowing boat."),
        ("Ann", "Does it still leak?"),
        ("Bob", "Only near the rudder, and the oars are new."),
    ],
    2: [
        ("Bob", "The boat race on the lake is in July."),
        ("Ann", "Biscuit has learned to whistle the anthem."),
        ("Bob", "My cousin in Oslo wants a parrot, too."),
    ],
}


def build_dialogue() -> dict[str, Any]:
    conversation: dict[str, Any] = {"speaker_a": "Ann", "speaker_b": "Bob"}
    for number, turns in TURNS_BY_SESSION.items():
        conversation[f"session_{number}_date_time"] = f"10:00 am on {number} June, 2024"
        conversation[f"session_{number}"] = [
            {"speaker": speaker, "dia_id": f"D{number}:{index}", "text": text}
            for index, (speaker, text) in enumerate(turns, start=1)
        ]
    return {
        "sample_id": "talk",
        "conversation": conversation,
        "qa": [
            {"question": "What is Ann's parrot called?", "evidence": ["D1:1"], "category": 4},
            {"question": "When is the boat race?", "evidence": ["D2:1"], "category": 2},
            {"question": "Who whistles the anthem?", "evidence": ["D2:2; D1:1"], "category": 1},
            {"question": "Who sank the ferry?", "evidence": ["D1:2"], "category": 5},
        ],
    }


def build_three_speakers() -> dict[str, Any]:
    dialogue = build_dialogue()
    dialogue["conversation"]["session_2"].append({"speaker": "Cleo", "dia_id": "D2:4", "text": "I paint harbours."})
    dialogue["qa"] = [{"question": "What does Cleo paint?", "evidence": ["D2:4"], "category": 4}]
    return dialogue


def write_beam_folder(folder: Path) -> Path:
    roles = {"Ann": "user", "Bob": "assistant"}
    turns = [(roles[speaker], text) for session_turns in TURNS_BY_SESSION.values() for speaker, text in session_turns]
    messages = [{"id": id, "role": role, "content": text} for id, (role, text) in enumerate(turns)]
    questions = {"information_extraction": [{"question": "What is my parrot called?", "source_chat_ids": [0]}]}
    (folder / "probing_questions").mkdir(parents=True)
    (folder / "chat.json").write_text(json.dumps([{"batch_number": 1, "turns": [messages]}]))
    (folder / "probing_questions" / "probing_questions.json").write_text(json.dumps(questions))
    return folder


def run_recall(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, str(BENCH / "recall.py"), *arguments, "--json"]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=55)
    assert completed.returncode == 0, completed.stderr
    assert "%" in completed.stderr
    result: dict[str, Any] = json.loads(completed.stdout)
    return result


def test_recall_is_measured_by_category_with_both_baselines(tmp_path: Path) -> None:
    file = tmp_path / "talks.json"
    file.write_text(json.dumps([build_dialogue()]))
    result = run_recall("--data", str(file))
    assert {*result} == {
        *("data", "embedder", "questions", "turn", "session", "by_category", "baselines", "ingest_s", "query_p50_ms")
    }
    assert result["data"] == "talks.json"
    assert result["embedder"].startswith("static/")
    assert result["questions"] == 3
    # All seven turns are among the first ten.
    assert result["turn"]["r10"] == result["turn"]["r20"] == result["session"]["r10"] == 1.0
    assert 0 < result["turn"]["r5"] <= 1
    assert {*result["by_category"]} == {"1", "2", "4"}
    assert {*result["baselines"]} == {"bm25", "dense"}
    for baseline in result["baselines"].values():
        assert baseline["turn"]["r10"] == baseline["session"]["r10"] == 1.0


def test_recall_by_words_only_has_no_dense_baseline(tmp_path: Path) -> None:
    file = tmp_path / "talk.json"
    file.write_text(json.dumps(build_dialogue()))
    result = run_recall("--data", str(file), "--embedder", "none")
    assert result["embedder"] == "none"
    assert result["baselines"]["dense"] is None
    assert result["turn"]["r10"] == 1.0


def test_more_than_two_speakers_are_named_in_the_text(tmp_path: Path) -> None:
    file = tmp_path / "talk.json"
    file.write_text(json.dumps(build_three_speakers()))
    assert run_recall("--data", str(file))["turn"]["r5"] == 1.0


def test_a_folder_in_the_beam_layout_is_detected(tmp_path: Path) -> None:
    result = run_recall("--data", str(write_beam_folder(tmp_path / "100K" / "1")))
    assert result["questions"] == 1
    assert {*result["by_category"]} == {"information_extraction"}
    assert result["turn"]["r5"] == 1.0


def test_the_table_output_is_readable(tmp_path: Path) -> None:
    file = tmp_path / "talk.json"
    file.write_text(json.dumps(build_dialogue()))
    completed = subprocess.run(
        [sys.executable, str(BENCH / "recall.py"), "--data", str(file)], capture_output=True, text=True, timeout=55
    )
    assert completed.returncode == 0, completed.stderr
    for title in ("Tellback", "BM25 alone", "dense alone", "category 2", "static/"):
        assert title in completed.stdout


@pytest.mark.parametrize("text", ["{}", "nothing"])
def test_a_file_without_questions_is_rejected_without_a_traceback(tmp_path: Path, text: str) -> None:
    file = tmp_path / "nothing.json"
    file.write_text(text)
    command = [sys.executable, str(BENCH / "recall.py"), "--data", str(file), "--json"]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=55)
    assert completed.returncode == 1
    assert completed.stdout == ""
    assert "nothing.json" in completed.stderr
    assert "Traceback" not in completed.stderr


def test_the_memory_benchmark_runs_on_tellback_alone() -> None:
    command = [sys.executable, str(BENCH / "memory.py"), "--only", "tellback", "--rounds", "1", "--batch-ms", "5"]
    small_run = ["--sizes", "60,120", "--cold-size", "60", "--users", "30", "--json"]
    completed = subprocess.run([*command, *small_run], capture_output=True, text=True, timeout=55)
    assert completed.returncode == 0, completed.stderr
    result = json.loads(completed.stdout)
    assert result["failed"] == {}
    numbers = result["numbers"]["tellback"]
    assert {*numbers} == {
        *("recall_60", "recall_120", "add_60", "add_120", "after_add_120"),
        *("first_60", "dropped_60", "recall_60_among_30"),
    }
    assert numbers["recall_60"]["found"] == 1.0
    assert all(row["wall_p50_ms"] > 0 and row["cpu_ms"] > 0 for row in numbers.values())
