"""What a model's reading of a message says: scores, values that fit, conditions that hold."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tellback.agent.moves import Heard, Rejected
from tellback.agent.route import Route
from tellback.agent.session import SessionState, known_in
from tellback.agent.understand import Questions
from tellback.agent.value_reading import InvalidValue
from tellback.types import Message
from tellback.types.jsontext import unfenced


class Unreadable(ValueError):
    """The model's answer cannot be read; the message is written for the model."""


@dataclass(frozen=True, slots=True)
class Understanding:
    """What was understood, and what of the answer could not be used."""

    heard: Heard = Heard()
    problems: tuple[str, ...] = field(default=())


def read_answer(text: str, asked: Questions) -> Understanding:
    """What the model's answer says; raises `Unreadable` if it is no JSON object.

    A value that does not fit its field is set aside with the reason. A route, field or condition that was not asked for
    is left out, and said so.
    """
    answer = _parsed(text)
    problems: list[str] = []
    routes = {asked.keys[route.id]: route for route in asked.open}
    data, rejected = _values(answer.get("data"), routes, problems)
    held = asked.condition_keys
    keys = _listed_texts(answer.get("conditions"), "conditions", problems)
    problems += [f"unknown condition {key!r:.80}" for key in keys if key not in held]
    heard = Heard(
        scores=_scores(answer.get("routes"), asked, problems) if asked.scored else None,
        data=data,
        forgotten=_forgotten(answer.get("forget"), routes, data, problems),
        holds=frozenset(held[key] for key in keys if key in held),
        rejected=tuple(rejected),
    )
    return Understanding(heard, tuple(problems))


def chosen(text: str, keyed: Mapping[str, str]) -> str:
    """The answer that was chosen; raises `Unreadable` if it is none of those."""
    try:
        key = _parsed(text).get("answer")
    except Unreadable as problem:
        raise Unreadable(f"{problem}; answer is to be one of {', '.join(keyed)}") from None
    if not isinstance(key, str) or key not in keyed:
        raise Unreadable(f"answer is one of {', '.join(keyed)}, not {key!r:.80}")
    return keyed[key]


def up_to_user(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages without what a turn that was cut off has added behind the user's: it is run again."""
    end = len(messages)
    while end and (messages[end - 1].role == "tool" or messages[end - 1].tool_calls):
        end -= 1
    return messages[:end] if end < len(messages) else messages


def _parsed(text: str) -> Mapping[str, Any]:
    try:
        answer = json.loads(unfenced(text))
    except ValueError as error:
        raise Unreadable(f"it is not JSON ({error})") from None
    except RecursionError:
        raise Unreadable("it is nested too deeply") from None
    if not isinstance(answer, Mapping):
        raise Unreadable(f"it is a {type(answer).__name__}, not a JSON object")
    return answer


def _scores(given: Any, asked: Questions, problems: list[str]) -> dict[str, float]:
    ids = {asked.keys[route.id]: route.id for route in asked.scored}
    if isinstance(given, Mapping):
        given = [{"route": key, "score": score} for key, score in given.items()]
    if not isinstance(given, list | None):
        problems.append(f"routes is no list: {given!r:.80}")
    found: dict[str, float] = {}
    for each in given if isinstance(given, list) else []:
        key, score = (each.get("route"), each.get("score")) if isinstance(each, Mapping) else (each, None)
        if not isinstance(key, str) or key not in ids:
            problems.append(f"unknown route {key!r:.80}")
        elif isinstance(score, bool) or not isinstance(score, int | float) or score != score:
            problems.append(f"no score for {key!r}: {score!r:.80}")
        else:
            found[ids[key]] = max(float(min(max(score, 0), 100)), found.get(ids[key], 0.0))
    return found


def _values(
    given: Any, routes: Mapping[str, Route], problems: list[str]
) -> tuple[dict[str, dict[str, Any]], list[Rejected]]:
    found: dict[str, dict[str, Any]] = {}
    rejected: list[Rejected] = []
    for named, value in _stated(given, problems):
        key, _, name = _full_name(named, routes).partition(".")
        route = routes.get(key)
        if value is None:
            continue  # how some models say that nothing was stated
        if route is None or name not in route.gatherable:
            problems.append(f"unknown field {named!r:.80}")
            continue
        try:
            found.setdefault(route.id, {})[name] = _checked(route, name, value)
        except InvalidValue as problem:
            rejected.append(Rejected(name, value, str(problem), route.id))
    return {id: values for id, values in found.items() if values}, rejected


def agreed(routes: Mapping[str, Route], session: SessionState, heard: Heard) -> Heard:
    """What was heard without values that do not go together with what is known: a return before the departure.

    That can be told once nothing needed is missing. The values of this message are set aside then.
    """
    data, rejected = dict(heard.data), list(heard.rejected)
    for id, stated in heard.data.items():
        route, known = routes[id], known_in(session, id)
        gone = heard.forgotten.get(id, ())
        whole = {**{name: value for name, value in known.items() if name not in gone}, **stated}
        try:
            route.gathering.typed(whole)
        except InvalidValue as problem:
            if not _is_sound(route, known):
                continue  # what was known did not go together before: nobody is held to that now
            plain = route.gathering.plain(stated)
            rejected += [Rejected(name, plain[name], str(problem), id) for name in stated]
            del data[id]
    return heard if len(data) == len(heard.data) else replace(heard, data=data, rejected=tuple(rejected))


def _is_sound(route: Route, data: Mapping[str, Any]) -> bool:
    try:
        route.gathering.typed(data)
    except InvalidValue:
        return False
    return True


def _checked(route: Route, name: str, value: Any) -> Any:
    try:
        return route.gathering.check(name, value)
    except InvalidValue:
        if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
            raise
        try:
            read = json.loads(value)
        except (ValueError, RecursionError):
            read = value
        return route.gathering.check(name, read)


def _stated(given: Any, problems: list[str]) -> list[tuple[str, Any]]:
    """Fields and values; models that are held to no schema also write them as an object, by route or with a dot."""
    if isinstance(given, Mapping):
        found = []
        for key, value in given.items():
            if isinstance(value, Mapping) and "." not in key:
                found += [(f"{key}.{name}", each) for name, each in value.items()]
            else:
                found.append((key, value))
        return found
    found = []
    for each in given if isinstance(given, list) else []:
        if isinstance(each, Mapping) and isinstance(each.get("field"), str):
            found.append((each["field"], each.get("value")))
        else:
            problems.append(f"data has no field in {each!r:.80}")
    if not isinstance(given, list | None):
        problems.append(f"data is no list: {given!r:.80}")
    return found


def _full_name(named: str, routes: Mapping[str, Route]) -> str:
    """A field with its route; models leave that out where there is no doubt."""
    found = [key for key, route in routes.items() if named in route.gatherable]
    return f"{found[0]}.{named}" if len(found) == 1 and "." not in named else named


def _forgotten(
    given: Any, routes: Mapping[str, Route], data: Mapping[str, Mapping[str, Any]], problems: list[str]
) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for each in _listed_texts(given, "forget", problems):
        key, _, name = _full_name(each, routes).partition(".")
        route = routes.get(key)
        if route is None or name not in route.gatherable:
            problems.append(f"unknown field to forget: {each!r:.80}")
        elif name not in data.get(route.id, {}):
            found[route.id] = (*found.get(route.id, ()), name)
    return found


def _listed_texts(given: Any, what: str, problems: list[str]) -> list[str]:
    if given is None:
        return []
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        problems.append(f"{what} is no list of texts: {given!r:.80}")
        return []
    return given
