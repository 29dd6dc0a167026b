"""Where a conversation goes next: pure code over the routes, the session, and what was understood.

`move` is a generator: it yields each tool that a state runs and is sent what came of it, so that nothing here waits
for anything. A walk enters no state twice, so it ends.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

from recollect.agent.choosing import USUAL, Choice, Thresholds, choose
from recollect.agent.moves import Heard, Moved, Ran, Rejected, RunTool, Step
from recollect.agent.route import Route
from recollect.agent.session import (
    SessionState,
    ToolRun,
    WaitingCall,
    enter_route,
    enter_state,
    leave_route,
)
from recollect.agent.state import END_ROUTE, State, Transition
from recollect.agent.value_reading import InvalidValue
from recollect.errors import FlowError

__all__ = ["Heard", "Move", "Moved", "Ran", "Rejected", "RunTool", "Step", "move", "retry_condition"]

Verdict = tuple[str, str]
"""What to do at a state ("leave", "speak" or "fail"), and why."""


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
        choice = choose(routes, session, heard.scores, thresholds)
    session, is_new = _into(choice.route, session, now)
    session, changed = _taken_in(session, choice.route, heard, now)
    if choice.route is None:
        return Moved(session, choice=choice)
    walk = _Walk(choice.route, session, heard, now, changed, comes_back=is_new, decides=decides)
    moved = yield from walk.walk()
    return replace(moved, choice=choice, changed=changed)


def _current(routes: Mapping[str, Route], session: SessionState) -> Route | None:
    return None if session.current_route is None else routes.get(session.current_route.id)


def _into(route: Route | None, session: SessionState, now: datetime) -> tuple[SessionState, bool]:
    """The session in the chosen route, and whether it was in another one."""
    current = session.current_route
    if route is None:
        return leave_route(session, at=now), False
    if current is not None and current.id == route.id:
        return session, False
    return enter_route(session, route.id, route.title, initial_data=route.initial_data, at=now), True


def _taken_in(
    session: SessionState, route: Route | None, heard: Heard, now: datetime
) -> tuple[SessionState, tuple[str, ...]]:
    """The session with what was said of this route and of those that were left; and which known values changed."""
    left = {
        id: replace(kept, extracted=_updated(kept.extracted, heard, id))
        if id in heard.data or id in heard.forgotten
        else kept
        for id, kept in session.left.items()
    }
    if route is None:
        return replace(session, left=left), ()
    known = session.extracted
    updated = _updated(known, heard, route.id)
    changed = tuple(name for name in known if name not in updated or updated[name] != known[name])
    if updated == known and left == session.left:
        return session, ()
    metadata = {**session.metadata, "last_updated_at": now}
    return replace(session, extracted=updated, left=left, metadata=metadata), changed


def _updated(known: Mapping[str, Any], heard: Heard, route_id: str) -> dict[str, Any]:
    forgotten = heard.forgotten.get(route_id, ())
    return {name: value for name, value in known.items() if name not in forgotten} | dict(heard.data.get(route_id, {}))


class _Walk:
    """One walk along a route, from where it stands to the state that speaks."""

    def __init__(
        self,
        route: Route,
        session: SessionState,
        heard: Heard,
        now: datetime,
        changed: Sequence[str],
        *,
        comes_back: bool,
        decides: bool,
    ) -> None:
        self._route = route
        self._session = session
        self._heard = heard
        self._now = now
        self._changed = changed
        self._comes_back = comes_back
        self._decides = decides
        self._reuses = False
        self._visited: set[str] = set()
        self._steps: list[Step] = []
        self._ran: list[tuple[State, ToolRun]] = []

    def walk(self) -> Move:
        verb, state, why = self._first()
        while True:
            if verb == "arrive":
                verb, why = yield from self._arrive(state)
            if verb == "speak":
                return self._speaks(state, why)
            way, reason = self._way_out(state, after_error=verb == "fail")
            if way is None:
                return self._speaks(state, why if verb == "fail" else reason)
            end = way.end()
            if end is END_ROUTE:
                return self._ended(state, reason)
            assert isinstance(end, State)
            if end.id in self._visited:
                return self._speaks(state, f"{end.title!r} was walked through before in this turn")
            verb, state = "arrive", end

    def _first(self) -> tuple[str, State, str]:
        """Where the walk begins: at a state to arrive at, to leave, or to speak."""
        route, current = self._route, self._session.current_state
        here = None if current is None else route.state(current.id)
        if here is None:
            self._note(route.initial_state)
            return "leave", route.initial_state, "the route begins"
        if self._decides:
            return "arrive", here, "a decision was taken"
        back = self._back()
        if back is not None:
            return back
        if here.kind == "tool":
            return self._parked(here)
        if here.kind == "start":
            return "leave", here, "the route begins"
        missing = self._missing(here)
        if missing:
            return "speak", here, f"still needs {', '.join(missing)}"
        if not here.gather and self._changed:
            return "speak", here, f"{', '.join(self._changed)} was corrected"
        if not here.gather and self._comes_back:
            return "speak", here, "the route is taken up again"
        return "leave", here, "it was answered"

    def _parked(self, here: State) -> tuple[str, State, str]:
        """A tool that failed, waits, or had no way out."""
        run = self._session.progress.runs.get(here.id)
        arguments = self._arguments(here)
        if any(each.state_id == here.id for each in self._session.waiting):
            if run is not None and run.arguments == arguments:
                return "speak", here, "its call waits for a decision"
            return "arrive", here, "it is to run with other values"
        if run is None:
            return "arrive", here, "it has not run"
        if run.error is None:
            return "leave", here, "it has run"
        if run.arguments != arguments:
            return "arrive", here, "it is to run with other values"
        if retry_condition(here) in self._heard.holds:
            return "arrive", here, "the user wants to try again"
        return "fail", here, run.error

    def _back(self) -> tuple[str, State, str] | None:
        """The first state of the path that what was corrected concerns: it is walked again from there."""
        if not self._changed:
            return None
        path = self._session.progress.path
        states = [self._route.state(id) for id in path]
        for index, state in enumerate(states):
            if state is None:
                continue
            after = states[index + 1] if index + 1 < len(states) else None
            if self._is_concerned(state):
                return self._rewound(index, "arrive", state)
            if after is not None and self._is_misled(state, after):
                return self._rewound(index + 1, "leave", state)
        return None

    def _rewound(self, index: int, verb: str, state: State) -> tuple[str, State, str]:
        path = self._session.progress.path[:index]
        self._session = replace(self._session, progress=replace(self._session.progress, path=path), waiting=())
        self._reuses = True
        return verb, state, f"{', '.join(self._changed)} was corrected"

    def _is_concerned(self, state: State) -> bool:
        if state.kind == "tool":
            run = self._session.progress.runs.get(state.id)
            if run is None or (not state.repeat and run.error is None):
                return False
            arguments = self._arguments(state)
            return any(arguments.get(name) != value for name, value in run.arguments.items())
        return bool(self._missing(state))

    def _is_misled(self, state: State, after: State) -> bool:
        """Whether code would now choose another way than the one that was taken."""
        taken = next((way for way in state.transitions if way.end() is after), None)
        if taken is None or taken.on_error or isinstance(taken.condition, str):
            return False
        now = next((way for way in state.transitions if callable(way.condition) and self._holds(way)), None)
        return taken is not now if now is not None else callable(taken.condition)

    def _arrive(self, state: State) -> Generator[RunTool, Ran, Verdict]:
        self._visited.add(state.id)
        self._note(state)
        if state.skip_if is not None and not self._decides:
            if self._ask(state, "skip_if", state.skip_if):
                self._step(state, "skipped", "skip_if says so")
                return "leave", ""
        elif state.kind == "chat" and state.gather and not self._open(state):
            self._step(state, "skipped", f"{', '.join(state.gather)} is known")
            return "leave", ""
        if state.kind == "tool":
            return (yield from self._run(state))
        wanted = self._open(state)
        return "speak", f"asks for {', '.join(wanted)}" if wanted else "it is next"

    def _run(self, state: State) -> Generator[RunTool, Ran, Verdict]:
        decided = next((each for each in self._session.waiting if each.state_id == state.id), None)
        arguments = decided.call.input if self._decides and decided is not None else self._arguments(state)
        before = self._session.progress.runs.get(state.id)
        if (
            self._reuses
            and before is not None
            and before.error is None
            and (before.arguments == arguments or not state.repeat)
        ):
            self._step(state, "kept", "it ran before with the same values")
            return "leave", ""
        ran = yield RunTool(state, arguments, self._session)
        self._decides = False
        run = ran.run
        if ran.waiting is not None:
            self._keep_run(state, run, (ran.waiting,))
            self._step(state, "waits", "a person must decide")
            return "speak", "its call waits for a decision"
        if run.error is None:
            run = self._merged(state, ran)
        self._ran.append((state, run))
        self._keep_run(state, run, ())
        self._step(state, "ran" if run.error is None else "failed", run.error or "it was reached")
        return ("leave", "") if run.error is None else ("fail", f"{run.tool} failed")

    def _merged(self, state: State, ran: Ran) -> ToolRun:
        """Take over what a tool gives; what does not fit the schema makes it a failure."""
        given = dict(ran.data)
        if state.save_as is not None:
            given.setdefault(state.save_as, ran.value)
        data = dict(self._session.extracted)
        for name, value in given.items():
            if value is None:
                data.pop(name, None)
                continue
            try:
                data[name] = self._route.gathering.check(name, value)
            except InvalidValue as problem:
                return replace(ran.run, error=f"{ran.run.tool} gave a value that does not fit: {name}: {problem}")
        context = {**self._session.context, **ran.context}
        self._session = replace(self._session, extracted=data, context=context)
        return ran.run

    def _way_out(self, state: State, *, after_error: bool) -> tuple[Transition | None, str]:
        """The way to take, and why; or why there is none."""
        otherwise: Transition | None = None
        blocked: list[str] = []
        for way in state.transitions:
            if way.on_error != after_error or (otherwise is not None and way.condition is None):
                continue
            if way.condition is not None and not self._holds(way):
                continue
            end = way.end()
            missing = [name for name in end.required_data if name not in self._data] if isinstance(end, State) else []
            if missing:
                blocked += missing
            elif way.condition is None:
                otherwise = way
            else:
                return way, _reason(way)
        if otherwise is not None:
            return otherwise, "it is next"
        if blocked:
            return None, f"what comes next needs {', '.join(dict.fromkeys(blocked))}"
        return None, "no way leads on from here" if not state.transitions else "no condition to go on holds"

    def _holds(self, way: Transition) -> bool:
        if isinstance(way.condition, str):
            return way.condition in self._heard.holds
        assert way.condition is not None
        return self._ask(way.source, "a condition", way.condition)

    def _ask(self, state: State, what: str, question: Any) -> bool:
        try:
            return bool(question(MappingProxyType(dict(self._data))))
        except Exception as error:
            raise FlowError(state.place, f"{what} raised {type(error).__name__}: {error}") from error

    def _arguments(self, state: State) -> dict[str, Any]:
        """The tool's arguments, as JSON has them."""
        assert state.tool is not None
        data = self._data
        if callable(state.arguments):
            try:
                given: Mapping[str, Any] = dict(state.arguments(MappingProxyType(dict(data))))
            except Exception as error:
                raise FlowError(state.place, f"arguments raised {type(error).__name__}: {error}") from error
        elif state.arguments is not None:
            given = {name: data[of] for name, of in state.arguments.items() if of in data}
        else:
            given = {name: data[name] for name in state.tool.parameters.get("properties", {}) if name in data}
        return self._route.gathering.plain(given)

    def _missing(self, state: State) -> tuple[str, ...]:
        fields = self._route.gathering.fields
        return tuple(name for name in state.gather if name not in self._data and fields[name].needed)

    def _open(self, state: State) -> tuple[str, ...]:
        """What a state would ask for: what it needs, and what it has not asked for yet."""
        asked = state.id in self._session.progress.spoken
        fields = self._route.gathering.fields
        return tuple(name for name in state.gather if name not in self._data and (fields[name].needed or not asked))

    @property
    def _data(self) -> Mapping[str, Any]:
        return self._session.extracted

    def _note(self, state: State) -> None:
        """Add a state to the path; one that is walked again has its place at the end."""
        progress = self._session.progress
        path = (*(id for id in progress.path if id != state.id), state.id)
        self._session = replace(self._session, progress=replace(progress, path=path))

    def _keep_run(self, state: State, run: ToolRun, waiting: tuple[WaitingCall, ...]) -> None:
        progress = self._session.progress
        runs = {**progress.runs, state.id: run}
        self._session = replace(self._session, progress=replace(progress, runs=runs), waiting=waiting)

    def _step(self, state: State, action: str, why: str) -> None:
        self._steps.append(Step(state.id, state.title, action, why))

    def _speaks(self, state: State, why: str) -> Moved:
        self._step(state, "speaks", why)
        session, current = self._session, self._session.current_state
        if current is None or current.id != state.id:
            session = enter_state(session, state.id, state.title, at=self._now)
        if state.id not in session.progress.spoken:
            spoken = (*session.progress.spoken, state.id)
            session = replace(session, progress=replace(session.progress, spoken=spoken))
        missing = tuple(name for name in state.gather if name not in session.extracted)
        return self._moved(session, state=state, missing=missing)

    def _ended(self, state: State, why: str) -> Moved:
        self._step(state, "ended", why)
        return self._moved(leave_route(self._session, completed=True, at=self._now), ended=True)

    def _moved(self, session: SessionState, **more: Any) -> Moved:
        return Moved(session, self._route, walked=tuple(self._steps), ran=tuple(self._ran), **more)


def retry_condition(state: State) -> str:
    """What the user must want for a tool that failed to be run again."""
    return f"the user wants to try this again: {state.title}"


def _reason(way: Transition) -> str:
    return f"{way.condition!r} holds" if isinstance(way.condition, str) else "its condition holds"
