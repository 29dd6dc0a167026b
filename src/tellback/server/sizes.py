"""How much a body may hold: so many values, and texts of a bounded length."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from tellback.errors import InvalidArgumentError, RequestTooLargeError

MOST_VALUES = 30_000
"""A thousand imported messages with all that can be told of them have fewer; reading so many takes a moment."""


def check_size(read: Any, text_length: int, is_attached: Callable[[str, str], bool]) -> None:
    """Refuse a body of too many values, or with a text that is too long, unless that is something attached.

    Nor may there be a number past the range of numbers, which readers of JSON take for infinite.
    """
    for name, value in values_of(read, MOST_VALUES):
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidArgumentError(f"{name or 'A number'} is past the range of numbers.")
        if isinstance(value, str) and len(value) > text_length and not is_attached(name, value):
            told = f"{name or 'A text'} has {len(value)} characters; {text_length} is the limit here."
            raise RequestTooLargeError(told)


def values_of(read: Any, most: int) -> Iterator[tuple[str, Any]]:
    """Every value in a JSON value, with the name it stands under; raises `RequestTooLargeError` beyond `most`."""
    left, rest = most, [("", read)]
    while rest:
        name, value = rest.pop()
        yield name, value
        if isinstance(value, dict | list):
            left -= len(value)
            if left < 0:
                raise RequestTooLargeError(f"There are more than {most} values in it, which is the limit here.")
            rest.extend(value.items() if isinstance(value, dict) else ((name, each) for each in value))
