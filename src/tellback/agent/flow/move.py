"""`move`: apply an interpreted message, and walk the chosen route to the state that speaks next.

Pure code: a generator that yields each tool to run and receives the result. Every turn walks the route from its start
with the current data, so a correction leads to the same state as if the user had stated the value first. A walk enters
a state at most twice, so it always ends."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

from tellback.agent.definitions.route import Route
from tellback.agent.definitions.state import END_ROUTE, State, Transition
from tellback.agent.definitions.value_parser import InvalidValue
from tellback.agent.flow.route_choice import (
    DEFAULT_THRESHOLDS,
    NO_ROUTE_CHOICE,
    RouteChoice,
    Thresholds,
    choose_route,
    find_current_route,
)
from tellback.agent.sessions.session import (
    PendingCall,
    RouteProgress,
    SessionState,
    ToolRun,
    enter_route,
    enter_state,
    leave_route,
)
from tellback.errors import FlowError


@dataclass(frozen=True, slots=True)
class RejectedValue:
    """A stated value that does not fit the schema; it is not stored, and the agent explains why to the user.

    >>> import asyncio
    >>> from tellback.agent import Agent
    >>> from tellback.testing import ScriptedModel, says, understands
    >>> schema = {"type": "object", "properties": {"guests": {"type": "integer", "maximum": 8}}}
    >>> agent = Agent("Wanda", model=ScriptedModel([understands(guests=20), says("At most 8, sorry.")]))
    >>> route = agent.create_route("Book a table", gather_schema=schema)
    >>> ask = route.initial_state.transition_to(chat_state="Ask how many", gather=["guests"])
    >>> [rejected] = asyncio.run(agent.respond("A table for 20")).trace.rejected
    >>> rejected.field, rejected.value
    ('guests', 20)
    """

    field: str
    value: Any
    problem: str
    route_id: str = ""


@dataclass(frozen=True, slots=True)
class Interpretation:
    """The parsed meaning of a user's message: `scores` by route (None if no routes were scored), values and fields to
    clear by route, and the texts of the conditions that are true. `user_spoke` is False if there was no message.

    >>> understood = Interpretation(scores={"book": 90}, data={"book": {"to": "Rome"}}, forgotten={"book": ["day"]})
    >>> understood.data["book"], understood.user_spoke
    ({'to': 'Rome'}, True)
    """

    scores: Mapping[str, float] | None = None
    data: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    forgotten: Mapping[str, Sequence[str]] = field(default_factory=dict)
    true_conditions: frozenset[str] = frozenset()
    rejected: tuple[RejectedValue, ...] = ()
    user_spoke: bool = True


@dataclass(frozen=True, slots=True)
class ToolRunRequest:
    """A tool to run, with its arguments from the gathered data."""

    state: State
    arguments: Mapping[str, Any]
    session: SessionState


@dataclass(frozen=True, slots=True)
class ToolRunResult:
    """The result of a state's tool. `value` is the return value; `data` and `context` are merged, and None removes a
    field. With `pending` the tool has not run: it needs a person's approval."""

    run: ToolRun
    value: Any = None
    data: Mapping[str, Any] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)
    pending: PendingCall | None = None


@dataclass(frozen=True, slots=True)
class WalkStep:
    """One step of a walk: the action at a state ("skipped", "ran", "kept", "failed", "waits", "speaks" or "ended"),
    and the reason."""

    state_id: str
    state: str
    action: str
    why: str


@dataclass(frozen=True, slots=True)
class MoveResult:
    """The result of a move. `state` of `route` speaks next; with `ended` the route was completed and no state speaks.
    `missing` are fields that the state still needs.

    >>> from datetime import UTC, datetime
    >>> from tellback.agent import Route, create_session
    >>> schema = {"type": "object", "properties": {"to": {"type": "string"}, "day": {"type": "string"}}}
    >>> route = Route("Book a flight", gather_schema=schema)
    >>> ask = route.initial_state.transition_to(chat_state="Ask where to and when", gather=["to", "day"])
    >>> understood = Interpretation(data={route.id: {"to": "Rome"}})
    >>> try:
    ...     next(move({route.id: route}, create_session(), understood, datetime.now(UTC)))
    ... except StopIteration as end:
    ...     result = end.value
    >>> result.state.title, result.missing, result.session.extracted
    ('Ask where to and when', ('day',), {'to': 'Rome'})
    """

    session: SessionState
    route: Route | None = None
    state: State | None = None
    ended: bool = False
    choice: RouteChoice = NO_ROUTE_CHOICE
    walked: tuple[WalkStep, ...] = ()
    tool_runs: tuple[tuple[State, ToolRun], ...] = ()
    missing: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


MoveGenerator = Generator[ToolRunRequest, ToolRunResult, MoveResult]
Verdict = tuple[str, str]
"""The action at a state ("leave", "speak" or "fail"), and the reason."""


def undo_tool_data(
    route: Route, runs: Iterable[ToolRun], data: Mapping[str, Any], stated: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the data as it was before these runs; keep values that the user stated later or in this message."""
    for run in reversed(list(runs)):
        data = _replace_values(route, data, stated, run.changed_values, run.previous_values)
    return data


def reapply_tool_data(
    route: Route, run: ToolRun, data: Mapping[str, Any], stated: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the data with the values that a run set; keep values that the user stated later."""
    before = {name: run.previous_values.get(name) for name in run.changed_values}
    given = {name: value for name, value in run.changed_values.items() if value is not None}
    return _replace_values(route, data, stated, before, given)


def _replace_values(
    route: Route, data: Mapping[str, Any], stated: Mapping[str, Any], old: Mapping[str, Any], new: Mapping[str, Any]
) -> dict[str, Any]:
    """Replace old values by new ones; keep values that the user or a later tool has changed."""
    result = dict(data)
    plain = route.schema.plain({name: data[name] for name in old if name in data})
    for name, value in old.items():
        if plain.get(name) == value and name not in stated:
            if name in new:
                result[name] = _to_typed(route, name, new[name])
            else:
                result.pop(name, None)
    return result


def _to_typed(route: Route, name: str, value: Any) -> Any:
    try:
        return route.schema.check(name, value)
    except InvalidValue:  # the schema has changed
        return value


def retry_condition(state: State) -> str:
    """The condition under which a failed tool runs again, in words for the model."""
    return f"the user wants to try this again: {state.title}"


class RouteWalk:
    """A walk through a route in one turn. `changed` are known values that the user corrected or took back."""

    def __init__(
        self,
        route: Route,
        session: SessionState,
        interpretation: Interpretation,
        now: datetime,
        changed: Sequence[str],
        *,
        returns_to_route: bool,
        after_decision: bool,
    ) -> None:
        self._route = route
        self._session = session
        self._interpretation = interpretation
        self._now = now
        self._changed = changed
        self._returns_to_route = returns_to_route
        self._after_decision = after_decision
        current = session.current_state
        self._current_state = None if current is None else route.state(current.id)
        self._stated = interpretation.data.get(route.id, {})
        self._rejected = [each.field for each in interpretation.rejected if each.route_id in ("", route.id)]
        self._passed_ids = {
            id for id in session.progress.path if self._current_state is None or id != self._current_state.id
        }
        self._has_run_tool = False
        self._has_looped = False
        self._missing_for_next: tuple[str, ...] = ()
        self._visited: set[str] = set()
        self._steps: list[WalkStep] = []
        self._tool_runs: list[tuple[State, ToolRun]] = []

    def walk(self) -> Generator[ToolRunRequest, ToolRunResult, MoveResult]:
        """Walk to the state that speaks; yield the tools to run."""
        state, verb, why = self._start()
        while True:
            if verb == "arrive":
                verb, why = yield from self._arrive(state)
            if verb == "speak":
                return self._stop_at(state, why)
            transition, reason = self._choose_transition(state, after_error=verb == "fail")
            if transition is None:
                return self._stop_at(state, why if verb == "fail" else reason)
            target = transition.resolve_target()
            if target is END_ROUTE and self._rejected:
                return self._stop_at(state, f"{', '.join(self._rejected)} was rejected")
            self._leave(state, transition)
            if target is END_ROUTE:
                return self._complete(state, reason)
            assert isinstance(target, State)
            if target.id in self._visited and not self._may_loop(state):
                return self._stop_at(state, f"{target.title!r} was already passed in this turn")
            if target.id in self._visited:
                self._start_over(target)
            state, verb = target, "arrive"

    def _start(self) -> tuple[State, str, str]:
        """Return where the walk begins: at the start, or after a decision at the state that waited for it."""
        if self._after_decision and self._current_state is not None:
            return self._current_state, "arrive", "a waiting call was decided"
        self._reopen()
        data = undo_tool_data(self._route, self._session.progress.runs.values(), self._data, self._stated)
        self._session = replace(self._session, extracted=data)
        self._update_progress(path=())
        start = self._route.initial_state
        self._visited.add(start.id)
        self._append_to_path(start)
        return start, "leave", "the route begins"

    def _reopen(self) -> None:
        """Let the states ask again for the fields that the user took back."""
        taken_back = {name for name in self._changed if name not in self._data}
        spoken = self._session.progress.spoken
        if taken_back:
            asking_ids = {state.id for state in self._route.states if taken_back & set(state.gather)}
            self._update_progress(spoken=tuple(id for id in spoken if id not in asking_ids))

    def _arrive(self, state: State) -> Generator[ToolRunRequest, ToolRunResult, Verdict]:
        self._visited.add(state.id)
        if state.skip_if is not None and not self._after_decision and self._evaluate(state, "skip_if", state.skip_if):
            if state.kind != "tool":  # a skipped tool state drops out of the path
                self._append_to_path(state)
            self._add_step(state, "skipped", "skip_if is true")
            return "leave", ""
        self._append_to_path(state)
        if state.kind == "tool":
            return (yield from self._run_tool(state))
        missing = self._missing_fields(state)
        if state is self._current_state and not self._has_looped:
            return self._judge_answer(state, missing)
        if missing:
            return "speak", f"asks for {', '.join(missing)}"
        if state.gather and state.skip_if is None:
            self._add_step(state, "skipped", f"{', '.join(state.gather)} is known")
            return "leave", ""
        if state.id in self._session.progress.answered:
            self._add_step(state, "skipped", "it was answered before")
            return "leave", ""
        return "speak", "it is next"

    def _judge_answer(self, state: State, missing: Sequence[str]) -> Verdict:
        """Whether the user's message answers the state that spoke last."""
        if missing:
            return "speak", f"still needs {', '.join(missing)}"
        if not self._interpretation.user_spoke:
            return "speak", "the user has not answered it"
        if state.gather:
            return "leave", "it was answered"
        if self._rejected:
            return "speak", f"{', '.join(self._rejected)} was rejected"
        if self._returns_to_route:
            return "speak", "the route is resumed"
        if self._has_run_tool:
            return "speak", "a tool ran again before it"
        if self._changed and not any(self._leads_to_chat(transition) for transition in state.transitions):
            return "speak", f"{', '.join(self._changed)} was corrected"
        return "leave", "it was answered"

    def _leads_to_chat(self, transition: Transition) -> bool:
        """Whether the message chose this transition in words, and its target is a state that speaks."""
        target = transition.resolve_target()
        return (
            transition.condition in self._interpretation.true_conditions
            and isinstance(target, State)
            and target.kind == "chat"
        )

    def _run_tool(self, state: State) -> Generator[ToolRunRequest, ToolRunResult, Verdict]:
        pending = self._find_pending_call(state)
        gathered = self._build_arguments(state)
        after_decision, self._after_decision = self._after_decision and pending is not None, False
        if not after_decision:
            reused = self._reuse_earlier_run(state, gathered, pending)
            if reused is not None:
                return reused
            if self._rejected:
                return "speak", f"{', '.join(self._rejected)} was rejected"
        arguments = pending.call.input if after_decision and pending is not None else gathered
        result = yield ToolRunRequest(state, arguments, self._session)
        # The states after this tool speak about its new result.
        self._has_run_tool = True
        progress = self._session.progress
        self._update_progress(answered=tuple(id for id in progress.answered if id in self._visited))
        if result.pending is not None:
            self._session = replace(self._session, pending_calls=(result.pending,))
            self._add_step(state, "waits", "its call needs approval")
            return "speak", "its call waits for approval"
        run = replace(
            result.run if result.run.error is not None else self._apply_tool_data(state, result),
            gathered_arguments=gathered,
        )
        self._tool_runs.append((state, run))
        self._update_progress(runs={**self._session.progress.runs, state.id: run})
        self._session = replace(self._session, pending_calls=())
        self._add_step(state, "ran" if run.error is None else "failed", run.error or "the route reached this state")
        return ("leave", "") if run.error is None else ("fail", f"{run.tool} failed")

    def _reuse_earlier_run(
        self, state: State, gathered: Mapping[str, Any], pending: PendingCall | None
    ) -> Verdict | None:
        """Return the verdict of an earlier run if the tool must not run now, else None."""
        if pending is not None and pending.call.input == gathered:
            return "speak", "its call waits for approval"
        this_turn = next((run for each, run in self._tool_runs if each is state), None)  # a tool runs once in a turn
        earlier = this_turn or self._session.progress.runs.get(state.id)
        if earlier is None:
            return None
        runs_once = this_turn is not None or (not state.repeat and (earlier.error is None or earlier.has_acted))
        if earlier.gathered_arguments != gathered and not runs_once:
            return None
        if earlier.error is not None:
            if retry_condition(state) in self._interpretation.true_conditions and not runs_once:
                return None
            return "fail", earlier.error
        data = reapply_tool_data(self._route, earlier, self._data, self._stated)
        self._session = replace(self._session, extracted=data)
        self._add_step(
            state, "kept", "it has run and must not run again" if runs_once else "it ran with the same arguments"
        )
        return "leave", ""

    def _apply_tool_data(self, state: State, result: ToolRunResult) -> ToolRun:
        """Merge a tool's values into the data. If a value does not fit, return a failed run with `has_acted`."""
        values = dict(result.data)
        if state.save_as is not None:
            values.setdefault(state.save_as, result.value)
        schema, data = self._route.schema, dict(self._data)
        for name, value in values.items():
            if value is None:
                data.pop(name, None)
                continue
            try:
                data[name] = schema.check(name, value)
            except InvalidValue as problem:
                error = f"{result.run.tool} returned a value that does not fit: {name}: {problem}"
                return replace(result.run, error=error, has_acted=True)
        previous = schema.plain({name: self._data[name] for name in values if name in self._data})
        changed = schema.plain({name: data.get(name) for name in values})
        self._session = replace(self._session, extracted=data, context={**self._session.context, **result.context})
        return replace(result.run, changed_values=changed, previous_values=previous)

    def _choose_transition(self, state: State, *, after_error: bool) -> tuple[Transition | None, str]:
        """Return the transition to take and the reason, or None and the reason why none applies."""
        otherwise: Transition | None = None
        blocked: list[str] = []
        for transition in state.transitions:
            if transition.on_error != after_error or (otherwise is not None and transition.condition is None):
                continue
            if transition.condition is not None and not self._condition_holds(transition):
                continue
            target = transition.resolve_target()
            missing = (
                [name for name in target.required_data if name not in self._data] if isinstance(target, State) else []
            )
            if missing:
                blocked += missing
            elif transition.condition is None:
                otherwise = transition
            else:
                return transition, _transition_reason(transition)
        if otherwise is not None:
            return otherwise, "it is next"
        self._missing_for_next = tuple(dict.fromkeys(blocked))
        if blocked:
            return None, f"the next state needs {', '.join(self._missing_for_next)}"
        return None, "it has no transitions" if not state.transitions else "no transition's condition is true"

    def _condition_holds(self, transition: Transition) -> bool:
        if isinstance(transition.condition, str):
            if transition.source.id in self._passed_ids:  # chosen earlier; the message is about the current state
                return self._session.progress.ways.get(transition.source.id) == transition.condition
            return transition.condition in self._interpretation.true_conditions
        assert transition.condition is not None
        return self._evaluate(transition.source, "a condition", transition.condition)

    def _evaluate(self, state: State, what: str, function: Any) -> bool:
        try:
            answer = function(MappingProxyType(dict(self._data)))
        except Exception as error:
            raise FlowError(state.place, f"{what} raised {type(error).__name__}: {error}") from error
        if inspect.isawaitable(answer):
            raise FlowError(state.place, f"{what} is async: pass a synchronous function.")
        return bool(answer)

    def _build_arguments(self, state: State) -> dict[str, Any]:
        """Return the tool's arguments as JSON values."""
        assert state.tool is not None
        data = self._data
        if callable(state.arguments):
            try:
                arguments: Mapping[str, Any] = dict(state.arguments(MappingProxyType(dict(data))))
            except Exception as error:
                raise FlowError(state.place, f"arguments raised {type(error).__name__}: {error}") from error
        elif state.arguments is not None:
            arguments = {name: data[field] for name, field in state.arguments.items() if field in data}
        else:
            arguments = {name: data[name] for name in state.tool.parameters.get("properties", {}) if name in data}
        return self._route.schema.plain(arguments)

    def _missing_fields(self, state: State) -> tuple[str, ...]:
        """Return the fields to ask for: required ones, optional ones not asked for yet, and rejected ones."""
        has_spoken = state.id in self._session.progress.spoken
        fields = self._route.schema.fields
        return tuple(
            name
            for name in state.gather
            if name not in self._data and (fields[name].required or not has_spoken or name in self._rejected)
        )

    def _find_pending_call(self, state: State) -> PendingCall | None:
        return next((each for each in self._session.pending_calls if each.state_id == state.id), None)

    @property
    def _data(self) -> Mapping[str, Any]:
        return self._session.extracted

    def _update_progress(self, **changes: Any) -> None:
        self._session = replace(self._session, progress=replace(self._session.progress, **changes))

    def _append_to_path(self, state: State) -> None:
        self._update_progress(path=(*(id for id in self._session.progress.path if id != state.id), state.id))

    def _leave(self, state: State, transition: Transition) -> None:
        """Store that the state was answered, and the chosen condition in words: later messages do not repeat it."""
        progress = self._session.progress
        ways = {id: words for id, words in progress.ways.items() if id != state.id}
        if isinstance(transition.condition, str):
            ways[state.id] = transition.condition
        answered = progress.answered
        if state.kind == "chat" and state.id in progress.spoken and state.id not in answered:
            answered = (*answered, state.id)
        self._update_progress(ways=ways, answered=answered)
        forgotten = [name for name in transition.forgets if name not in self._stated]
        if forgotten and state.id not in self._passed_ids:
            data = {name: value for name, value in self._data.items() if name not in forgotten}
            self._session = replace(self._session, extracted=data)

    def _may_loop(self, state: State) -> bool:
        """Whether the walk may return to a passed state: once, and only from the state the user just answered."""
        return state is self._current_state and state.kind == "chat" and not self._has_looped

    def _start_over(self, state: State) -> None:
        """Reset the progress from this state on: its states speak and run once more, with all known data."""
        self._has_looped = True
        progress = self._session.progress
        index = progress.path.index(state.id) if state.id in progress.path else len(progress.path)
        removed = set(progress.path[index:])
        self._visited -= removed
        self._passed_ids -= removed
        self._update_progress(
            path=progress.path[:index],
            spoken=tuple(id for id in progress.spoken if id not in removed),
            answered=tuple(id for id in progress.answered if id not in removed),
            runs={id: run for id, run in progress.runs.items() if id not in removed},
            ways={id: words for id, words in progress.ways.items() if id not in removed},
        )

    def _add_step(self, state: State, action: str, why: str) -> None:
        # A repeated step is only reported if a tool has run in this turn.
        if self._has_run_tool or state.id not in self._passed_ids or action not in ("skipped", "kept"):
            self._steps.append(WalkStep(state.id, state.title, action, why))

    def _stop_at(self, state: State, why: str) -> MoveResult:
        self._add_step(state, "speaks", why)
        missing = self._missing_fields(state) or tuple(
            name for name in self._missing_for_next if name in self._route.gatherable
        )
        session, current = self._session, self._session.current_state
        if current is None or current.id != state.id:
            session = enter_state(session, state.id, state.title, at=self._now)
        progress: RouteProgress = session.progress
        if state.id not in progress.spoken:
            progress = replace(progress, spoken=(*progress.spoken, state.id))
        progress = replace(progress, answered=tuple(id for id in progress.answered if id != state.id))
        pending_calls = tuple(each for each in session.pending_calls if each.state_id == state.id)
        return self._build_result(
            replace(session, progress=progress, pending_calls=pending_calls), state=state, missing=missing
        )

    def _complete(self, state: State, why: str) -> MoveResult:
        self._add_step(state, "ended", why)
        return self._build_result(leave_route(self._session, completed=True, at=self._now), ended=True)

    def _build_result(self, session: SessionState, **more: Any) -> MoveResult:
        return MoveResult(session, self._route, walked=tuple(self._steps), tool_runs=tuple(self._tool_runs), **more)


def _transition_reason(transition: Transition) -> str:
    return f"{transition.condition!r} is true" if isinstance(transition.condition, str) else "its condition is true"


def move(
    routes: Mapping[str, Route],
    session: SessionState,
    interpretation: Interpretation,
    now: datetime,
    *,
    thresholds: Thresholds = DEFAULT_THRESHOLDS,
    after_decision: bool = False,
) -> MoveGenerator:
    """Choose the route, apply the stated values, and walk to the state that speaks next.

    With `after_decision` a waiting call of the current state has been decided: the walk continues from it.

    The generator yields the tools to run. Its return value is a `MoveResult`.

    >>> from datetime import UTC, datetime
    >>> from tellback.agent import Route, create_session
    >>> def search_flights(to: str) -> list[str]:
    ...     return [f"TP1 to {to}"]
    >>> schema = {"type": "object", "properties": {"to": {"type": "string"}}}
    >>> route = Route("Book a flight", gather_schema=schema)
    >>> ask = route.initial_state.transition_to(chat_state="Ask where to", gather=["to"])
    >>> search = ask.transition_to(tool_state=search_flights)
    >>> understood = Interpretation(data={route.id: {"to": "Rome"}})
    >>> request = next(move({route.id: route}, create_session(), understood, datetime.now(UTC)))
    >>> request.state.title, request.arguments
    ('search_flights', {'to': 'Rome'})
    """
    if after_decision:
        choice = RouteChoice(find_current_route(routes, session), "a waiting call was decided")
    else:
        choice = choose_route(routes, session, interpretation.scores, thresholds, interpretation.true_conditions)
    route, previous = choice.route, session
    session = _enter_chosen_route(route, session, now)
    if route is None and previous.current_route is not None and previous.current_route.id in session.paused_routes:
        id = previous.current_route.id
        session = replace(
            session,
            paused_routes={
                **session.paused_routes,
                id: replace(session.paused_routes[id], dropped=True, pending_calls=()),
            },
        )
    if route is not None:
        session = _with_initial_data(route, session)
    session, changed = _apply_values(session, route, interpretation, now)
    if route is None:
        return MoveResult(session, choice=choice)
    returns_to_route = session.current_route is not previous.current_route
    session = _remember_forgotten(session, interpretation, route.id)
    if returns_to_route and route.id in previous.paused_routes:  # corrections made meanwhile apply now
        changed = tuple(dict.fromkeys((*previous.paused_routes[route.id].changed, *changed)))
    walk = RouteWalk(
        route, session, interpretation, now, changed, returns_to_route=returns_to_route, after_decision=after_decision
    )
    moved = yield from walk.walk()
    return replace(moved, choice=choice, changed=changed)


def _with_initial_data(route: Route, session: SessionState) -> SessionState:
    """Add the route's initial data to a session that the application put into the route."""
    if session.progress.path or not route.initial_data:
        return session
    return replace(session, extracted={**copy.deepcopy(route.initial_data), **session.extracted})


def _enter_chosen_route(route: Route | None, session: SessionState, now: datetime) -> SessionState:
    """Return the session in the chosen route."""
    current = session.current_route
    if route is None:
        return leave_route(session, at=now)
    if current is not None and current.id == route.id:
        return session
    return enter_route(session, route.id, route.title, initial_data=route.initial_data, at=now)


def _apply_values(
    session: SessionState, route: Route | None, interpretation: Interpretation, now: datetime
) -> tuple[SessionState, tuple[str, ...]]:
    """Apply stated values to this route and to paused ones; return the session and the names of changed values."""
    paused_routes = dict(session.paused_routes)
    for id in paused_routes.keys() & {*interpretation.data, *interpretation.forgotten}:
        paused = paused_routes[id]
        extracted, corrected = _merge_values(paused.extracted, interpretation, id)
        paused_routes[id] = replace(
            paused,
            extracted=extracted,
            changed=tuple(dict.fromkeys((*paused.changed, *corrected))),
            pending_calls=() if corrected else paused.pending_calls,  # the call was made with outdated values
        )
    if route is None:
        return replace(session, paused_routes=paused_routes), ()
    extracted, changed = _merge_values(session.extracted, interpretation, route.id)
    if extracted == session.extracted and paused_routes == session.paused_routes:
        return session, ()
    metadata = {**session.metadata, "last_updated_at": now}
    return replace(session, extracted=extracted, paused_routes=paused_routes, metadata=metadata), changed


def _remember_forgotten(session: SessionState, interpretation: Interpretation, route_id: str) -> SessionState:
    """Store which fields the user took back, so that their values are not read from earlier messages again."""
    progress = session.progress
    names = dict.fromkeys((*progress.forgotten, *interpretation.forgotten.get(route_id, ())))
    forgotten = tuple(name for name in names if name not in session.extracted)
    if forgotten == progress.forgotten:
        return session
    return replace(session, progress=replace(progress, forgotten=forgotten))


def _merge_values(
    known: Mapping[str, Any], interpretation: Interpretation, route_id: str
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the known data merged with the stated values, and the names of known fields that changed."""
    forgotten = interpretation.forgotten.get(route_id, ())
    updated = {name: value for name, value in known.items() if name not in forgotten}
    updated |= interpretation.data.get(route_id, {})
    return updated, tuple(name for name in known if name not in updated or updated[name] != known[name])
