"""Ids: stable, readable, and distinct for distinct inputs."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellback.agent.definitions.state import generate_route_id, generate_state_id, generate_tool_id
from tellback.errors import InvalidArgumentError
from tellback.types.ids import SLUG_LENGTH, slug


def test_generated_ids_never_change_between_versions() -> None:
    assert generate_route_id("User Onboarding") == "route_user_onboarding_8bef1939"
    assert generate_state_id("route_123", "Ask for name") == "state_ask_for_name_caf74ca8"
    assert generate_state_id("route_123", "Ask for name", 2) == "state_ask_for_name_7d523dca"
    assert generate_state_id("route_123") == "state_ecffe779"
    assert generate_tool_id("get_user_data") == "tool_get_user_data_ae962906"


def test_another_process_generates_the_same_ids() -> None:
    code = "from tellback.agent.definitions.state import generate_route_id; print(generate_route_id('Café & Más'))"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=50)
    assert completed.stdout.strip() == generate_route_id("Café & Más")


def test_slugs_keep_letters_of_other_alphabets() -> None:
    assert slug("Café & Más") == "cafe_mas"
    assert slug("予約する") == "予約する"
    assert slug("!!!") == ""
    assert re.fullmatch(r"route_[0-9a-f]{8}", generate_route_id("!!!"))


def test_the_kind_is_part_of_the_hash() -> None:
    assert len({generate_route_id("x")[-8:], generate_tool_id("x")[-8:], generate_state_id("x")[-8:]}) == 3


@pytest.mark.parametrize("value", [None, 5, b"x"])
def test_ids_can_only_be_generated_from_strings(value: Any) -> None:
    for make in (
        generate_route_id,
        generate_tool_id,
        generate_state_id,
        lambda text: generate_state_id("r", text or b"x"),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidArgumentError, match="can only be built from strings"):
            make(value)


@given(st.text())
def test_an_id_is_short_and_has_no_spaces(title: str) -> None:
    id = generate_route_id(title)
    assert id == generate_route_id(title)
    assert re.fullmatch(r"route_(\w+_)?[0-9a-f]{8}", id)
    assert len(id) <= len("route_") + SLUG_LENGTH + 9
    assert id.encode()


@given(st.lists(st.text(), unique=True, min_size=2, max_size=5))
def test_different_titles_give_different_ids(titles: list[str]) -> None:
    assert len({generate_route_id(title) for title in titles}) == len(titles)


@given(st.text(), st.text(), st.lists(st.none() | st.integers(0, 50), unique=True, max_size=5))
def test_the_index_makes_ids_of_equal_descriptions_distinct(route: str, text: str, indexes: list[int | None]) -> None:
    assert len({generate_state_id(route, text, index) for index in indexes}) == len(indexes)
