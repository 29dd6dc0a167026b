"""How patterns are mined, as a user says it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tellback.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class PatternMining:
    """How patterns are mined: how often, from how many episodes on different days, and never of these categories.

    >>> PatternMining(exclude=("medical",)).at_least
    3
    """

    every: timedelta = timedelta(days=1)
    at_least: int = 3
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.exclude, str):
            raise ConfigurationError(f"exclude is a list of category names, not {self.exclude!r}.")
        if not isinstance(self.at_least, int) or self.at_least < 2:
            raise ConfigurationError(f"at_least is a number of episodes from 2 on, not {self.at_least!r}.")
        if not isinstance(self.every, timedelta) or self.every <= timedelta(0):
            raise ConfigurationError(f"every is a timedelta, not {self.every!r}.")


def resolve_pattern_mining(value: Any) -> PatternMining | None:
    """What can be given as a way of mining."""
    if value == "daily":
        return PatternMining()
    if value is None or isinstance(value, PatternMining):
        return value
    raise ConfigurationError(f"patterns is 'daily', a PatternMining or None, not {value!r:.80}.")
