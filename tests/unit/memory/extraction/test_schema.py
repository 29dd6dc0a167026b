"""The schema a model is held to."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from jsonschema import Draft202012Validator

from tellback.chat.output import InvalidOutput, OutputSpec, is_exact
from tellback.chat.providers.openai.encode import strict_schema
from tellback.memory.extraction.schema import (
    MOST_IDS,
    ChangeWord,
    Found,
    Kind,
    Type,
    VerdictWord,
    found_schema,
    judged_schema,
)
from tellback.memory.extraction.values import Change, Verdict
from tellback.types.jsontext import dump_json
from tellback.types.memory import CategoryKind, EntityType
from tests.unit.memory.extraction.making import fact


@pytest.mark.parametrize(
    "schema",
    [found_schema(["m1"], quotes=False), found_schema(["m1"], quotes=True), judged_schema(3, 2)],
    ids=["found", "with quotes", "judged"],
)
def test_providers_can_hold_a_model_to_it(schema: dict[str, Any]) -> None:
    Draft202012Validator.check_schema(schema)
    assert is_exact(schema)
    assert strict_schema(schema)[1]
    assert "$ref" not in str(schema)


def test_only_messages_of_the_window_can_be_cited() -> None:
    cited = found_schema(["m3", "m4"], quotes=False)["properties"]["facts"]["items"]["properties"]["messages"]
    assert cited["items"] == {"type": "string", "enum": ["m3", "m4"]}
    many = found_schema([f"m{number}" for number in range(MOST_IDS + 1)], quotes=False)
    assert "enum" not in many["properties"]["facts"]["items"]["properties"]["messages"]["items"]


def test_a_quote_is_asked_for_only_where_it_is_wanted() -> None:
    without = found_schema(["m1"], quotes=False)["properties"]["facts"]["items"]
    assert "quote" not in {*without["properties"], *without["required"]}
    quoting = found_schema(["m1"], quotes=True)["properties"]["facts"]["items"]
    assert quoting["properties"]["quote"]["type"] == "string"
    assert "quote" in quoting["required"]


def test_its_words_are_those_of_the_values() -> None:
    assert set(get_args(get_args(Kind)[0])) == set(CategoryKind) - {CategoryKind.PATTERN}
    assert set(get_args(get_args(Type)[0])) == set(EntityType)
    assert set(get_args(get_args(ChangeWord)[0])) == set(Change)
    assert set(get_args(get_args(VerdictWord)[0])) == set(Verdict)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"kind": "PATTERN"}, "kind"),
        ({"kind": "GUESS"}, "kind"),
        ({"importance": 6}, "importance"),
        ({"confidence": -1}, "confidence"),
        ({"confidence": float("nan")}, "confidence"),
        ({"messages": []}, "messages"),
        ({"change": "maybe"}, "change"),
        ({"text": None}, "text"),
    ],
)
def test_what_does_not_fit_is_for_the_model_to_mend(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidOutput, match=rf"facts\.0\.{named}"):
        OutputSpec.of(Found).parse(dump_json({"facts": [fact(**wrong)]}))


def test_words_are_taken_in_any_case() -> None:
    found = Found.model_validate({"facts": [fact(kind=" preference", change="Changed")]})
    assert (found.facts[0].kind, found.facts[0].change) == ("PREFERENCE", "changed")
