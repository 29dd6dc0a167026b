"""`understands`: a scripted result of natural-language understanding, in terms of the flow instead of the prompt.

It parses the prompt with which an agent asks its model to interpret a message."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tellback.chat.model import SCRIPTED_READING, ChatRequest
from tellback.errors import InvalidArgumentError
from tellback.memory.templates import sanitize_line
from tellback.testing.models import ScriptError, Step, answers
from tellback.types import ChatUsage, message_text

if TYPE_CHECKING:
    from tellback.agent import Route

_FIELD_LINE = re.compile(r"^- (\w+)\.(.+?): (\{.*\})$|^  where \$defs is (\{.*\})$", re.MULTILINE)
_ROUTE_LINE = re.compile(r"^- (\w+): (.*)$", re.MULTILINE)
_AFTER_TITLE = re.compile(r"(\. .*)?( When: .*)?( \(completed\))?", re.IGNORECASE)
"""The text after a route's title in the prompt: its description, its conditions, and whether it is completed."""
_CURRENT_ROUTE = re.compile(r"^Current route: (\w+)", re.MULTILINE)
_CONDITION_LINE = re.compile(r"^(c\d+): (.*)$", re.MULTILINE)
_ANSWER_PARTS = frozenset(("routes", "data", "conditions", "answered"))


@dataclass(frozen=True, slots=True)
class UnderstandingRequest:
    """The content of an interpretation prompt: routes with their text, field schemas by route, and conditions by key.

    `parts` are the allowed parts of an answer, `current_route` is the key of the current route.
    """

    parts: frozenset[str] = frozenset()
    routes: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    conditions: Mapping[str, str] = field(default_factory=dict)
    current_route: str | None = None

    @property
    def field_names(self) -> list[str]:
        """The fields by their names in the prompt."""
        return [f"{key}.{name}" for key, each in self.fields.items() for name in each]


def parse_understanding_request(request: ChatRequest) -> UnderstandingRequest | None:
    """Parse a request; return None if it does not ask the model to interpret a message."""
    parts = frozenset((request.output_schema or {}).get("properties", {}))
    if not parts & _ANSWER_PARTS:
        return None
    system = request.system or ""
    routes = system.partition("\n\nroutes: ")[2].partition("\n\ndata: ")[0] if "routes" in parts else ""
    return UnderstandingRequest(
        parts,
        dict(_ROUTE_LINE.findall(routes)),
        _parse_schemas(system) if "data" in parts else {},
        dict(_CONDITION_LINE.findall(system)),
        search_group(_CURRENT_ROUTE, message_text(request.messages[0])) if request.messages else None,
    )


def has_title(description: str, title: str) -> bool:
    """Whether the text of a route begins with this title, and not with a longer one.

    >>> has_title("Book. Flights only. When: the user flies.", "Book"), has_title("Book a flight", "Book")
    (True, False)
    """
    return description.startswith(title) and _AFTER_TITLE.fullmatch(description, len(title)) is not None


def search_group(pattern: re.Pattern[str], text: str) -> str | None:
    """Return the first group of the first match, or None."""
    match = pattern.search(text)
    return None if match is None else match.group(1)


def _parse_schemas(system: str) -> dict[str, dict[str, Any]]:
    schemas: dict[str, dict[str, Any]] = {}
    for key, name, schema, definitions in _FIELD_LINE.findall(system.partition("\n\ndata: ")[2]):
        if definitions:
            last = list(schemas)[-1]
            schemas[last] = {
                each: _resolve_schema(schemas[last][each], json.loads(definitions)) for each in schemas[last]
            }
        else:
            schemas.setdefault(key, {})[name] = json.loads(schema)
    return {key: {name: _resolve_schema(schema, {}) for name, schema in each.items()} for key, each in schemas.items()}


def _resolve_schema(schema: dict[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Return a field's schema without its reference or null alternative."""
    if "$ref" in schema:
        target: dict[str, Any] = definitions.get(schema["$ref"].removeprefix("#/$defs/"), schema)
        return target
    options = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    return _resolve_schema(options[0], definitions) if len(options) == 1 else schema


def understands(
    route: Route | str | None = None,
    *,
    score: float = 90,
    scores: Mapping[Any, float] | None = None,
    forget: Sequence[str] = (),
    holds: Sequence[str] = (),
    answered: bool | None = None,
    data: Mapping[str, Any] | None = None,
    words: Mapping[str, str] | None = None,
    usage: ChatUsage | None = None,
    **fields: Any,
) -> Callable[[ChatRequest], Step]:
    """Return a step for `ScriptedModel`: how the model interprets a message.

    - `route`: the route that the message is about, as an object or title; `scores` rates several routes.
    - Keywords are the values in the message; `data` contains values whose names clash. If several routes have a field,
      the value belongs to `route`, otherwise to the current route.
    - `forget`: fields that the user takes back. `holds`: conditions that are true, in the agent's words.
    - `answered=False`: the message does not answer a chat state without fields, for example a question in between.
    - `words`: the words of the message from which a value was taken, by field. Without them the reading counts as
      correct; with them the agent compares all values with the message, as it does for a real model.

    A route, field or condition that the prompt does not contain raises `ScriptError`.

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
            raise InvalidArgumentError(f"{what} must be a list, got {item!r:.80}: write {what}=[...].")
    stated = {**(data or {}), **fields}

    def step(request: ChatRequest) -> Step:
        understanding = parse_understanding_request(request)
        if understanding is None:
            raise ScriptError("the script has understands(...) here, but the agent asked the model for a reply.")
        answer: dict[str, Any] = {}
        route_scores = {**(scores or {}), **({} if route is None else {route: score})}
        if route_scores or "routes" in understanding.parts:
            answer["routes"] = [
                {"route": _route_key(each, understanding), "score": item} for each, item in route_scores.items()
            ]
        if stated:
            answer["data"] = [
                {"field": _field_key(name, understanding, route), "value": value, **_words_of(name, words)}
                for name, value in stated.items()
            ]
        if forget:
            answer["forget"] = [_field_key(name, understanding, route) for name in forget]
        if holds:
            answer["conditions"] = [key for text in holds for key in _condition_keys(text, understanding)]
        if answered is not None and "answered" in understanding.parts:
            answer["answered"] = answered
        reading = answers(answer, usage=usage)
        return reading if words is not None else replace(reading, reply=replace(reading.reply, raw=SCRIPTED_READING))

    return step


def _words_of(name: str, words: Mapping[str, str] | None) -> dict[str, str]:
    return {} if words is None or name not in words else {"words": words[name]}


def _route_key(route: Route | str, understanding: UnderstandingRequest) -> str:
    """Return the key of a route in the prompt."""
    title = route if isinstance(route, str) else route.title
    found = (
        _match_scored_routes(route, sanitize_line(title), understanding)
        if understanding.routes
        else _match_only_route(route, title, understanding)
    )
    if not found:
        available = ", ".join(understanding.routes or understanding.fields) or "none"
        raise ScriptError(f"the prompt does not contain the route {title!r}; it contains: {available}.")
    if not isinstance(route, str):
        found = _match_similar_routes(route, found, understanding)
    if len(found) > 1:
        advice = "pass the route itself" if isinstance(route, str) else "give them different titles"
        raise ScriptError(f"several routes have the title {title!r} ({', '.join(found)}): {advice}.")
    return found[0]


def _match_scored_routes(route: Route | str, title: str, understanding: UnderstandingRequest) -> list[str]:
    """Return the routes with a title. If several texts begin with it, prefer those whose title cannot be longer."""
    found = [key for key, description in understanding.routes.items() if has_title(description, title)]
    if isinstance(route, str):
        return [key for key in found if not understanding.routes[key].startswith(f"{title}. ")] or found
    return found


def _match_only_route(route: Route | str, title: str, understanding: UnderstandingRequest) -> list[str]:
    """Find a route by its key, which is derived from its title: a prompt with only one route contains no titles."""
    from tellback.types.ids import slug  # imported here: other tests do not need agents

    keys = (slug(title) or "route", getattr(route, "key", None))
    return [key for key in understanding.fields if key in keys]


def _match_similar_routes(route: Route, keys: list[str], understanding: UnderstandingRequest) -> list[str]:
    """Select the routes that match this one among routes with the same title.

    The key is compared last, because the agent that last added the route assigned it, which may be another agent.
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
    """Return a field's name in the prompt: of the scripted route, of the only route with it, or of the current one."""
    if route is not None:
        key = _route_key(route, understanding)
        if name in understanding.fields.get(key, {}):
            return f"{key}.{name}"
    found = [key for key, each in understanding.fields.items() if name in each]
    if not found:
        available = ", ".join(understanding.field_names) or "none"
        raise ScriptError(f"the prompt does not contain the field {name!r}; it contains: {available}.")
    if len(found) > 1 and understanding.current_route in found:
        return f"{understanding.current_route}.{name}"
    if len(found) > 1:
        raise ScriptError(f"several routes have the field {name!r} ({', '.join(found)}): pass route=... .")
    return f"{found[0]}.{name}"


def _condition_keys(text: str, understanding: UnderstandingRequest) -> list[str]:
    """Return the keys of a condition, which is on one line in the prompt."""
    found = [key for key, each in understanding.conditions.items() if each == sanitize_line(text)]
    if not found:
        available = "; ".join(understanding.conditions.values()) or "none"
        raise ScriptError(f"the prompt does not contain the condition {text!r}; it contains: {available}.")
    return found
