"""Convert sessions and their messages to rows of plain values, and back."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from datetime import datetime
from functools import cache
from typing import Any

from tellback.agent.definitions.value_parser import to_plain_value
from tellback.agent.events import (
    Event,
    EventKind,
    EventSource,
    MessageEventData,
    ToolEventData,
    adapt_event,
    create_message_event,
    create_tool_event,
    event_to_dict,
)
from tellback.agent.sessions.session import (
    CurrentRoute,
    CurrentState,
    IdempotentReply,
    PausedRoute,
    PendingCall,
    RouteProgress,
    RouteVisit,
    SessionState,
    ToolRun,
)
from tellback.errors import InvalidArgumentError
from tellback.types import as_tool_call
from tellback.types.conversations import MessageData, MessageRole, SessionData
from tellback.types.ids import as_utc, new_id, utc_now
from tellback.types.jsontext import make_storable, replace_nonfinite

_SESSION_KEYS = frozenset(
    (
        *("extracted", "route_history", "metadata", "progress", "context", "idempotent_reply"),
        *("paused_routes", "waiting_routes", "completed_routes"),
        *("pending_calls", "owner", "current_route_title", "current_route_entered_at"),
        *("current_state_description", "current_state_entered_at", "last_route"),
    )
)
"""The keys of `collected_data` that belong to the session."""
_WIRE_KEYS = frozenset(
    {"routeHistory", "currentRouteTitle", "currentRouteEnteredAt", "currentStateDescription", "currentStateEnteredAt"}
)
"""The names of some of these keys in the JSON of the server."""
_STATE_FIELDS = frozenset(each.name for each in fields(SessionState)) - {"id"}
_ROW_FIELDS = frozenset(each.name for each in fields(SessionData))
_VISIT_FIELDS = frozenset(each.name for each in fields(RouteVisit))
_METADATA_FIELDS = frozenset({"created_at", "last_updated_at", "user_id"})
_ROLES: Mapping[EventSource, MessageRole] = {
    EventSource.CUSTOMER: "user",
    EventSource.AI_AGENT: "agent",
    EventSource.SYSTEM: "system",
}
_SOURCES = {role: source for source, role in _ROLES.items()}
_MESSAGE_FIELDS = tuple(each.name for each in fields(MessageData) if each.name != "position")


def validate_no_reserved_keys(data: Mapping[str, Any]) -> None:
    """Reject the application's data if it contains a key that the session uses."""
    reserved = sorted((_SESSION_KEYS | _WIRE_KEYS) & data.keys())
    if reserved:
        raise InvalidArgumentError(
            f"initial_data cannot contain {', '.join(map(repr, reserved))}: these keys are reserved for the session."
            " Use other names."
        )


def session_state_to_data(session: SessionState) -> dict[str, Any]:
    """Return the session as plain values that any database or JSON file can store.

    >>> from tellback.agent import create_session, enter_route
    >>> session_state_to_data(enter_route(create_session("web-42"), "book", "Book a flight"))["current_route"]
    'book'
    """
    route, state = session.current_route, session.current_state
    return {
        "id": session.id,
        "version": session.version,
        "current_route": None if route is None else route.id,
        "current_state": None if state is None else state.id,
        "collected_data": {
            "extracted": plain_data(session.extracted),
            "route_history": _to_plain_fields(session.route_history),
            "current_route_title": None if route is None else route.title,
            "current_route_entered_at": None if route is None else route.entered_at.isoformat(),
            **_state_to_dict("current_state", state),
            "metadata": plain_data(session.metadata),
            "progress": _to_plain_fields(session.progress),
            "paused_routes": _paused_routes_to_dict(session.paused_routes),
            "waiting_routes": list(session.waiting_routes),
            "completed_routes": _paused_routes_to_dict(session.completed_routes),
            "context": plain_data(session.context),
            "idempotent_reply": _to_plain_fields(session.idempotent_reply),
            "pending_calls": _pending_calls_to_dicts(session.pending_calls),
            "owner": session.owner,
            "last_route": session.last_route,
        },
    }


def session_data_to_state(session_id: str, data: SessionData | Mapping[str, Any]) -> SessionState:
    """Build a session from the result of `session_state_to_data`, or from its row; missing parts get their defaults.

    The keys may be in camelCase, as in rows and sessions of @falai/agent. Other keys of `collected_data` belong to the
    application and become the session's metadata. A row with neither a route, a state nor data must have only the keys
    of `SessionData`. Anything else raises `InvalidArgumentError`: it would be read as an empty session.

    Dates among the gathered values stay strings; the agent parses them with its schema.

    >>> from tellback.agent import create_session, enter_route
    >>> session = enter_route(create_session("web-42"), "book", "Book a flight")
    >>> session_data_to_state("web-42", session_state_to_data(session)) == session
    True
    >>> row = {"id": "web-42", "currentRoute": "book", "collectedData": {"extracted": {"to": "Rome"}}}
    >>> session_data_to_state("web-42", row).extracted
    {'to': 'Rome'}
    """
    try:
        return _parse_session(session_id, *_normalize_row(data))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidArgumentError(
            f"session {session_id!r} cannot be read from its data ({type(error).__name__}: {error});"
            " pass the result of session_state_to_data."
        ) from error


def plain_data(value: Any) -> Any:
    """Convert a value to plain JSON values; NaN and infinity become None."""
    return replace_nonfinite(to_plain_value(value, str))


def parse_metadata_dates(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Parse the session's own dates in the metadata."""
    parsed = dict(metadata)
    for name in ("created_at", "last_updated_at"):
        if isinstance(parsed.get(name), str):
            with contextlib.suppress(ValueError):  # the application's own value
                parsed[name] = datetime.fromisoformat(parsed[name])
    return parsed


def _normalize_row(data: SessionData | Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a row and its collected data, with our names for all keys.

    The row's owner and dates become metadata. A session's state as JSON has no `collected_data`: its parts are keys of
    the row.
    """
    if isinstance(data, SessionData):
        data = {name: getattr(data, name) for name in _ROW_FIELDS}
    given = _require_mapping("a row", data)
    row = _rename_keys(given, _ROW_FIELDS | _STATE_FIELDS)
    state_keys = {"current_route", "current_state", "collected_data", "extracted", "route_history"}
    if not row.keys() & state_keys and (not row or row.keys() - _ROW_FIELDS - {"owner"}):
        raise ValueError(
            f"it has the keys {', '.join(map(str, given)) or 'none'}, but none of {', '.join(sorted(state_keys))}"
        )
    if "collected_data" in row:
        found = _require_mapping("collected_data", row["collected_data"])
    else:
        found = {name: value for name, value in row.items() if name in _STATE_FIELDS & _SESSION_KEYS}
    collected = _rename_keys(found, _SESSION_KEYS)
    collected["route_history"] = [
        _rename_keys(_require_mapping("a visit", each), _VISIT_FIELDS) for each in collected.get("route_history") or ()
    ]
    metadata = _require_mapping("metadata", collected.get("metadata"))
    if given.keys() - row.keys() or found.keys() - collected.keys():  # the application may use camelCase in our rows
        metadata = _rename_keys(metadata, _METADATA_FIELDS)
    dates = {"created_at": row.get("created_at"), "last_updated_at": row.get("updated_at")}
    owner = {} if row.get("user_id") is None else {"user_id": row["user_id"]}  # the row's owner takes precedence
    collected["metadata"] = {**{name: each for name, each in dates.items() if each is not None}, **metadata, **owner}
    return row, collected


def _require_mapping(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping | None) or (value is None and name == "a row"):
        raise TypeError(f"{name} must be a mapping, got {value!r:.80}")
    return value or {}


def _rename_keys(data: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    """Return the data with these names in snake_case; a name that is also present in snake_case is used instead."""
    by_camel = _names_by_camel_case(names)
    renamed = {by_camel.get(key, key): value for key, value in data.items()}
    return {**renamed, **{name: data[name] for name in names & data.keys()}}


@cache
def _names_by_camel_case(names: frozenset[str]) -> dict[str, str]:
    words = {name: name.split("_") for name in names}
    return {first + "".join(map(str.capitalize, others)): name for name, (first, *others) in words.items()}


def _parse_session(session_id: str, data: Mapping[str, Any], collected: Mapping[str, Any]) -> SessionState:
    now = utc_now()
    extra = {name: value for name, value in collected.items() if name not in _SESSION_KEYS}
    metadata = parse_metadata_dates({**extra, **collected["metadata"]})
    route = _parse_position("current_route", data, collected, "title", now)
    state = _parse_position("current_state", data, collected, "description", now)
    return SessionState(
        id=session_id,
        current_route=None if route is None else CurrentRoute(route[0], route[1] or route[0], route[2]),
        current_state=None if state is None else CurrentState(*state),
        extracted=dict(_require_mapping("extracted", collected.get("extracted"))),
        route_history=tuple(_parse_visit(each, now) for each in collected["route_history"]),
        metadata=metadata,
        version=int(data.get("version") or 0),
        progress=_parse_progress(collected.get("progress")),
        paused_routes=_parse_paused_routes(collected.get("paused_routes"), now),
        waiting_routes=tuple(collected.get("waiting_routes") or ()),
        completed_routes=_parse_paused_routes(collected.get("completed_routes"), now),
        context=dict(_require_mapping("context", collected.get("context"))),
        owner=str(collected.get("owner") or data.get("owner") or ""),
        idempotent_reply=IdempotentReply(**collected["idempotent_reply"])
        if collected.get("idempotent_reply")
        else None,
        pending_calls=_parse_pending_calls(collected.get("pending_calls")),
        last_route=collected.get("last_route"),
    )


def _parse_position(
    key: str, data: Mapping[str, Any], collected: Mapping[str, Any], label: str, now: datetime
) -> tuple[str, str | None, datetime] | None:
    """Return the id, the title or description, and the time of the current route or state.

    It is an id with its parts in `collected`, or a mapping of its parts.
    """
    found = data.get(key)
    parts = {label: collected.get(f"{key}_{label}"), "entered_at": collected.get(f"{key}_entered_at")}
    if isinstance(found, Mapping):
        parts = _rename_keys(found, frozenset({"id", label, "entered_at"}))
        found = parts["id"]
    if found is None or found == "":
        return None
    if not isinstance(found, str):
        raise TypeError(f"{key} must be an id, got {found!r:.80}")
    return found, parts.get(label), _parse_stored_datetime(parts.get("entered_at"), now)


def _parse_current_state(
    id: str | None, collected: Mapping[str, Any], prefix: str, now: datetime
) -> CurrentState | None:
    if id is None:
        return None
    return CurrentState(
        id, collected.get(f"{prefix}description"), _parse_stored_datetime(collected.get(f"{prefix}entered_at"), now)
    )


def _parse_visit(data: Mapping[str, Any], now: datetime) -> RouteVisit:
    exited = data.get("exited_at")
    return RouteVisit(
        data["route_id"],
        _parse_stored_datetime(data.get("entered_at"), now),
        None if exited is None else _parse_stored_datetime(exited, now),
        bool(data.get("completed")),
    )


def _parse_paused_routes(data: Mapping[str, Any] | None, now: datetime) -> dict[str, PausedRoute]:
    return {
        id: PausedRoute(
            dict(each.get("extracted") or {}),
            _parse_current_state(each.get("state"), each, "state_", now),
            _parse_progress(each.get("progress")),
            _parse_pending_calls(each.get("pending_calls")),
            tuple(each.get("changed") or ()),
            bool(each.get("dropped")),
        )
        for id, each in (data or {}).items()
    }


def _parse_progress(data: Mapping[str, Any] | None) -> RouteProgress:
    data = data or {}
    names = ("path", "spoken", "answered", "forgotten", "asked_again", "held")
    lists = {name: tuple(data.get(name) or ()) for name in names}
    return RouteProgress(
        runs={id: ToolRun(**run) for id, run in (data.get("runs") or {}).items()},
        choices=dict(data.get("choices") or data.get("ways") or {}),  # "ways" in version 0.1
        replaced_runs={
            id: tuple(ToolRun(**run) for run in runs) for id, runs in (data.get("replaced_runs") or {}).items()
        },
        confirmed=dict(data.get("confirmed") or {}),
        earlier_runs=tuple(ToolRun(**run) for run in data.get("earlier_runs") or ()),
        **lists,
    )


def _parse_pending_calls(rows: Any) -> tuple[PendingCall, ...]:
    return tuple(
        PendingCall(each["state"], as_tool_call({name: each[name] for name in ("id", "name", "input")}))
        for each in rows or ()
    )


def _parse_stored_datetime(value: Any, now: datetime) -> datetime:
    if value is None:
        return now
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


def _to_plain_fields(value: Any) -> Any:
    """Convert a part of a session to plain values, by field name."""
    if is_dataclass(value):
        return {each.name: _to_plain_fields(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _to_plain_fields(each) for name, each in value.items()}
    return [_to_plain_fields(each) for each in value] if isinstance(value, tuple) else plain_data(value)


def _paused_routes_to_dict(routes: Mapping[str, PausedRoute]) -> dict[str, Any]:
    return {
        id: {
            "extracted": plain_data(paused.extracted),
            "state": None if paused.state is None else paused.state.id,
            **_state_to_dict("state", paused.state),
            "progress": _to_plain_fields(paused.progress),
            "pending_calls": _pending_calls_to_dicts(paused.pending_calls),
            "changed": list(paused.changed),
            "dropped": paused.dropped,
        }
        for id, paused in routes.items()
    }


def _state_to_dict(prefix: str, state: CurrentState | None) -> dict[str, Any]:
    return {
        f"{prefix}_description": None if state is None else state.description,
        f"{prefix}_entered_at": None if state is None else state.entered_at.isoformat(),
    }


def _pending_calls_to_dicts(calls: tuple[PendingCall, ...]) -> list[dict[str, Any]]:
    return [
        {"state": each.state_id, "id": each.call.id, "name": each.call.name, "input": plain_data(each.call.input)}
        for each in calls
    ]


def events_to_messages(session: SessionState, events: Sequence[Event], user_id: str | None) -> list[MessageData]:
    """Build the rows of a turn's messages. Tool calls are stored with the agent's next message."""
    messages: list[MessageData] = []
    tool_events: list[Event] = []
    for event in events:
        if event.kind is EventKind.TOOL:
            tool_events.append(event)
            continue
        if tool_events and event.source is not EventSource.AI_AGENT:
            messages.extend(_event_to_row(session, each, user_id) for each in tool_events)
            tool_events = []
        calls = [call for each in tool_events if isinstance(each.data, ToolEventData) for call in each.data.tool_calls]
        messages.append(_event_to_row(session, event, user_id, calls))
        tool_events = []
    return [*messages, *(_event_to_row(session, each, user_id) for each in tool_events)]


def message_to_events(message: MessageData) -> list[Event]:
    """Return a message as events: the tools that ran for it, and the message."""
    event = None if message.event is None else adapt_event(message.event)
    if event is None:
        event = create_message_event(_SOURCES[message.role], message.role, message.content, message.created_at)
    if not message.tool_calls or event.kind is EventKind.TOOL:
        return [event]
    return [create_tool_event(EventSource.AI_AGENT, message.tool_calls, message.created_at), event]


def with_parsed_event(message: MessageData) -> MessageData:
    """Return the message with its event parsed."""
    return message if message.event is None else replace(message, event=adapt_event(message.event))


def build_message_row(
    source: MessageData | Mapping[str, Any] | None, overrides: Mapping[str, Any], now: datetime
) -> MessageData:
    """Build a message row from a message or mapping, with overrides."""
    if isinstance(source, MessageData):
        source = {name: getattr(source, name) for name in _MESSAGE_FIELDS}
    if not isinstance(source, Mapping | None):
        raise InvalidArgumentError(f"a message must be a MessageData or a mapping, got {source!r:.80}.")
    values = {**(source or {}), **overrides}
    unknown = values.keys() - set(_MESSAGE_FIELDS)
    if unknown:
        raise InvalidArgumentError(f"save_message got unknown fields: {', '.join(sorted(map(str, unknown)))}.")
    event = None if values.get("event") is None else adapt_event(values["event"])
    content, role = values.get("content"), values.get("role")
    if event is not None:
        content = _event_text(event) if content is None else content
        role = role or _ROLES[event.source]
    if content is None or role is None:
        raise InvalidArgumentError("save_message requires session_id with role and content, or with an event.")
    return MessageData(
        id=values.get("id") or new_id("msg"),
        session_id=values.get("session_id") or "",
        role=role,
        content=content,
        user_id=values.get("user_id"),
        route=values.get("route"),
        state=values.get("state"),
        tool_calls=_normalize_tool_calls(values.get("tool_calls") or ()),
        event=None if event is None else plain_data(event_to_dict(event)),
        created_at=_parse_created_at(values.get("created_at"), now),
    )


def _event_to_row(
    session: SessionState, event: Event, user_id: str | None, calls: Sequence[Mapping[str, Any]] = ()
) -> MessageData:
    if isinstance(event.data, ToolEventData):
        calls = event.data.tool_calls
    route, state = session.current_route, session.current_state
    values = {
        "session_id": session.id,
        "content": make_storable(_event_text(event)),
        "user_id": user_id,
        "route": session.last_route if route is None else route.id,  # a completed route is no longer the current one
        "state": None if state is None else state.id,
        "tool_calls": calls,
        "event": event,
        "created_at": event.creation_utc,
    }
    return build_message_row(values, {}, utc_now())


def _event_text(event: Event) -> str:
    if isinstance(event.data, MessageEventData):
        return event.data.message
    return "" if isinstance(event.data, ToolEventData) else event.data.status


def _normalize_tool_calls(calls: Any) -> tuple[Mapping[str, Any], ...]:
    valid_calls = ToolEventData(calls).tool_calls
    return tuple(
        plain_data({"tool_name": call["tool_id"], "arguments": call["arguments"], "result": call["result"]})
        for call in valid_calls
    )


def _parse_created_at(value: Any, now: datetime) -> datetime:
    if value is None:
        return now
    try:
        return as_utc(value)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"created_at is invalid: {error}.") from error
