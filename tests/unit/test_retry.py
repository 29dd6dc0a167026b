"""How long to wait."""

from __future__ import annotations

import email.utils
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellback.chat.retry import MAX_DELAY, backoff, is_acceptable_wait, parse_retry_after


@given(st.integers(0, 100))
def test_waits_grow_with_jitter_up_to_a_limit(attempt: int) -> None:
    full = min(0.5 * 2.0 ** min(attempt, 10), MAX_DELAY)
    assert full / 2 <= backoff(attempt) <= full


def test_waits_differ_so_that_clients_do_not_come_back_together() -> None:
    assert len({backoff(3) for _ in range(20)}) > 1


def test_the_providers_wish_is_the_least() -> None:
    assert backoff(0, 30) == 30
    assert backoff(5, 0.001) >= 4


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        (None, None),
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0),
        ({"retry-after-ms": "1500", "retry-after": "7"}, 1.5),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
    ],
)
def test_the_headers_are_read(headers: dict[str, str] | None, seconds: float | None) -> None:
    assert parse_retry_after(headers) == seconds


def test_a_date_is_read_too() -> None:
    found = parse_retry_after({"retry-after": email.utils.formatdate(time.time() + 30, usegmt=True)})
    assert found == pytest.approx(30, abs=2)


def test_nobody_waits_an_hour() -> None:
    assert is_acceptable_wait(None)
    assert is_acceptable_wait(20)
    assert not is_acceptable_wait(3600)
