"""`RouteWalk`: walk a route to the state that speaks next, and run the tools on the way.

Pure code: a generator that yields each tool to run and receives the result. Every turn walks the route from its start
with the current data, so a correction leads to the same state as if the user had stated the value first. A walk enters
a state at most three times, so it always ends."""

from __future__ import annotations

import inspect
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

from tellback.agent.definitions.route import Route
from tellback.agent.definitions.state import END_ROUTE, State, Transition
from tellback.agent.definitions.value_parser import InvalidValue
from tellback.agent.flow.interpretation import (
    Interpretation,
    RejectedValue,
    keep_condition,
    retract_condition,
    retry_condition,
    states_fresh_values,
)
from tellback.agent.flow.result import MoveGenerator, MoveResult, ToolRunRequest, ToolRunResult, WalkStep
from tellback.agent.flow.route_data import (
    apply_approved_arguments,
    collect_done_actions,
    list_pass_fields,
    merge_values,
    read_fields,
    reapply_tool_data,
    undo_tool_data,
)
from tellback.agent.sessions.session import PendingCall, SessionState, ToolRun, enter_state, leave_route
from tellback.errors import FlowError

MAX_EARLIER_RUNS = 20
"""The number of runs of earlier passes that a session keeps."""


Verdict = tuple[str, str]
"""The action at a state ("leave", "speak", "return" or "fail"), and the reason."""


class RouteWalk:
    """A walk through a route in one turn. `changed` are known values that the user corrected or took back meanwhile."""

    def __init__(
        self,
        route: Route,
        session: SessionState,
        interpretation: Interpretation,
        now: datetime,
        *,
        changed: Sequence[str] = (),
        returns_to_route: bool = False,
        after_decision: bool = False,
    ) -> None:
        self._route = route
        self._session = session
        self._data: Mapping[str, Any] = session.extracted
        self._progress = session.progress
        self._path = session.progress.path
        self._interpretation = interpretation
        self._now = now
        self._changed = tuple(changed)
        self._returns_to_route = returns_to_route
        self._after_decision = after_decision
        current = session.current_state
        self._current_state = None if current is None else route.state(current.id)
        self._old_path = session.progress.path
        self._stated: Mapping[str, Any] = interpretation.data.get(route.id, {})
        self._states_news = states_fresh_values(session, route.id, interpretation)
        self._rejections: tuple[RejectedValue, ...] = ()
        self._rejected = [
            each.field for each in interpretation.rejected if each.explained and each.route_id in ("", route.id)
        ]
        self._passed_ids = {id for id in self._path if self._current_state is None or id != self._current_state.id}
        self._has_run_tool = False
        self._has_looped = False
        self._has_led_back = False
        self._changed_choices: list[str] = []
        self._back_reason = ""
        self._return_target: State | None = None
        self._missing_for_next: tuple[str, ...] = ()
        self._visited: set[str] = set()
        self._steps: list[WalkStep] = []
        self._tool_runs: list[tuple[State, ToolRun]] = []

    def walk(self) -> MoveGenerator:
        """Apply the stated values, and walk to the state that speaks; yield the tools to run."""
        state, verb, why = self._start()
        while True:
            if verb == "arrive":
                verb, why = yield from self._arrive(state)
            if verb == "speak":
                return self._stop_at(state, why)
            if verb == "return":
                assert self._return_target is not None
                return self._stop_at(self._return_target, why)
            transition, reason = self._choose_transition(state, self._data, after_error=verb == "fail")
            if transition is None:
                return self._stop_at(state, why if verb == "fail" else reason)
            target = transition.resolve_target()
            if target is END_ROUTE and self._rejected:
                return self._stop_at(state, f"{', '.join(self._rejected)} was rejected")
            self._leave(state, transition)
            if target is END_ROUTE:
                return self._complete(state, reason)
            assert isinstance(target, State)
            if target.id in self._visited:
                problem = self._go_back(state, target, transition, reason)
                if problem:
                    return self._stop_at(state, problem)
            state, verb = target, "arrive"

    def _start(self) -> tuple[State, str, str]:
        """Return where the walk begins: at the start, or after a decision at the state that waited for it."""
        if self._after_decision and self._current_state is not None:
            self._visited |= self._passed_ids  # their answers stay valid
            return self._current_state, "arrive", "a waiting call was decided"
        self._apply_message()
        data = undo_tool_data(self._route, self._progress.runs.values(), self._data, self._stated)
        self._data = data
        self._path = ()
        start = self._route.initial_state
        self._visited.add(start.id)
        self._append_to_path(start)
        return start, "leave", "the route begins"

    def _apply_message(self) -> None:
        """Merge the stated values: into a new pass if the message leads back to an earlier state."""
        looping = self._find_looping_transition()
        if looping is not None:
            assert self._current_state is not None
            target = looping.resolve_target()
            assert isinstance(target, State)
            self._has_looped = True
            self._back_reason = _transition_reason(looping)
            self._add_step(target, "repeats", self._back_reason)
            used = {name: value for name, value in self._stated.items() if name in self._current_state.gather}
            self._stated = {name: value for name, value in self._stated.items() if name not in used}
            self._interpretation = replace(self._interpretation, data={self._route.id: self._stated})
            self._report_used(used, self._back_reason)
            self._begin_pass(target, self._current_state, looping.forgets)
        data, changed, refused = merge_values(self._route, self._data, self._interpretation)
        self._rejections += refused
        self._rejected += [each.field for each in refused]
        if data != self._data:
            metadata = {**self._session.metadata, "last_updated_at": self._now}
            self._session = replace(self._session, metadata=metadata)
            self._data = data
        self._changed = tuple(dict.fromkeys((*self._changed, *changed)))
        self._missing_for_next = ()
        self._reopen()
        self._change_choices()
        if not self._back_reason and (self._changed or self._stated):
            self._back_reason = (
                f"{', '.join(self._changed or self._stated)} was {'changed' if self._changed else 'stated'}"
            )

    def _find_looping_transition(self) -> Transition | None:
        """Return the transition by which the message leads back to an earlier state, before its values are merged.

        The values then belong to a new pass. A transition without a condition does not tell a new pass from a
        correction, so it counts only if no known value changes.
        """
        state = self._current_state
        if state is None or state.kind != "chat" or self._returns_to_route or not self._interpretation.user_spoke:
            return None
        fields = self._route.schema.fields
        here = {name: self._stated[name] for name in state.gather if name in self._stated}
        data = {**self._data, **here}
        if any(fields[name].required and name not in data for name in state.gather):
            return None
        loops = [each for each in state.transitions if getattr(each.find_target(), "id", "") in self._old_path]
        if not loops:
            return None
        try:
            transition, _ = self._choose_transition(state, data, after_error=False)
            merged, _ = self._choose_transition(state, {**data, **self._stated}, after_error=False)
        except FlowError:  # the application's function needs values that are not known yet
            return None
        if transition not in loops or (transition is not merged and not isinstance(transition.condition, str)):
            return None
        if transition.condition is None:
            forgotten = self._interpretation.forgotten.get(self._route.id, ())
            changes = [name for name, value in self._stated.items() if name in data and data[name] != value]
            if changes or forgotten or self._rejected or not (state.gather or self._is_answered()):
                return None
        return transition

    def _begin_pass(
        self, target: State, source: State, forgets: Iterable[str] = (), *, asks_again: bool = False
    ) -> None:
        """Begin a new pass at an earlier state: the states from there on speak and run once more, with their own data.

        With `asks_again` the fields of the target are cleared even if they are lists.
        """
        progress = self._progress
        path = self._old_path if not self._visited else self._path
        index = path.index(target.id) if target.id in path else len(path)
        ids = path[index:]
        removed = set(ids)
        states = [state for state in map(self._route.state, ids) if state is not None]
        done = () if asks_again else collect_done_actions(states, progress)
        before = path[:index]
        loop = [each for each in target.find_reachable(before) if source in each.find_reachable(before)]
        cleared = {*list_pass_fields(self._route, [*states, *loop]), *forgets}
        cleared -= set(target.required_data)
        cleared |= set(target.gather) if asks_again else set()
        if asks_again:
            used = {name: value for name, value in self._stated.items() if name in cleared}
            self._report_used(used, self._back_reason)
        else:
            cleared -= set(self._stated)
        lists = [name for state in states for name in state.gather if self._route.schema.is_list(name)]
        self._data = {name: value for name, value in self._data.items() if name not in cleared}
        self._visited -= removed
        self._passed_ids -= removed
        self._path = before
        self._update_progress(
            spoken=tuple(id for id in progress.spoken if id not in removed),
            answered=tuple(id for id in progress.answered if id not in removed),
            runs={id: run for id, run in progress.runs.items() if id not in removed},
            choices={id: words for id, words in progress.choices.items() if id not in removed},
            replaced_runs={id: runs for id, runs in progress.replaced_runs.items() if id not in removed},
            held=tuple(id for id in progress.held if id not in removed),
            confirmed={id: arguments for id, arguments in progress.confirmed.items() if id not in removed},
            forgotten=tuple(dict.fromkeys((*progress.forgotten, *sorted(cleared & set(self._route.gatherable))))),
            asked_again=tuple(name for name in lists if name in self._data and name not in self._stated),
            earlier_runs=(*progress.earlier_runs, *done)[-MAX_EARLIER_RUNS:],
        )
        self._remove_outdated_runs()

    def _remove_outdated_runs(self) -> None:
        """Remove the runs before a new pass whose arguments were cleared for it."""
        for id in self._path:
            state, run = self._route.state(id), self._progress.runs.get(id)
            if state is None or run is None:
                continue
            try:
                is_current = self._build_arguments(state) == run.gathered_arguments
            except FlowError:  # the application's function needs a value that was cleared
                is_current = False
            if not is_current:
                self._replace_run(state, run)

    def _report_used(self, values: Mapping[str, Any], reason: str) -> None:
        """List the values of the message that only led back to an earlier state, and are not stored."""
        self._rejections += tuple(
            RejectedValue(
                name, value, f"it was used, and is asked for again: {reason}", self._route.id, explained=False
            )
            for name, value in self._route.schema.plain(values).items()
        )

    def _reopen(self) -> None:
        """Let the states ask again for the fields that the user took back."""
        progress = self._progress
        taken_back = {name for name in self._changed if name not in self._data}
        spoken, asked_again = progress.spoken, progress.asked_again
        if taken_back:
            asking_ids = {state.id for state in self._route.states if taken_back & set(state.gather)}
            spoken = tuple(id for id in spoken if id not in asking_ids)
        if asked_again:
            asked_again = tuple(name for name in asked_again if name not in self._stated and name in self._data)
        names = dict.fromkeys((*progress.forgotten, *self._interpretation.forgotten.get(self._route.id, ())))
        forgotten = tuple(name for name in names if name not in self._data)
        if (spoken, asked_again, forgotten) != (progress.spoken, progress.asked_again, progress.forgotten):
            self._update_progress(spoken=spoken, asked_again=asked_again, forgotten=forgotten)

    def _change_choices(self) -> None:
        """Change a branch that was chosen earlier, if the message says so."""
        true = self._interpretation.true_conditions
        if not true:
            return
        choices = dict(self._progress.choices)
        ahead = {
            each.condition
            for state in self._route.states
            if state.id not in self._passed_ids
            for each in state.transitions
            if isinstance(each.condition, str)
        }
        for id in self._old_path:
            state = self._route.state(id)
            if state is None or id not in self._passed_ids:
                continue
            chosen = choices.get(id)
            words = [each.condition for each in state.transitions if isinstance(each.condition, str)]
            wanted = next((text for text in words if text in true and text != chosen and text not in ahead), None)
            if wanted is not None:
                choices[id] = wanted
                self._changed_choices.append(wanted)
            elif chosen is not None and retract_condition(chosen) in true:
                del choices[id]
                self._changed_choices.append(retract_condition(chosen))
        if self._changed_choices:
            self._update_progress(choices=choices)
            self._back_reason = f"the user changed a choice: {'; '.join(self._changed_choices)}"

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
        if not state.gather and self._leads_to_done_tool(state):
            self._add_step(state, "skipped", "what it asks for was done with these values")
            return "leave", ""
        if state is self._current_state and not self._has_looped:
            return self._judge_answer(state, missing)
        if missing:
            return "speak", f"asks for {', '.join(missing)}"
        if state.gather:
            self._add_step(state, "skipped", f"{', '.join(state.gather)} is known")
            return "leave", ""
        if state.id in self._progress.answered:
            self._add_step(state, "skipped", "it was answered before")
            return "leave", ""
        return "speak", "it is next"

    def _judge_answer(self, state: State, missing: Sequence[str]) -> Verdict:
        """Whether the user's message answers the state that spoke last."""
        if missing and self._interpretation.answered and set(missing) <= set(self._progress.asked_again):
            self._update_progress(asked_again=())
            return "leave", "the user adds nothing"
        if missing:
            return "speak", f"still needs {', '.join(missing)}"
        if state.gather and all(name in self._data for name in state.gather):
            return "leave", "it was answered"
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
        if self._changed_choices:
            return "speak", self._back_reason
        if self._changed and not any(self._leads_to_chat(transition) for transition in state.transitions):
            return "speak", f"{', '.join(self._changed)} was corrected"
        if not self._is_answered() and not any(self._is_chosen(transition) for transition in state.transitions):
            return "speak", "the message does not answer it"
        return "leave", "it was answered"

    def _is_answered(self) -> bool:
        """Whether the message answers a state without fields."""
        return self._interpretation.answered is not False

    def _is_chosen(self, transition: Transition) -> bool:
        """Whether the message chose this transition in words."""
        return transition.condition in self._interpretation.true_conditions

    def _leads_to_done_tool(self, state: State) -> bool:
        """Whether the user changed values back to those with which the action that follows was done in this pass."""
        progress, changed = self._progress, {*self._changed, *self._stated}
        for target in state.next_states():
            runs = [*progress.replaced_runs.get(target.id, ()), *filter(None, [progress.runs.get(target.id)])]
            if runs and target.is_action and changed & read_fields(target):
                try:
                    arguments = self._build_arguments(target)
                except FlowError:  # the application's function needs a value that is missing
                    continue
                if any(_has_arguments(run, arguments) and _has_acted(target, run) for run in runs):
                    return True
        return False

    def _leads_to_chat(self, transition: Transition) -> bool:
        """Whether the message chose this transition in words, and its target is a state that speaks."""
        target = transition.resolve_target()
        return self._is_chosen(transition) and isinstance(target, State) and target.kind == "chat"

    def _run_tool(self, state: State) -> Generator[ToolRunRequest, ToolRunResult, Verdict]:
        pending = self._find_pending_call(state)
        gathered = self._build_arguments(state)
        after_decision, self._after_decision = self._after_decision and pending is not None, False
        if not after_decision:
            verdict = self._judge_tool(state, gathered, pending)
            if verdict is not None:
                return verdict
        arguments = pending.call.input if after_decision and pending is not None else gathered
        result = yield ToolRunRequest(state, arguments, self._current_session())
        # The states after this tool speak about its new result.
        self._has_run_tool = True
        self._forget_later_answers()
        if result.pending is not None:
            self._session = replace(self._session, pending_calls=(result.pending,))
            self._add_step(state, "waits", "its call needs approval")
            return "speak", "its call waits for approval"
        self._session = replace(self._session, pending_calls=())
        if after_decision:
            approved = apply_approved_arguments(state, arguments, result.run.arguments, self._data)
            self._data = approved
            source = self._build_arguments(state)
        else:
            source = dict(result.run.arguments)  # an interrupted turn may have run it with other arguments
        run = result.run if result.run.error is not None else self._apply_tool_data(state, result)
        run = replace(run, gathered_arguments=source)
        self._tool_runs.append((state, run))
        self._add_step(state, "ran" if run.error is None else "failed", run.error or "the route reached this state")
        if run.error is None and not state.repeat and source != gathered and not after_decision:
            return self._hold(state, run)
        held = tuple(id for id in self._progress.held if id != state.id)
        self._update_progress(runs={**self._progress.runs, state.id: run}, held=held)
        if run.error is not None:
            self._back_reason = self._back_reason or f"{run.tool} failed"
        return ("leave", "") if run.error is None else ("fail", f"{run.tool} failed")

    def _judge_tool(self, state: State, gathered: Mapping[str, Any], pending: PendingCall | None) -> Verdict | None:
        """Return the verdict if the tool must not run now, else None."""
        if pending is not None and pending.call.input == gathered:
            return "speak", "its call waits for approval"
        self._drop_call(pending)  # it was made with values that have changed
        this_turn = next((run for each, run in self._tool_runs if each is state), None)  # a tool runs once in a turn
        progress = self._progress
        run = this_turn or progress.runs.get(state.id)
        if this_turn is None and (run is None or not _has_arguments(run, gathered)):
            run = self._restore_replaced_run(state, gathered) or run
        wants_again = retry_condition(state) in self._interpretation.true_conditions
        if run is not None:
            acted = _has_acted(state, run)
            if _has_arguments(run, gathered) or this_turn is not None:
                if run.error is None:
                    return self._keep(state, run)
                is_wanted = wants_again or self._was_confirmed_now(state)
                if not is_wanted or acted or this_turn is not None:
                    return "fail", run.error
            elif acted and not state.repeat and not self._was_confirmed_now(state):
                return self._hold(state, run)
            elif acted:  # confirmed, or a new call waits for approval
                self._replace_run(state, run)
        elif state.id in progress.held and keep_condition(state) in self._interpretation.true_conditions:
            return self._keep_as_done(state, gathered)
        elif state.id in progress.held and not wants_again:
            return "speak", f"{state.title} was done with other values"
        elif not wants_again and self._repeats_earlier_pass(state, gathered):
            self._update_progress(held=(*progress.held, state.id))
            return "speak", f"{state.title} was done with the same values before"
        if self._rejected:
            return "speak", f"{', '.join(self._rejected)} was rejected"
        return self._judge_consent(state) or self._judge_confirmation(state, gathered)

    def _drop_call(self, pending: PendingCall | None) -> None:
        if pending is not None:
            others = tuple(each for each in self._session.pending_calls if each is not pending)
            self._session = replace(self._session, pending_calls=others)

    def _judge_confirmation(self, state: State, arguments: Mapping[str, Any]) -> Verdict | None:
        """The user's agreement to an action is valid only for the arguments that the action had then."""
        confirmation = self._find_confirmation(state)
        if confirmation is None or not state.is_action:
            return None
        confirmed = self._progress.confirmed
        if self._was_confirmed_now(state) or retry_condition(state) in self._interpretation.true_conditions:
            self._update_progress(confirmed={**confirmed, state.id: arguments})
            return None
        if confirmed.get(state.id) == arguments:
            return None
        reason = f"{state.title} was not confirmed with the present values"
        self._back_reason = self._back_reason or reason
        self._return_to(confirmation)
        return "return", reason

    def _repeats_earlier_pass(self, state: State, arguments: Mapping[str, Any]) -> bool:
        """Whether an action would be done as in an earlier pass, although the user neither confirms it nor states
        values in this message: for example if thanks were read as a new request."""
        if not state.is_action or state.tool is None or self._interpretation.data.get(self._route.id):
            return False
        if self._find_confirmation(state) is not None:
            return False
        name = state.tool.name
        return any(run.tool == name and _has_arguments(run, arguments) for run in self._progress.earlier_runs)

    def _judge_consent(self, state: State) -> Verdict | None:
        """Stop before a tool if the message consists of questions, and before an action if it begins with "no".

        A message that states new values is the reason for the tool, and does not stop it.
        """
        current, message = self._current_state, self._interpretation
        if current is None or self._states_news or current.kind != "chat" or current.id not in self._path:
            return None
        is_chosen = any(map(self._is_chosen, current.transitions))
        if message.only_asks:
            is_allowed = not state.is_action and bool(message.answered or is_chosen)
        else:
            is_allowed = not (message.declines and state.is_action) or is_chosen
        if is_allowed:
            return None
        self._return_to(current)
        return "return", f"the message does not agree to {state.title}"

    def _keep(self, state: State, run: ToolRun) -> Verdict:
        """Use an earlier run again."""
        self._data = reapply_tool_data(self._route, run, self._data, self._stated)
        self._add_step(state, "kept", "it ran with the same arguments")
        return "leave", ""

    def _keep_as_done(self, state: State, arguments: Mapping[str, Any]) -> Verdict:
        """Leave an action as it was done: the user does not want it again with the present values."""
        progress = self._progress
        runs = progress.replaced_runs.get(state.id) or tuple(
            each for each in progress.earlier_runs if state.tool is not None and each.tool == state.tool.name
        )
        if not runs:  # too many others were done since
            return "speak", f"{state.title} was done with other values"
        *others, run = runs
        run = replace(run, gathered_arguments=arguments, changed_values={}, previous_values={})
        self._update_progress(
            runs={**progress.runs, state.id: run},
            replaced_runs={**progress.replaced_runs, state.id: tuple(others)},
            held=tuple(id for id in progress.held if id != state.id),
        )
        self._add_step(state, "kept", "the user does not want it again")
        return "leave", ""

    def _restore_replaced_run(self, state: State, gathered: Mapping[str, Any]) -> ToolRun | None:
        """Return the replaced run with these arguments, and make it the state's run again."""
        progress = self._progress
        replaced = progress.replaced_runs.get(state.id, ())
        found = next((run for run in replaced if _has_arguments(run, gathered)), None)
        if found is None:
            return None
        others = tuple(run for run in replaced if run is not found)
        if state.id in progress.runs and _has_acted(state, progress.runs[state.id]):
            others = (*others, progress.runs[state.id])
        self._update_progress(
            runs={**progress.runs, state.id: found},
            replaced_runs={**progress.replaced_runs, state.id: others},
            held=tuple(id for id in progress.held if id != state.id),
        )
        return found

    def _replace_run(self, state: State, run: ToolRun) -> None:
        """Store that a run was done with values that have changed since."""
        progress = self._progress
        replaced = (*progress.replaced_runs.get(state.id, ()), run)
        self._update_progress(
            runs={id: each for id, each in progress.runs.items() if id != state.id},
            replaced_runs={**progress.replaced_runs, state.id: replaced},
        )

    def _hold(self, state: State, run: ToolRun) -> Verdict:
        """Return to the confirmation before a tool that has acted with other values; without one, ask at the tool."""
        self._replace_run(state, run)
        if self._restore_replaced_run(state, self._build_arguments(state)) is not None:  # changed back
            return self._keep(state, self._progress.runs[state.id])
        reason = f"{state.title} was done with other values"
        self._back_reason = self._back_reason or reason
        self._add_step(state, "held", reason)
        confirmation = self._find_confirmation(state)
        if confirmation is None:
            self._update_progress(held=(*self._progress.held, state.id))
            return "speak", reason
        self._return_to(confirmation)
        return "return", reason

    def _find_confirmation(self, state: State) -> State | None:
        """Return the chat state without fields that was answered right before a tool, if there is one."""
        progress = self._progress
        for id in reversed(self._path[: self._path.index(state.id)]):
            passed = self._route.state(id)
            if passed is not None and passed.kind == "chat" and id in progress.spoken:
                return None if passed.gather else passed
        return None

    def _was_confirmed_now(self, state: State) -> bool:
        """Whether the message answers the confirmation before this tool."""
        confirmation = self._find_confirmation(state)
        return confirmation is not None and confirmation is self._current_state and not self._has_looped

    def _return_to(self, state: State) -> None:
        """Return to a state of this walk, which speaks again."""
        progress = self._progress
        path = self._path[: self._path.index(state.id) + 1]
        left = {*self._path[len(path) :], state.id}
        self._path = path
        self._update_progress(
            answered=tuple(id for id in progress.answered if id not in left),
            choices={id: words for id, words in progress.choices.items() if id not in left},
        )
        self._return_target = state

    def _forget_later_answers(self) -> None:
        """Forget the answers to states after a tool that ran, and the confirmed actions there."""
        progress = self._progress
        answered = tuple(id for id in progress.answered if id in self._visited)
        if answered == progress.answered:
            return
        self._update_progress(answered=answered)
        for id, run in progress.runs.items():
            later = self._route.state(id)
            if later is not None and id not in self._visited and _has_acted(later, run):
                self._replace_run(later, run)

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
        self._session = replace(self._session, context={**self._session.context, **result.context})
        self._data = data
        return replace(result.run, changed_values=changed, previous_values=previous)

    def _choose_transition(
        self, state: State, data: Mapping[str, Any], *, after_error: bool
    ) -> tuple[Transition | None, str]:
        """Return the transition to take and the reason, or None and the reason why none applies."""
        unconditional: list[Transition] = []
        blocked: list[str] = []
        for transition in state.transitions:
            if transition.on_error != after_error:
                continue
            if transition.condition is not None and not self._condition_holds(transition, data):
                continue
            target = transition.resolve_target()
            missing = [name for name in target.required_data if name not in data] if isinstance(target, State) else []
            if missing:
                blocked += missing
            elif transition.condition is None:
                unconditional.append(transition)
            else:
                return transition, _transition_reason(transition)
        if unconditional:
            return self._choose_unconditional(unconditional), "it is next"
        self._missing_for_next = tuple(dict.fromkeys(blocked))
        if blocked:
            return None, f"the next state needs {', '.join(self._missing_for_next)}"
        return None, "it has no transitions" if not state.transitions else "no transition's condition is true"

    def _choose_unconditional(self, transitions: Sequence[Transition]) -> Transition:
        """Return the transition taken before, or the first one whose target has something to do."""
        if len(transitions) > 1:
            transitions = [each for each in transitions if not self._is_used_up(each)] or transitions
            for transition in transitions:
                target = transition.resolve_target()
                if not isinstance(target, State) or target.id in self._old_path:
                    return transition
            for transition in transitions:
                target = transition.resolve_target()
                if isinstance(target, State) and not self._is_skipped(target):
                    return transition
        return transitions[0]

    def _is_used_up(self, transition: Transition) -> bool:
        """Whether all states from the target on are skipped, up to one that nothing follows: no state would speak."""
        target, seen = transition.resolve_target(), set[str]()
        while isinstance(target, State) and target.id not in seen and self._is_skipped(target):
            if not target.transitions:
                return True
            if len(target.transitions) > 1 or target.transitions[0].condition is not None:
                return False
            seen.add(target.id)
            target = target.transitions[0].resolve_target()
        return False

    def _is_skipped(self, state: State) -> bool:
        if state.skip_if is not None and self._evaluate(state, "skip_if", state.skip_if):
            return True
        return bool(state.gather) and not self._missing_fields(state)

    def _condition_holds(self, transition: Transition, data: Mapping[str, Any]) -> bool:
        if isinstance(transition.condition, str):
            if transition.source.id in self._passed_ids:  # chosen earlier; the message is about the current state
                return self._progress.choices.get(transition.source.id) == transition.condition
            return transition.condition in self._interpretation.true_conditions
        assert transition.condition is not None
        return self._evaluate(transition.source, "a condition", transition.condition, data)

    def _evaluate(self, state: State, what: str, function: Any, data: Mapping[str, Any] | None = None) -> bool:
        try:
            answer = function(MappingProxyType(dict(self._data if data is None else data)))
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
        progress = self._progress
        has_spoken = state.id in progress.spoken
        fields = self._route.schema.fields
        return tuple(
            name
            for name in state.gather
            if (name not in self._data and (fields[name].required or not has_spoken or name in self._rejected))
            or name in progress.asked_again
        )

    def _find_pending_call(self, state: State) -> PendingCall | None:
        return next((each for each in self._session.pending_calls if each.state_id == state.id), None)

    def _current_session(self) -> SessionState:
        """Return the session with the data and the progress of the walk, which are copied only when needed."""
        return replace(self._session, extracted=self._data, progress=replace(self._progress, path=self._path))

    def _update_progress(self, **changes: Any) -> None:
        self._progress = replace(self._progress, **changes)

    def _append_to_path(self, state: State) -> None:
        self._path = (*(id for id in self._path if id != state.id), state.id)

    def _leave(self, state: State, transition: Transition) -> None:
        """Store that the state was answered, and the chosen condition in words: later messages do not repeat it."""
        progress = self._progress
        condition = transition.condition if isinstance(transition.condition, str) else None
        if progress.choices.get(state.id) != condition:
            others = {id: words for id, words in progress.choices.items() if id != state.id}
            self._update_progress(choices=others if condition is None else {**others, state.id: condition})
        if state.kind == "chat" and state.id in progress.spoken and state.id not in progress.answered:
            self._update_progress(answered=(*progress.answered, state.id))
        forgotten = [name for name in transition.forgets if name not in self._stated]
        if forgotten and state.id not in self._passed_ids:
            self._data = {name: value for name, value in self._data.items() if name not in forgotten}

    def _go_back(self, state: State, target: State, transition: Transition, reason: str) -> str:
        """Begin a new pass at a state that this walk has passed. Return the problem if that is not allowed.

        The state that the user just answered may lead back once, and a tool may lead back to a question once.
        """
        is_answered = state is self._current_state and state.kind == "chat" and not self._returns_to_route
        if is_answered and not self._has_looped:
            self._has_looped = True
            self._back_reason = self._back_reason or reason
            self._add_step(target, "repeats", reason)
            self._begin_pass(target, state)
            return ""
        if state.kind == "tool" and target.kind == "chat" and not self._has_led_back:
            self._has_led_back = self._has_looped = True
            self._back_reason = f"{state.title} led back to it"
            self._add_step(target, "repeats", self._back_reason)
            self._begin_pass(target, state, transition.forgets, asks_again=True)
            return ""
        return f"{target.title!r} was already passed in this turn"

    def _add_step(self, state: State, action: str, why: str) -> None:
        # A repeated step is only reported if a tool has run in this turn.
        if self._has_run_tool or state.id not in self._passed_ids or action not in ("skipped", "kept"):
            self._steps.append(WalkStep(state.id, state.title, action, why))

    def _stop_at(self, state: State, why: str) -> MoveResult:
        self._add_step(state, "speaks", why)
        missing = self._missing_fields(state) or tuple(
            name for name in self._missing_for_next if name in self._route.gatherable
        )
        progress = self._progress
        if state.id not in progress.spoken:
            self._update_progress(spoken=(*progress.spoken, state.id))
        if state.id in progress.answered:
            self._update_progress(answered=tuple(id for id in progress.answered if id != state.id))
        session, current = self._current_session(), self._session.current_state
        if current is None or current.id != state.id:
            session = enter_state(session, state.id, state.title, at=self._now)
        if any(each.state_id != state.id for each in session.pending_calls):
            pending_calls = tuple(each for each in session.pending_calls if each.state_id == state.id)
            session = replace(session, pending_calls=pending_calls)
        return self._build_result(session, state=state, missing=missing, went_back=self._explain_return(state))

    def _explain_return(self, state: State) -> str:
        """Return the reason why a state before the last one or on another branch speaks, or an empty string."""
        current = self._current_state
        if self._changed_choices and current is not None and current.id not in self._path:
            return self._back_reason
        if current is None or current is state or state.id not in self._old_path or current.id not in self._old_path:
            return ""
        if self._old_path.index(state.id) > self._old_path.index(current.id):
            return ""
        return self._back_reason or "the flow was changed"

    def _complete(self, state: State, why: str) -> MoveResult:
        self._add_step(state, "ended", why)
        return self._build_result(
            leave_route(self._current_session(), completed=True, at=self._now), ended=True, completed=(self._route,)
        )

    def _build_result(self, session: SessionState, **more: Any) -> MoveResult:
        return MoveResult(
            session,
            self._route,
            walked=tuple(self._steps),
            tool_runs=tuple(self._tool_runs),
            changed=self._changed,
            rejected=self._rejections,
            **more,
        )


def _has_acted(state: State, run: ToolRun) -> bool:
    """Whether an action was done."""
    return state.is_action and (run.error is None or run.has_acted)


def _has_arguments(run: ToolRun, arguments: Mapping[str, Any]) -> bool:
    """Whether a run was made with these arguments: those from the data, or those that the approver wrote instead."""
    return arguments in (run.gathered_arguments, run.arguments)


def _transition_reason(transition: Transition) -> str:
    return f"{transition.condition!r} is true" if isinstance(transition.condition, str) else "its condition is true"
