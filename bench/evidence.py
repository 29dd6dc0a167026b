"""Measure how much of the evidence is in the top ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from dialogues import Question

DEPTHS = (5, 10, 20)
SESSION_DEPTH = 10


@dataclass(slots=True)
class Recall:
    """Collects, for each question, its category and the share of its evidence that was found."""

    categories: list[str] = field(default_factory=list)
    rows: list[dict[str, float]] = field(default_factory=list)

    def add(self, question: Question, ranking: Iterable[str], session_by_turn: Mapping[str, int]) -> None:
        """Count a question, given its ranked turns, best first. A session has the rank of its best turn."""
        turns = list(dict.fromkeys(ranking))
        sessions = list(dict.fromkeys(session_by_turn[turn] for turn in turns))
        relevant_sessions = {session_by_turn[turn] for turn in question.evidence}
        row = {f"r{depth}": share(question.evidence, turns[:depth]) for depth in DEPTHS}
        row["session"] = share(relevant_sessions, sessions[:SESSION_DEPTH])
        self.categories.append(question.category)
        self.rows.append(row)

    def summary(self) -> dict[str, Any]:
        """Return the means over the questions: `{"turn": {"r5", "r10", "r20"}, "session": {"r10"}}`."""
        return _means(self.rows)

    def by_category(self) -> dict[str, dict[str, Any]]:
        """Return the means and the number of questions for each category."""
        rows: dict[str, list[dict[str, float]]] = defaultdict(list)
        for category, row in zip(self.categories, self.rows, strict=True):
            rows[category].append(row)
        return {
            category: {"questions": len(category_rows), **_means(category_rows)}
            for category, category_rows in sorted(rows.items())
        }


def share(relevant: Iterable[Any], retrieved: Sequence[Any]) -> float:
    """Return the share of the wanted ids that was found, from 0 to 1."""
    relevant = set(relevant)
    return len(relevant.intersection(retrieved)) / len(relevant)


def _means(rows: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    means = {name: round(fmean(row[name] for row in rows), 6) for name in rows[0]} if rows else {}
    return {
        "turn": {f"r{depth}": means.get(f"r{depth}") for depth in DEPTHS},
        "session": {f"r{SESSION_DEPTH}": means.get("session")},
    }
