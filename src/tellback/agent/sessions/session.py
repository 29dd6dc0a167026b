"""The state of a session: current route and state, gathered data, progress.

Values, and functions over them: each returns a new session and leaves its argument unchanged."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from tellback.errors import InvalidArgumentError
from tellback.types import ToolCall
from tellback.types.ids import new_id, utc_now


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
    """The result of a tool that a state ran: its arguments, and the text for the model or the error.

    `gathered_arguments` are the arguments as the gathered data gives them; when the data changes them, the tool runs
    again. `changed_values` are the fields that the tool set, `previous_values` what they were before. With `has_acted`
    the tool did its work, although its result cannot be used.
    """

    tool: str
    arguments: Mapping[str, Any]
    content: str = ""
    error: str | None = None
    gathered_arguments: Mapping[str, Any] = field(default_factory=dict)
    changed_values: Mapping[str, Any] = field(default_factory=dict)
    previous_values: Mapping[str, Any] = field(default_factory=dict)
    has_acted: bool = False


@dataclass(frozen=True, slots=True)
class RouteProgress:
    """How far a route has come: the states walked in order, those that spoke and were answered, what tools gave, and by
    which condition in words a state was left, both by state. `forgotten` are fields that the user took back."""

    path: tuple[str, ...] = ()
    spoken: tuple[str, ...] = ()
    runs: Mapping[str, ToolRun] = field(default_factory=dict)
    ways: Mapping[str, str] = field(default_factory=dict)
    answered: tuple[str, ...] = ()
    forgotten: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call of a tool state that waits for a person's decision."""

    state_id: str
    call: ToolCall


@dataclass(frozen=True, slots=True)
class PausedRoute:
    """A route that was left before its end, as it is taken up again; `changed` was corrected since. The user no longer
    wants one that is `dropped`, but may come back to it."""

    extracted: Mapping[str, Any]
    state: CurrentState | None
    progress: RouteProgress
    pending_calls: tuple[PendingCall, ...] = ()
    changed: tuple[str, ...] = ()
    dropped: bool = False


@dataclass(frozen=True, slots=True)
class IdempotentReply:
    """What was said to the last message that had an idempotency key."""

    key: str
    message: str


@dataclass(frozen=True, slots=True)
class SessionState:
    """Where a conversation stands. `extracted` is what was gathered in the current route.

    `version` grows with each turn: whoever saves a session can tell that another turn was faster. `context` is what
    tools added to the agent's context. `owner` is whose it is, once that is known: nobody else can go on with it.
    `paused_routes` were left, and are taken up again where they were. After a route is completed its data stays
    in `extracted` until another is entered.

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
    progress: RouteProgress = RouteProgress()
    paused_routes: Mapping[str, PausedRoute] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)
    pending_calls: tuple[PendingCall, ...] = ()
    owner: str = ""
    idempotent_reply: IdempotentReply | None = None

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
    resumed = session.paused_routes.get(route_id) or PausedRoute(
        copy.deepcopy(dict(initial_data or {})), None, RouteProgress()
    )
    return replace(
        session,
        current_route=CurrentRoute(route_id, route_title, now),
        current_state=resumed.state,
        extracted=resumed.extracted,
        progress=resumed.progress,
        pending_calls=resumed.pending_calls,
        paused_routes={id: paused for id, paused in session.paused_routes.items() if id != route_id},
        route_history=(*session.route_history, RouteVisit(route_id, now)),
        metadata=_touch_metadata(session, now),
    )


def leave_route(session: SessionState, *, completed: bool = False, at: datetime | None = None) -> SessionState:
    """The session outside of its route. What a completed route gathered stays in `extracted`."""
    route = session.current_route
    if route is None:
        return session
    now = at or utc_now()
    paused_routes = dict(session.paused_routes)
    if not completed:
        paused_routes[route.id] = _pause_current_route(session)
    *before, last = session.route_history or (RouteVisit(route.id, route.entered_at),)
    return replace(
        session,
        current_route=None,
        current_state=None,
        extracted=session.extracted if completed else {},
        progress=session.progress if completed else RouteProgress(),
        paused_routes=paused_routes,
        pending_calls=(),
        route_history=(*before, replace(last, exited_at=now, completed=completed)),
        metadata=_touch_metadata(session, now),
    )


def enter_state(
    session: SessionState, state_id: str, description: str | None = None, *, at: datetime | None = None
) -> SessionState:
    """The session in another state of its route.

    >>> enter_state(create_session(), "ask_where", "Ask where to").current_state.id
    'ask_where'
    """
    now = at or utc_now()
    return replace(
        session, current_state=CurrentState(state_id, description, now), metadata=_touch_metadata(session, now)
    )


def merge_extracted(session: SessionState, data: Mapping[str, Any], *, at: datetime | None = None) -> SessionState:
    """The session with more data; what is there under the same name is replaced.

    >>> merge_extracted(create_session(), {"to": "Rome"}).extracted
    {'to': 'Rome'}
    """
    merged = {**session.extracted, **copy.deepcopy(dict(data))}
    return replace(session, extracted=merged, metadata=_touch_metadata(session, at or utc_now()))


def _touch_metadata(session: SessionState, now: datetime) -> dict[str, Any]:
    return {**session.metadata, "last_updated_at": now}


def _pause_current_route(session: SessionState) -> PausedRoute:
    return PausedRoute(session.extracted, session.current_state, session.progress, session.pending_calls)


def find_unfinished(session: SessionState, route_id: str) -> PausedRoute | None:
    """How far a session has come in a route that it is in, or that it left before the end."""
    if session.current_route is not None and session.current_route.id == route_id:
        return _pause_current_route(session)
    return session.paused_routes.get(route_id)


def get_route_data(session: SessionState, route_id: str) -> Mapping[str, Any]:
    """What is known of a route: the current one, one that was left, or the one that was completed last."""
    unfinished, visits = find_unfinished(session, route_id), session.route_history
    if unfinished is not None:
        return unfinished.extracted
    return session.extracted if session.current_route is None and visits and visits[-1].route_id == route_id else {}
