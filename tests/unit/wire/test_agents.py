"""Roundtrips of keys, usage, sessions and agents' answers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tellback.admin import ErasureReport
from tellback.agent import Agent
from tellback.agent.events import create_message_event, create_status_event, create_tool_event
from tellback.agent.response import ModelCall, Response, RouteInfo, StateInfo, Trace
from tellback.agent.sessions.serialization import session_state_to_data
from tellback.agent.sessions.session import CurrentRoute, CurrentState, RouteProgress, RouteVisit, SessionState
from tellback.specs import load_spec
from tellback.types.access import API_KEY_ROLES, ApiKey, NewApiKey
from tellback.types.conversations import (
    MESSAGE_ROLES,
    SESSION_STATUSES,
    MessageData,
    SessionData,
    ToolInvocation,
    TurnProblem,
)
from tellback.types.jobs import UsageRecord, UsageTotal
from tellback.types.messages import ChatUsage, Message, ToolCall
from tellback.wire.agents import (
    AgentResponseWire,
    AgentWire,
    SessionEventWire,
    SessionMessageWire,
    SessionStateWire,
    SessionWire,
)
from tellback.wire.base import WireModel
from tellback.wire.values import ApiKeyWire, ErasedWire, NewApiKeyWire, UsageRecordWire, UsageTotalWire
from tests.unit.wire.strategies import (
    json_values,
    moments,
    numbers,
    objects,
    optional_datetimes,
    optional_texts,
    reals,
    scopes,
    texts,
    tuples,
)

keys = st.builds(
    ApiKey,
    *(texts, texts, texts, texts),
    st.sampled_from(API_KEY_ROLES),
    moments,
    optional_texts,
    optional_datetimes,
    optional_datetimes,
    st.none() | numbers,
)
usage_records = st.builds(
    UsageRecord,
    *(texts, scopes, texts, moments, optional_texts, optional_texts, optional_texts, optional_texts, numbers, numbers),
    st.none() | reals,
)
totals = st.builds(UsageTotal, scopes, texts, optional_texts, numbers, numbers, numbers, reals, numbers)
erased = st.builds(ErasureReport, st.dictionaries(texts, numbers, max_size=3), tuples(texts))
short_texts = st.text(min_size=1, max_size=8)
run = st.fixed_dictionaries({"tool_id": short_texts, "arguments": objects, "result": json_values})
sources = st.sampled_from(["customer", "agent", "system"])
events = st.one_of(
    st.builds(create_message_event, sources, texts, texts, moments),
    st.builds(create_tool_event, sources, st.lists(run, max_size=2), moments),
    st.builds(create_status_event, sources, short_texts, objects, moments),
)
calls = st.fixed_dictionaries({"tool_name": short_texts, "arguments": objects, "result": json_values})
messages = st.builds(
    MessageData,
    *(
        texts,
        texts,
        st.sampled_from(MESSAGE_ROLES),
        texts,
        optional_texts,
        optional_texts,
        optional_texts,
        tuples(calls),
    ),
    st.none() | events,
    moments,
    numbers,
)
rows = st.builds(
    SessionData,
    *(texts, optional_texts, optional_texts, st.sampled_from(SESSION_STATUSES), optional_texts, optional_texts),
    st.fixed_dictionaries({"extracted": objects, "mine": json_values}),
    *(numbers, optional_datetimes, optional_datetimes, moments, moments, numbers),
)
states = st.builds(
    SessionState,
    texts,
    st.none() | st.builds(CurrentRoute, texts, texts, moments),
    st.none() | st.builds(CurrentState, texts, optional_texts, moments),
    objects,
    tuples(st.builds(RouteVisit, texts, moments, optional_datetimes, st.booleans())),
    objects,
    numbers,
)
answers = st.builds(
    Response,
    texts,
    states,
    tuples(st.builds(ToolInvocation, texts, texts, objects, optional_texts, st.booleans())),
    st.none() | st.builds(RouteInfo, texts, texts),
    st.none() | st.builds(StateInfo, texts, optional_texts),
    st.booleans(),
    tuples(texts),
    tuples(st.builds(ToolCall, texts, texts, objects)),
    conversation_id=optional_texts,
)

KINDS: list[tuple[type[WireModel], SearchStrategy[Any]]] = [
    (ApiKeyWire, keys),
    (NewApiKeyWire, st.builds(NewApiKey, keys, texts)),
    (UsageRecordWire, usage_records),
    (UsageTotalWire, totals),
    (ErasedWire, erased),
    (SessionEventWire, events),
    (SessionMessageWire, messages),
    (SessionWire, rows),
    (SessionStateWire, states),
]


def read_back(wire: type[WireModel], value: Any) -> Any:
    return wire.model_validate(json.loads(wire.from_value(value).to_json())).value()


@pytest.mark.parametrize(("wire", "values"), KINDS, ids=lambda each: getattr(each, "__name__", ""))
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_value_survives_the_roundtrip(
    wire: type[WireModel], values: SearchStrategy[Any], data: st.DataObject
) -> None:
    value = data.draw(values)
    assert read_back(wire, value) == value


@settings(max_examples=30, deadline=None)
@given(answers)
def test_an_agents_answer_is_sent_without_its_trace(answer: Response) -> None:
    usage = ChatUsage(3, 4, 7, provider="p", model="m")
    secret = ModelCall("reply", "the author's prompt", (Message("user", "the author's words"),), usage=usage)
    response = replace(answer, trace=Trace(calls=(secret,)), problems=(TurnProblem("recall", TimeoutError("inside")),))
    sent = AgentResponseWire.from_value(response).to_json()
    assert b"author" not in sent
    assert b"inside" not in sent
    back = AgentResponseWire.model_validate(json.loads(sent)).value()
    assert back.usage == usage
    assert [each.step for each in back.problems] == ["recall"]
    assert replace(back, trace=Trace(), problems=()) == answer


def test_internal_agent_state_is_not_sent() -> None:
    state = SessionState("web-42", context={"k": "secret"}, progress=RouteProgress(path=("secret",)), owner="secret")
    data = session_state_to_data(replace(state, extracted={"to": "Rome"}))
    row = SessionData("web-42", collected_data=data["collected_data"])
    encoded = SessionWire.from_value(row).to_json().decode()
    assert "secret" not in encoded
    assert "Rome" in encoded


def test_a_spec_is_sent_to_those_who_may_see_it() -> None:
    spec = load_spec({"name": "support", "systemPrompt": "Be kind to $$", "model": "$model", "description": "Helps"})
    with_spec = AgentWire.describe(spec, None, include_spec=True)
    assert AgentWire.model_validate(json.loads(with_spec.to_json())).value() == spec
    part = AgentWire.describe(spec, Agent("support", goal="Help"), include_spec=False)
    assert b"kind to" not in part.to_json()
    assert (part.value(), part.kinds, part.goal) == (None, ["spec", "routes"], "Help")
