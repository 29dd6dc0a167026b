"""Sessions: helpers never modify them, JSON preserves them, and each route keeps its gathered data."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta, timezone
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr

import tellback.agent as agent_api
from tellback.agent.sessions.serialization import session_data_to_state, session_state_to_data
from tellback.agent.sessions.session import (
    CurrentRoute,
    CurrentState,
    PausedRoute,
    PendingCall,
    RouteProgress,
    RouteVisit,
    SessionState,
    ToolRun,
    create_session,
    enter_route,
    enter_state,
    leave_route,
    merge_extracted,
)
from tellback.errors import InvalidArgumentError
from tellback.types import ToolCall
from tellback.types.conversations import SessionData

names = st.text(min_size=1, max_size=8)
moments = st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1)).map(lambda moment: moment.replace(tzinfo=UTC))
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
data_values = st.dictionaries(names, plain, max_size=3)
states = st.builds(CurrentState, names, st.none() | st.text(max_size=8), moments)
runs = st.builds(ToolRun, names, data_values, st.text(max_size=8), st.none() | st.text(max_size=8))
path = st.lists(names, max_size=3).map(tuple)
progresses = st.builds(RouteProgress, path, path, st.dictionaries(names, runs, max_size=2))
waits = st.lists(st.builds(PendingCall, names, st.builds(ToolCall, names, names, data_values)), max_size=2).map(tuple)
sessions = st.builds(
    SessionState,
    id=names,
    current_route=st.none() | st.builds(CurrentRoute, names, names, moments),
    current_state=st.none() | states,
    extracted=data_values,
    route_history=st.lists(st.builds(RouteVisit, names, moments, st.none() | moments, st.booleans()), max_size=3).map(
        tuple
    ),
    metadata=st.fixed_dictionaries(
        {"created_at": moments, "last_updated_at": moments}, optional={"channel": plain, "é": plain}
    ),
    version=st.integers(0, 10**6),
    progress=progresses,
    paused_routes=st.dictionaries(
        names, st.builds(PausedRoute, data_values, st.none() | states, progresses, waits), max_size=2
    ),
    context=data_values,
    pending_calls=waits,
    last_route=st.none() | names,
)


def through_json(session: SessionState) -> SessionState:
    return session_data_to_state(session.id, json.loads(json.dumps(session_state_to_data(session), allow_nan=False)))


def make_booking_session(**data: Any) -> SessionState:
    return merge_extracted(enter_route(create_session("web-42"), "book", "Book a flight"), data)


def test_a_new_session_is_empty_and_stores_its_creation_time() -> None:
    before = datetime.now(UTC)
    session = create_session("web-42", {"channel": "whatsapp"})
    assert (session.id, session.extracted, session.current_route, session.version) == ("web-42", {}, None, 0)
    assert session.metadata["channel"] == "whatsapp"
    assert before <= session.metadata["created_at"] == session.metadata["last_updated_at"] <= datetime.now(UTC)


def test_a_session_can_be_built_by_hand_and_restored_from_json() -> None:
    search = agent_api.ToolRun("search_flights", {"to": "Rome"}, content="TP1")
    built = agent_api.SessionState(
        "web-42",
        current_route=agent_api.CurrentRoute("book", "Book a flight"),
        current_state=agent_api.CurrentState("ask", "Ask when"),
        extracted={"to": "Rome"},
        route_history=(agent_api.RouteVisit("weather", completed=True), agent_api.RouteVisit("book")),
        progress=agent_api.RouteProgress(path=("start", "ask"), spoken=("ask",), runs={"search": search}),
        paused_routes={"hotel": agent_api.PausedRoute({"nights": 2})},
        pending_calls=(agent_api.PendingCall("pay", ToolCall("call_1", "pay", {"amount": 5})),),
        idempotent_reply=agent_api.IdempotentReply("key-1", "Where to?"),
    )
    assert built.current_route is not None
    assert built.current_route.entered_at.tzinfo is not None
    assert through_json(built) == built
    assert enter_route(built, "hotel", "Book a hotel").extracted == {"nights": 2}


def test_sessions_without_an_id_get_unique_ids() -> None:
    assert create_session().id != create_session().id


@pytest.mark.parametrize("id", ["", 5, b"x"])
def test_a_session_id_must_be_a_non_empty_string(id: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="session_id must be a non-empty string"):
        create_session(id)


HELPERS: Mapping[str, Callable[[SessionState, dict[str, Any]], Any]] = {
    "enter_route": lambda session, data: enter_route(session, "book", "Book", initial_data=data),
    "enter_state": lambda session, data: enter_state(session, "ask", "Ask"),
    "merge_extracted": merge_extracted,
    "leave_route": lambda session, data: leave_route(session),
    "complete_route": lambda session, data: leave_route(session, completed=True),
    "to_data": lambda session, data: session_state_to_data(session),
    "through_json": lambda session, data: through_json(session),
}


@given(sessions, data_values, st.sampled_from(sorted(HELPERS)))
def test_no_helper_modifies_its_arguments(session: SessionState, data: dict[str, Any], helper: str) -> None:
    before = copy.deepcopy((session, data))
    HELPERS[helper](session, data)
    assert (session, data) == before


@pytest.mark.parametrize("helper", ["enter_route", "merge_extracted"])
def test_changing_the_passed_data_does_not_change_a_session(helper: str) -> None:
    data = {"list": [1], "a": 1}
    session = HELPERS[helper](create_session("web-42"), data)
    data["list"].append(2)  # type: ignore[attr-defined]
    data["a"] = 2
    assert session.extracted == {"list": [1], "a": 1}


def test_changing_the_passed_metadata_does_not_change_a_session() -> None:
    metadata = {"tags": ["a"]}
    session = create_session("web-42", metadata)
    metadata["tags"].append("b")
    assert session.metadata["tags"] == ["a"]


@given(sessions)
def test_a_session_is_restored_exactly_from_json(session: SessionState) -> None:
    restored = through_json(session)
    assert restored == session
    assert session_state_to_data(restored) == session_state_to_data(session)


def test_values_unknown_to_json_are_stored_as_plain_values() -> None:
    class Colour(Enum):
        RED = "red"

    class Address(BaseModel):
        city: str

    values = {"day": date(2026, 3, 1), "colour": Colour.RED, "address": Address(city="Rome"), "pair": (1, 2)}
    assert through_json(make_booking_session(**values)).extracted == {
        "day": "2026-03-01",
        "colour": "red",
        "address": {"city": "Rome"},
        "pair": [1, 2],
    }


def test_a_secret_in_a_dataclass_of_the_application_is_not_stored() -> None:
    @dataclass
    class Account:
        name: str
        key: SecretStr

    account = Account("Maya", SecretStr("s3cret"))
    session = replace(create_session("web-42"), extracted={"account": account}, context={"accounts": [account]})
    stored = session_state_to_data(session)
    assert "s3cret" not in json.dumps(stored)
    assert stored["collected_data"]["extracted"]["account"]["name"] == "Maya"


def test_times_in_other_timezones_are_restored_as_the_same_moment() -> None:
    moment = datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    session = enter_route(create_session("web-42"), "book", "Book", at=moment)
    assert through_json(session) == session


@given(data_values, data_values, data_values)
def test_leaving_and_reentering_a_route_keeps_its_data(
    first: dict[str, Any], other: dict[str, Any], update: dict[str, Any]
) -> None:
    session = enter_state(make_booking_session(**first), "ask_when", "Ask when")
    session = replace(session, progress=RouteProgress(("ask_where", "ask_when"), ("ask_where",)))
    detour = merge_extracted(enter_route(session, "weather", "Tell the weather"), other)
    assert detour.extracted == other
    assert detour.current_state is None
    back = enter_route(through_json(detour), "book", "Book a flight", initial_data={"ignored": 1})
    assert back.extracted == first
    assert back.current_state == session.current_state
    assert back.progress == session.progress
    assert list(back.paused_routes) == ["weather"]
    assert merge_extracted(back, update).extracted == {**first, **update}


def test_a_completed_route_starts_with_new_data() -> None:
    completed = leave_route(make_booking_session(to="Rome"), completed=True)
    assert completed.extracted == {"to": "Rome"}
    assert completed.has_completed("book")
    assert not completed.has_completed("weather")
    reentered = enter_route(completed, "book", "Book a flight", initial_data={"class": "economy"})
    assert reentered.extracted == {"class": "economy"}
    assert reentered.progress == RouteProgress()
    assert not reentered.has_completed("book")


def test_the_route_history_contains_each_visit() -> None:
    start = datetime(2026, 3, 1, tzinfo=UTC)
    times = [start + timedelta(minutes=minute) for minute in range(3)]
    session = enter_route(create_session("web-42"), "book", "Book", at=times[0])
    session = enter_route(session, "weather", "Weather", at=times[1])
    session = leave_route(session, completed=True, at=times[2])
    assert session.route_history == (
        RouteVisit("book", times[0], times[1]),
        RouteVisit("weather", times[1], times[2], completed=True),
    )
    assert session.metadata["last_updated_at"] == times[2]


def test_leaving_without_a_current_route_changes_nothing() -> None:
    session = create_session("web-42")
    assert leave_route(session) == session


def test_pending_calls_are_restored_with_their_route() -> None:
    session = replace(make_booking_session(), pending_calls=(PendingCall("pay", ToolCall("c1", "pay", {"amount": 5})),))
    detour = enter_route(session, "weather", "Tell the weather")
    assert detour.pending_calls == ()
    assert enter_route(through_json(detour), "book", "Book a flight").pending_calls == session.pending_calls
    assert leave_route(session, completed=True).pending_calls == ()


def test_missing_parts_get_the_defaults_of_a_new_session() -> None:
    session = session_data_to_state("web-42", {"current_route": "book", "collected_data": None})
    assert session.current_route is not None
    assert session.current_route.title == "book"
    assert (session.extracted, session.paused_routes, session.version) == ({}, {}, 0)


FALAI_ROW = {
    "id": "web-42",
    "userId": "maya",
    "agentName": "Wanda",
    "status": "active",
    "currentRoute": "book",
    "currentState": "ask_when",
    "collectedData": {
        "extracted": {"destination": "Paris", "departureDate": "2025-06-15"},
        "routeHistory": [
            {
                "routeId": "weather",
                "enteredAt": "2025-10-13T10:00:00.000Z",
                "exitedAt": "2025-10-13T10:10:00.000Z",
                "completed": True,
            },
            {"routeId": "book", "enteredAt": "2025-10-13T10:10:00.000Z", "completed": False},
        ],
        "currentRouteTitle": "Book a flight",
        "currentStateDescription": "Ask when",
        "metadata": {"createdAt": "2025-10-13T09:00:00.000Z", "sessionId": "web-42", "channel": "web"},
        "campaign": "summer",
    },
    "messageCount": 4,
    "createdAt": "2025-10-13T09:00:00.000Z",
    "updatedAt": "2025-10-13T10:30:00.000Z",
}
"""A row of @falai/agent."""
FALAI_STATE = {
    "id": "web-42",
    "currentRoute": {"id": "book", "title": "Book a flight", "enteredAt": "2025-10-13T10:10:00.000Z"},
    "currentState": {"id": "ask_when", "description": "Ask when", "enteredAt": "2025-10-13T10:12:00.000Z"},
    "extracted": {"destination": "Paris", "departureDate": "2025-06-15"},
    "routeHistory": FALAI_ROW["collectedData"]["routeHistory"],  # type: ignore[index]
    "metadata": {
        "createdAt": "2025-10-13T09:00:00.000Z",
        "lastUpdatedAt": "2025-10-13T10:30:00.000Z",
        "userId": "maya",
    },
}
"""A `SessionState` of @falai/agent as JSON."""


@pytest.mark.parametrize("data", [FALAI_ROW, FALAI_STATE], ids=["row", "state"])
def test_sessions_in_camel_case_are_read(data: Mapping[str, Any]) -> None:
    session = session_data_to_state("web-42", data)
    assert (session.id, session.version) == ("web-42", 0)
    assert session.current_route is not None
    assert (session.current_route.id, session.current_route.title) == ("book", "Book a flight")
    assert session.current_state is not None
    assert (session.current_state.id, session.current_state.description) == ("ask_when", "Ask when")
    assert session.extracted == {"destination": "Paris", "departureDate": "2025-06-15"}
    ten = datetime(2025, 10, 13, 10, tzinfo=UTC)
    assert session.route_history == (
        RouteVisit("weather", ten, ten + timedelta(minutes=10), completed=True),
        RouteVisit("book", ten + timedelta(minutes=10)),
    )
    assert session.metadata["user_id"] == "maya"
    assert session.metadata["created_at"] == ten - timedelta(hours=1)
    assert session.metadata["last_updated_at"] == ten + timedelta(minutes=30)
    if data is FALAI_ROW:
        assert (session.metadata["channel"], session.metadata["campaign"]) == ("web", "summer")
    else:
        assert session.current_route.entered_at == ten + timedelta(minutes=10)
    assert through_json(session) == session


def test_camel_case_in_the_collected_data_of_a_row_is_read() -> None:
    collected: Any = FALAI_ROW["collectedData"]
    session = session_data_to_state("web-42", SessionData("web-42", current_route="book", collected_data=collected))
    assert session.current_route is not None
    assert session.current_route.title == "Book a flight"
    assert [visit.route_id for visit in session.route_history] == ["weather", "book"]
    assert session.metadata["created_at"] == datetime(2025, 10, 13, 9, tzinfo=UTC)


def test_camel_case_in_the_applications_data_is_kept() -> None:
    session = create_session("web-42", {"createdAt": "then", "userId": "x", "routeHistory": 5})
    session = merge_extracted(session, {"currentRoute": "A1"})
    assert through_json(session) == session


def test_a_row_of_a_new_session_without_collected_data_is_an_empty_session() -> None:
    row = {"id": "web-42", "userId": "maya", "status": "active", "messageCount": 0, "createdAt": "2025-10-13T09:00:00Z"}
    session = session_data_to_state("web-42", row)
    assert (session.current_route, session.extracted, session.metadata["user_id"]) == (None, {}, "maya")


@pytest.mark.parametrize(
    "data",
    [
        None,
        5,
        {"collected_data": "x"},
        {"version": "x"},
        {"collected_data": {"route_history": [{}]}},
        {"collected_data": {"progress": {"runs": {"a": {"colour": 1}}}}},
        {"collected_data": {"pending_calls": [{"state": "a"}]}},
        {"current_route": "book", "collected_data": {"current_route_entered_at": "yesterday"}},
        {},
        {"id": "web-42", "data": {"to": "Rome"}},
        {"Id": "web-42", "CurrentRoute": "book"},
        {"current_route": 5},
        {"currentRoute": {"title": "Book a flight"}},
        {"currentRoute": "book", "collectedData": "{}"},
        {"collectedData": {"extracted": [["to", "Rome"]]}},
        {"collectedData": {"routeHistory": {"routeId": "book"}}},
        {"collectedData": {"routeHistory": [{"route": "book"}]}},
    ],
)
def test_unreadable_data_is_rejected(data: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="session 'web-42' cannot be read"):
        session_data_to_state("web-42", data)
