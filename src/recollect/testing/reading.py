"""`understands`: what a scripted model reads in a message, in the words of the flow instead of the model's."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from recollect.chat.model import ChatRequest
from recollect.testing.asked import Asked, asked_in
from recollect.testing.scripted import ScriptError, Step, answers
from recollect.types import ChatUsage

if TYPE_CHECKING:
    from recollect.agent import Route


_REST = re.compile(r"(\. .*)?( When: .*)?( \(completed\))?")


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
        asked = asked_in(request)
        if asked is None:
            raise ScriptError(
                "understands(...) was scripted here, but the agent asked for an answer, not for a reading."
            )
        answer: dict[str, Any] = {}
        meant = {**(scores or {}), **({} if route is None else {route: score})}
        if meant or "routes" in asked.parts:
            answer["routes"] = [{"route": _key(each, asked), "score": given} for each, given in meant.items()]
        if stated:
            answer["data"] = [{"field": _field(name, asked, route), "value": value} for name, value in stated.items()]
        if forget:
            answer["forget"] = [_field(name, asked, route) for name in forget]
        if holds:
            answer["conditions"] = [_condition(text, asked) for text in holds]
        return answers(answer, usage=usage)

    return step


def _key(route: Route | str, asked: Asked) -> str:
    """What the model calls a route."""
    key = _by_title(route, asked) if isinstance(route, str) else route.key
    if key in asked.routes or (not asked.routes and key in asked.fields):
        return key  # its score was not asked for if it is the only one
    there = ", ".join(asked.routes) or "none"
    raise ScriptError(f"the route {_title(route)!r} was not asked about; the agent asked about: {there}.")


def _by_title(title: str, asked: Asked) -> str:
    """The key of the route with that title; what follows a title in the prompt is its description and conditions."""
    from recollect.agent.ids import slug  # tests of other things need no agents

    found = [key for key, about in asked.routes.items() if about.startswith(title)]
    exact = [key for key in found if _REST.fullmatch(asked.routes[key][len(title) :])]
    return (exact or [slug(title)])[0]


def _field(name: str, asked: Asked, route: Route | str | None) -> str:
    """What the model calls a field: of the route that is meant, or of the only one that has it."""
    if route is not None:
        key = _key(route, asked)
        if name in asked.fields.get(key, {}):
            return f"{key}.{name}"
    found = [key for key, each in asked.fields.items() if name in each]
    if not found:
        there = ", ".join(asked.field_names) or "none"
        raise ScriptError(f"the field {name!r} was not asked about; the agent asked about: {there}.")
    if len(found) > 1:
        raise ScriptError(f"the field {name!r} is in several routes ({', '.join(found)}): say which with route=... .")
    return f"{found[0]}.{name}"


def _condition(text: str, asked: Asked) -> str:
    if text not in asked.conditions:
        there = "; ".join(asked.conditions) or "none"
        raise ScriptError(f"the condition {text!r} was not asked about; the agent asked about: {there}.")
    return asked.conditions[text]


def _title(route: Route | str) -> str:
    return route if isinstance(route, str) else route.title
