"""The context of a turn: building, merging in order, copying, and hiding secrets."""

from __future__ import annotations

import copy
import functools
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from tellback.agent.context import context_values, resolve_context
from tellback.agent.sessions.session import SessionState, create_session
from tellback.errors import InvalidArgumentError


@dataclass
class Account:
    name: str
    plan: str = "free"
    token: str = field(default="s3cret", repr=False)
    size: int = field(init=False, default=1)


@dataclass(frozen=True, slots=True)
class Frozen:
    name: str
    plan: str = "free"


class Model(BaseModel):
    name: str
    plan: str = "free"
    key: SecretStr = SecretStr("s3cret")
    hidden: str = Field(default="s3cret", repr=False)
    left_out: str = Field(default="s3cret", exclude=True)


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")

    name: str = "Maya"


class Client:
    """An object of another kind."""

    name = "db"


def make_session(**context: Any) -> SessionState:
    return replace(create_session("web-42"), context=context)


async def test_the_override_takes_precedence_over_the_session_and_the_source() -> None:
    found = await resolve_context({"a": 1, "b": 1, "c": 1}, make_session(b=2, c=2), {"c": 3, "d": 3})
    assert found == {"a": 1, "b": 2, "c": 3, "d": 3}


async def test_without_a_source_the_context_has_session_and_override_values() -> None:
    assert await resolve_context(None, make_session(), None) == {}
    assert await resolve_context(None, make_session(a=1), {"b": 2}) == {"a": 1, "b": 2}


@pytest.mark.parametrize("kind", [Account, Frozen, Model])
async def test_a_dataclass_or_model_is_merged_by_field(kind: type[Any]) -> None:
    found = await resolve_context(kind(name="Maya"), make_session(plan="pro", other=1), {"name": "Ana"})
    assert type(found) is kind
    assert (found.name, found.plan) == ("Ana", "pro")
    assert not hasattr(found, "other")


@pytest.mark.parametrize("kind", [Account, Frozen, Model])
async def test_an_unknown_field_cannot_be_overridden(kind: type[Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=f"the context {kind.__name__} has no 'nmae', 'x'"):
        await resolve_context(kind(name="Maya"), make_session(), {"nmae": "Ana", "plan": "pro", "x": 1})


async def test_a_computed_field_cannot_be_overridden() -> None:
    with pytest.raises(InvalidArgumentError, match="'size'"):
        await resolve_context(Account("Maya"), make_session(), {"size": 2})
    assert (await resolve_context(Account("Maya"), make_session(size=2))).size == 1


async def test_a_model_that_allows_extra_fields_accepts_more_names() -> None:
    found = await resolve_context(Open(), make_session(lang="pt"), {"plan": "pro"})
    assert found.model_dump() == {"name": "Maya", "lang": "pt", "plan": "pro"}


async def test_an_object_of_another_type_is_passed_on_unchanged() -> None:
    client = Client()
    assert await resolve_context(client, make_session(name="x")) is client
    assert client.name == "db"
    with pytest.raises(InvalidArgumentError, match="of type Client cannot be overridden"):
        await resolve_context(client, make_session(), {"name": "x"})


async def test_a_class_is_rejected_as_context() -> None:
    with pytest.raises(InvalidArgumentError, match="pass an instance of Account"):
        await resolve_context(Account, make_session())


async def test_an_override_must_be_a_mapping() -> None:
    with pytest.raises(InvalidArgumentError, match="override must be a mapping"):
        await resolve_context({}, make_session(), [("a", 1)])  # type: ignore[arg-type]


async def test_a_function_can_build_the_context() -> None:
    async def loaded(current: SessionState) -> Mapping[str, Any]:
        return {"id": current.id}

    async def by_name(*, session: SessionState) -> Mapping[str, Any]:
        return {"id": session.id}

    def maybe(db: str = "db", session: SessionState | None = None) -> Mapping[str, Any]:
        return {"id": session.id if session else None, "db": db}

    def positional(current: SessionState, /) -> Mapping[str, Any]:
        return {"id": current.id}

    class Loader:
        def load(self, session: SessionState) -> Frozen:
            return Frozen(session.id)

    def two(db: str, current: SessionState) -> Mapping[str, Any]:
        return {"id": current.id, "db": db}

    assert await resolve_context(lambda: {"a": 1}, make_session(), {"b": 2}) == {"a": 1, "b": 2}
    assert await resolve_context(loaded, make_session()) == {"id": "web-42"}
    assert await resolve_context(by_name, make_session()) == {"id": "web-42"}
    assert await resolve_context(maybe, make_session()) == {"id": "web-42", "db": "db"}
    assert await resolve_context(positional, make_session()) == {"id": "web-42"}
    assert await resolve_context(Loader().load, make_session(), {"plan": "pro"}) == Frozen("web-42", "pro")
    assert await resolve_context(functools.partial(two, "x"), make_session()) == {"id": "web-42", "db": "x"}
    assert await resolve_context(lambda: None, make_session()) == {}


async def test_a_default_argument_of_the_function_is_kept() -> None:
    assert await resolve_context(lambda db={"a": 1}: db, make_session()) == {"a": 1}


async def test_a_function_with_two_required_arguments_is_rejected() -> None:
    with pytest.raises(InvalidArgumentError, match="requires a, b"):
        await resolve_context(lambda a, b: {}, make_session())


async def test_an_exception_in_the_function_is_raised() -> None:
    def broken() -> None:
        raise LookupError("no such user")

    with pytest.raises(LookupError, match="no such user"):
        await resolve_context(broken, make_session())


async def test_a_blocking_function_runs_in_a_thread() -> None:
    here = threading.get_ident()
    found = await resolve_context(lambda: {"thread": threading.get_ident()}, make_session())
    assert found["thread"] != here


names = st.sampled_from(["name", "plan", "lang", "x"])
values = st.dictionaries(names, st.text(max_size=5) | st.lists(st.integers(), max_size=2), max_size=4)


@given(values, values, st.none() | values)
async def test_the_passed_values_are_not_changed(
    source: dict[str, Any], added: dict[str, Any], override: dict[str, Any] | None
) -> None:
    current = make_session(**added)
    before = copy.deepcopy((source, current, override))
    found = await resolve_context(source, current, override)
    assert found == {**source, **added, **(override or {})}
    found["changed"] = True
    assert (source, current, override) == before


@pytest.mark.parametrize("make", [Account, Model])
async def test_a_turn_uses_a_copy_of_the_context(make: Any) -> None:
    original = make(name="Maya")
    (await resolve_context(original, make_session())).name = "Ana"
    assert original.name == "Maya"


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Loud(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "LOUD"


def test_plain_values_are_shown() -> None:
    moment = datetime(2026, 3, 1, 10, tzinfo=UTC)
    shown_values = context_values(
        {
            "text": "a",
            "loud": Loud("quiet"),
            "none": None,
            "yes": True,
            "number": 1.5,
            "price": Decimal("9.90"),
            "id": UUID(int=1),
            "day": date(2026, 3, 1),
            "moment": moment,
            "time": time(9, 30),
            "colour": Colour.RED,
            "level": Level.HIGH,
            "list": [1, (2, {3}), {"a": Colour.RED}],
            "tags": frozenset({"b", "a"}),
            "map": MappingProxyType({1: "one", Colour.RED: 2}),
        }
    )
    assert shown_values == {
        "text": "a",
        "loud": "quiet",
        "none": None,
        "yes": True,
        "number": 1.5,
        "price": "9.90",
        "id": "00000000-0000-0000-0000-000000000001",
        "day": "2026-03-01",
        "moment": "2026-03-01T10:00:00+00:00",
        "time": "09:30:00",
        "colour": "red",
        "level": 3,
        "list": [1, [2, [3]], {"a": "red"}],
        "tags": ["a", "b"],
        "map": {"1": "one", "red": 2},
    }


def test_secrets_and_objects_are_omitted_at_any_depth() -> None:
    secret = SecretStr("s3cret")
    context = {
        "_token": "s3cret",
        "client": Client(),
        "account": Account("Maya"),
        "fn": print,
        "key": secret,
        "bytes": b"s3cret",
        "nan": float("nan"),
        "deep": [{"_x": "s3cret", "y": secret, "z": [secret, 1]}],
        None: "s3cret",
        (1, 2): "s3cret",
    }
    assert context_values(context) == {"deep": [{"z": [1]}]}


def test_hidden_fields_are_omitted() -> None:
    assert context_values(Account("Maya")) == {"name": "Maya", "plan": "free", "size": 1}
    assert context_values(Model(name="Maya")) == {"name": "Maya", "plan": "free"}
    assert context_values(Open.model_validate({"lang": "pt", "_x": 1})) == {"name": "Maya", "lang": "pt"}


@pytest.mark.parametrize("context", [None, Client(), Account, Model, 5, "text", print])
def test_other_objects_have_no_visible_values(context: Any) -> None:
    assert context_values(context) == {}


def test_values_that_contain_themselves_are_truncated() -> None:
    endless: dict[str, Any] = {"a": 1}
    endless["again"] = endless
    assert json.dumps(context_values(endless)).count("again") < 30


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text().filter(lambda k: k[:1] != "_"), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.text().filter(lambda k: k[:1] != "_"), plain, max_size=4))
def test_json_values_are_returned_unchanged(context: dict[str, Any]) -> None:
    assert context_values(context) == context
    assert json.loads(json.dumps(context_values(context), allow_nan=False)) == context
