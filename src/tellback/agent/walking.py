"""One walk along a route, from its start to the state that speaks next.

Every turn walks the route anew with the data as it is now: what was answered is passed, what was chosen in words stays
chosen, and a tool that ran with the same values is not run again, but what it gave is taken. So a correction, a wish
that comes late and a value taken back all end where the route would stand if it had been said so in the first place.
"""

from __future__ import annotations

import inspect
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

from tellback.agent.merging import merged, without_merged
from tellback.agent.moves import Heard, Moved, Ran, RunTool, Step
from tellback.agent.route import Route
from tellback.agent.session import Progress, SessionState, ToolRun, WaitingCall, enter_state, leave_route
from tellback.agent.state import END_ROUTE, State, Transition
from tellback.agent.value_reading import InvalidValue
from tellback.errors import FlowError

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
        self._said = heard.data.get(route.id, {})
        self._rejected = [each.field for each in heard.rejected if each.route_id in ("", route.id)]
        self._left = {id for id in session.progress.path if self._here is None or id != self._here.id}
        self._anew = False
        self._has_looped = False
        self._blocked: tuple[str, ...] = ()
        self._visited: set[str] = set()
        self._steps: list[Step] = []
        self._ran: list[tuple[State, ToolRun]] = []

    def walk(self) -> Generator[RunTool, Ran, Moved]:
        """Walk; tools that are to be run are yielded."""
        state, verb, why = self._begin()
        while True:
            if verb == "arrive":
                verb, why = yield from self._arrive(state)
            if verb == "speak":
                return self._speaks(state, why)
            way, reason = self._way_out(state, after_error=verb == "fail")
            if way is None:
                return self._speaks(state, why if verb == "fail" else reason)
            end = way.end()
            if end is END_ROUTE and self._rejected:
                return self._speaks(state, f"{', '.join(self._rejected)} could not be taken")
            self._leave(state, way)
            if end is END_ROUTE:
                return self._ended(state, reason)
            assert isinstance(end, State)
            if end.id in self._visited and not self._may_loop(state):
                return self._speaks(state, f"{end.title!r} was walked through before in this turn")
            if end.id in self._visited:
                self._start_over(end)
            state, verb = end, "arrive"

    def _begin(self) -> tuple[State, str, str]:
        """The start, unless a decision was taken: then the state that waited for it."""
        if self._decides and self._here is not None:
            return self._here, "arrive", "a decision was taken"
        self._reopen()
        data = without_merged(self._route, self._session.progress.runs.values(), self._data, self._said)
        self._session = replace(self._session, extracted=data)
        self._progress(path=())
        start = self._route.initial_state
        self._visited.add(start.id)
        self._note(start)
        return start, "leave", "the route begins"

    def _reopen(self) -> None:
        """What was taken back is asked for again, also where it was asked before."""
        back = {name for name in self._changed if name not in self._data}
        spoken = self._session.progress.spoken
        if back:
            asked = {state.id for state in self._route.states if back & set(state.gather)}
            self._progress(spoken=tuple(id for id in spoken if id not in asked))

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
        if state is self._here and not self._has_looped:
            return self._answered_here(state, wanted)
        if wanted:
            return "speak", f"asks for {', '.join(wanted)}"
        if state.gather and state.skip_if is None:
            self._step(state, "skipped", f"{', '.join(state.gather)} is known")
            return "leave", ""
        if state.id in self._session.progress.answered:
            self._step(state, "skipped", "it was answered before")
            return "leave", ""
        return "speak", "it is next"

    def _answered_here(self, state: State, wanted: Sequence[str]) -> Verdict:
        """Whether the user's message answers the state that spoke last."""
        if wanted:
            return "speak", f"still needs {', '.join(wanted)}"
        if not self._heard.answered:
            return "speak", "nobody has answered it"
        if state.gather:
            return "leave", "it was answered"
        if self._rejected:
            return "speak", f"{', '.join(self._rejected)} could not be taken"
        if self._comes_back:
            return "speak", "the route is taken up again"
        if self._anew:
            return "speak", "a tool was run again before it"
        if self._changed and not any(self._leads_to_talk(way) for way in state.transitions):
            return "speak", f"{', '.join(self._changed)} was corrected"
        return "leave", "it was answered"

    def _leads_to_talk(self, way: Transition) -> bool:
        """Whether the user has chosen that way in words, and nothing is done at its end that should be asked first."""
        end = way.end()
        return way.condition in self._heard.holds and isinstance(end, State) and end.kind == "chat"

    def _run(self, state: State) -> Generator[RunTool, Ran, Verdict]:
        waiting = self._waiting(state)
        basis = self._arguments(state)
        decides, self._decides = self._decides and waiting is not None, False
        if not decides:
            kept = self._kept(state, basis, waiting)
            if kept is not None:
                return kept
            if self._rejected:
                return "speak", f"{', '.join(self._rejected)} could not be taken"
        arguments = waiting.call.input if decides and waiting is not None else basis
        ran = yield RunTool(state, arguments, self._session)
        # What is said after it is said of what it gives now.
        self._anew = True
        progress = self._session.progress
        self._progress(answered=tuple(id for id in progress.answered if id in self._visited))
        if ran.waiting is not None:
            self._session = replace(self._session, waiting=(ran.waiting,))
            self._step(state, "waits", "a person must decide")
            return "speak", "its call waits for a decision"
        run = replace(ran.run if ran.run.error is not None else self._taken(state, ran), basis=basis)
        self._ran.append((state, run))
        self._progress(runs={**self._session.progress.runs, state.id: run})
        self._session = replace(self._session, waiting=())
        self._step(state, "ran" if run.error is None else "failed", run.error or "it was reached")
        return ("leave", "") if run.error is None else ("fail", f"{run.tool} failed")

    def _kept(self, state: State, basis: Mapping[str, Any], waiting: WaitingCall | None) -> Verdict | None:
        """What follows from an earlier run, if the tool is not to be run now."""
        if waiting is not None and waiting.call.input == basis:
            return "speak", "its call waits for a decision"
        now = next((run for each, run in self._ran if each is state), None)  # once in a turn is enough
        before = now or self._session.progress.runs.get(state.id)
        if before is None:
            return None
        is_once = now is not None or (not state.repeat and (before.error is None or before.has_acted))
        if before.basis != basis and not is_once:
            return None
        if before.error is not None:
            if retry_condition(state) in self._heard.holds and not is_once:
                return None
            return "fail", before.error
        data = merged(self._route, before, self._data, self._said)
        self._session = replace(self._session, extracted=data)
        self._step(state, "kept", "it has run, and is not to be repeated" if is_once else "it ran with the same values")
        return "leave", ""

    def _taken(self, state: State, ran: Ran) -> ToolRun:
        """Take over what a tool gives; what does not fit the schema makes it a failure, though it has acted."""
        given = dict(ran.data)
        if state.save_as is not None:
            given.setdefault(state.save_as, ran.value)
        gathering, data = self._route.gathering, dict(self._data)
        for name, value in given.items():
            if value is None:
                data.pop(name, None)
                continue
            try:
                data[name] = gathering.check(name, value)
            except InvalidValue as problem:
                error = f"{ran.run.tool} gave a value that does not fit: {name}: {problem}"
                return replace(ran.run, error=error, has_acted=True)
        had = gathering.plain({name: self._data[name] for name in given if name in self._data})
        gave = gathering.plain({name: data.get(name) for name in given})
        self._session = replace(self._session, extracted=data, context={**self._session.context, **ran.context})
        return replace(ran.run, gave=gave, had=had)

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
        self._blocked = tuple(dict.fromkeys(blocked))
        if blocked:
            return None, f"what comes next needs {', '.join(self._blocked)}"
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
            answer = question(MappingProxyType(dict(self._data)))
        except Exception as error:
            raise FlowError(state.place, f"{what} raised {type(error).__name__}: {error}") from error
        if inspect.isawaitable(answer):
            raise FlowError(state.place, f"{what} is async; it must answer at once.")
        return bool(answer)

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

    def _open(self, state: State) -> tuple[str, ...]:
        """What a state would ask for: what it needs, what it has not asked for yet, and what could not be taken."""
        asked = state.id in self._session.progress.spoken
        fields = self._route.gathering.fields
        return tuple(
            name
            for name in state.gather
            if name not in self._data and (fields[name].needed or not asked or name in self._rejected)
        )

    def _waiting(self, state: State) -> WaitingCall | None:
        return next((each for each in self._session.waiting if each.state_id == state.id), None)

    @property
    def _data(self) -> Mapping[str, Any]:
        return self._session.extracted

    def _progress(self, **changes: Any) -> None:
        self._session = replace(self._session, progress=replace(self._session.progress, **changes))

    def _note(self, state: State) -> None:
        self._progress(path=(*(id for id in self._session.progress.path if id != state.id), state.id))

    def _leave(self, state: State, way: Transition) -> None:
        """Remember that it was answered, and what was chosen in words: the user will not say it again."""
        progress = self._session.progress
        ways = {id: words for id, words in progress.ways.items() if id != state.id}
        if isinstance(way.condition, str):
            ways[state.id] = way.condition
        answered = progress.answered
        if state.kind == "chat" and state.id in progress.spoken and state.id not in answered:
            answered = (*answered, state.id)
        self._progress(ways=ways, answered=answered)
        forgets = [name for name in way.forgets if name not in self._said]
        if forgets and state.id not in self._left:
            data = {name: value for name, value in self._data.items() if name not in forgets}
            self._session = replace(self._session, extracted=data)

    def _may_loop(self, state: State) -> bool:
        """Whether a way may lead back to where this walk has been: from where the user has just answered, and once."""
        return state is self._here and state.kind == "chat" and not self._has_looped

    def _start_over(self, state: State) -> None:
        """A way leads back: what follows there is said and done once more, with all that is known."""
        self._has_looped = True
        progress = self._session.progress
        at = progress.path.index(state.id) if state.id in progress.path else len(progress.path)
        gone = set(progress.path[at:])
        self._visited -= gone
        self._left -= gone
        self._progress(
            path=progress.path[:at],
            spoken=tuple(id for id in progress.spoken if id not in gone),
            answered=tuple(id for id in progress.answered if id not in gone),
            runs={id: run for id, run in progress.runs.items() if id not in gone},
            ways={id: words for id, words in progress.ways.items() if id not in gone},
        )

    def _step(self, state: State, action: str, why: str) -> None:
        # What was walked before is no news, unless something is run anew.
        if self._anew or state.id not in self._left or action not in ("skipped", "kept"):
            self._steps.append(Step(state.id, state.title, action, why))

    def _speaks(self, state: State, why: str) -> Moved:
        self._step(state, "speaks", why)
        missing = self._open(state) or tuple(name for name in self._blocked if name in self._route.gatherable)
        session, current = self._session, self._session.current_state
        if current is None or current.id != state.id:
            session = enter_state(session, state.id, state.title, at=self._now)
        progress: Progress = session.progress
        if state.id not in progress.spoken:
            progress = replace(progress, spoken=(*progress.spoken, state.id))
        progress = replace(progress, answered=tuple(id for id in progress.answered if id != state.id))
        waiting = tuple(each for each in session.waiting if each.state_id == state.id)
        return self._moved(replace(session, progress=progress, waiting=waiting), state=state, missing=missing)

    def _ended(self, state: State, why: str) -> Moved:
        self._step(state, "ended", why)
        return self._moved(leave_route(self._session, completed=True, at=self._now), ended=True)

    def _moved(self, session: SessionState, **more: Any) -> Moved:
        return Moved(session, self._route, walked=tuple(self._steps), ran=tuple(self._ran), **more)


def _reason(way: Transition) -> str:
    return f"{way.condition!r} holds" if isinstance(way.condition, str) else "its condition holds"
