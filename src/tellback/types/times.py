"""Moments: timezone-aware UTC for people, whole microseconds since 1970 for tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def utc_now() -> datetime:
    """This moment."""
    return datetime.now(UTC)


def as_utc(moment: datetime | str) -> datetime:
    """A moment in UTC, from an aware datetime or an ISO 8601 text with an offset.

    >>> as_utc("2026-03-01T12:00:00+02:00").isoformat()
    '2026-03-01T10:00:00+00:00'
    """
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    if not isinstance(moment, datetime):
        raise TypeError(f"a moment is a datetime or an ISO 8601 text, not {moment!r:.80}")
    if moment.tzinfo is None:
        raise ValueError(f"{moment.isoformat()} does not say in which timezone: add one, such as +00:00")
    return moment.astimezone(UTC)


def to_micros(moment: datetime) -> int:
    """Whole microseconds since 1970, exactly.

    >>> to_micros(as_utc("1970-01-01T00:00:01Z"))
    1000000
    """
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """The other way.

    >>> from_micros(1_000_000).isoformat()
    '1970-01-01T00:00:01+00:00'
    """
    return _EPOCH + timedelta(0, 0, micros)
