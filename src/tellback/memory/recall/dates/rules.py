"""Rules: a regular expression over tags and what its match means, tried in order, the leftmost first."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from tellback.memory.recall.dates.lexer import Item
from tellback.memory.recall.dates.moment import Moment, Point

Made = tuple[str, Point] | None
"""The tag and the meaning of what takes the place of the match, or None if it means nothing."""

Builder = Callable[[Moment, str, Sequence[Item]], Made]

COUNT = r"(?:a?n(?:-?n)?|[adcy])/?"
DAY_OF_MONTH = r"(?:(?:n-)?o|d)"
YEAR = r"(?:,?O?i?h?[yY]|\([yY]\))"


class Rules:
    """One round: every match becomes one piece."""

    __slots__ = ("_builders", "_pattern")

    def __init__(self, starts: str, rules: Sequence[tuple[str, Builder]]) -> None:
        self._builders = [builder for _, builder in rules]
        # Most words start nothing: looking for those that can first is several times faster.
        self._pattern = re.compile(f"(?=[{starts}])(?:{'|'.join(f'({rule})' for rule, _ in rules)})")

    def apply(self, moment: Moment) -> bool:
        """Replaces what matches in the tagged text of a moment; whether anything did."""
        tagged, search = moment.tagged, self._pattern.search
        tags, items = tagged.tags, tagged.items
        found = search(tags)
        pieces: list[str] = []
        kept: list[Item] = []
        done = 0
        while found:
            start, end = found.span()
            made = self._builders[(found.lastindex or 1) - 1](moment, tags[start:end], items[start:end])
            if made is None:
                found = search(tags, start + 1)
                continue
            pieces += (tags[done:start], made[0])
            kept += items[done:start]
            kept.append((made[1], items[start][1], items[end - 1][2]))
            done = end
            found = search(tags, end)
        if not pieces:
            return False
        tagged.tags = "".join(pieces) + tags[done:]
        tagged.items = kept + items[done:]
        return True


def value_of(tags: str, items: Sequence[Item], which: str) -> Any:
    """The value of the first word with one of some tags, or None."""
    for place, tag in enumerate(tags):
        if tag in which:
            return items[place][0]
    return None


def places_of(tags: str, which: str) -> list[int]:
    """Where tags are."""
    return [place for place, tag in enumerate(tags) if tag in which]


def count_of(tags: str, items: Sequence[Item]) -> tuple[int, int]:
    """At least and at most how many; "twenty-one" is two words."""
    low = high = 0
    for place, tag in enumerate(tags):
        value = items[place][0]
        if tag == "n" or (tag == "a" and tags[place + 1 : place + 2] != "n"):
            low, high = low + value[0], high + value[1]
        elif tag in "dcy":
            low, high = low + value, high + value
    return low, high
