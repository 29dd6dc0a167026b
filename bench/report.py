"""Turn samples into medians, ratios and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

Summary = dict[str, Any]
"""`median`, `min` and all `samples`, in milliseconds."""


@dataclass(frozen=True)
class Measure:
    """One comparison. `ours` lists Tellback's variants; the slowest one is compared."""

    key: str
    title: str
    ours: tuple[str, ...]
    target: float
    target_text: str


MEASURES = (
    Measure("plain", "plain turn", ("plain",), 1 / 3, "1/3"),
    Measure("tool", "one-tool turn", ("tool",), 1 / 3, "1/3"),
    Measure("stream", "1,000 deltas", ("stream_callback", "stream_iterator"), 1 / 2, "1/2"),
    Measure("import", "cold import", ("import",), 1 / 3, "1/3"),
)
EXTRA_TITLES = {
    "tool_sync": "one-tool turn, sync tool in a thread",
    "stream_callback": "1,000 deltas, run_loop_stream with a callback",
    "stream_iterator": "1,000 deltas, iterating stream_loop",
}
"""Titles of the measurements of Tellback alone."""


def summary(samples: Sequence[float]) -> Summary:
    return {"median": median(samples), "min": min(samples), "samples": list(samples)}


def compare(numbers: Mapping[str, Mapping[str, Summary]]) -> dict[str, dict[str, Any]]:
    """Compare Tellback with the fastest peer. `numbers` is by contender, then by kind."""
    comparisons: dict[str, dict[str, Any]] = {}
    for measure in MEASURES:
        ours = _ours(measure, numbers)
        peers = {name: kinds[measure.key] for name, kinds in _peers(numbers) if measure.key in kinds}
        if ours is None or not peers:
            comparisons[measure.key] = {"ratio": None, "target": measure.target, "met": None}
            continue
        fastest = min(peers, key=lambda name: peers[name]["median"])
        ratio = ours["median"] / peers[fastest]["median"]
        comparisons[measure.key] = {
            "ratio": ratio,
            "ratio_of_minima": ours["min"] / min(peer["min"] for peer in peers.values()),
            "fastest_peer": fastest,
            "target": measure.target,
            "met": ratio <= measure.target,
        }
    return comparisons


def table(result: Mapping[str, Any]) -> str:
    """Return the report of a run as text."""
    numbers: dict[str, dict[str, Summary]] = result["numbers"]
    lines = [
        f"Python {result['python']}, {result['rounds']} rounds, interleaved.",
        "Milliseconds, median (minimum): CPU for turns and deltas, wall for an interpreter that imports and exits.",
        "",
    ]
    rows = [["", *(measure.title for measure in MEASURES)]]
    for name, title in result["titles"].items():
        if name in result["failed"]:
            rows.append([title, "failed"])
            continue
        kinds = numbers[name]
        cells = [_ours(m, numbers) if name == "tellback" else kinds.get(m.key) for m in MEASURES]
        rows.append([title, *map(cell, cells)])
    comparisons = result["compared"]
    rows.append(["Tellback / fastest peer", *(_ratio(comparisons[measure.key]) for measure in MEASURES)])
    rows.append(["target", *(_verdict(measure, comparisons[measure.key]) for measure in MEASURES)])
    lines += align_columns(rows)

    ours = numbers.get("tellback", {})
    extra_rows = [[f"  {title}", cell(ours[kind])] for kind, title in EXTRA_TITLES.items() if kind in ours]
    if extra_rows:
        lines += ["", "Tellback alone, CPU ms (of the two ways to stream, the slower one is compared above)"]
        lines += align_columns(extra_rows)
    if result["imports"]:
        lines += ["", "Imports, wall ms in a fresh interpreter", *_imports(result["imports"])]
    if result["loaded"] is not None:
        loaded = ", ".join(result["loaded"]) or "none"
        lines += ["", f"`import tellback` loads {loaded} of {', '.join(result['heavy_modules'])}."]
    lines += [f"FAILED {result['titles'][name]}: {reason}" for name, reason in result["failed"].items()]
    return "\n".join(lines)


def _imports(imports: Sequence[Mapping[str, Any]]) -> list[str]:
    lightest = min((row["whole"]["median"] for row in imports if row["contender"] != "tellback"), default=None)
    rows = [["", "whole interpreter", "statements alone", "whole / lightest peer"]]
    for row in imports:
        ratio = f"{row['whole']['median'] / lightest:.3f}" if lightest else "-"
        rows.append([f"  {row['title']}", cell(row["whole"]), cell(row["alone"]), ratio])
    return align_columns(rows)


def _ours(measure: Measure, numbers: Mapping[str, Mapping[str, Summary]]) -> Summary | None:
    rows = [numbers["tellback"][kind] for kind in measure.ours if kind in numbers.get("tellback", {})]
    return max(rows, key=lambda row: row["median"]) if len(rows) == len(measure.ours) else None


def _peers(numbers: Mapping[str, Mapping[str, Summary]]) -> list[tuple[str, Mapping[str, Summary]]]:
    return [(name, kinds) for name, kinds in numbers.items() if name != "tellback"]


def cell(row: Summary | None) -> str:
    return "-" if row is None else f"{format_number(row['median'])} ({format_number(row['min'])})"


def format_number(value: float) -> str:
    return f"{value:.4f}" if value < 0.1 else f"{value:.3f}" if value < 10 else f"{value:.1f}"


def _ratio(comparison: Mapping[str, Any]) -> str:
    return "-" if comparison["ratio"] is None else f"{comparison['ratio']:.3f} of {comparison['fastest_peer']}"


def _verdict(measure: Measure, comparison: Mapping[str, Any]) -> str:
    verdict = {True: "met", False: "NOT MET", None: "not judged"}[comparison["met"]]
    return f"at most {measure.target_text}: {verdict}"


def align_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths: dict[int, int] = {}
    for row in rows:
        for column, cell in enumerate(row):
            widths[column] = max(widths.get(column, 0), len(cell))
    return ["  ".join(cell.ljust(widths[column]) for column, cell in enumerate(row)).rstrip() for row in rows]
