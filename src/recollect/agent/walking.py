"""One walk along a route, from where it stands to the state that speaks next.

What was corrected, or adds to what a tool was given, is followed by walking the route once more from its start with the
data as it is now: what was answered is passed, what was chosen in words stays chosen, and a tool that ran with the same
values is not run again. So a correction ends where the route would stand if it had been said so in the first place.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

from recollect.agent.moves import Heard, Moved, Ran, RunTool, Step
from recollect.agent.route import Route
from recollect.agent.session import SessionState, ToolRun, WaitingCall, enter_state, leave_route
from recollect.agent.state import END_ROUTE, State, Transition
from recollect.agent.value_reading import InvalidValue
from recollect.errors import FlowError

Verdict = tuple[str, str]
"""What to do at a state ("leave", "speak" or "fail"), and why."""


def retry_condition(state: State) -> str:
    """What the user must want for a tool that failed to be run again."""
    return f"the user wants to try this again: {state.title}"


class Walk:
    """A walk that is about to begin. `changed` are known values that the user corrected or took back."""

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
        current = session.current_state
        self._here = None if current is None else route.state(current.id)
        self._again = False
        self._anew = False
        self._left: set[str] = set()
        self._visited: set[str] = set()
        self._steps: list[Step] = []
        self._ran: list[tuple[State, ToolRun]] = []

    def walk(self) -> Generator[RunTool, Ran, Moved]:
        """Walk; tools that are to be run are yielded."""
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
            self._note_way(state, way)
            if self._goes_back(way):
                self._start_over(end)
            verb, state = "arrive", end

    def _first(self) -> tuple[str, State, str]:
        """Where the walk begins: at a state to arrive at, to leave, or to speak."""
        here = self._here
        if here is not None and self._decides:
            return "arrive", here, "a decision was taken"
        if here is not None and any(self._goes_back(way) and self._holds(way) for way in here.transitions):
            return "leave", here, "the user wants to go back"
        if here is None or self._changed or self._is_stale():
            self._left = {id for id in self._session.progress.path if here is None or id != here.id}
            self._again = bool(self._session.progress.path)
            self._session = replace(self._session, progress=replace(self._session.progress, path=()))
            start = self._route.initial_state
            self._note(start)
            return "leave", start, "the route begins"
        if here.kind == "tool":
            return self._parked(here)
        if here.kind == "start":
            return "leave", here, "the route begins"
        if here.skip_if is not None and self._heard.answered and self._ask(here, "skip_if", here.skip_if):
            return "leave", here, "skip_if says so"
        missing = self._missing(here)
        if missing:
            return "speak", here, f"still needs {', '.join(missing)}"
        if not self._heard.answered:
            return "speak", here, "nobody has answered it"
        rejected = [each.field for each in self._heard.rejected if each.route_id in ("", self._route.id)]
        if not here.gather and rejected:
            return "speak", here, f"{', '.join(rejected)} could not be taken"
        if not here.gather and self._comes_back:
            return "speak", here, "the route is taken up again"
        return "leave", here, "it was answered"

    def _goes_back(self, way: Transition) -> bool:
        """Whether the user's wish leads to where the path has been: what follows there is done once more."""
        end = way.end()
        if self._again or not isinstance(way.condition, str) or not isinstance(end, State):
            return False
        path = self._session.progress.path
        return end.id in path and way.source.id in path and path.index(end.id) <= path.index(way.source.id)

    def _start_over(self, state: State) -> None:
        progress = self._session.progress
        at = progress.path.index(state.id)
        gone = set(progress.path[at:])
        self._session = replace(
            self._session,
            progress=replace(
                progress,
                path=progress.path[:at],
                spoken=tuple(id for id in progress.spoken if id not in gone),
                runs={id: run for id, run in progress.runs.items() if id not in gone},
                ways={id: words for id, words in progress.ways.items() if id not in gone},
            ),
        )

    def _is_stale(self) -> bool:
        """Whether a tool on the path would now be given something else: a value that it could do without was stated."""
        progress = self._session.progress
        for id in progress.path:
            state, run = self._route.state(id), progress.runs.get(id)
            if state is None or state.tool is None or run is None or run.error is not None or not state.repeat:
                continue
            if run.basis != self._arguments(state):
                return True
        return False

    def _parked(self, here: State) -> tuple[str, State, str]:
        """A tool that failed, waits, or had no way out."""
        run = self._session.progress.runs.get(here.id)
        arguments = self._arguments(here)
        waiting = self._waiting(here)
        if waiting is not None:
            if waiting.call.input == arguments:
                return "speak", here, "its call waits for a decision"
            return "arrive", here, "it is to run with other values"
        if run is None:
            return "arrive", here, "it has not run"
        if run.error is None:
            return "leave", here, "it has run"
        if run.basis != arguments:
            return "arrive", here, "it is to run with other values"
        if retry_condition(here) in self._heard.holds:
            return "arrive", here, "the user wants to try again"
        return "fail", here, run.error

    def _arrive(self, state: State) -> Generator[RunTool, Ran, Verdict]:
        self._visited.add(state.id)
        if state.skip_if is not None and not self._decides and self._ask(state, "skip_if", state.skip_if):
            if state.kind != "tool":  # what it gave before is of no account then
                self._note(state)
            self._step(state, "skipped", "skip_if says so")
            return "leave", ""
        self._note(state)
        if state.kind == "tool":
            return (yield from self._run(state))
        wanted = self._open(state)
        if state.gather and state.skip_if is None and not wanted:
            self._step(state, "skipped", f"{', '.join(state.gather)} is known")
            return "leave", ""
        if not wanted and self._was_answered(state):
            self._step(state, "skipped", "it was answered before")
            return "leave", ""
        if self._again and state is self._here:
            return "speak", f"{', '.join(self._changed) or 'what a tool was given'} was corrected"
        return "speak", f"asks for {', '.join(wanted)}" if wanted else "it is next"

    def _was_answered(self, state: State) -> bool:
        """Whether it need not speak again: it did before, and nothing has happened since that it should tell of."""
        spoke = self._again and not self._anew and state.id in self._session.progress.spoken
        return spoke and (state is not self._here or bool(state.gather))

    def _run(self, state: State) -> Generator[RunTool, Ran, Verdict]:
        waiting = self._waiting(state)
        basis = self._arguments(state)
        decides, self._decides = self._decides and waiting is not None, False
        if not decides:
            kept = self._kept(state, basis, waiting)
            if kept is not None:
                return kept
        arguments = waiting.call.input if decides and waiting is not None else basis
        ran = yield RunTool(state, arguments, self._session)
        self._anew = True
        if ran.waiting is not None:
            self._session = replace(self._session, waiting=(ran.waiting,))
            self._step(state, "waits", "a person must decide")
            return "speak", "its call waits for a decision"
        run = ran.run if ran.run.error is not None else self._merged(state, ran)
        run = replace(run, basis=basis)
        self._ran.append((state, run))
        progress = self._session.progress
        self._session = replace(
            self._session, progress=replace(progress, runs={**progress.runs, state.id: run}), waiting=()
        )
        self._step(state, "ran" if run.error is None else "failed", run.error or "it was reached")
        return ("leave", "") if run.error is None else ("fail", f"{run.tool} failed")

    def _kept(self, state: State, basis: Mapping[str, Any], waiting: WaitingCall | None) -> Verdict | None:
        """What follows from an earlier run, if the tool is not to be run now."""
        before = self._session.progress.runs.get(state.id)
        if before is not None and before.error is None and not state.repeat:
            self._step(state, "kept", "it has run, and is not to be repeated")
            return "leave", ""
        if not self._again:
            return None
        if waiting is not None and waiting.call.input == basis:
            self._step(state, "waits", "a person must decide")
            return "speak", "its call waits for a decision"
        if before is None or before.basis != basis:
            return None
        if before.error is not None and retry_condition(state) in self._heard.holds:
            return None
        self._step(state, "kept", "it ran before with the same values")
        return ("leave", "") if before.error is None else ("fail", before.error)

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
            if way.source.id in self._left:  # chosen before; what is said now is about where we are
                return self._session.progress.ways.get(way.source.id) == way.condition
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

    def _waiting(self, state: State) -> WaitingCall | None:
        return next((each for each in self._session.waiting if each.state_id == state.id), None)

    @property
    def _data(self) -> Mapping[str, Any]:
        return self._session.extracted

    def _note(self, state: State) -> None:
        """Add a state to the path; one that is walked again has its place at the end."""
        progress = self._session.progress
        path = (*(id for id in progress.path if id != state.id), state.id)
        self._session = replace(self._session, progress=replace(progress, path=path))

    def _note_way(self, state: State, way: Transition) -> None:
        """Remember what was chosen in words: the user will not say it again."""
        progress = self._session.progress
        ways = {id: words for id, words in progress.ways.items() if id != state.id}
        if isinstance(way.condition, str):
            ways[state.id] = way.condition
        if ways != progress.ways:
            self._session = replace(self._session, progress=replace(progress, ways=ways))

    def _step(self, state: State, action: str, why: str) -> None:
        self._steps.append(Step(state.id, state.title, action, why))

    def _speaks(self, state: State, why: str) -> Moved:
        self._step(state, "speaks", why)
        missing = self._open(state)
        session, current = self._session, self._session.current_state
        if current is None or current.id != state.id:
            session = enter_state(session, state.id, state.title, at=self._now)
        progress = replace(session.progress, runs=self._rebased())
        if state.id not in progress.spoken:
            progress = replace(progress, spoken=(*progress.spoken, state.id))
        waiting = tuple(each for each in session.waiting if each.state_id == state.id)
        return self._moved(replace(session, progress=progress, waiting=waiting), state=state, missing=missing)

    def _rebased(self) -> dict[str, ToolRun]:
        """Runs as they stand with the data at the end of the turn: only a later correction makes them run again."""
        runs = dict(self._session.progress.runs)
        for id in self._session.progress.path:
            state, run = self._route.state(id), runs.get(id)
            if run is not None and run.error is None and state is not None and state.tool is not None:
                runs[id] = replace(run, basis=self._arguments(state))
        return runs

    def _ended(self, state: State, why: str) -> Moved:
        self._step(state, "ended", why)
        return self._moved(leave_route(self._session, completed=True, at=self._now), ended=True)

    def _moved(self, session: SessionState, **more: Any) -> Moved:
        return Moved(session, self._route, walked=tuple(self._steps), ran=tuple(self._ran), **more)


def _reason(way: Transition) -> str:
    return f"{way.condition!r} holds" if isinstance(way.condition, str) else "its condition holds"
