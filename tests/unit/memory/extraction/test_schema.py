"""The schema of the model's output."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from jsonschema import Draft202012Validator

from tellback.chat.output import InvalidOutput, OutputSpec, is_exact_schema
from tellback.chat.providers.chat_completions import to_strict_schema
from tellback.memory.extraction.parser import (
    MAX_ENUM_IDS,
    ChangeField,
    EntityTypeField,
    ExtractionOutput,
    KindField,
    VerdictField,
    decisions_schema,
    extraction_schema,
)
from tellback.memory.extraction.values import Change, Verdict
from tellback.types.jsontext import dump_json
from tellback.types.memory import CategoryKind, EntityType
from tests.unit.memory.extraction.factories import fact_output


@pytest.mark.parametrize(
    "schema",
    [extraction_schema(["m1"], quotes=False), extraction_schema(["m1"], quotes=True), decisions_schema(3, 2)],
    ids=["extraction", "extraction with quotes", "decisions"],
)
def test_the_schema_is_strict(schema: dict[str, Any]) -> None:
    Draft202012Validator.check_schema(schema)
    assert is_exact_schema(schema)
    assert to_strict_schema(schema)[1]
    assert "$ref" not in str(schema)


def test_only_messages_of_the_window_can_be_cited() -> None:
    messages_schema = extraction_schema(["m3", "m4"], quotes=False)["properties"]["facts"]["items"]["properties"][
        "messages"
    ]
    assert messages_schema["items"] == {"type": "string", "enum": ["m3", "m4"]}
    many = extraction_schema([f"m{number}" for number in range(MAX_ENUM_IDS + 1)], quotes=False)
    assert "enum" not in many["properties"]["facts"]["items"]["properties"]["messages"]["items"]


def test_the_schema_has_a_quote_only_if_the_prompt_wants_one() -> None:
    without = extraction_schema(["m1"], quotes=False)["properties"]["facts"]["items"]
    assert "quote" not in {*without["properties"], *without["required"]}
    quoting = extraction_schema(["m1"], quotes=True)["properties"]["facts"]["items"]
    assert quoting["properties"]["quote"]["type"] == "string"
    assert "quote" in quoting["required"]


def test_the_enums_of_the_schema_match_the_values() -> None:
    assert set(get_args(get_args(KindField)[0])) == set(CategoryKind) - {CategoryKind.PATTERN}
    assert set(get_args(get_args(EntityTypeField)[0])) == set(EntityType)
    assert set(get_args(get_args(ChangeField)[0])) == set(Change)
    assert set(get_args(get_args(VerdictField)[0])) == set(Verdict)


@pytest.mark.parametrize(
    ("wrong", "pattern"),
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
def test_output_that_does_not_fit_the_schema_raises_invalid_output(wrong: dict[str, Any], pattern: str) -> None:
    with pytest.raises(InvalidOutput, match=rf"facts\.0\.{pattern}"):
        OutputSpec.from_type(ExtractionOutput).parse(dump_json({"facts": [fact_output(**wrong)]}))


def test_enum_values_are_case_insensitive() -> None:
    found = ExtractionOutput.model_validate({"facts": [fact_output(kind=" preference", change="Changed")]})
    assert (found.facts[0].kind, found.facts[0].change) == ("PREFERENCE", "changed")
