"""Messages about arguments: what is wrong, the value, and nothing that should stay secret."""

from __future__ import annotations

import pytest

from tellback.agent import Agent
from tellback.errors import InvalidArgumentError
from tellback.validation import parse_duration, validate_metadata


def test_metadata_that_is_no_mapping_is_said_once() -> None:
    with pytest.raises(InvalidArgumentError, match=r"^metadata must be a mapping with strings as keys, got 5\.$"):
        validate_metadata(5)  # type: ignore[arg-type]


def test_fields_that_do_not_fit_are_named_without_their_values() -> None:
    with pytest.raises(InvalidArgumentError, match="url") as caught:
        Agent("A", persistence={"url": "postgresql://app:s3cret@db/x"})  # type: ignore[arg-type]
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("length", [-1, 1e18])
def test_a_duration_out_of_range_is_told_the_range(length: float) -> None:
    with pytest.raises(InvalidArgumentError, match=r"at least 0|365,000 days"):
        parse_duration("older_than", length)
