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


def test_terms_with_equal_content_are_equal() -> None:
    assert Term("PNR", "A booking.", ["locator"]) == Term("PNR", "A booking.", ("locator",))


@pytest.mark.parametrize(
    "value", [Term("a", "b"), Guideline("a"), Capability("a", "b"), GuidelineMatch(Guideline("a"))]
)
def test_values_are_immutable(value: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, dataclasses.fields(value)[0].name, "other")


@pytest.mark.parametrize("name", ["", " ", None, 5])
def test_names_must_be_non_empty_strings(name: Any) -> None:
    for make in (lambda: Term(name, "b"), lambda: Guideline(name), lambda: Capability(name, "b")):
        with pytest.raises(InvalidArgumentError, match="must be a non-empty string"):
            make()


@pytest.mark.parametrize("condition", ["", 5])
def test_a_condition_must_be_a_non_empty_string_or_none(condition: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="condition must be a non-empty string"):
        Guideline("Be brief.", condition=condition)


@pytest.mark.parametrize("synonyms", ["locator", [5]])
def test_synonyms_must_be_a_list_of_strings(synonyms: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="synonyms of term 'PNR'"):
        Term("PNR", "A booking.", synonyms)


def test_functions_become_tools() -> None:
    for value in (Guideline("Look.", tools=[look_up]), Capability("Look", "It up.", tools=[look_up])):
        (tool,) = value.tools
        assert isinstance(tool, Tool)
        assert tool.name == "look_up"


@pytest.mark.parametrize("tools", [look_up, "look_up", {"look_up": look_up}])
def test_tools_must_be_a_list(tools: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"write tools=\[\.\.\.\]"):
        Guideline("Look.", tools=tools)


def test_coerce_value_accepts_an_instance_a_mapping_or_keywords() -> None:
    term = Term("PNR", "A booking.")
    assert coerce_value(Term, term) is term
    assert coerce_value(Term, {"name": "PNR"}, {"description": "A booking."}) == term
    assert coerce_value(Term, None, {"name": "PNR", "description": "A booking."}) == term


@pytest.mark.parametrize("value", ["PNR", 5, {"name": "PNR"}, {"name": "PNR", "description": "a", "colour": 1}, None])
def test_coerce_value_rejects_other_values_and_wrong_fields(value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"a Term|for Term"):
        coerce_value(Term, value)
