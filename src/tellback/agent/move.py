"""Where a conversation goes next: pure code over the routes, the session, and what was understood.

`move` is a generator: it yields each tool that a state runs and is sent what came of it, so that nothing here waits
for anything. A walk enters no state more than twice, so it ends.
"""

from __future__ import annotations

import copy
from collections.abc import Generator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from tellback.agent.choosing import USUAL, Choice, Thresholds, choose
from tellback.agent.moves import Heard, Moved, Ran, Rejected, RunTool, Step
from tellback.agent.route import Route
from tellback.agent.session import SessionState, enter_route, leave_route
from tellback.agent.walking import Walk, retry_condition

__all__ = ["Heard", "Move", "Moved", "Ran", "Rejected", "RunTool", "Step", "move", "retry_condition"]

Move = Generator[RunTool, Ran, Moved]


def move(
    routes: Mapping[str, Route],
    session: SessionState,
    heard: Heard,
    now: datetime,
    *,
    thresholds: Thresholds = USUAL,
    decides: bool = False,
) -> Move:
    """Choose the route, take in what was said, and walk on to the state that speaks next.

    With `decides` a waiting call of the current state has been decided: the walk goes on with it.
    """
    if decides:
        choice = Choice(_current(routes, session), "a decision was taken")
    else:
        choice = choose(routes, session, heard.scores, thresholds, heard.holds)
    route, before = choice.route, session
    session = _into(route, session, now)
    if route is None and before.current_route is not None and before.current_route.id in session.left:
        id = before.current_route.id
        session = replace(session, left={**session.left, id: replace(session.left[id], dropped=True, waiting=())})
    if route is not None:
        session = _begun(route, session)
    session, changed = _taken_in(session, route, heard, now)
    if route is None:
        return Moved(session, choice=choice)
    comes_back = session.current_route is not before.current_route
    session = _noting_forgotten(session, heard, route.id)
    if comes_back and route.id in before.left:  # what was corrected meanwhile counts now
        changed = tuple(dict.fromkeys((*before.left[route.id].changed, *changed)))
    walk = Walk(route, session, heard, now, changed, comes_back=comes_back, decides=decides)
    moved = yield from walk.walk()
    return replace(moved, choice=choice, changed=changed)


def _current(routes: Mapping[str, Route], session: SessionState) -> Route | None:
    return None if session.current_route is None else routes.get(session.current_route.id)


def _begun(route: Route, session: SessionState) -> SessionState:
    """A session that was put into the route by hand knows what the route does from the start."""
    if session.progress.path or not route.initial_data:
        return session
    return replace(session, extracted={**copy.deepcopy(route.initial_data), **session.extracted})


def _into(route: Route | None, session: SessionState, now: datetime) -> SessionState:
    """The session in the chosen route."""
    current = session.current_route
    if route is None:
        return leave_route(session, at=now)
    if current is not None and current.id == route.id:
        return session
    return enter_route(session, route.id, route.title, initial_data=route.initial_data, at=now)


def _taken_in(
    session: SessionState, route: Route | None, heard: Heard, now: datetime
) -> tuple[SessionState, tuple[str, ...]]:
    """The session with what was said of this route and of those that were left; and which known values changed."""
    left = dict(session.left)
    for id in left.keys() & {*heard.data, *heard.forgotten}:
        kept = left[id]
        extracted, corrected = _updated(kept.extracted, heard, id)
        left[id] = replace(
            kept,
            extracted=extracted,
            changed=tuple(dict.fromkeys((*kept.changed, *corrected))),
            waiting=() if corrected else kept.waiting,  # nobody is to approve what is no longer wanted
        )
    if route is None:
        return replace(session, left=left), ()
    extracted, changed = _updated(session.extracted, heard, route.id)
    if extracted == session.extracted and left == session.left:
        return session, ()
    metadata = {**session.metadata, "last_updated_at": now}
    return replace(session, extracted=extracted, left=left, metadata=metadata), changed


def _noting_forgotten(session: SessionState, heard: Heard, route_id: str) -> SessionState:
    """Remember what was taken back, so that it is not read from earlier messages again."""
    progress = session.progress
    names = dict.fromkeys((*progress.forgotten, *heard.forgotten.get(route_id, ())))
    forgotten = tuple(name for name in names if name not in session.extracted)
    if forgotten == progress.forgotten:
        return session
    return replace(session, progress=replace(progress, forgotten=forgotten))


def _updated(known: Mapping[str, Any], heard: Heard, route_id: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What is known with what was said, and which of it is not as it was."""
    forgotten = heard.forgotten.get(route_id, ())
    updated = {name: value for name, value in known.items() if name not in forgotten}
    updated |= heard.data.get(route_id, {})
    return updated, tuple(name for name in known if name not in updated or updated[name] != known[name])
