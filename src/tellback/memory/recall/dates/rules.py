"""Rules: a regular expression over tags and what its match means, tried in order, the leftmost first."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from tellback.memory.recall.dates.lexer import TaggedItem
from tellback.memory.recall.dates.moment import ReferenceTime, TimeExpression

RuleResult = tuple[str, TimeExpression] | None
"""The tag and the meaning of what takes the place of the match, or None if it means nothing."""

RuleAction = Callable[[ReferenceTime, str, Sequence[TaggedItem]], RuleResult]

COUNT = r"(?:a?n(?:-?n)?|[adcy])/?"
DAY_OF_MONTH = r"(?:(?:n-)?o|d)"
YEAR = r"(?:,?O?i?h?[yY]|\([yY]\))"


class RuleSet:
    """One round: every match becomes one piece."""

    __slots__ = ("_actions", "_pattern")

    def __init__(self, first_tags: str, rules: Sequence[tuple[str, RuleAction]]) -> None:
        self._actions = [action for _, action in rules]
        # Most words start nothing: looking for those that can first is several times faster.
        self._pattern = re.compile(f"(?=[{first_tags}])(?:{'|'.join(f'({rule})' for rule, _ in rules)})")

    def apply(self, reference: ReferenceTime) -> bool:
        """Replaces what matches in the tagged text of a moment; whether anything did."""
        tagged_text, search = reference.tagged_text, self._pattern.search
        tags, items = tagged_text.tags, tagged_text.items
        match = search(tags)
        pieces: list[str] = []
        new_items: list[TaggedItem] = []
        consumed = 0
        while match:
            start, end = match.span()
            result = self._actions[(match.lastindex or 1) - 1](reference, tags[start:end], items[start:end])
            if result is None:
                match = search(tags, start + 1)
                continue
            pieces += (tags[consumed:start], result[0])
            new_items += items[consumed:start]
            new_items.append((result[1], items[start][1], items[end - 1][2]))
            consumed = end
            match = search(tags, end)
        if not pieces:
            return False
        tagged_text.tags = "".join(pieces) + tags[consumed:]
        tagged_text.items = new_items + items[consumed:]
        return True


def find_value(tags: str, items: Sequence[TaggedItem], wanted_tags: str) -> Any:
    """The value of the first word with one of some tags, or None."""
    for index, tag in enumerate(tags):
        if tag in wanted_tags:
            return items[index][0]
    return None


def find_tags(tags: str, wanted_tags: str) -> list[int]:
    """Where tags are."""
    return [index for index, tag in enumerate(tags) if tag in wanted_tags]


def parse_count(tags: str, items: Sequence[TaggedItem]) -> tuple[int, int]:
    """At least and at most how many; "twenty-one" is two words."""
    low = high = 0
    for index, tag in enumerate(tags):
        value = items[index][0]
        if tag == "n" or (tag == "a" and tags[index + 1 : index + 2] != "n"):
            low, high = low + value[0], high + value[1]
        elif tag in "dcy":
            low, high = low + value, high + value
    return low, high
