"""`understands`: what a scripted model reads in a message, in the words of the flow instead of the model's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tellback.chat.model import ChatRequest
from tellback.errors import InvalidArgumentError
from tellback.memory.neutral import sanitize_line
from tellback.testing.asked import UnderstandingRequest, has_title, parse_understanding_request
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
    for what, item in (("forget", forget), ("holds", holds)):
        if isinstance(item, str):
            raise InvalidArgumentError(f"{what} is a list, not {item!r:.80}: write {what}=[...].")
    stated = {**(data or {}), **fields}

    def step(request: ChatRequest) -> Step:
        understanding = parse_understanding_request(request)
        if understanding is None:
            raise ScriptError(
                "understands(...) was scripted here, but the agent asked for an answer, not for a reading."
            )
        answer: dict[str, Any] = {}
        route_scores = {**(scores or {}), **({} if route is None else {route: score})}
        if route_scores or "routes" in understanding.parts:
            answer["routes"] = [
                {"route": _route_key(each, understanding), "score": item} for each, item in route_scores.items()
            ]
        if stated:
            answer["data"] = [
                {"field": _field_key(name, understanding, route), "value": value} for name, value in stated.items()
            ]
        if forget:
            answer["forget"] = [_field_key(name, understanding, route) for name in forget]
        if holds:
            answer["conditions"] = [key for text in holds for key in _condition_keys(text, understanding)]
        return answers(answer, usage=usage)

    return step


def _route_key(route: Route | str, understanding: UnderstandingRequest) -> str:
    """What the model calls a route."""
    title = route if isinstance(route, str) else route.title
    found = (
        _match_scored_routes(route, sanitize_line(title), understanding)
        if understanding.routes
        else _match_only_route(route, title, understanding)
    )
    if not found:
        available = ", ".join(understanding.routes or understanding.fields) or "none"
        raise ScriptError(f"the route {title!r} was not asked about; the agent asked about: {available}.")
    if not isinstance(route, str):
        found = _match_similar_routes(route, found, understanding)
    if len(found) > 1:
        advice = "pass the route itself" if isinstance(route, str) else "give them different titles"
        raise ScriptError(f"several routes are called {title!r} ({', '.join(found)}): {advice}.")
    return found[0]


def _match_scored_routes(route: Route | str, title: str, understanding: UnderstandingRequest) -> list[str]:
    """The routes with that title; of those that merely may have it, the ones whose title cannot be longer."""
    found = [key for key, description in understanding.routes.items() if has_title(description, title)]
    if isinstance(route, str):
        return [key for key in found if not understanding.routes[key].startswith(f"{title}. ")] or found
    return found


def _match_only_route(route: Route | str, title: str, understanding: UnderstandingRequest) -> list[str]:
    """The only route, whose score is not asked for and whose title is not said: its key is made of that."""
    from tellback.types.names import slug  # tests of other things need no agents

    keys = (slug(title) or "route", getattr(route, "key", None))
    return [key for key in understanding.fields if key in keys]


def _match_similar_routes(route: Route, keys: list[str], understanding: UnderstandingRequest) -> list[str]:
    """Of routes with one title, those that are like this one.

    A route has the key that its last agent gave it, which need not be the agent that asks: it decides last.
    """
    description = route.title + (f". {route.description}" if route.description else "")
    description = sanitize_line(description + (f" When: {'; '.join(route.conditions)}." if route.conditions else ""))
    for is_like in (
        lambda key: understanding.routes.get(key, "").removesuffix(" (completed)") == description,
        lambda key: set(understanding.fields.get(key, ())) == set(route.gatherable),
        lambda key: key == route.key,
    ):
        keys = [key for key in keys if is_like(key)] or keys
    return keys


def _field_key(name: str, understanding: UnderstandingRequest, route: Route | str | None) -> str:
    """What the model calls a field: of the route that is meant, the only one that has it, or the current one."""
    if route is not None:
        key = _route_key(route, understanding)
        if name in understanding.fields.get(key, {}):
            return f"{key}.{name}"
    found = [key for key, each in understanding.fields.items() if name in each]
    if not found:
        available = ", ".join(understanding.field_names) or "none"
        raise ScriptError(f"the field {name!r} was not asked about; the agent asked about: {available}.")
    if len(found) > 1 and understanding.current_route in found:
        return f"{understanding.current_route}.{name}"
    if len(found) > 1:
        raise ScriptError(f"the field {name!r} is in several routes ({', '.join(found)}): say which with route=... .")
    return f"{found[0]}.{name}"


def _condition_keys(text: str, understanding: UnderstandingRequest) -> list[str]:
    """The keys of a condition, which the prompt has on one line."""
    found = [key for key, each in understanding.conditions.items() if each == sanitize_line(text)]
    if not found:
        available = "; ".join(understanding.conditions.values()) or "none"
        raise ScriptError(f"the condition {text!r} was not asked about; the agent asked about: {available}.")
    return found
