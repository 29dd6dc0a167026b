"""Turn the samples of bench/agent.py into a goal and a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from report import align_columns, cell

Numbers = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""By contender, key and measure: median, minimum and all samples."""

OURS = "tellback"
GOAL_ROUTES, GOAL_MS = 50, 3.0
PERSISTED_KINDS = {
    "memory": "with a memory, conversation stored",
    "persisted": "with its SQLite saver, no memory",
}
"""The kinds of turn that store the conversation, with their titles."""
PROMPTS = {
    "understand": "to read a message: the prompt",
    "schema": "to read a message: the schema",
    "reply": "to reply",
}
"""The parts of a call whose tokens are counted."""


def key_of(kind: str, routes: int) -> str:
    return f"{kind}_{routes}"


def goal(numbers: Numbers) -> dict[str, Any]:
    """Return the goal, its value and whether it is met (None if it was not measured)."""
    measures = numbers.get(OURS, {}).get(key_of("respond", GOAL_ROUTES))
    value = None if measures is None else measures["cpu_ms"]["median"]
    return {"target_ms": GOAL_MS, "value_ms": value, "met": None if value is None else value < GOAL_MS}


def table(result: Mapping[str, Any]) -> str:
    """Return the report of a run as text."""
    sizes = result["sizes"]
    lines = [
        f"Python {result['python']}, {result['rounds']} rounds, interleaved; 100 guidelines, 80 with a condition.",
        "A turn of two calls to the model. Median (minimum).",
        "",
    ]
    head = [f"{size:,} routes" for size in sizes]
    for title, measure in (("CPU ms", "cpu_ms"), ("Wall ms", "wall_ms")):
        rows = list(_by_size(result, "respond", measure))
        lines += [*align_columns([[title, *head], *rows, *(_ratio(result) if measure == "cpu_ms" else ())]), ""]
    for measure, title in PROMPTS.items():
        rows = list(_by_size(result, "respond", f"{measure}_tokens", whole=True))
        lines += [*align_columns([[f"Tokens {title}", *head], *rows]), ""]
    extra_rows = list(_extra_rows(result))
    if extra_rows:
        lines += [*align_columns([[f"With {GOAL_ROUTES} routes", "CPU ms", "wall ms"], *extra_rows]), ""]
    lines.append(_verdict(result["goal"]))
    lines += [f"FAILED {result['titles'][name]}: {reason}" for name, reason in result["failed"].items()]
    return "\n".join(lines)


def _by_size(result: Mapping[str, Any], kind: str, measure: str, *, whole: bool = False) -> Iterator[Sequence[str]]:
    for name, label in result["titles"].items():
        values = [_lookup(result["numbers"], name, key_of(kind, size), measure) for size in result["sizes"]]
        if name not in result["failed"]:
            yield [f"  {label}", *(_whole(value) if whole else cell(value) for value in values)]


def _ratio(result: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for name, label in result["titles"].items():
        if name == OURS or name in result["failed"]:
            continue
        cells = []
        for size in result["sizes"]:
            ours, theirs = (
                _lookup(result["numbers"], contender, key_of("respond", size), "cpu_ms") for contender in (OURS, name)
            )
            cells.append("-" if ours is None or theirs is None else f"{ours['median'] / theirs['median']:.3f}")
        yield [f"  Tellback / {label}", *cells]


def _extra_rows(result: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    memory = f"{PERSISTED_KINDS['memory']}; {result['memories']:,} memories"
    for kind, title in {"stream": "100 deltas", **PERSISTED_KINDS, "memory": memory}.items():
        for name, label in result["titles"].items():
            measures = result["numbers"].get(name, {}).get(key_of(kind, GOAL_ROUTES))
            if measures is not None:
                yield [f"  {label}: {title}", cell(measures["cpu_ms"]), cell(measures["wall_ms"])]


def _verdict(goal: Mapping[str, Any]) -> str:
    verdict = {True: "met", False: "NOT MET", None: "not judged"}[goal["met"]]
    return f"Goal: a turn with {GOAL_ROUTES} routes under {goal['target_ms']:g} ms CPU: {verdict}"


def _whole(row: Mapping[str, Any] | None) -> str:
    return "-" if row is None else f"{row['median']:,.0f}"


def _lookup(numbers: Numbers, name: str, key: str, measure: str) -> Any:
    return numbers.get(name, {}).get(key, {}).get(measure)
