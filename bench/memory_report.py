"""Samples of bench/memory.py into checks and a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, median, quantiles
from typing import Any

from report import aligned, short

Numbers = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""By contender and kind: wall times (p50, p95, least), CPU time (median, least) and the share of answers found."""

GOALS_MS = {1_000: 1.0, 10_000: 3.0}
"""A warm recall at so many memories, p50."""
FLAT = 1.2
"""A recall, or an addition, however many others there are."""
BESIDE = 10_000
HITS = 10


def summary(walls: Sequence[float], cpus: Sequence[float], found: Sequence[float]) -> dict[str, Any]:
    return {
        "wall_p50_ms": median(walls),
        "wall_p95_ms": quantiles(walls, n=20)[-1] if len(walls) > 1 else walls[0],
        "wall_min_ms": min(walls),
        "cpu_ms": median(cpus),
        "cpu_min_ms": min(cpus),
        "samples": len(walls),
        "found": fmean(found) if found else None,
    }


def checks(numbers: Numbers, others: Mapping[str, float], cold_size: int, users: int) -> list[dict[str, Any]]:
    """Every goal, with the value, and whether it is met; None if it could not be judged."""
    ours = numbers.get("tellback", {})
    found = []
    for size, target in GOALS_MS.items():
        value = _value(ours, f"recall_{size}", "wall_p50_ms")
        found.append(_check(f"ms of a warm recall at {size:,}, p50", value, target))
    crowded, alone = (_value(ours, f"recall_{cold_size}{among}", "cpu_ms") for among in (f"_among_{users}", ""))
    found.append(_check(f"CPU of a recall among {users:,} other users / alone", _ratio(crowded, alone), FLAT))
    added = {int(key.removeprefix("add_")): row["cpu_ms"] for key, row in ours.items() if key.startswith("add_")}
    if len(added) > 1:
        least, most = min(added), max(added)
        title = f"CPU of adding at {most:,} / at {least:,}"
        found.append(_check(title, _ratio(added[most], added[least]), FLAT))
    return [*found, *_beside(numbers, others)]


def _beside(numbers: Numbers, others: Mapping[str, float]) -> Iterator[dict[str, Any]]:
    """Tellback's time over each peer's: no more than theirs, if they give every user as many hits as asked for."""
    key = f"recall_{BESIDE}"
    ours = _value(numbers.get("tellback", {}), key, "wall_p50_ms")
    for name, kinds in numbers.items():
        theirs = _value(kinds, key, "wall_p50_ms")
        if name != "tellback" and theirs is not None:
            check = _check(f"p50 of a warm recall at {BESIDE:,} / {name}'s", _ratio(ours, theirs), 1.0)
            if (hits := others.get(name, HITS)) < HITS:
                check |= {"met": None, "why": f"{hits:.1f} of {HITS} hits for the user with few memories"}
            yield check


def _check(title: str, value: float | None, target: float) -> dict[str, Any]:
    return {"title": title, "value": value, "target": target, "met": None if value is None else value <= target}


def table(result: Mapping[str, Any]) -> str:
    """Everything a person wants to see of a run."""
    numbers: Numbers = result["numbers"]
    sizes = sorted({*result["sizes"], *result["peer_sizes"]})
    lines = [
        f"Python {result['python']}, {result['rounds']} rounds, interleaved. Milliseconds.",
        "",
    ]
    head = [f"{size:,} memories" for size in sizes]
    rows = [["A warm recall of 10: wall p50 / p95; CPU", *head]]
    added = [["Adding one: wall p50; CPU", *head]]
    for name, title in result["titles"].items():
        if name in result["failed"]:
            rows.append([f"  {title}", "failed"])
            continue
        kinds = numbers[name]
        rows.append([f"  {title}", *(_cell(kinds.get(f"recall_{size}")) for size in sizes)])
        added.append([f"  {title}", *(_cell(kinds.get(f"add_{size}"), p95=False) for size in sizes)])
    lines += [*aligned(rows), "", *aligned(added), ""]

    ours = numbers.get("tellback", {})
    alone = [["Tellback alone: wall p50 / p95; CPU", ""]]
    alone += [
        [f"  {title}", _cell(ours[key])]
        for key, title in _titles(ours, result["cold_size"], result["users"])
        if key in ours
    ]
    if len(alone) > 1:
        lines += [*aligned(alone), ""]
    lines += aligned([["Goals", "value"], *map(_row, result["checks"])])
    lines += [f"FAILED {result['titles'][name]}: {reason}" for name, reason in result["failed"].items()]
    return "\n".join(lines)


def _titles(ours: Mapping[str, Any], cold_size: int, users: int) -> Iterator[tuple[str, str]]:
    yield f"first_{cold_size}", f"first recall at {cold_size:,}, in a new process"
    yield f"dropped_{cold_size}", f"first recall at {cold_size:,}, in a process that held nothing of it"
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
    wall = f"{short(row['wall_p50_ms'])} / {short(row['wall_p95_ms'])}" if p95 else short(row["wall_p50_ms"])
    return f"{wall}; {short(row['cpu_ms'])}"


def _value(kinds: Mapping[str, Mapping[str, Any]], key: str, measure: str) -> float | None:
    return kinds[key][measure] if key in kinds else None


def _ratio(over: float | None, under: float | None) -> float | None:
    return None if over is None or not under else over / under
