"""Roundtrips of turn results and deltas."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tellback.errors import StoreBusyError
from tellback.types import (
    ChatUsage,
    ReplyDelta,
    StreamStop,
    TextDelta,
    ThinkingDelta,
    ToolUseEnd,
    ToolUseInputDelta,
    ToolUseStart,
)
from tellback.types.conversations import Event, ToolInvocation, TurnProblem, TurnResult
from tellback.types.memory import WorkingContext
from tellback.wire.base import WireModel
from tellback.wire.turns import ToolInvocationWire, TurnOutcomeWire, TurnResultWire, decode_delta, encode_delta
from tellback.wire.values import ChangeWire
from tests.unit.wire import strategies
from tests.unit.wire.strategies import numbers, objects, optional_texts, texts, tuples

usages = st.builds(
    ChatUsage, st.none() | numbers, st.none() | numbers, cost_usd=st.none() | strategies.reals, model=optional_texts
)
invocations = st.builds(ToolInvocation, texts, texts, objects, optional_texts, st.booleans())
# Only the memories and the size of a working context are sent.
contexts = st.none() | st.builds(
    lambda atoms, size: WorkingContext("", (), atoms, size, remembers=bool(atoms)), tuples(strategies.atoms), numbers
)
ends: dict[str, SearchStrategy[Any]] = {
    "status": texts,
    "text": texts,
    "turn_id": texts,
    "conversation_id": texts,
    "tool_invocations": tuples(invocations),
    "pending": tuples(strategies.calls),
    "output": strategies.json_values,
    "model_calls": numbers,
    "context": contexts,
}
results = st.builds(
    TurnResult,
    **ends,
    ok=st.booleans(),
    session_id=optional_texts,
    message_id=optional_texts,
    usage=usages,
    messages=tuples(strategies.stored),
    total_latency_ms=numbers,
    stop_reason=texts,
)
events = st.builds(
    Event, numbers, texts.filter(str.isprintable), strategies.scopes, texts, objects, created_at=strategies.moments
)
lossy_texts = st.text(st.characters())  # including lone surrogates, which models stream
deltas: SearchStrategy[ReplyDelta] = st.one_of(
    st.builds(TextDelta, lossy_texts),
    st.builds(ThinkingDelta, lossy_texts),
    st.builds(ToolUseStart, lossy_texts, lossy_texts),
    st.builds(ToolUseInputDelta, lossy_texts, lossy_texts),
    st.builds(ToolUseEnd, lossy_texts),
    st.builds(StreamStop, lossy_texts, st.none() | usages),
)


@pytest.mark.parametrize(
    ("wire", "values"),
    [(ToolInvocationWire, invocations), (TurnOutcomeWire, results), (TurnResultWire, results), (ChangeWire, events)],
    ids=lambda each: getattr(each, "__name__", ""),
)
@settings(max_examples=30)
@given(data=st.data())
def test_a_value_survives_the_roundtrip(
    wire: type[WireModel], values: SearchStrategy[Any], data: st.DataObject
) -> None:
    value = data.draw(values)
    assert wire.model_validate(json.loads(wire.from_value(value).to_json())).value() == value


@given(deltas)
def test_a_delta_survives_the_roundtrip(delta: ReplyDelta) -> None:
    event, data = encode_delta(delta) or ("", b"")
    assert b"\n" not in data
    assert decode_delta(event, json.loads(data)) == delta


def test_an_unknown_delta_is_ignored() -> None:
    assert encode_delta(object()) is None  # type: ignore[arg-type]
    assert decode_delta("of_a_later_version", {"text": "Hi"}) is None


def test_problems_do_not_leak_internal_details() -> None:
    outcome = TurnResult(ok=True, text="Hi", turn_id="turn_1", conversation_id="conv_1")
    failed = replace(outcome, problems=(TurnProblem("recall", StoreBusyError("/secret/path")),))
    sent = TurnOutcomeWire.from_value(failed).to_json()
    assert b"secret" not in sent
    assert TurnOutcomeWire.model_validate_json(sent).value().problems[0].step == "recall"
