"""Where a conversation stands: the route and state it is in, and what was gathered. Values, and functions over them.

Every function gives a new session and leaves the one it was given as it was.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from enum import Enum
from typing import Any

from recollect.errors import InvalidArgumentError
from recollect.types import ToolCall, as_tool_call
from recollect.types.ids import new_id
from recollect.types.times import utc_now


@dataclass(frozen=True, slots=True)
class CurrentRoute:
    """The route a session is in."""

    id: str
    title: str
    entered_at: datetime


@dataclass(frozen=True, slots=True)
class CurrentState:
    """The state a session is in: the one that spoke last."""

    id: str
    description: str | None
    entered_at: datetime


@dataclass(frozen=True, slots=True)
class RouteVisit:
    """One visit of a route; `exited_at` is None while it lasts."""

    route_id: str
    entered_at: datetime
    exited_at: datetime | None = None
    completed: bool = False


@dataclass(frozen=True, slots=True)
class ToolRun:
    """What came of a tool that a state ran: with what it ran, what it gave as the model reads it, or its error.

    `basis` is what the gathered data makes of its arguments: once that is another, the tool is to be run again.
    """

    tool: str
    arguments: Mapping[str, Any]
    content: str = ""
    error: str | None = None
    basis: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a route has come: the states walked in order, those that spoke, what tools gave, and by which condition
    in words a state was left, both by state."""

    path: tuple[str, ...] = ()
    spoken: tuple[str, ...] = ()
    runs: Mapping[str, ToolRun] = field(default_factory=dict)
    ways: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WaitingCall:
    """A call of a tool state that waits for a person's decision."""

    state_id: str
    call: ToolCall


@dataclass(frozen=True, slots=True)
class LeftRoute:
    """A route that was left before its end, as it is taken up again; `changed` was corrected since."""

    extracted: Mapping[str, Any]
    state: CurrentState | None
    progress: Progress
    waiting: tuple[WaitingCall, ...] = ()
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SessionState:
    """Where a conversation stands. `extracted` is what was gathered in the current route.

    `version` grows with each turn: whoever saves a session can tell that another turn was faster. `context` is what
    tools added to the agent's context. `left` holds routes that were left, to be taken up again where they were.
    After a route is completed its data stays in `extracted` until another is entered.

    >>> create_session("web-42").extracted
    {}
    """

    id: str
    current_route: CurrentRoute | None = None
    current_state: CurrentState | None = None
    extracted: Mapping[str, Any] = field(default_factory=dict)
    route_history: tuple[RouteVisit, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    version: int = 0
    progress: Progress = Progress()
    left: Mapping[str, LeftRoute] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)
    waiting: tuple[WaitingCall, ...] = ()

    def has_completed(self, route_id: str) -> bool:
        """Whether the last visit of that route went to its end."""
        visits = [visit for visit in self.route_history if visit.route_id == route_id]
        return bool(visits) and visits[-1].completed


def create_session(session_id: str | None = None, metadata: Mapping[str, Any] | None = None) -> SessionState:
    """A session at its beginning; without an id it gets a new one.

    >>> create_session("web-42", {"channel": "whatsapp"}).metadata["channel"]
    'whatsapp'
    """
    if session_id is not None and (not isinstance(session_id, str) or not session_id):
        raise InvalidArgumentError(f"session_id is a text, not {session_id!r:.80}.")
    now = utc_now()
    return SessionState(
        session_id or new_id("session"),
        metadata={"created_at": now, "last_updated_at": now, **copy.deepcopy(dict(metadata or {}))},
    )


def enter_route(
    session: SessionState,
    route_id: str,
    route_title: str,
    *,
    initial_data: Mapping[str, Any] | None = None,
    at: datetime | None = None,
) -> SessionState:
    """The session in another route. A route that was left before its end goes on with what was gathered in it.

    >>> session = merge_extracted(enter_route(create_session(), "book", "Book a flight"), {"to": "Rome"})
    >>> session = enter_route(session, "weather", "Tell the weather")
    >>> session.extracted, enter_route(session, "book", "Book a flight").extracted
    ({}, {'to': 'Rome'})
    """
    now = at or utc_now()
    session = leave_route(session, at=now)
    again = session.left.get(route_id) or LeftRoute(copy.deepcopy(dict(initial_data or {})), None, Progress())
    return replace(
        session,
        current_route=CurrentRoute(route_id, route_title, now),
        current_state=again.state,
        extracted=again.extracted,
        progress=again.progress,
        waiting=again.waiting,
        left={id: kept for id, kept in session.left.items() if id != route_id},
        route_history=(*session.route_history, RouteVisit(route_id, now)),
        metadata=_touched(session, now),
    )


def leave_route(session: SessionState, *, completed: bool = False, at: datetime | None = None) -> SessionState:
    """The session outside of its route. What a completed route gathered stays in `extracted`; it is not taken up again.

    >>> leave_route(enter_route(create_session(), "book", "Book a flight"), completed=True).has_completed("book")
    True
    """
    route = session.current_route
    if route is None:
        return session
    now = at or utc_now()
    left = dict(session.left)
    if not completed:
        left[route.id] = LeftRoute(session.extracted, session.current_state, session.progress, session.waiting)
    *before, last = session.route_history or (RouteVisit(route.id, route.entered_at),)
    return replace(
        session,
        current_route=None,
        current_state=None,
        extracted=session.extracted if completed else {},
        progress=session.progress if completed else Progress(),
        left=left,
        waiting=(),
        route_history=(*before, replace(last, exited_at=now, completed=completed)),
        metadata=_touched(session, now),
    )


def enter_state(
    session: SessionState, state_id: str, description: str | None = None, *, at: datetime | None = None
) -> SessionState:
    """The session in another state of its route.

    >>> enter_state(create_session(), "ask_where", "Ask where to").current_state.id
    'ask_where'
    """
    now = at or utc_now()
    return replace(session, current_state=CurrentState(state_id, description, now), metadata=_touched(session, now))


def merge_extracted(session: SessionState, data: Mapping[str, Any], *, at: datetime | None = None) -> SessionState:
    """The session with more data; what is there under the same name is replaced.

    >>> merge_extracted(create_session(), {"to": "Rome"}).extracted
    {'to': 'Rome'}
    """
    merged = {**session.extracted, **copy.deepcopy(dict(data))}
    return replace(session, extracted=merged, metadata=_touched(session, at or utc_now()))


def session_state_to_data(session: SessionState) -> dict[str, Any]:
    """The session as plain values that any database or JSON file can hold.

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
            "extracted": _plain(session.extracted),
            "route_history": [_plain_visit(visit) for visit in session.route_history],
            "current_route_title": None if route is None else route.title,
            "current_route_entered_at": None if route is None else route.entered_at.isoformat(),
            "current_state_description": None if state is None else state.description,
            "current_state_entered_at": None if state is None else state.entered_at.isoformat(),
            "metadata": _plain(session.metadata),
            "progress": _plain_progress(session.progress),
            "left": {
                id: {
                    "extracted": _plain(kept.extracted),
                    "state": None if kept.state is None else kept.state.id,
                    "state_description": None if kept.state is None else kept.state.description,
                    "state_entered_at": None if kept.state is None else kept.state.entered_at.isoformat(),
                    "progress": _plain_progress(kept.progress),
                    "waiting": _plain_waiting(kept.waiting),
                    "changed": list(kept.changed),
                }
                for id, kept in session.left.items()
            },
            "context": _plain(session.context),
            "waiting": _plain_waiting(session.waiting),
        },
    }


def session_data_to_state(session_id: str, data: Mapping[str, Any]) -> SessionState:
    """A session from what `session_state_to_data` gave; parts that are missing are as in a new session.

    Dates among the gathered values come back as the text they were stored as; the agent reads them by its schema.

    >>> session = enter_route(create_session("web-42"), "book", "Book a flight")
    >>> session_data_to_state("web-42", session_state_to_data(session)) == session
    True
    """
    try:
        return _read(session_id, data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidArgumentError(
            f"session {session_id!r} cannot be read from its data ({type(error).__name__}: {error});"
            " pass what session_state_to_data gave."
        ) from error


def _read(session_id: str, data: Mapping[str, Any]) -> SessionState:
    kept = data.get("collected_data") or {}
    now = utc_now()
    route, state = data.get("current_route"), data.get("current_state")
    metadata = dict(kept.get("metadata") or {})
    for name in ("created_at", "last_updated_at"):
        if isinstance(metadata.get(name), str):
            with contextlib.suppress(ValueError):  # the application's own words
                metadata[name] = datetime.fromisoformat(metadata[name])
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
            )
            for id, each in (kept.get("left") or {}).items()
        },
        context=dict(kept.get("context") or {}),
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
    return Progress(path, spoken, runs, dict(given.get("ways") or {}))


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
        {"state": each.state_id, "id": each.call.id, "name": each.call.name, "input": _plain(each.call.input)}
        for each in waiting
    ]


def _plain_progress(progress: Progress) -> dict[str, Any]:
    return {
        "path": list(progress.path),
        "spoken": list(progress.spoken),
        "runs": {
            id: {
                "tool": run.tool,
                "arguments": _plain(run.arguments),
                "content": run.content,
                "error": run.error,
                "basis": _plain(run.basis),
            }
            for id, run in progress.runs.items()
        },
        "ways": dict(progress.ways),
    }


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if value is None or isinstance(value, bool | int) or type(value) is str:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    return str(value)


def _touched(session: SessionState, now: datetime) -> dict[str, Any]:
    return {**session.metadata, "last_updated_at": now}
