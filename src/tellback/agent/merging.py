"""What tools put among the gathered data, and how it is taken out again when the tool is no longer meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tellback.agent.route import Route
from tellback.agent.session import ToolRun
from tellback.agent.value_reading import InvalidValue


def undo_tool_data(
    route: Route, runs: Iterable[ToolRun], data: Mapping[str, Any], stated: Mapping[str, Any]
) -> dict[str, Any]:
    """The data as it was before these runs; what the user has said since stays, above all what was `said` just now."""
    result = dict(data)
    plain = route.schema.plain(result)
    for run in reversed(list(runs)):
        for name, value in run.gave.items():
            if plain.get(name) != value or name in stated:
                continue  # the user, or a later tool, has said otherwise
            if name in run.had:
                result[name], plain[name] = _to_typed(route, name, run.had[name]), run.had[name]
            else:
                result.pop(name, None)
                plain.pop(name, None)
    return result


def reapply_tool_data(route: Route, run: ToolRun, data: Mapping[str, Any], stated: Mapping[str, Any]) -> dict[str, Any]:
    """The data with what a run gave, as when it ran; what the user has said since stays."""
    result = dict(data)
    plain = route.schema.plain(result)
    for name, value in run.gave.items():
        if plain.get(name) != run.had.get(name) or name in stated:
            continue
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _to_typed(route, name, value)
    return result


def _to_typed(route: Route, name: str, value: Any) -> Any:
    try:
        return route.schema.check(name, value)
    except InvalidValue:  # the schema has changed since
        return value
