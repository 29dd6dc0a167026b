"""The client's documentation matches the server's limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tellback.server import ServerSettings
from tellback.validation import QUERY_LENGTH
from tellback.wire.arguments import MAX_ATOMS, MAX_IMPORTED_MESSAGES, MAX_RECALLED
from tellback.wire.turns import MAX_CYCLES, MAX_MEMORY_WAIT_SECONDS, MAX_TAIL, MAX_TURN_WAIT_SECONDS, YEAR_SECONDS
from tests.unit.client.test_surface import NOT_REMOTE, NOT_REMOTE_ATTRIBUTES

PAGE = (Path(__file__).parents[3] / "docs" / "howto" / "client.md").read_text()
SETTINGS = ServerSettings()

BOUNDS = {
    "a text;": f"{SETTINGS.text_length:,} characters; {SETTINGS.body_bytes // 1_000_000} MB",
    "`query` of": f"{QUERY_LENGTH:,} characters",
    "`limit` of": f"{SETTINGS.largest_page}",
    "`append_messages`;": f"{MAX_IMPORTED_MESSAGES:,}; {MAX_ATOMS}",
    "`max_cycles`;": f"{MAX_CYCLES}; {MAX_TAIL}",
    "`wait`;": (
        f"{MAX_TURN_WAIT_SECONDS:.0f} seconds; {MAX_MEMORY_WAIT_SECONDS:.0f} seconds;"
        f" {YEAR_SECONDS / 86_400:.0f} days, or None"
    ),
}

NEEDS_NO_DOCUMENTATION = {
    "Tellback.user",  # has no tenant and app
    "Tellback.clock",
    "Tellback.model",
    "Tellback.store",
    "Jobs.start",
    "Jobs.start_worker",
    "Jobs.close",
}
"""Methods and attributes that a reader does not expect on the client."""


@pytest.mark.parametrize("what", BOUNDS)
def test_documented_limits_match_the_code(what: str) -> None:
    [row] = [line for line in PAGE.splitlines() if line.startswith(f"| {what}")]
    assert row.endswith(f"| {BOUNDS[what]} |")
    assert SETTINGS.largest_page == MAX_RECALLED


@pytest.mark.parametrize("what", sorted((NOT_REMOTE | NOT_REMOTE_ATTRIBUTES) - NEEDS_NO_DOCUMENTATION))
def test_methods_missing_on_the_client_are_documented(what: str) -> None:
    name = what.split(".")[1]
    assert f"`{name}`" in PAGE or f".{name}`" in PAGE
