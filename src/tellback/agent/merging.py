"""What tools put among the gathered data, and how it is taken out again when the tool is no longer meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tellback.agent.route import Route
from tellback.agent.session import ToolRun
from tellback.agent.value_reading import InvalidValue


def without_merged(
    route: Route, runs: Iterable[ToolRun], data: Mapping[str, Any], said: Mapping[str, Any]
) -> dict[str, Any]:
    """The data as it was before these runs; what the user has said since stays, above all what was `said` just now."""
    found = dict(data)
    plain = route.gathering.plain(found)
    for run in reversed(list(runs)):
        for name, value in run.gave.items():
            if plain.get(name) != value or name in said:
                continue  # the user, or a later tool, has said otherwise
            if name in run.had:
                found[name], plain[name] = _typed(route, name, run.had[name]), run.had[name]
            else:
                found.pop(name, None)
                plain.pop(name, None)
    return found


def merged(route: Route, run: ToolRun, data: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """The data with what a run gave, as when it ran; what the user has said since stays."""
    found = dict(data)
    plain = route.gathering.plain(found)
    for name, value in run.gave.items():
        if plain.get(name) != run.had.get(name) or name in said:
            continue
        if value is None:
            found.pop(name, None)
        else:
            found[name] = _typed(route, name, value)
    return found


def _typed(route: Route, name: str, value: Any) -> Any:
    try:
        return route.gathering.check(name, value)
    except InvalidValue:  # the schema has changed since
        return value
