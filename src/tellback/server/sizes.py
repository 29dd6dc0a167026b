"""How much a body may hold: so many values, and texts of a bounded length."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from tellback.errors import InvalidArgumentError, RequestTooLargeError

MAX_VALUES = 30_000
"""A thousand imported messages with all that can be told of them have fewer; reading so many takes a moment."""


def validate_size(document: Any, text_length: int, is_attachment: Callable[[str, str], bool]) -> None:
    """Refuse a body of too many values, or with a text that is too long, unless that is something attached.

    Nor may there be a number past the range of numbers, which readers of JSON take for infinite.
    """
    for name, value in iter_values(document, MAX_VALUES):
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidArgumentError(f"{name or 'A number'} is past the range of numbers.")
        if isinstance(value, str) and len(value) > text_length and not is_attachment(name, value):
            message = f"{name or 'A text'} has {len(value)} characters; {text_length} is the limit here."
            raise RequestTooLargeError(message)


def iter_values(document: Any, max_values: int) -> Iterator[tuple[str, Any]]:
    """Every value in a JSON value, with the name it stands under; raises `RequestTooLargeError` beyond `most`."""
    remaining, pending = max_values, [("", document)]
    while pending:
        name, value = pending.pop()
        yield name, value
        if isinstance(value, dict | list):
            remaining -= len(value)
            if remaining < 0:
                raise RequestTooLargeError(f"There are more than {max_values} values in it, which is the limit here.")
            pending.extend(value.items() if isinstance(value, dict) else ((name, each) for each in value))
