"""What is handed out: stretches of time, and what a question asks about time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Precision = Literal["hour", "day", "week", "weekend", "month", "season", "year", "range"]


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A stretch of time some words mean: microseconds since 1970 UTC, half-open; `text` is the words."""

    start: int
    end: int
    precision: Precision
    text: str


@dataclass(frozen=True, slots=True)
class QueryTime:
    """What a question says about time: stretches it names, and whether it asks for a time, the latest or the first."""

    spans: tuple[TimeSpan, ...]
    asks_when: bool
    wants_latest: bool
    wants_first: bool
