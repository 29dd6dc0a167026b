"""`understands`: what a scripted model reads in a message, in the words of the flow instead of the model's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
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
        keys = [_key(route, parts, "data")] if route is not None and "data" in parts else None
        if stated:
            answer["data"] = {}
            for name, value in stated.items():
                answer["data"].setdefault(_holder(name, parts, keys), {})[name] = value
        if forget:
            answer["forget"] = [f"{_holder(name, parts, keys)}.{name}" for name in forget]
        if holds:
            answer["conditions"] = _held(holds, request)
        return answers(answer, usage=usage)

    return step


def _key(route: Route | str, parts: Mapping[str, Any], where: str = "routes") -> str:
    """What the model calls a route."""
    if where == "data":
        known = list(parts["data"]["properties"])
    else:
        known = parts["routes"]["items"]["properties"]["route"]["enum"] if "routes" in parts else []
    from recollect.agent.ids import slug  # tests of other things need no agents

    title = route if isinstance(route, str) else route.title
    key = slug(title)
    if key in known or where == "data":
        return key
    if not known and "data" in parts and key in parts["data"]["properties"]:
        return key  # it is the only one, so that its score was not asked for
    raise ScriptError(f"the route {title!r} was not asked about; the agent asked about: {', '.join(known) or 'none'}.")


def _holder(name: str, parts: Mapping[str, Any], keys: Iterable[str] | None) -> str:
    """The route that a field belongs to: the one that is meant, or the only one that has it."""
    routes: Mapping[str, Any] = parts["data"]["properties"] if "data" in parts else {}
    for key in keys or ():
        if key in routes and name in routes[key]["properties"]:
            return key
    found = [key for key, each in routes.items() if name in each["properties"]]
    if not found:
        there = ", ".join(f"{key}.{field}" for key, each in routes.items() for field in each["properties"])
        raise ScriptError(f"the field {name!r} was not asked about; the agent asked about: {there or 'none'}.")
    if len(found) > 1:
        raise ScriptError(f"the field {name!r} is in several routes ({', '.join(found)}): say which with route=... .")
    return found[0]


def _held(holds: Sequence[str], request: ChatRequest) -> list[str]:
    known = {text: key for key, text in _CONDITION.findall(request.system or "")}
    for text in holds:
        if text not in known:
            there = "; ".join(known) or "none"
            raise ScriptError(f"the condition {text!r} was not asked about; the agent asked about: {there}.")
    return [known[text] for text in holds]
