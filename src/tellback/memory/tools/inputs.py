"""What a model writes into a memory tool's arguments, as values; what is wrong with it, told to the model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, time

from tellback.errors import InvalidArgumentError, NotFoundError
from tellback.tools.schema import InvalidInput

MAX_HITS = 20
DATE_FORMAT = "an ISO 8601 date such as 2026-03-01, or a moment such as 2026-03-01T12:30:00Z"


def clamp_limit(requested: float | None, default: int) -> int:
    """How many hits to give: as many as asked for, within bounds."""
    return default if requested is None else max(1, min(int(requested), max(default, MAX_HITS)))


def parse_moment(name: str, text: str | None, *, at_end: bool = False) -> datetime | None:
    """A moment from a model's date; a day alone begins at midnight UTC or, `at_end`, lasts until the next.

    >>> parse_moment("to_date", "2026-03-01", at_end=True).isoformat()
    '2026-03-01T23:59:59.999999+00:00'
    """
    if text is None:
        return None
    try:
        parsed = _parse_iso(text.strip(), at_end)
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidInput(f"{name}: {text[:40]!r} is not {DATE_FORMAT}") from None


def _parse_iso(text: str, at_end: bool) -> datetime:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return datetime.fromisoformat(text)
    return datetime.combine(day, time.max if at_end else time.min, UTC)


@contextmanager
def input_errors_for_model() -> Iterator[None]:
    """What is wrong with the arguments goes back to the model, to be corrected; it is no failure of the tool."""
    try:
        yield
    except InvalidArgumentError as error:
        raise InvalidInput(str(error).rstrip(".")) from error
    except NotFoundError as error:
        if error.kind == "space":  # the model did not choose it
            raise
        raise InvalidInput(str(error).rstrip(".")) from error
