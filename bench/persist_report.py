"""Turn the samples of bench/persist.py into checks and a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from report import align_columns, cell

Numbers = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""By contender, kind and measure (`cpu_ms`, `wall_ms`, `bytes`): median, minimum and all samples."""

APPENDS = {
    "append_raw": "plain SQLite, one transaction each",
    "append_single": "append_user_message from 8 tasks",
    "append_batched": "append_messages, 100 at a time",
}

MAX_GROWTH = 1.2
SHORT_LENGTH, MAX_SHORT_RATIO = 10, 1 / 4
LONG_LENGTH, MAX_LONG_RATIO, LONG_PEERS = 1_000, 1 / 20, ("langgraph", "openai-agents")
MIN_APPEND_RATIO = 1 / 3


def kind_of(kind: str, length: int | None) -> str:
    return kind if length is None else f"{kind}_{length}"


def checks(numbers: Numbers, lengths: Sequence[int], longest: int) -> list[dict[str, Any]]:
    """Return each goal with the ratio of medians, that of minima, and whether it is met (None if not measured)."""
    return [*_growth_checks(numbers, lengths[0], longest), *_peer_checks(numbers), _append_check(numbers)]


def _growth_checks(numbers: Numbers, shortest: int, longest: int) -> Iterator[dict[str, Any]]:
    for measure, title in (("cpu_ms", "CPU"), ("bytes", "bytes")):
        longest_row = _lookup(numbers, "tellback", kind_of("turn", longest), measure)
        shortest_row = _lookup(numbers, "tellback", kind_of("turn", shortest), measure)
        yield _check(
            f"flat: {title} of a turn at {longest:,} messages / at {shortest:,}",
            longest_row,
            shortest_row,
            MAX_GROWTH,
            "1.2",
        )


def _peer_checks(numbers: Numbers) -> Iterator[dict[str, Any]]:
    peers = [name for name in numbers if name != "tellback"]
    goals = [(peer, SHORT_LENGTH, MAX_SHORT_RATIO, "1/4") for peer in peers]
    goals += [(peer, LONG_LENGTH, MAX_LONG_RATIO, "1/20") for peer in LONG_PEERS if peer in peers]
    for peer, length, max_ratio, text in goals:
        ours, theirs = (_lookup(numbers, name, kind_of("turn", length), "cpu_ms") for name in ("tellback", peer))
        yield _check(f"CPU of a turn at {length:,} messages / {peer}'s", ours, theirs, max_ratio, text)


def _append_check(numbers: Numbers) -> dict[str, Any]:
    ours, raw = (_lookup(numbers, "tellback", kind, "wall_ms") for kind in ("append_single", "append_raw"))
    # The ratio of rates is the inverse of the ratio of times.
    return _check(
        "single appends per second from 8 tasks / plain SQLite's", raw, ours, MIN_APPEND_RATIO, "1/3", is_minimum=True
    )


def _check(
    title: str, numerator: Any, denominator: Any, target: float, text: str, *, is_minimum: bool = False
) -> dict[str, Any]:
    goal = {"title": title, "target": target, "target_text": f"{'at least' if is_minimum else 'at most'} {text}"}
    if numerator is None or denominator is None:
        return goal | {"ratio": None, "met": None}
    ratio = numerator["median"] / denominator["median"]
    met = ratio >= target if is_minimum else ratio <= target
    return goal | {"ratio": ratio, "ratio_of_minima": numerator["min"] / denominator["min"], "met": met}


def _lookup(numbers: Numbers, name: str, kind: str, measure: str) -> Any:
    return numbers.get(name, {}).get(kind, {}).get(measure)


def table(result: Mapping[str, Any]) -> str:
    """Return the report of a run as text."""
    numbers: Numbers = result["numbers"]
    lengths = sorted({*result["lengths"], result["longest"]})
    head = ["", *(f"{length:,} messages" for length in lengths)]
    lines = [f"Python {result['python']}, {result['rounds']} rounds, interleaved. Median (minimum).", ""]
    for measure, title in (("cpu_ms", "A stored turn, CPU ms"), ("wall_ms", "wall ms"), ("bytes", "growth in bytes")):
        rows = [[title, *head[1:]]]
        for name, label in result["titles"].items():
            cells = [_lookup(numbers, name, kind_of("turn", length), measure) for length in lengths]
            row = ["failed"] if name in result["failed"] else [*map(_bytes if measure == "bytes" else cell, cells)]
            rows.append([f"  {label}", *row])
        lines += [*align_columns(rows), ""]
    rows = [["Tellback's appends", "per second", "CPU ms each"]]
    for kind, label in APPENDS.items():
        wall, cpu = (_lookup(numbers, "tellback", kind, measure) for measure in ("wall_ms", "cpu_ms"))
        rows.append([f"  {label}", _rate(wall), cell(cpu)])
    lines += [*align_columns(rows), "", *align_columns([["Goals", "ratio (of minima)"], *map(_row, result["checks"])])]
    lines += [f"FAILED {result['titles'][name]}: {reason}" for name, reason in result["failed"].items()]
    return "\n".join(lines)


def _row(check: Mapping[str, Any]) -> list[str]:
    ratio = "-" if check["ratio"] is None else f"{check['ratio']:.3f} ({check['ratio_of_minima']:.3f})"
    verdict = {True: "met", False: "NOT MET", None: "not judged"}[check["met"]]
    return [f"  {check['title']}", ratio, f"{check['target_text']}: {verdict}"]


def _bytes(row: Any) -> str:
    return "-" if row is None else f"{row['median']:,.0f} ({row['min']:,.0f})"


def _rate(row: Any) -> str:
    """Format appends per second; the best rate comes from the shortest time."""
    return "-" if row is None else f"{1000 / row['median']:,.0f} (at best {1000 / row['min']:,.0f})"
