"""`understands`: what a scripted model reads in a message, in the words of the flow instead of the model's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tellback.chat.model import ChatRequest
from tellback.errors import InvalidArgumentError
from tellback.memory.neutral import one_line
from tellback.testing.asked import Asked, asked_in, is_titled
from tellback.testing.scripted import ScriptError, Step, answers
from tellback.types import ChatUsage

if TYPE_CHECKING:
    from tellback.agent import Route


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
    message states; `data` holds those whose names clash; of a field that several routes have, that of the route that
    is meant, else of the current one. `forget` are fields that are taken back, `holds` conditions that hold, in the
    words of the agent. What the agent did not ask for cannot be understood: the script fails.

    >>> from tellback.agent import Agent
    >>> from tellback.testing import ScriptedModel, says
    >>> import asyncio
    >>> agent = Agent("Wanda", guidelines=[{"condition": "the user is in a hurry", "action": "Be brief."}])
    >>> agent.model = ScriptedModel([understands(holds=["the user is in a hurry"]), says("Done.")])
    >>> asyncio.run(agent.respond("Quick!")).trace.conditions
    ('the user is in a hurry',)
    """
    for what, given in (("forget", forget), ("holds", holds)):
        if isinstance(given, str):
            raise InvalidArgumentError(f"{what} is a list, not {given!r:.80}: write {what}=[...].")
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
            answer["conditions"] = [key for text in holds for key in _conditions(text, asked)]
        return answers(answer, usage=usage)

    return step


def _key(route: Route | str, asked: Asked) -> str:
    """What the model calls a route."""
    title = route if isinstance(route, str) else route.title
    found = _scored(route, one_line(title), asked) if asked.routes else _unscored(route, title, asked)
    if not found:
        there = ", ".join(asked.routes or asked.fields) or "none"
        raise ScriptError(f"the route {title!r} was not asked about; the agent asked about: {there}.")
    if not isinstance(route, str):
        found = _alike(route, found, asked)
    if len(found) > 1:
        way = "pass the route itself" if isinstance(route, str) else "give them different titles"
        raise ScriptError(f"several routes are called {title!r} ({', '.join(found)}): {way}.")
    return found[0]


def _scored(route: Route | str, title: str, asked: Asked) -> list[str]:
    """The routes with that title; of those that merely may have it, the ones whose title cannot be longer."""
    found = [key for key, about in asked.routes.items() if is_titled(about, title)]
    if isinstance(route, str):
        return [key for key in found if not asked.routes[key].startswith(f"{title}. ")] or found
    return found


def _unscored(route: Route | str, title: str, asked: Asked) -> list[str]:
    """The only route, whose score is not asked for and whose title is not said: its key is made of that."""
    from tellback.types.names import slug  # tests of other things need no agents

    made = (slug(title) or "route", getattr(route, "key", None))
    return [key for key in asked.fields if key in made]


def _alike(route: Route, keys: list[str], asked: Asked) -> list[str]:
    """Of routes with one title, those that are like this one.

    A route has the key that its last agent gave it, which need not be the agent that asks: it decides last.
    """
    about = route.title + (f". {route.description}" if route.description else "")
    about = one_line(about + (f" When: {'; '.join(route.conditions)}." if route.conditions else ""))
    for is_like in (
        lambda key: asked.routes.get(key, "").removesuffix(" (completed)") == about,
        lambda key: set(asked.fields.get(key, ())) == set(route.gatherable),
        lambda key: key == route.key,
    ):
        keys = [key for key in keys if is_like(key)] or keys
    return keys


def _field(name: str, asked: Asked, route: Route | str | None) -> str:
    """What the model calls a field: of the route that is meant, the only one that has it, or the current one."""
    if route is not None:
        key = _key(route, asked)
        if name in asked.fields.get(key, {}):
            return f"{key}.{name}"
    found = [key for key, each in asked.fields.items() if name in each]
    if not found:
        there = ", ".join(asked.field_names) or "none"
        raise ScriptError(f"the field {name!r} was not asked about; the agent asked about: {there}.")
    if len(found) > 1 and asked.current in found:
        return f"{asked.current}.{name}"
    if len(found) > 1:
        raise ScriptError(f"the field {name!r} is in several routes ({', '.join(found)}): say which with route=... .")
    return f"{found[0]}.{name}"


def _conditions(text: str, asked: Asked) -> list[str]:
    """The keys of a condition, which the prompt has on one line."""
    found = [key for key, each in asked.conditions.items() if each == one_line(text)]
    if not found:
        there = "; ".join(asked.conditions.values()) or "none"
        raise ScriptError(f"the condition {text!r} was not asked about; the agent asked about: {there}.")
    return found
