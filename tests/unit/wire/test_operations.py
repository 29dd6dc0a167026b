"""The operation table determines the request model, the request of the client and the description."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from tellback.client.memory import RemoteMemory
from tellback.errors import InvalidArgumentError, NotFoundError
from tellback.memory.memory import Memory
from tellback.types.memory import Category, CategoryKind
from tellback.wire import operations
from tellback.wire.operation import Operation
from tellback.wire.operations import GROUPS, OPERATIONS, body_model

SPACE = "ms_018f3c0de0a17b2c4d5e6f708192"


def encode(name: str, *args: Any, **kwargs: Any) -> Any:
    return OPERATIONS[name].encode(args, kwargs)


def test_a_request_contains_only_values_that_differ_from_the_defaults() -> None:
    moment = datetime(2026, 3, 1, tzinfo=UTC)
    request = encode("add_atom", SPACE, "Bees", Category("hobby", CategoryKind.FACT), valid_from=moment)
    assert request.path == f"/ai-memory/spaces/{SPACE}/atoms"
    assert request.body == {
        "text": "Bees",
        "category": {"name": "hobby", "kind": "FACT"},
        "validFrom": "2026-03-01T00:00:00+00:00",
    }
    assert encode("create_space").body == {}
    assert encode("create_space", once=True).body == {"once": True}


def test_durations_are_sent_in_seconds_with_json_names() -> None:
    assert encode("create_conversation", "chat", close_after=timedelta(hours=1)).body["closeAfter"] == 3_600
    assert encode("run_extraction", "conv_1", space_id=SPACE).body == {
        "conversationId": "conv_1",
        "memorySpaceId": SPACE,
    }
    assert encode("recall_timeline", SPACE, from_="2026-03-01T00:00:00Z").body.keys() == {"from"}


def test_the_limit_and_cursor_of_a_list_are_not_in_its_query() -> None:
    request = encode(
        "list_atoms", SPACE, "hobby", limit=7, categories=["work"], before="atom_1", include_superseded=True
    )
    assert request.query == {"category": ["hobby", "work"], "includeSuperseded": "true"}
    assert (request.limit, request.body) == (7, None)
    assert request.cursor is not None


def test_an_idempotency_key_goes_into_the_header() -> None:
    request = encode("append_user_message", "conv_1", "Hi", idempotency_key="one")
    assert (request.key, request.body) == ("one", {"content": "Hi"})


def test_invalid_arguments_raise_before_a_request() -> None:
    with pytest.raises(NotFoundError) as caught:
        encode("add_atom", "../keys", "Bees")
    assert (caught.value.kind, caught.value.id) == ("space", "../keys")
    with pytest.raises(InvalidArgumentError, match="namespace must be a string, got 3"):
        encode("find_conversation", 3)
    with pytest.raises(TypeError, match="twice"):
        encode("create_space", twice=True)


def test_only_a_missing_requested_object_becomes_none() -> None:
    by_name = OPERATIONS["find_entity_by_name"]
    assert by_name.is_missing(NotFoundError("entity", "Ana"))
    assert not by_name.is_missing(NotFoundError("space", SPACE))
    assert OPERATIONS["get_space"].is_missing(NotFoundError("space", SPACE))
    assert not OPERATIONS["delete_space"].is_missing(NotFoundError("space", SPACE))


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"text": "x", "importance": 6},
        {"text": "x", "confidence": "0.5"},
        {"text": "x", "validFrom": 3},
        {"text": "x", "mood": "good"},
        {"text": "x", "entityIds": [""]},
    ],
    ids=str,
)
def test_a_derived_body_validates_bounds(body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        body_model("add_atom").model_validate(body)


def test_a_derived_body_returns_the_methods_arguments() -> None:
    body = {"text": "x", "category": {"name": "hobby", "kind": "fact"}, "sourceMessageIds": ["msg_1"]}
    assert body_model("add_atom").model_validate(body).arguments() == {
        "text": "x",
        "category": {"name": "hobby", "kind": CategoryKind.FACT},
        "source_message_ids": ["msg_1"],
    }


def test_the_clients_method_has_the_handles_signature_and_docstring() -> None:
    method = RemoteMemory.add_atom
    assert inspect.iscoroutinefunction(method)
    assert inspect.signature(method) == inspect.signature(Memory.add_atom)
    assert (method.__name__, method.__doc__) == ("add_atom", Memory.add_atom.__doc__)


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=lambda each: each.name)
def test_an_operations_description_omits_python_terms(operation: Any) -> None:
    assert operation.description.endswith(".")
    assert "or None" not in operation.description
    assert not operation.description.startswith("Return ")
    assert operation.stands_for.strip(".")
    if operation.method.__name__ != "_no_method":
        assert operation.handle is not None
        assert getattr(operation.handle, operation.method.__name__) is operation.method


def test_every_class_with_operations_is_in_groups() -> None:
    def has_operations(group: Any) -> bool:
        entries = vars(group).values() if isinstance(group, type) else ()
        return any(isinstance(each, Operation) and each.is_mounted for each in entries)

    declared = {name: group for name, group in vars(operations).items() if has_operations(group)}
    used = {base for group in GROUPS for base in group.__mro__}
    assert [name for name, group in declared.items() if group not in used] == [], "add the class to GROUPS"
