"""Turn the samples of bench/turn.py into differences and a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from report import align_columns, cell, format_number

Numbers = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""By contender, kind and measure (`cpu_ms`, `wall_ms`, `found`): median, minimum and all samples."""

OURS = "tellback"
TRACED = "tellback-telemetry"

WITH_MEMORY = {
    "chat": "user.chat",
    "chat_turn": "run_chat_turn, which streams",
    "turn_memory": "run_turn with memory_space_id",
    "graph_memory": "a graph of one node",
    "agent_memory": "create_agent with a dynamic_prompt",
}
PARTS = {
    "loop": "run_loop_messages alone, nothing stored",
    "turn": "run_turn without memory",
    "chat_spaceless": "user.chat(space=None)",
    "recall": "recall_by_topic alone",
    "context": "working_context.build alone",
    "agent": "create_agent without memory",
    "search": "mem0's search alone",
}
STREAMS = {
    "stream_loop": "stream_loop alone, nothing stored",
    "stream_turn": "stream_turn without memory",
    "chat_stream": "user.chat_stream",
}
KINDS = (
    *PARTS,
    *("turn_memory", "chat_turn", "chat_turn_unbound", "chat", "chat_skills", "chat_spans"),
    *("graph_memory", "agent_memory"),
    *STREAMS,
)
"""The kinds in the order in which they run; compared kinds run directly after one another."""

COMPARED = (
    ("run_turn over the loop alone: claiming, storing", (OURS, "turn"), (OURS, "loop")),
    ("memory in run_turn: recall and working context", (OURS, "turn_memory"), (OURS, "turn")),
    ("user.chat over run_turn with memory: finding the conversation", (OURS, "chat"), (OURS, "turn_memory")),
    ("run_chat_turn over run_turn with memory", (OURS, "chat_turn"), (OURS, "turn_memory")),
    ("20 skills offered to user.chat, none read", (OURS, "chat_skills"), (OURS, "chat")),
    ("the request bound in run_chat_turn", (OURS, "chat_turn"), (OURS, "chat_turn_unbound")),
    ("OpenTelemetry loaded, no spans", (TRACED, "chat"), (OURS, "chat")),
    ("spans created, and stored in a list", (TRACED, "chat_spans"), (TRACED, "chat")),
    ("1,000 deltas: stream_turn over stream_loop", (OURS, "stream_turn"), (OURS, "stream_loop")),
    ("1,000 deltas: chat_stream over stream_loop", (OURS, "chat_stream"), (OURS, "stream_loop")),
)
"""The compared kinds: the title, the compared kind, and its baseline."""

PAIRED = (
    ("chat", "turn_memory"),
    ("chat_turn", "turn_memory"),
    ("chat_skills", "chat"),
    ("chat_turn", "chat_turn_unbound"),
)
"""Pairs whose turns alternate, because they differ little."""


def differences(numbers: Numbers) -> list[dict[str, Any]]:
    """Return what each feature adds, and the ratios; features that were not measured are left out."""
    return [*_compare_kinds(numbers), *_compare_with_peers(numbers)]


def _compare_kinds(numbers: Numbers) -> Iterator[dict[str, Any]]:
    for title, compared, baseline in COMPARED:
        compared_row, baseline_row = _lookup(numbers, *compared), _lookup(numbers, *baseline)
        pair = numbers.get(compared[0], {}).get(f"{compared[1]}/{baseline[1]}")
        if pair is not None:
            compared_row, baseline_row = pair["compared_ms"], pair["baseline_ms"]
        if compared_row is not None and baseline_row is not None:
            yield _compare(title, compared_row, baseline_row)


def _compare_with_peers(numbers: Numbers) -> Iterator[dict[str, Any]]:
    ours = _lookup(numbers, OURS, "chat")
    for name, kinds in numbers.items():
        for kind in WITH_MEMORY:
            if ours is not None and name not in (OURS, TRACED) and kind in kinds:
                yield _compare(f"user.chat compared with {name}, {WITH_MEMORY[kind]}", ours, kinds[kind]["cpu_ms"])


def _compare(title: str, compared: Mapping[str, Any], baseline: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "title": title,
        "added_ms": compared["median"] - baseline["median"],
        "added_ms_of_minima": compared["min"] - baseline["min"],
        "ratio": compared["median"] / baseline["median"],
        "ratio_of_minima": compared["min"] / baseline["min"],
    }


def table(result: Mapping[str, Any]) -> str:
    """Return the report of a run as text."""
    lines = [
        f"Python {result['python']}, {result['rounds']} rounds, interleaved; {result['size']:,} memories,"
        f" {result['length']} messages in a conversation.",
        "Milliseconds, median (minimum).",
        "",
    ]
    for title, kinds in (("A turn with memory", WITH_MEMORY), ("Parts of it", PARTS), ("1,000 deltas", STREAMS)):
        rows = [[f"  {label}", *cells] for label, *cells in _rows(result, kinds)]
        if rows:
            lines += [*align_columns([[title, "CPU ms", "wall ms"], *rows]), ""]
    if result["differences"]:
        head = ["What is added", "CPU ms (of minima)", "ratio (of minima)"]
        lines += align_columns([head, *map(_difference, result["differences"])])
    lines += [f"FAILED {result['titles'][name]}: {reason}" for name, reason in result["failed"].items()]
    return "\n".join(lines)


def _rows(result: Mapping[str, Any], kinds: Mapping[str, str]) -> Iterator[Sequence[str]]:
    for name, label in result["titles"].items():
        numbers = result["numbers"].get(name, {})
        for kind, title in kinds.items():
            if kind in numbers and name != TRACED:
                yield f"{label}: {title}", cell(numbers[kind]["cpu_ms"]), cell(numbers[kind]["wall_ms"])


def _difference(row: Mapping[str, Any]) -> list[str]:
    added = f"{_signed(row['added_ms'])} ({_signed(row['added_ms_of_minima'])})"
    return [f"  {row['title']}", added, f"{row['ratio']:.3f} ({row['ratio_of_minima']:.3f})"]


def _signed(value: float) -> str:
    return f"{'-' if value < 0 else '+'}{format_number(abs(value))}"


def _lookup(numbers: Numbers, name: str, kind: str) -> Any:
    return numbers.get(name, {}).get(kind, {}).get("cpu_ms")
