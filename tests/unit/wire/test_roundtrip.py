"""Roundtrips of all values."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tellback.types.blocks import TextBlock
from tellback.types.conversations import StoredMessage
from tellback.types.ids import utc_now
from tellback.types.messages import Message, ToolCall
from tellback.wire.base import WireModel
from tellback.wire.values import (
    AtomWire,
    BindingWire,
    ConversationWire,
    EntityWire,
    ExtractionRunWire,
    JobWire,
    MessageOut,
    MessageWire,
    PartOut,
    RecallHitWire,
    RecallResultWire,
    SpaceWire,
    ToolCallOut,
    WorkingContextWire,
    encode_message,
)
from tests.unit.wire import strategies

pytestmark = pytest.mark.slow

KINDS: list[tuple[type[WireModel], SearchStrategy[Any]]] = [
    (SpaceWire, strategies.spaces),
    (AtomWire, strategies.atoms),
    (EntityWire, strategies.entities),
    (RecallHitWire, strategies.hits),
    (RecallResultWire, strategies.recalled),
    (BindingWire, strategies.bindings),
    (JobWire, strategies.jobs),
    (ExtractionRunWire, strategies.runs),
    (PartOut, strategies.parts),
    (ToolCallOut, strategies.calls),
    (MessageOut, strategies.messages),
    (WorkingContextWire, strategies.contexts),
    (ConversationWire, strategies.conversations),
    (MessageWire, strategies.stored),
]


def read_back(wire: type[WireModel], value: Any) -> Any:
    return wire.model_validate(json.loads(wire.from_value(value).to_json())).value()


@pytest.mark.parametrize(("wire", "values"), KINDS, ids=lambda each: getattr(each, "__name__", ""))
@settings(max_examples=30)
@given(data=st.data())
def test_a_value_survives_the_roundtrip(
    wire: type[WireModel], values: SearchStrategy[Any], data: st.DataObject
) -> None:
    value = data.draw(values)
    assert read_back(wire, value) == value


@pytest.mark.parametrize(("wire", "values"), KINDS, ids=lambda each: getattr(each, "__name__", ""))
@settings(max_examples=5)
@given(data=st.data())
def test_json_names_are_camel_case(wire: type[WireModel], values: SearchStrategy[Any], data: st.DataObject) -> None:
    payload = json.loads(wire.from_value(data.draw(values)).to_json())
    assert not [name for name in payload if "_" in name or not name[0].islower()]


@settings(max_examples=20)
@given(atom=strategies.atoms)
def test_an_atom_has_its_source_and_citations(atom: Any) -> None:
    payload = json.loads(AtomWire.from_value(atom).to_json())
    assert {
        *("id", "memorySpaceId", "tenantId", "appId", "userId", "text", "category", "importance", "confidence"),
        *("validFrom", "validTo", "status", "sourceConversationId", "sourceMessageIds", "entityIds"),
        *("createdAt", "updatedAt"),
    } <= set(payload)
    assert payload["category"] == {"name": atom.category.name, "kind": atom.category.kind.value}
    assert [each["conversationId"] for each in payload["citations"]] == [
        each.conversation_id for each in atom.citations
    ]


@settings(max_examples=20)
@given(binding=strategies.bindings)
def test_a_single_scope_is_not_a_list(binding: Any) -> None:
    payload = json.loads(BindingWire.from_value(binding).to_json())["conversationScope"]
    assert isinstance(payload, dict) == (len(binding.conversation_scope) == 1)


@settings(max_examples=60)
@given(message=strategies.stored)
def test_the_fast_message_encoder_writes_the_same_json(message: StoredMessage) -> None:
    assert json.loads(encode_message(message)) == json.loads(MessageWire.from_value(message).to_json())


def test_a_message_with_a_lone_surrogate_is_encoded() -> None:
    message = StoredMessage("msg_1", "conv_1", 1, "turn_1", "user", (TextBlock("a \ud800 b"),), utc_now())
    assert read_back(MessageWire, message) == message
    assert encode_message(message) == MessageWire.from_value(message).to_json()


def test_provider_metadata_is_not_sent() -> None:
    call = ToolCall("tu_1", "lookup", {"order": 7}, meta={"signature": "secret"})
    message = Message("assistant", "Hi", tool_calls=(call,), meta={"thinking": "secret"})
    assert b"secret" not in MessageOut.from_value(message).to_json()
    assert read_back(MessageOut, message) == message


def test_non_text_content_is_sent_as_text() -> None:
    assert MessageOut.from_value(Message("tool", {"sum": 3})).content == '{"sum": 3}'
    assert MessageOut.from_value(Message("assistant", None)).content == ""


def test_additional_fields_of_newer_servers_are_ignored() -> None:
    call = ToolCall("tu_1", "lookup")
    payload = {**json.loads(ToolCallOut.from_value(call).to_json()), "risk": "high"}
    assert ToolCallOut.model_validate(payload).value() == call
