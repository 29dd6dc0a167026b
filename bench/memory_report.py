"""Turn the samples of bench/memory.py into checks and a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, median, quantiles
from typing import Any

from report import align_columns, format_number

Numbers = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""By contender and kind: wall times (p50, p95, min), CPU time (median, min) and the share of answers found."""

GOALS_MS = {1_000: 1.0, 10_000: 3.0}
"""The limit for the p50 of a warm recall, by number of memories."""
MAX_GROWTH = 1.2
"""The limit for how much more a recall or an addition costs with many other users or memories."""
PEER_SIZE = 10_000
HITS = 10


def summary(walls: Sequence[float], cpus: Sequence[float], found_shares: Sequence[float]) -> dict[str, Any]:
    return {
        "wall_p50_ms": median(walls),
        "wall_p95_ms": quantiles(walls, n=20)[-1] if len(walls) > 1 else walls[0],
        "wall_min_ms": min(walls),
        "cpu_ms": median(cpus),
        "cpu_min_ms": min(cpus),
        "samples": len(walls),
        "found": fmean(found_shares) if found_shares else None,
    }


def checks(numbers: Numbers, others: Mapping[str, float], cold_size: int, users: int) -> list[dict[str, Any]]:
    """Return each goal with its value and whether it is met (None if it was not measured)."""
    ours = numbers.get("tellback", {})
    results = []
    for size, target in GOALS_MS.items():
        value = _value(ours, f"recall_{size}", "wall_p50_ms")
        results.append(_check(f"ms of a warm recall at {size:,}, p50", value, target))
    crowded, alone = (_value(ours, f"recall_{cold_size}{among}", "cpu_ms") for among in (f"_among_{users}", ""))
    results.append(_check(f"CPU of a recall among {users:,} other users / alone", _ratio(crowded, alone), MAX_GROWTH))
    added = {int(key.removeprefix("add_")): row["cpu_ms"] for key, row in ours.items() if key.startswith("add_")}
    if len(added) > 1:
        smallest, largest = min(added), max(added)
        title = f"CPU of adding at {largest:,} / at {smallest:,}"
        results.append(_check(title, _ratio(added[largest], added[smallest]), MAX_GROWTH))
    return [*results, *_peer_checks(numbers, others)]


def _peer_checks(numbers: Numbers, others: Mapping[str, float]) -> Iterator[dict[str, Any]]:
    """Compare Tellback's time with each peer that returns enough hits for every user."""
    key = f"recall_{PEER_SIZE}"
    ours = _value(numbers.get("tellback", {}), key, "wall_p50_ms")
    for name, kinds in numbers.items():
        theirs = _value(kinds, key, "wall_p50_ms")
        if name != "tellback" and theirs is not None:
            check = _check(f"p50 of a warm recall at {PEER_SIZE:,} / {name}'s", _ratio(ours, theirs), 1.0)
            if (hits := others.get(name, HITS)) < HITS:
                check |= {"met": None, "why": f"{hits:.1f} of {HITS} hits for the user with few memories"}
            yield check


def _check(title: str, value: float | None, target: float) -> dict[str, Any]:
    return {"title": title, "value": value, "target": target, "met": None if value is None else value <= target}


def table(result: Mapping[str, Any]) -> str:
    """Return the report of a run as text."""
    numbers: Numbers = result["numbers"]
    sizes = sorted({*result["sizes"], *result["peer_sizes"]})
    lines = [
        f"Python {result['python']}, {result['rounds']} rounds, interleaved. Milliseconds.",
        "",
    ]
    head = [f"{size:,} memories" for size in sizes]
    recall_rows = [["A warm recall of 10: wall p50 / p95; CPU", *head]]
    add_rows = [["Adding one: wall p50; CPU", *head]]
    for name, title in result["titles"].items():
        if name in result["failed"]:
            recall_rows.append([f"  {title}", "failed"])
            continue
        kinds = numbers[name]
        recall_rows.append([f"  {title}", *(_cell(kinds.get(f"recall_{size}")) for size in sizes)])
        add_rows.append([f"  {title}", *(_cell(kinds.get(f"add_{size}"), p95=False) for size in sizes)])
    lines += [*align_columns(recall_rows), "", *align_columns(add_rows), ""]

    ours = numbers.get("tellback", {})
    alone_rows = [["Tellback alone: wall p50 / p95; CPU", ""]]
    alone_rows += [
        [f"  {title}", _cell(ours[key])]
        for key, title in _titles(ours, result["cold_size"], result["users"])
        if key in ours
    ]
    if len(alone_rows) > 1:
        lines += [*align_columns(alone_rows), ""]
    lines += align_columns([["Goals", "value"], *map(_row, result["checks"])])
    lines += [f"FAILED {result['titles'][name]}: {reason}" for name, reason in result["failed"].items()]
    return "\n".join(lines)


def _titles(ours: Mapping[str, Any], cold_size: int, users: int) -> Iterator[tuple[str, str]]:
    yield f"first_{cold_size}", f"first recall at {cold_size:,}, in a new process"
    yield f"dropped_{cold_size}", f"first recall at {cold_size:,}, in a process with empty caches"
    for key in ours:
        if key.startswith("after_add_"):
            yield key, f"recall right after an addition, at {int(key.removeprefix('after_add_')):,}"
    yield f"recall_{cold_size}_among_{users}", f"recall at {cold_size:,} among {users:,} other users"


def _row(check: Mapping[str, Any]) -> list[str]:
    value = "-" if check["value"] is None else f"{check['value']:.3f}"
    verdict = {True: "met", False: "NOT MET", None: "not judged"}[check["met"]]
    why = f" ({check['why']})" if "why" in check else ""
    return [f"  {check['title']}", value, f"at most {check['target']:g}: {verdict}{why}"]


def _cell(row: Mapping[str, Any] | None, *, p95: bool = True) -> str:
    if row is None:
        return "-"
    wall = (
        f"{format_number(row['wall_p50_ms'])} / {format_number(row['wall_p95_ms'])}"
        if p95
        else format_number(row["wall_p50_ms"])
    )
    return f"{wall}; {format_number(row['cpu_ms'])}"


def _value(kinds: Mapping[str, Mapping[str, Any]], key: str, measure: str) -> float | None:
    return kinds[key][measure] if key in kinds else None


def _ratio(numerator: float | None, denominator: float | None) -> float | None:
    return None if numerator is None or not denominator else numerator / denominator
