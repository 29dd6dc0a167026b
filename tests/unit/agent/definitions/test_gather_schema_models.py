from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    RootModel,
    SecretStr,
    ValidationInfo,
    computed_field,
    field_serializer,
    field_validator,
    model_validator,
)
from pydantic import Field as Described

from tellback.agent.definitions.gather_schema import GatherSchema
from tellback.agent.definitions.value_parser import InvalidValue
from tellback.errors import FlowError

PLACE = "route 'Book a flight'"


class Cabin(Enum):
    ECONOMY = "economy"
    FIRST = "first class"


class Stars(IntEnum):
    ONE = 1
    TWO = 2


def no_sevens(value: int) -> int:
    if value == 7:
        raise ValueError("we never sell seven seats")
    return value


@dataclass
class Bag:
    kilos: int


class Address(BaseModel):
    street: str = Described(validation_alias="Street", serialization_alias="STREET")
    since: date | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def shout(self) -> str:
        return self.street.upper()

    @field_serializer("since")
    def written(self, value: date | None) -> str:
        return f"since {value}"


class Flight(BaseModel):
    model_config = ConfigDict(extra="forbid")

    destination: str = Described(alias="dest", min_length=2)
    departure: date
    passengers: Annotated[int, Described(ge=1, le=9), AfterValidator(no_sevens)]
    cabin: Cabin = Cabin.ECONOMY
    meal: Literal["Meat", "No meat"] | None = None
    back: date | None = None
    price: Decimal = Decimal(0)
    address: Address | None = None
    at: time | None = None
    boarding: datetime | None = None
    stars: Stars | None = None
    tags: set[str] = Described(default_factory=set)
    bag: Bag | None = None
    number: UUID | None = None
    length: timedelta | None = None
    weight: float = 0.0
    child: bool = False
    seats: dict[Cabin, int] = Described(default_factory=dict)

    @field_validator("destination")
    @classmethod
    def real(cls, value: str) -> str:
        if value == "Atlantis":
            raise ValueError("there is no airport in Atlantis")
        return value

    @field_validator("back")
    @classmethod
    def later(cls, value: date | None, info: ValidationInfo) -> date | None:
        if value is not None and value < info.data["departure"]:
            raise ValueError("you come back before you leave")
        return value

    @model_validator(mode="before")
    @classmethod
    def whole_before(cls, data: Any) -> Any:
        assert "departure" in data, "not without departure"
        return data

    @model_validator(mode="after")
    def whole_after(self) -> Flight:
        if self.passengers > 4 and self.cabin is Cabin.FIRST:
            raise ValueError("first class has four seats")
        return self


SCHEMA = GatherSchema.from_definition(Flight, PLACE)


@pytest.mark.parametrize(
    ("name", "raw", "expected"),
    [
        ("destination", " Rome ", "Rome"),
        ("departure", "2026/12/01", date(2026, 12, 1)),
        ("departure", date(2026, 12, 1), date(2026, 12, 1)),
        ("departure", "2026-12-01T10:00:00Z", date(2026, 12, 1)),
        ("passengers", "2", 2),
        ("passengers", 2.0, 2),
        ("cabin", " First  CLASS", Cabin.FIRST),
        ("cabin", Cabin.FIRST, Cabin.FIRST),
        ("meal", "no meat", "No meat"),
        ("meal", None, None),
        ("back", "2026-12-24", date(2026, 12, 24)),
        ("price", "2.50", Decimal("2.50")),
        ("price", 2.5, Decimal("2.5")),
        ("price", Decimal("0.10"), Decimal("0.10")),
        ("address", {"street": " Via Roma "}, Address.model_validate({"Street": "Via Roma"})),
        (
            "address",
            {"street": "a", "since": "2020/1/2"},
            Address.model_validate({"Street": "a", "since": date(2020, 1, 2)}),
        ),
        ("address", Address.model_validate({"Street": "a"}), Address.model_validate({"Street": "a"})),
        ("at", "9:30 pm", time(21, 30)),
        ("boarding", "2026-12-01", datetime(2026, 12, 1)),
        ("stars", "2", Stars.TWO),
        ("tags", "vip", {"vip"}),
        ("tags", {"a", "b"}, {"a", "b"}),
        ("bag", {"kilos": "20"}, Bag(20)),
        ("number", str(UUID(int=7)), UUID(int=7)),
        ("length", "PT2H", timedelta(hours=2)),
        ("weight", "2", 2.0),
        ("child", "No", False),
        ("seats", {"first class": "2"}, {Cabin.FIRST: 2}),
    ],
)
def test_a_field_is_typed_while_others_are_missing(name: str, raw: Any, expected: Any) -> None:
    checked = SCHEMA.check(name, raw)
    assert checked == expected
    assert type(checked) is type(expected)
    assert SCHEMA.check(name, checked) == expected
    assert SCHEMA.restore(SCHEMA.plain({name: checked})) == {name: expected}


@pytest.mark.parametrize(
    ("name", "raw", "reason"),
    [
        ("passengers", 12, "12 should be less than or equal to 9"),
        ("passengers", 7, "we never sell seven seats"),
        ("passengers", True, "true is not a whole number"),
        ("destination", "Atlantis", "there is no airport in Atlantis"),
        ("destination", "R", "String should have at least 2 characters, got 'R'"),
        ("destination", " ", "is empty"),
        ("destination", None, "is null, which is not a value"),
        ("dest", "Rome", "is not a field of gather_schema; its fields: destination, departure"),
        ("departure", "03/04/2026", "'03/04/2026' is ambiguous: give the date as YYYY-MM-DD"),
        ("departure", 1_700_000_000, "1700000000 is not a date: give it as YYYY-MM-DD"),
        ("cabin", "third", "'third' is not one of 'economy', 'first class'"),
        ("address", {}, "street: is missing"),
        ("address", {"street": "a", "since": "soon"}, "since: 'soon' is not a date: give it as YYYY-MM-DD"),
        ("weight", "nan", "'nan' is not a number"),
        ("weight", float("inf"), "is not a finite number"),
        ("weight", False, "false is not a number"),
        ("child", 1, "1 is neither yes nor no"),
        ("price", True, "true is not a number, and true is not a string"),
        ("bag", {"kilos": "heavy"}, "kilos: 'heavy' is not a whole number"),
    ],
)
def test_constraints_and_validators_of_a_field_run(name: str, raw: Any, reason: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        SCHEMA.check(name, raw)
    assert str(caught.value).startswith(reason)


def test_a_field_without_a_default_is_required() -> None:
    assert [name for name, field in SCHEMA.fields.items() if field.required] == [
        "destination",
        "departure",
        "passengers",
    ]


def test_schemas_use_field_names_and_omit_titles() -> None:
    assert SCHEMA.fields["destination"].schema == {"type": "string", "minLength": 2}
    assert SCHEMA.fields["passengers"].schema == {"type": "integer", "minimum": 1, "maximum": 9}
    assert SCHEMA.definitions["Cabin"] == {"enum": ["economy", "first class"], "type": "string"}
    assert "street" in SCHEMA.definitions["Address"]["properties"]


def test_complete_data_becomes_an_instance_of_the_model() -> None:
    flight = SCHEMA.typed({"destination": "Rome", "departure": date(2026, 12, 1), "passengers": 2, "other": 1})
    assert isinstance(flight, Flight)
    assert flight.destination == "Rome"
    assert SCHEMA.typed({"destination": "Rome"}) == {"destination": "Rome"}


def test_validators_of_several_fields_run_once_the_data_is_complete() -> None:
    data = {"destination": "Rome", "departure": date(2026, 12, 1), "passengers": 5, "cabin": Cabin.FIRST}
    with pytest.raises(InvalidValue, match=r"^first class has four seats$"):
        SCHEMA.typed(data)
    with pytest.raises(InvalidValue, match=r"^back: you come back before you leave$"):
        SCHEMA.typed({**data, "passengers": 1, "back": date(2026, 11, 1)})


def test_values_that_cannot_be_restored_stay_unchanged() -> None:
    data = {"departure": "once", "passengers": 99, "gone": "2026-12-01", "cabin": None}
    assert SCHEMA.restore(data) == data


def test_restoring_does_not_run_validators() -> None:
    calls = []

    class Booking(BaseModel):
        day: date

        @field_validator("day")
        @classmethod
        def ahead(cls, value: date) -> date:
            calls.append(value)
            raise ValueError("that day is in the past")

    schema = GatherSchema.from_definition(Booking, PLACE)
    assert schema.restore({"day": "2020-01-01"}) == {"day": date(2020, 1, 1)}
    assert calls == []


def test_a_before_validator_receives_the_original_text() -> None:
    class Booking(BaseModel):
        day: date
        seats: int

        @field_validator("day", mode="before")
        @classmethod
        def european(cls, value: Any) -> Any:
            return datetime.strptime(value, "%d/%m/%Y").date() if "/" in value else value

        @field_validator("seats", mode="before")
        @classmethod
        def worded(cls, value: Any) -> Any:
            return {"two": 2}.get(value.lower(), value)

    schema = GatherSchema.from_definition(Booking, PLACE)
    assert schema.check("day", "03/04/2026") == date(2026, 4, 3)
    assert schema.check("day", "2026-04-03T10:00") == date(2026, 4, 3)
    assert schema.check("seats", " Two") == 2
    assert schema.check("seats", "1,500") == 1500
    assert schema.check("seats", 3) == 3
    with pytest.raises(InvalidValue, match="'many' should be a valid integer"):
        schema.check("seats", "many")
    with pytest.raises(InvalidValue, match="is empty"):
        schema.check("seats", " ")
    with pytest.raises(InvalidValue, match="true is not a whole number"):
        schema.check("seats", True)


def test_strict_frozen_and_deferred_models_are_supported() -> None:
    class Booking(BaseModel):
        model_config = ConfigDict(strict=True, frozen=True, defer_build=True, use_enum_values=True)
        day: date
        cabin: Cabin

    schema = GatherSchema.from_definition(Booking, PLACE)
    data = {"day": schema.check("day", "2026-12-01"), "cabin": schema.check("cabin", "Economy")}
    assert data == {"day": date(2026, 12, 1), "cabin": "economy"}
    assert schema.restore(schema.plain(data)) == data


class Tree(BaseModel):
    name: str
    children: list[Tree] = []


def test_a_recursive_model_is_supported() -> None:
    schema = GatherSchema.from_definition(Tree, PLACE)
    assert list(schema.fields) == ["name", "children"]
    tree = [Tree(name="a", children=[Tree(name="b")])]
    assert schema.check("children", [{"name": " a", "children": {"name": "b"}}]) == tree
    assert schema.restore(schema.plain({"children": tree})) == {"children": tree}


def test_validators_of_a_parent_model_run_in_a_child_model() -> None:
    class Child(Flight):
        extra: int

    schema = GatherSchema.from_definition(Child, PLACE)
    with pytest.raises(InvalidValue, match="Atlantis"):
        schema.check("destination", "Atlantis")
    assert schema.check("extra", "3") == 3


def test_a_secret_value_can_be_stored_and_restored() -> None:
    class Login(BaseModel):
        pin: SecretStr

    schema = GatherSchema.from_definition(Login, PLACE)
    data = {"pin": schema.check("pin", "1234")}
    assert data["pin"].get_secret_value() == "1234"
    assert schema.restore(schema.plain(data)) == data


def test_plain_converts_unsupported_values_to_strings() -> None:
    class Odd:
        def __str__(self) -> str:
            return "odd"

    assert SCHEMA.plain({"other": Odd(), "list": (1, {2})}) == {"other": "odd", "list": [1, [2]]}


class Unusable(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    client: InvalidValue


@pytest.mark.parametrize(
    ("definition", "pattern"),
    [
        (Tree(name="a"), "an instance of Tree: pass the class, gather_schema=Tree"),
        (RootModel[int], "is a RootModel"),
        (Unusable, "has no JSON schema"),
        (Bag, "pydantic model class"),
    ],
)
def test_an_unusable_model_is_rejected(definition: Any, pattern: str) -> None:
    with pytest.raises(FlowError, match=pattern) as caught:
        GatherSchema.from_definition(definition, PLACE)
    assert caught.value.place == PLACE
