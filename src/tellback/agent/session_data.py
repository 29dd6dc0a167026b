"""Sessions as plain values, for a database or a file, and back."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tellback.agent.session import (
    Answered,
    CurrentRoute,
    CurrentState,
    LeftRoute,
    Progress,
    RouteVisit,
    SessionState,
    ToolRun,
    WaitingCall,
)
from tellback.agent.value_reading import plain_value
from tellback.errors import InvalidArgumentError
from tellback.types import as_tool_call
from tellback.types.sessions import SessionData
from tellback.types.times import utc_now

_PARTS = frozenset(
    {"extracted", "route_history", "metadata", "progress", "left", "context", "answered", "waiting", "owner"}
    | {"current_route_title", "current_route_entered_at", "current_state_description", "current_state_entered_at"}
)
"""What of the collected data is the session's own."""
_ELSEWHERE = frozenset(
    {"routeHistory", "currentRouteTitle", "currentRouteEnteredAt", "currentStateDescription", "currentStateEnteredAt"}
)
"""What these are called by those who ask a server."""


def refuse_reserved(data: Mapping[str, Any]) -> None:
    """Your own data about a session may not have the names of its parts."""
    taken = sorted((_PARTS | _ELSEWHERE) & data.keys())
    if taken:
        raise InvalidArgumentError(
            f"initial_data cannot have {', '.join(map(repr, taken))}: these are parts of a session. Take other names."
        )


def session_state_to_data(session: SessionState) -> dict[str, Any]:
    """The session as plain values that any database or JSON file can hold.

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
            "route_history": [_plain_visit(visit) for visit in session.route_history],
            "current_route_title": None if route is None else route.title,
            "current_route_entered_at": None if route is None else route.entered_at.isoformat(),
            "current_state_description": None if state is None else state.description,
            "current_state_entered_at": None if state is None else state.entered_at.isoformat(),
            "metadata": plain_data(session.metadata),
            "progress": _plain_progress(session.progress),
            "left": {
                id: {
                    "extracted": plain_data(kept.extracted),
                    "state": None if kept.state is None else kept.state.id,
                    "state_description": None if kept.state is None else kept.state.description,
                    "state_entered_at": None if kept.state is None else kept.state.entered_at.isoformat(),
                    "progress": _plain_progress(kept.progress),
                    "waiting": _plain_waiting(kept.waiting),
                    "changed": list(kept.changed),
                    "dropped": kept.dropped,
                }
                for id, kept in session.left.items()
            },
            "context": plain_data(session.context),
            "answered": None
            if session.answered is None
            else {"key": session.answered.key, "message": session.answered.message},
            "waiting": _plain_waiting(session.waiting),
            "owner": session.owner,
        },
    }


def session_data_to_state(session_id: str, data: SessionData | Mapping[str, Any]) -> SessionState:
    """A session from what `session_state_to_data` gave, or from its row; what is missing is as in a new session.

    What else `collected_data` holds is your own, and is in the session's metadata.

    Dates among the gathered values come back as the text they were stored as; the agent reads them by its schema.

    >>> from tellback.agent import create_session, enter_route
    >>> session = enter_route(create_session("web-42"), "book", "Book a flight")
    >>> session_data_to_state("web-42", session_state_to_data(session)) == session
    True
    """
    try:
        return _read(session_id, _of_row(data) if isinstance(data, SessionData) else data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidArgumentError(
            f"session {session_id!r} cannot be read from its data ({type(error).__name__}: {error});"
            " pass what session_state_to_data gave."
        ) from error


def plain_data(value: Any) -> Any:
    """A value as JSON has it; a number that is none is left out."""
    return _finite(plain_value(value, str))


def read_dates(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata whose dates of the session's own are moments again."""
    found = dict(metadata)
    for name in ("created_at", "last_updated_at"):
        if isinstance(found.get(name), str):
            with contextlib.suppress(ValueError):  # the application's own words
                found[name] = datetime.fromisoformat(found[name])
    return found


def _of_row(row: SessionData) -> dict[str, Any]:
    """A row as data; its owner's id and its dates are metadata unless the session says otherwise."""
    kept = dict(row.collected_data)
    dates = {"created_at": row.created_at, "last_updated_at": row.updated_at}
    whose = {} if row.user_id is None else {"user_id": row.user_id}  # nothing that was collected says otherwise
    kept["metadata"] = {**dates, **(kept.get("metadata") or {}), **whose}
    return {
        "version": row.version,
        "current_route": row.current_route,
        "current_state": row.current_state,
        "collected_data": kept,
    }


def _read(session_id: str, data: Mapping[str, Any]) -> SessionState:
    kept = data.get("collected_data") or {}
    now = utc_now()
    route, state = data.get("current_route"), data.get("current_state")
    own = {name: value for name, value in kept.items() if name not in _PARTS}
    metadata = read_dates({**own, **(kept.get("metadata") or {})})
    current = None
    if route is not None:
        entered = _moment(kept.get("current_route_entered_at"), now)
        current = CurrentRoute(route, kept.get("current_route_title") or route, entered)
    return SessionState(
        id=session_id,
        current_route=current,
        current_state=_state(state, kept, "current_state_", now),
        extracted=dict(kept.get("extracted") or {}),
        route_history=tuple(_visit(each, now) for each in kept.get("route_history") or ()),
        metadata=metadata,
        version=int(data.get("version") or 0),
        progress=_progress(kept.get("progress")),
        left={
            id: LeftRoute(
                dict(each.get("extracted") or {}),
                _state(each.get("state"), each, "state_", now),
                _progress(each.get("progress")),
                _waiting(each.get("waiting")),
                tuple(each.get("changed") or ()),
                bool(each.get("dropped")),
            )
            for id, each in (kept.get("left") or {}).items()
        },
        context=dict(kept.get("context") or {}),
        owner=str(kept.get("owner") or data.get("owner") or ""),
        answered=Answered(**kept["answered"]) if kept.get("answered") else None,
        waiting=_waiting(kept.get("waiting")),
    )


def _state(id: str | None, kept: Mapping[str, Any], prefix: str, now: datetime) -> CurrentState | None:
    if id is None:
        return None
    return CurrentState(id, kept.get(f"{prefix}description"), _moment(kept.get(f"{prefix}entered_at"), now))


def _visit(given: Mapping[str, Any], now: datetime) -> RouteVisit:
    exited = given.get("exited_at")
    return RouteVisit(
        given["route_id"],
        _moment(given.get("entered_at"), now),
        None if exited is None else _moment(exited, now),
        bool(given.get("completed")),
    )


def _progress(given: Mapping[str, Any] | None) -> Progress:
    given = given or {}
    runs = {id: ToolRun(**run) for id, run in (given.get("runs") or {}).items()}
    path, spoken = tuple(given.get("path") or ()), tuple(given.get("spoken") or ())
    answered, forgotten = tuple(given.get("answered") or ()), tuple(given.get("forgotten") or ())
    return Progress(path, spoken, runs, dict(given.get("ways") or {}), answered, forgotten)


def _waiting(given: Any) -> tuple[WaitingCall, ...]:
    return tuple(
        WaitingCall(each["state"], as_tool_call({name: each[name] for name in ("id", "name", "input")}))
        for each in given or ()
    )


def _moment(given: Any, now: datetime) -> datetime:
    if given is None:
        return now
    return given if isinstance(given, datetime) else datetime.fromisoformat(given)


def _plain_visit(visit: RouteVisit) -> dict[str, Any]:
    return {
        "route_id": visit.route_id,
        "entered_at": visit.entered_at.isoformat(),
        "exited_at": None if visit.exited_at is None else visit.exited_at.isoformat(),
        "completed": visit.completed,
    }


def _plain_waiting(waiting: tuple[WaitingCall, ...]) -> list[dict[str, Any]]:
    return [
        {"state": each.state_id, "id": each.call.id, "name": each.call.name, "input": plain_data(each.call.input)}
        for each in waiting
    ]


def _plain_progress(progress: Progress) -> dict[str, Any]:
    return {
        "path": list(progress.path),
        "spoken": list(progress.spoken),
        "runs": {
            id: {
                "tool": run.tool,
                "arguments": plain_data(run.arguments),
                "content": run.content,
                "error": run.error,
                "basis": plain_data(run.basis),
                "gave": plain_data(run.gave),
                "had": plain_data(run.had),
                "has_acted": run.has_acted,
            }
            for id, run in progress.runs.items()
        },
        "ways": dict(progress.ways),
        "answered": list(progress.answered),
        "forgotten": list(progress.forgotten),
    }


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list) else value
