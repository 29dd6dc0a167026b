"""The state of a session: current route and state, gathered data, progress.

Immutable values, and functions that return a new session and leave their argument unchanged."""

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
    """The route of a session. `entered_at` is now by default.

    >>> CurrentRoute("book", "Book a flight").title
    'Book a flight'
    """

    id: str
    title: str
    entered_at: datetime = field(default_factory=utc_now)


@dataclass(frozen=True, slots=True)
class CurrentState:
    """The state of a session: the one that spoke last. `entered_at` is now by default.

    >>> CurrentState("ask_where", "Ask where to").description
    'Ask where to'
    """

    id: str
    description: str | None = None
    entered_at: datetime = field(default_factory=utc_now)


@dataclass(frozen=True, slots=True)
class RouteVisit:
    """One visit of a route; `exited_at` is None until the session leaves it. `entered_at` is now by default.

    >>> session = enter_route(create_session(), "book", "Book a flight")
    >>> [(visit.route_id, visit.exited_at, visit.completed) for visit in session.route_history]
    [('book', None, False)]
    """

    route_id: str
    entered_at: datetime = field(default_factory=utc_now)
    exited_at: datetime | None = None
    completed: bool = False


@dataclass(frozen=True, slots=True)
class ToolRun:
    """The result of a tool that a state ran: its arguments, and the text for the model or the error.

    `gathered_arguments` are the arguments built from the gathered data; when they change, the tool may run again.
    `changed_values` are the fields that the tool set, `previous_values` their values before. With `has_acted` the tool
    did its work, although its result cannot be used.

    >>> ToolRun("search_flights", {"to": "Rome"}, content='["TP1 to Rome"]').error is None
    True
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
    """The progress in one pass through a route: the states of the walk in order, those that spoke and were answered,
    the tool runs and the chosen conditions in words, both by state.

    `forgotten` are fields without a value whose earlier values must not be read again. `asked_again` are lists to which
    this pass adds, so that they are asked for although they have items. `replaced_runs` are runs with `repeat=False`,
    by state, that were done with values that have changed since. `held` are tool states that run again only if the user
    asks for it. `confirmed` are the arguments, by tool state, to which the user has agreed. `earlier_runs` are runs of
    earlier passes.

    >>> progress = RouteProgress(("start", "search"), runs={"search": ToolRun("search_flights", {"to": "Rome"})})
    >>> progress.path, progress.runs["search"].arguments
    (('start', 'search'), {'to': 'Rome'})
    """

    path: tuple[str, ...] = ()
    spoken: tuple[str, ...] = ()
    runs: Mapping[str, ToolRun] = field(default_factory=dict)
    choices: Mapping[str, str] = field(default_factory=dict)
    answered: tuple[str, ...] = ()
    forgotten: tuple[str, ...] = ()
    asked_again: tuple[str, ...] = ()
    replaced_runs: Mapping[str, tuple[ToolRun, ...]] = field(default_factory=dict)
    held: tuple[str, ...] = ()
    confirmed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    earlier_runs: tuple[ToolRun, ...] = ()


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A tool call of a state that waits for a person's decision.

    >>> PendingCall("pay", ToolCall("call_1", "pay", {"amount": 120})).call.input
    {'amount': 120}
    """

    state_id: str
    call: ToolCall


@dataclass(frozen=True, slots=True)
class PausedRoute:
    """A route that the session left before its end. `changed` are fields corrected since. The user no longer wants a
    `dropped` route, but may return to it.

    >>> session = merge_extracted(enter_route(create_session(), "book", "Book a flight"), {"to": "Rome"})
    >>> enter_route(session, "weather", "Tell the weather").paused_routes["book"].extracted
    {'to': 'Rome'}
    """

    extracted: Mapping[str, Any] = field(default_factory=dict)
    state: CurrentState | None = None
    progress: RouteProgress = RouteProgress()
    pending_calls: tuple[PendingCall, ...] = ()
    changed: tuple[str, ...] = ()
    dropped: bool = False


@dataclass(frozen=True, slots=True)
class IdempotentReply:
    """The reply to the last message that had an idempotency key.

    >>> IdempotentReply("key-1", "Where to?").message
    'Where to?'
    """

    key: str
    message: str


@dataclass(frozen=True, slots=True)
class SessionState:
    """The state of a conversation. `extracted` is the data gathered in the current route.

    `version` increases with each turn, so that conflicting turns are detected on save. `context` is what tools added
    to the agent's context. `owner` is the session's user, once known: only this user can continue the session.
    `paused_routes` were left and can be resumed where they stopped; those in `waiting_routes` are resumed when the
    current route ends, the last one first. The data of a completed route stays in `extracted` until another route is
    entered, and in `completed_routes` until the route is entered again. `last_route` is the id of the route of the last
    turn: the current one, or the one that this turn completed.

    Usually `create_session` and the agent build it. From rows of your own database:

    >>> row = {"id": "web-42", "route": "book", "title": "Book a flight", "data": {"to": "Rome"}, "turns": 3}
    >>> session = SessionState(
    ...     row["id"],
    ...     current_route=CurrentRoute(row["route"], row["title"]),
    ...     extracted=row["data"],
    ...     route_history=(RouteVisit(row["route"]),),
    ...     version=row["turns"],
    ... )
    >>> session.current_route.title, session.current_state, session.extracted
    ('Book a flight', None, {'to': 'Rome'})
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
    waiting_routes: tuple[str, ...] = ()
    completed_routes: Mapping[str, PausedRoute] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)
    pending_calls: tuple[PendingCall, ...] = ()
    owner: str = ""
    idempotent_reply: IdempotentReply | None = None
    last_route: str | None = None

    def has_completed(self, route_id: str) -> bool:
        """Whether the last visit of this route reached its end."""
        visits = [visit for visit in self.route_history if visit.route_id == route_id]
        return bool(visits) and visits[-1].completed


def create_session(session_id: str | None = None, metadata: Mapping[str, Any] | None = None) -> SessionState:
    """Create a session; without an id it gets a generated one.

    >>> create_session("web-42", {"channel": "whatsapp"}).metadata["channel"]
    'whatsapp'
    """
    if session_id is not None and (not isinstance(session_id, str) or not session_id):
        raise InvalidArgumentError(f"session_id must be a non-empty string, got {session_id!r:.80}.")
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
    """Return the session in another route. A paused route resumes with its gathered data.

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
        paused_routes=_without(session.paused_routes, route_id),
        waiting_routes=tuple(id for id in session.waiting_routes if id != route_id),
        completed_routes=_without(session.completed_routes, route_id),
        route_history=(*session.route_history, RouteVisit(route_id, now)),
        metadata=_touch_metadata(session, now),
    )


def leave_route(session: SessionState, *, completed: bool = False, at: datetime | None = None) -> SessionState:
    """Return the session without a current route. Data of a completed route stays in `extracted`."""
    route = session.current_route
    if route is None:
        return session
    now = at or utc_now()
    position = _pause_current_route(session)
    paused_routes, completed_routes = session.paused_routes, session.completed_routes
    if completed:
        completed_routes = {**completed_routes, route.id: replace(position, state=None, pending_calls=())}
    else:
        paused_routes = {**paused_routes, route.id: position}
    *before, last = session.route_history or (RouteVisit(route.id, route.entered_at),)
    return replace(
        session,
        current_route=None,
        current_state=None,
        extracted=session.extracted if completed else {},
        progress=session.progress if completed else RouteProgress(),
        paused_routes=paused_routes,
        completed_routes=completed_routes,
        pending_calls=(),
        route_history=(*before, replace(last, exited_at=now, completed=completed)),
        metadata=_touch_metadata(session, now),
    )


def enter_state(
    session: SessionState, state_id: str, description: str | None = None, *, at: datetime | None = None
) -> SessionState:
    """Return the session in another state of its route.

    >>> enter_state(create_session(), "ask_where", "Ask where to").current_state.id
    'ask_where'
    """
    now = at or utc_now()
    return replace(
        session, current_state=CurrentState(state_id, description, now), metadata=_touch_metadata(session, now)
    )


def merge_extracted(session: SessionState, data: Mapping[str, Any], *, at: datetime | None = None) -> SessionState:
    """Return the session with more data; values under the same name are replaced.

    >>> merge_extracted(create_session(), {"to": "Rome"}).extracted
    {'to': 'Rome'}
    """
    merged = {**session.extracted, **copy.deepcopy(dict(data))}
    return replace(session, extracted=merged, metadata=_touch_metadata(session, at or utc_now()))


def reopen_route(session: SessionState, route_id: str, route_title: str, *, at: datetime) -> SessionState:
    """Return the session in a completed route, with the data and the progress of its last pass."""
    data, progress = get_route_data(session, route_id), session.completed_routes[route_id].progress
    return replace(enter_route(session, route_id, route_title, at=at), extracted=data, progress=progress)


def wait_for_route(session: SessionState, route_id: str, paused: PausedRoute) -> SessionState:
    """Return the session with a route that is entered when the current one ends."""
    return replace(
        session,
        paused_routes={**session.paused_routes, route_id: paused},
        completed_routes=_without(session.completed_routes, route_id),
        waiting_routes=(*(id for id in session.waiting_routes if id != route_id), route_id),
    )


def drop_paused_route(session: SessionState, route_id: str) -> SessionState:
    """Return the session with a paused route that the user no longer wants."""
    paused = replace(session.paused_routes[route_id], dropped=True, pending_calls=())
    return replace(
        session,
        paused_routes={**session.paused_routes, route_id: paused},
        waiting_routes=tuple(id for id in session.waiting_routes if id != route_id),
    )


def _without(routes: Mapping[str, PausedRoute], route_id: str) -> dict[str, PausedRoute]:
    return {id: each for id, each in routes.items() if id != route_id}


def _touch_metadata(session: SessionState, now: datetime) -> dict[str, Any]:
    return {**session.metadata, "last_updated_at": now}


def _pause_current_route(session: SessionState) -> PausedRoute:
    return PausedRoute(session.extracted, session.current_state, session.progress, session.pending_calls)


def find_unfinished(session: SessionState, route_id: str) -> PausedRoute | None:
    """Return the progress in the current route or in a paused one."""
    if session.current_route is not None and session.current_route.id == route_id:
        return _pause_current_route(session)
    return session.paused_routes.get(route_id)


def get_route_data(session: SessionState, route_id: str) -> Mapping[str, Any]:
    """Return the known data of a route: the current one, a paused one, or its last completed pass."""
    unfinished, visits = find_unfinished(session, route_id), session.route_history
    if unfinished is not None:
        return unfinished.extracted
    if session.current_route is None and visits and visits[-1].route_id == route_id:
        return session.extracted
    completed = session.completed_routes.get(route_id)
    return {} if completed is None else completed.extracted
