"""Terms, guidelines, capabilities and composition modes."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tellback.agent.definitions.guidelines import (
    Capability,
    CompositionMode,
    Guideline,
    GuidelineMatch,
    Term,
    coerce_value,
)
from tellback.errors import InvalidArgumentError
from tellback.tools import Tool


def look_up(id: str) -> str:
    """Look something up."""
    return id


def test_the_composition_modes_are_fixed() -> None:
    assert [each.value for each in CompositionMode] == ["fluid", "canned_fluid", "composited_canned", "strict_canned"]


def test_values_are_equal_by_content_where_they_hold_no_tools() -> None:
    assert Term("PNR", "A booking.", ["locator"]) == Term("PNR", "A booking.", ("locator",))


@pytest.mark.parametrize(
    "value", [Term("a", "b"), Guideline("a"), Capability("a", "b"), GuidelineMatch(Guideline("a"))]
)
def test_values_cannot_be_changed(value: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, dataclasses.fields(value)[0].name, "other")


@pytest.mark.parametrize("name", ["", " ", None, 5])
def test_names_are_texts(name: Any) -> None:
    for make in (lambda: Term(name, "b"), lambda: Guideline(name), lambda: Capability(name, "b")):
        with pytest.raises(InvalidArgumentError, match="must be a non-empty string"):
            make()


@pytest.mark.parametrize("condition", ["", 5])
def test_a_condition_is_a_text_or_none(condition: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="condition must be a non-empty string"):
        Guideline("Be brief.", condition=condition)


@pytest.mark.parametrize("synonyms", ["locator", [5]])
def test_synonyms_are_a_list_of_texts(synonyms: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="synonyms of term 'PNR'"):
        Term("PNR", "A booking.", synonyms)


def test_functions_become_tools() -> None:
    for value in (Guideline("Look.", tools=[look_up]), Capability("Look", "It up.", tools=[look_up])):
        (tool,) = value.tools
        assert isinstance(tool, Tool)
        assert tool.name == "look_up"


@pytest.mark.parametrize("tools", [look_up, "look_up", {"look_up": look_up}])
def test_tools_are_a_list(tools: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"write tools=\[\.\.\.\]"):
        Guideline("Look.", tools=tools)


def test_a_value_is_made_of_itself_a_mapping_or_keywords() -> None:
    term = Term("PNR", "A booking.")
    assert coerce_value(Term, term) is term
    assert coerce_value(Term, {"name": "PNR"}, {"description": "A booking."}) == term
    assert coerce_value(Term, None, {"name": "PNR", "description": "A booking."}) == term


@pytest.mark.parametrize("value", ["PNR", 5, {"name": "PNR"}, {"name": "PNR", "description": "a", "colour": 1}, None])
def test_what_makes_no_value_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="no Term"):
        coerce_value(Term, value)
