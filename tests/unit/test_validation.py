"""Error messages about arguments contain the reason and the value, but no secrets."""

from __future__ import annotations

import pytest

from tellback.agent import Agent
from tellback.errors import InvalidArgumentError
from tellback.validation import parse_duration, validate_metadata


def test_metadata_that_is_not_a_mapping_has_a_short_error() -> None:
    with pytest.raises(InvalidArgumentError, match=r"^metadata must be a mapping with strings as keys, got 5\.$"):
        validate_metadata(5)  # type: ignore[arg-type]


def test_errors_about_unknown_fields_do_not_contain_values() -> None:
    with pytest.raises(InvalidArgumentError, match="url") as caught:
        Agent("A", persistence={"url": "postgresql://app:s3cret@db/x"})  # type: ignore[arg-type]
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("length", [-1, 1e18])
def test_an_error_about_a_duration_contains_the_range(length: float) -> None:
    with pytest.raises(InvalidArgumentError, match=r"at least 0|365,000 days"):
        parse_duration("older_than", length)
