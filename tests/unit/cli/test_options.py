from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import typer

from tellback.cli import options

NOW = datetime(2026, 5, 20, 12, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("now", "2026-05-20T12:30", "2026-05-20T12:30"),
        ("today", "2026-05-20", "2026-05-20T23:59:59.999999"),
        ("Yesterday", "2026-05-19", "2026-05-19T23:59:59.999999"),
        ("3d", "2026-05-17T12:30", "2026-05-17T12:30"),
        ("2w ago", "2026-05-06T12:30", "2026-05-06T12:30"),
        ("90m", "2026-05-20T11:00", "2026-05-20T11:00"),
        ("2026", "2026-01-01", "2026-12-31T23:59:59.999999"),
        ("2024-02", "2024-02-01", "2024-02-29T23:59:59.999999"),
        ("2026-3-1", "2026-03-01", "2026-03-01T23:59:59.999999"),
        ("2026-03-01T18:30", "2026-03-01T18:30", "2026-03-01T18:30"),
        ("2026-03-01 18:30+02:00", "2026-03-01T16:30", "2026-03-01T16:30"),
    ],
)
def test_times_are_parsed_to_periods(text: str, first: str, last: str) -> None:
    expected = tuple(datetime.fromisoformat(each).replace(tzinfo=UTC) for each in (first, last))
    assert options.parse_period(text, NOW) == expected


@pytest.mark.parametrize("text", ["soon", "2026-13", "2026-02-30", "99999y", "", "0000", "next tuesday"])
def test_an_invalid_time_is_rejected_with_examples(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a valid time"):
        options.parse_period_start(text)


def test_the_end_of_a_period_includes_its_last_day() -> None:
    assert options.parse_period_end("2026-03-01") - options.parse_period_start("2026-03-01") == timedelta(
        days=1, microseconds=-1
    )
