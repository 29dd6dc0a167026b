"""Turn the samples of bench/extraction.py into checks and a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from report import align_columns, cell, format_number

Numbers = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""By contender and kind: CPU and wall time, model calls per conversation, and the number of facts per outcome."""

MAX_GROWTH = 2.0
MAX_CALLS = 2
PACES = {"turn": "", "paced": ", single,"}
MAX_BINDING_RATIO = 1.15
"""The limit for a turn with a binding that runs on close, relative to a turn without a binding."""


def checks(numbers: Numbers, sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Return each goal with its value and whether it is met (None if it was not measured)."""
    ours = numbers.get("tellback", {})
    results = []
    if len(sizes) > 1:
        title = f"CPU of a conversation at {sizes[-1]:,} memories / at {sizes[0]:,}"
        results.append(_ratio(title, ours, f"extract_{sizes[-1]}", ours, f"extract_{sizes[0]}", MAX_GROWTH))
    results += _peer_checks(numbers, sizes)
    calls = max((row["calls"] for key, row in ours.items() if key.startswith("extract_")), default=None)
    results.append(_check("model calls per conversation with one ambiguous fact", calls, None, MAX_CALLS))
    for kind, how in PACES.items():
        for binding, what in (("on_close", "a binding"), ("elsewhere", "a windowed binding of another namespace")):
            title = f"CPU of a turn{how} with {what} / without"
            results.append(_ratio(title, ours, f"{kind}_{binding}", ours, f"{kind}_none", MAX_BINDING_RATIO))
    return results


def _peer_checks(numbers: Numbers, sizes: Sequence[int]) -> Iterator[dict[str, Any]]:
    ours = numbers.get("tellback", {})
    for name, kinds in numbers.items():
        for size in sizes:
            if name != "tellback":
                title = f"CPU of a conversation at {size:,} memories / {name}'s"
                yield _ratio(title, ours, f"extract_{size}", kinds, f"extract_{size}", 1.0)


def _ratio(
    title: str, numerator: Any, numerator_key: str, denominator: Any, denominator_key: str, target: float
) -> dict[str, Any]:
    if numerator_key not in numerator or denominator_key not in denominator:
        return _check(title, None, None, target)
    ours, theirs = numerator[numerator_key]["cpu_ms"], denominator[denominator_key]["cpu_ms"]
    return _check(title, ours["median"] / theirs["median"], ours["min"] / theirs["min"], target)


def _check(title: str, value: float | None, of_minima: float | None, target: float) -> dict[str, Any]:
    met = None if value is None else value <= target
    return {"title": title, "value": value, "of_minima": of_minima, "target": target, "met": met}


def table(result: Mapping[str, Any]) -> str:
    """Return the report of a run as text."""
    numbers: Numbers = result["numbers"]
    sizes = result["sizes"]
    lines = [f"Python {result['python']}, {result['rounds']} rounds, interleaved. CPU ms, median (minimum).", ""]
    head = [f"{size:,} memories" for size in sizes]
    rows = [["A conversation of 10 turns and 5 facts", *head, "model calls", "outcome of the facts"]]
    for name, title in result["titles"].items():
        if name in result["failed"]:
            rows.append([f"  {title}", "failed"])
            continue
        summaries = [numbers[name].get(f"extract_{size}") for size in sizes]
        last = next((row for row in reversed(summaries) if row is not None), None)
        last_cells = ["-", "-"] if last is None else [f"{last['calls']:g}", _outcome_text(last["fact_outcomes"])]
        rows.append([f"  {title}", *(cell(row and row["cpu_ms"]) for row in summaries), *last_cells])
    lines += [*align_columns(rows), ""]
    alone_rows = [["Tellback alone", "CPU ms", "wall ms"], *_alone(numbers.get("tellback", {}), result["jobs"])]
    if len(alone_rows) > 1:
        lines += [*align_columns(alone_rows), ""]
    lines += align_columns([["Goals", "value", "of minima"], *map(_row, result["checks"])])
    lines += [f"FAILED {result['titles'][name]}: {reason}" for name, reason in result["failed"].items()]
    return "\n".join(lines)


def _alone(ours: Mapping[str, Any], jobs: int) -> Iterator[list[str]]:
    binding_titles = {
        "none": "no binding",
        "on_close": "binding that runs on close",
        "elsewhere": "windowed binding of another namespace",
    }
    for key, row in ours.items():
        kind, _, variant = key.partition("_")
        rate_text = ""
        if kind == "extract":
            title = f"a conversation, {int(variant):,} memories"
        elif kind == "together":
            title = f"one of several conversations that close together, {int(variant):,} memories"
        elif kind == "queue":
            users = "one user" if variant == "1" else f"{variant} users"
            title = f"one of {jobs:,} queued verbatim jobs of {users}"
            rate_text = f"{1000 / row['wall_ms']['median']:.0f} jobs per second"
        else:
            title = f"a turn{PACES[kind].rstrip(',')}, {binding_titles[variant]}"
        yield [f"  {title}", cell(row["cpu_ms"]), cell(row["wall_ms"]), rate_text]


def _outcome_text(counts: Mapping[str, float]) -> str:
    return ", ".join(f"{count:g} {name.replace('_', ' ')}" for name, count in counts.items() if count)


def _row(check: Mapping[str, Any]) -> list[str]:
    value, minima = ("-" if check[name] is None else format_number(check[name]) for name in ("value", "of_minima"))
    verdict = {True: "met", False: "NOT MET", None: "not judged"}[check["met"]]
    return [f"  {check['title']}", value, minima, f"at most {check['target']:g}: {verdict}"]
