from __future__ import annotations

import json
from datetime import date, datetime, time
from enum import Enum
from typing import Any, Literal

from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from tellback.agent.definitions.gather_schema import GatherSchema
from tellback.agent.definitions.value_parser import InvalidValue

PLACE = "route 'Book a flight'"


class Cabin(Enum):
    ECONOMY = "economy"
    FIRST = "First class"
    THIRD = 3


class Guest(BaseModel):
    name: str
    born: date | None = None


class Trip(BaseModel):
    to: str
    day: date
    moment: datetime
    at: time
    cabin: Cabin
    guests: list[Guest]
    seats: int = Field(ge=1, le=9)
    price: float
    sure: bool
    either: int | bool | date | None
    meal: Literal["meat", 2, False]
    loose: dict[str, float]
    any: Any


MODEL = GatherSchema.from_definition(Trip, PLACE)
HAND = GatherSchema.from_definition(
    {
        "type": "object",
        "properties": {
            **{name: field.schema for name, field in MODEL.fields.items()},
            "pair": {"type": "array", "prefixItems": [{"type": "number"}, {"const": "x"}], "minItems": 2},
            "unique": {"type": "array", "uniqueItems": True, "items": {"type": ["number", "boolean", "null"]}},
            "multiple": {"type": "number", "multipleOf": 0.01},
            "allowed": {"allOf": [{"type": "string"}, {"minLength": 2}]},
            "mail": {"format": "email"},
        },
        "$defs": MODEL.definitions,
    },
    PLACE,
)

words = st.sampled_from(
    [
        *(
            "yes",
            "No",
            "2",
            "2.0",
            "1,500",
            "1.500",
            "economy",
            "nan",
            "-inf",
            "٣",
            "1e5",
            "24:00",
            "\x00",
            chr(0xD800),
        ),
        *("2026/12/1", "03/04/2026", "2026-12-01T10:00Z"),
    ]
)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), words, st.dates(), st.datetimes(), st.times()
)
garbage = st.recursive(
    st.one_of(
        scalars,
        st.sampled_from(Cabin),
        st.binary(),
        st.decimals(),
        st.builds(object),
        st.builds(pow, st.just(10), st.just(5000)),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner),
        st.frozensets(scalars, max_size=2),
        st.dictionaries(st.one_of(st.sampled_from(["name", "born", "x"]), scalars), inner, max_size=3),
    ),
    max_leaves=6,
)


@given(st.sampled_from([MODEL, HAND]), st.data(), garbage)
def test_checking_any_value_raises_only_invalid_value_and_is_idempotent(
    schema: GatherSchema, data: st.DataObject, value: Any
) -> None:
    name = data.draw(st.sampled_from(sorted(schema.fields)))
    try:
        checked = schema.check(name, value)
    except InvalidValue as error:
        problem = str(error)
    else:
        problem = ""
        assert schema.check(name, checked) == checked
        assert type(schema.check(name, checked)) is type(checked)
        stored = json.loads(json.dumps(schema.plain({name: checked}), allow_nan=False))
        assert schema.restore(stored) == {name: checked}
    assert "\n" not in problem
    assert len(problem) < 1000


@given(garbage)
def test_restoring_never_fails_and_returns_every_name(value: Any) -> None:
    data = dict.fromkeys([*MODEL.fields, "unknown"], value)
    assert list(MODEL.restore(data)) == list(data)


stripped = st.text(min_size=1).map(str.strip).filter(lambda text: text and "\x00" not in text)
trips = st.builds(
    Trip,
    to=stripped,
    guests=st.lists(st.builds(Guest, name=stripped, born=st.none() | st.dates()), max_size=3),
    price=st.floats(allow_nan=False, allow_infinity=False),
    loose=st.dictionaries(stripped, st.floats(allow_nan=False, allow_infinity=False), max_size=2),
    any=stripped,
    either=st.none() | st.integers() | st.booleans() | st.dates(),
)


@given(trips)
def test_values_stored_as_json_are_restored_unchanged(trip: Trip) -> None:
    data = {name: getattr(trip, name) for name in MODEL.fields}
    stored = json.loads(json.dumps(MODEL.plain(data)))
    assert MODEL.restore(stored) == data
    assert MODEL.typed(MODEL.restore(stored)) == trip


@given(st.dates(), st.sampled_from(["%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%Y-%m-%dT12:00:00Z"]))
def test_a_date_that_begins_with_the_year_is_parsed(day: date, form: str) -> None:
    text = form.replace("%Y", f"{day.year:04}").replace("%m", f"{day.month:02}").replace("%d", f"{day.day:02}")
    assert MODEL.check("day", text) == day
    assert HAND.check("day", text) == day.isoformat()


@given(st.integers(min_value=-(10**12), max_value=10**12))
def test_a_whole_number_is_parsed_with_and_without_grouping(number: int) -> None:
    schema = GatherSchema.from_definition({"type": "object", "properties": {"x": {"type": "integer"}}}, PLACE)
    assert schema.check("x", f"{number}") == schema.check("x", f"{number:,}") == number
