"""`understands`: what a scripted model reads in a message, in the words of the flow instead of the model's."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from recollect.chat.model import ChatRequest
from recollect.testing.scripted import ScriptError, Step, answers
from recollect.types import ChatUsage

if TYPE_CHECKING:
    from recollect.agent import Route

_CONDITION = re.compile(r"^(c\d+): (.*)$", re.MULTILINE)


def understands(
    route: Route | str | None = None,
    *,
    score: float = 90,
    scores: Mapping[Any, float] | None = None,
    forget: Sequence[str] = (),
    holds: Sequence[str] = (),
    data: Mapping[str, Any] | None = None,
    usage: ChatUsage | None = None,
    **fields: Any,
) -> Callable[[ChatRequest], Step]:
    """A step of a `ScriptedModel`: how it reads a message.

    `route` is the one that is meant, itself or by its title; `scores` gives several. Keywords are the values that the
    message states; `data` holds those whose names clash. `forget` are fields that are taken back, `holds` conditions
    that hold, in the words of the agent. What the agent did not ask for cannot be understood: the script fails.

    >>> from recollect.agent import Agent
    >>> from recollect.testing import ScriptedModel, says
    >>> import asyncio
    >>> agent = Agent("Wanda", guidelines=[{"condition": "the user is in a hurry", "action": "Be brief."}])
    >>> agent.model = ScriptedModel([understands(holds=["the user is in a hurry"]), says("Done.")])
    >>> asyncio.run(agent.respond("Quick!")).trace.conditions
    ('the user is in a hurry',)
    """
    stated = {**(data or {}), **fields}

    def step(request: ChatRequest) -> Step:
        asked = request.output_schema
        if asked is None or not {"routes", "data", "conditions"} & asked["properties"].keys():
            raise ScriptError(
                "understands(...) was scripted here, but the agent asked for an answer, not for a reading."
            )
        parts = asked["properties"]
        answer: dict[str, Any] = {}
        meant = {**(scores or {}), **({} if route is None else {route: score})}
        if meant or "routes" in parts:
            answer["routes"] = [{"route": _key(each, parts), "score": given} for each, given in meant.items()]
        if stated:
            answer["data"] = [{"field": _field(name, parts, route), "value": value} for name, value in stated.items()]
        if forget:
            answer["forget"] = [_field(name, parts, route) for name in forget]
        if holds:
            answer["conditions"] = _held(holds, request)
        return answers(answer, usage=usage)

    return step


def _key(route: Route | str, parts: Mapping[str, Any]) -> str:
    """What the model calls a route."""
    known = parts["routes"]["items"]["properties"]["route"]["enum"] if "routes" in parts else []
    key = _slug(route)
    if key in known or (not known and any(name.startswith(f"{key}.") for name in _fields(parts))):
        return key  # its score was not asked for if it is the only one
    there = ", ".join(known) or "none"
    raise ScriptError(f"the route {_title(route)!r} was not asked about; the agent asked about: {there}.")


def _field(name: str, parts: Mapping[str, Any], route: Route | str | None) -> str:
    """What the model calls a field: of the route that is meant, or of the only one that has it."""
    known = _fields(parts)
    if route is not None and f"{_slug(route)}.{name}" in known:
        return f"{_slug(route)}.{name}"
    found = [each for each in known if each.partition(".")[2] == name]
    if not found:
        there = ", ".join(known) or "none"
        raise ScriptError(f"the field {name!r} was not asked about; the agent asked about: {there}.")
    if len(found) > 1:
        raise ScriptError(f"the field {name!r} is in several routes ({', '.join(found)}): say which with route=... .")
    return found[0]


def _fields(parts: Mapping[str, Any]) -> list[str]:
    return list(parts["data"]["items"]["properties"]["field"]["enum"]) if "data" in parts else []


def _slug(route: Route | str) -> str:
    from recollect.agent.ids import slug  # tests of other things need no agents

    return slug(_title(route))


def _title(route: Route | str) -> str:
    return route if isinstance(route, str) else route.title


def _held(holds: Sequence[str], request: ChatRequest) -> list[str]:
    known = {text: key for key, text in _CONDITION.findall(request.system or "")}
    for text in holds:
        if text not in known:
            there = "; ".join(known) or "none"
            raise ScriptError(f"the condition {text!r} was not asked about; the agent asked about: {there}.")
    return [known[text] for text in holds]
