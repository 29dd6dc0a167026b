"""The result of a custom extractor is validated."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tellback.errors import ExtractionError
from tellback.memory.extraction.extractors import validate_extraction
from tellback.memory.extraction.values import ExtractedEntity, ExtractedFact, Extraction
from tellback.types.memory import Category, CategoryKind, EntityType
from tellback.types.messages import ChatUsage
from tellback.validation import MAX_NAME_LENGTH, MAX_TEXT_LENGTH
from tests.unit.memory.extraction.factories import make_message, make_window

WINDOW = make_window("I live in Lisbon.", "I see.", before=(make_message(0, "user", "Hello."),))
FACT = ExtractedFact("User lives in Lisbon.", Category("home", CategoryKind.FACT), (WINDOW.messages[0].id,))
ANNA = ExtractedEntity("Anna", EntityType.PERSON, ("Annie",), "a friend")
JANUARY = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_valid_extraction_is_returned_unchanged() -> None:
    complete_fact = replace(
        FACT, valid_from=JANUARY, valid_to=JANUARY.replace(year=2027), entities=("Anna",), subject="user", value="x"
    )
    extraction = Extraction((FACT, complete_fact), (ANNA,), usage=(ChatUsage(1),))
    assert validate_extraction(extraction, WINDOW) is extraction
    assert validate_extraction(Extraction(), WINDOW) == Extraction()


WRONG: list[tuple[dict[str, Any], str]] = [
    *(({"text": text}, "text") for text in ("", " \n", None, "x" * (MAX_TEXT_LENGTH + 1), "a\x00b", "\ud800")),
    ({"category": Category("habits", CategoryKind.PATTERN)}, "PATTERN"),
    ({"category": Category("turn", CategoryKind.EPISODE)}, "turn"),
    ({"category": Category("", CategoryKind.FACT)}, "category"),
    ({"category": ("home", "FACT")}, "category"),
    *(({"importance": value}, "importance") for value in (0, 99, 2.5, None)),
    *(({"confidence": value}, "confidence") for value in (7.0, -0.1, float("nan"))),
    ({"valid_from": datetime(2026, 1, 1)}, "valid_from.*timezone"),
    ({"valid_to": datetime(2026, 1, 1)}, "valid_to.*timezone"),
    ({"valid_from": "2026-01-01"}, "valid_from"),
    ({"valid_to": datetime(1, 1, 1, tzinfo=UTC)}, "valid_to.*1000"),
    ({"valid_from": JANUARY, "valid_to": JANUARY}, "valid_to"),
    ({"message_ids": ()}, "message_ids"),
    ({"message_ids": "msg_1"}, "message_ids"),
    ({"message_ids": (WINDOW.messages[0].id, "msg_elsewhere")}, "msg_elsewhere"),
    ({"message_ids": (WINDOW.before[0].id,)}, "message_ids"),
    ({"value": "\ud800"}, "value"),
    ({"subject": "x" * (MAX_NAME_LENGTH + 1)}, "subject"),
    ({"attribute": 5}, "attribute"),
    ({"entities": ("",)}, "entities"),
    ({"entities": "Anna"}, "entities"),
    ({"single": "yes"}, "single"),
    ({"change": "never"}, "change"),
]


@pytest.mark.parametrize(("fields", "pattern"), WRONG)
def test_an_invalid_fact_raises_an_error_that_names_it(fields: dict[str, Any], pattern: str) -> None:
    extraction = Extraction((FACT, replace(FACT, **fields)), usage=(ChatUsage(7),))
    with pytest.raises(ExtractionError, match=rf"facts\.1.*{pattern}") as failure:
        validate_extraction(extraction, WINDOW)
    assert failure.value.usage == extraction.usage


@pytest.mark.parametrize(
    "fields",
    [
        {"name": " "},
        {"name": "x" * (MAX_NAME_LENGTH + 1)},
        {"aliases": ("\x00",)},
        {"type": "ALIEN"},
        {"description": 5},
    ],
)
def test_an_invalid_entity_raises_an_error_that_names_it(fields: dict[str, Any]) -> None:
    with pytest.raises(ExtractionError, match=r"entities\.0"):
        validate_extraction(Extraction((FACT,), (replace(ANNA, **fields),)), WINDOW)


@pytest.mark.parametrize("value", [None, [FACT], Extraction(None), Extraction(("a fact",)), Extraction((), ("Anna",))])  # type: ignore[arg-type]
def test_a_result_that_is_not_an_extraction_raises_an_error(value: Any) -> None:
    with pytest.raises(ExtractionError):
        validate_extraction(value, WINDOW)
