"""The data of a route: values that users state, and values that tools set. Pure code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tellback.agent.definitions.route import Route
from tellback.agent.definitions.state import State
from tellback.agent.definitions.value_parser import InvalidValue
from tellback.agent.flow.interpretation import Interpretation, RejectedValue
from tellback.agent.sessions.session import RouteProgress, ToolRun


def merge_values(
    route: Route, known: Mapping[str, Any], interpretation: Interpretation
) -> tuple[dict[str, Any], tuple[str, ...], tuple[RejectedValue, ...]]:
    """Return the known data merged with the stated values, the names of known fields that changed, and values that do
    not fit.

    A value of a list field is added to the known list, unless the message also takes the known list back.
    """
    forgotten = interpretation.forgotten.get(route.id, ())
    merged = {name: value for name, value in known.items() if name not in forgotten}
    rejected: list[RejectedValue] = []
    for name, value in interpretation.data.get(route.id, {}).items():
        if name in merged and name in route.schema.fields and route.schema.is_list(name):
            try:
                value = route.schema.extend(name, merged[name], value)
            except InvalidValue as problem:
                rejected.append(RejectedValue(name, route.schema.plain({name: value})[name], str(problem), route.id))
                continue
        merged[name] = value
    changed = tuple(name for name in known if name not in merged or merged[name] != known[name])
    return merged, changed, tuple(rejected)


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


def apply_approved_arguments(
    state: State, requested: Mapping[str, Any], approved: Mapping[str, Any], data: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the data with the arguments that a person changed when approving a call, where a field is the source."""
    assert state.tool is not None
    changed = {name: value for name, value in approved.items() if requested.get(name) != value}
    if callable(state.arguments) or not changed:
        return dict(data)
    sources = {name: name for name in changed} if state.arguments is None else state.arguments
    result = dict(data)
    for name, value in changed.items():
        if sources.get(name) in state.route.schema.fields:
            result[sources[name]] = _to_typed(state.route, sources[name], value)
    return result


def collect_done_actions(states: Iterable[State], progress: RouteProgress) -> list[ToolRun]:
    """Return the runs of the actions among these states that were done in this pass."""
    actions = [state.id for state in states if state.is_action]
    replaced = [run for id in actions for run in progress.replaced_runs.get(id, ())]
    runs = [progress.runs[id] for id in actions if id in progress.runs]
    return [*replaced, *(run for run in runs if run.error is None or run.has_acted)]


def list_pass_fields(route: Route, states: Iterable[State]) -> set[str]:
    """Return the fields whose values belong to one pass through these states: those that the states gather, and the
    results of their tools.

    Lists are not included, because they accumulate; neither are a result that the tool also reads, such as a counter,
    and values that a tool sets with `ToolUpdate`.
    """
    names: set[str] = set()
    for state in states:
        names |= set(state.gather)
        if state.save_as is not None and state.save_as not in read_fields(state):
            names.add(state.save_as)
    return {name for name in names if not route.schema.is_list(name)}


def read_fields(state: State) -> set[str]:
    """Return the fields from which a state builds the arguments of its tool, as far as they are known."""
    assert state.tool is not None
    if state.arguments is None or callable(state.arguments):
        return set(state.tool.parameters.get("properties", {}))
    return set(state.arguments.values())
