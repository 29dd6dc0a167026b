"""What a model's reading of a message says: scores, values that fit, conditions that hold."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tellback.agent.moves import Interpretation, RejectedValue
from tellback.agent.route import Route
from tellback.agent.session import SessionState, get_route_data
from tellback.agent.understand import Questions
from tellback.agent.value_reading import InvalidValue
from tellback.types import Message
from tellback.types.jsontext import strip_code_fence


class UnreadableAnswer(ValueError):
    """The model's answer cannot be read; the message is written for the model."""


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """What was understood, and what of the answer could not be used."""

    interpretation: Interpretation = Interpretation()
    problems: tuple[str, ...] = field(default=())


def parse_answer(text: str, questions: Questions) -> ParsedAnswer:
    """What the model's answer says; raises `Unreadable` if it is no JSON object.

    A value that does not fit its field is set aside with the reason. A route, field or condition that was not asked for
    is left out, and said so.
    """
    answer = _parse_json_object(text)
    problems: list[str] = []
    routes = {questions.keys[route.id]: route for route in questions.open}
    data, rejected = _parse_values(answer.get("data"), routes, problems)
    conditions_by_key = questions.condition_keys
    keys = _parse_text_list(answer.get("conditions"), "conditions", problems)
    problems += [f"unknown condition {key!r:.80}" for key in keys if key not in conditions_by_key]
    interpretation = Interpretation(
        scores=_parse_scores(answer.get("routes"), questions, problems) if questions.scored else None,
        data=data,
        forgotten=_parse_forgotten(answer.get("forget"), routes, data, problems),
        true_conditions=frozenset(conditions_by_key[key] for key in keys if key in conditions_by_key),
        rejected=tuple(rejected),
    )
    return ParsedAnswer(interpretation, tuple(problems))


def parse_choice(text: str, answers_by_key: Mapping[str, str]) -> str:
    """The answer that was chosen; raises `Unreadable` if it is none of those."""
    try:
        key = _parse_json_object(text).get("answer")
    except UnreadableAnswer as problem:
        raise UnreadableAnswer(f"{problem}; answer is to be one of {', '.join(answers_by_key)}") from None
    if not isinstance(key, str) or key not in answers_by_key:
        raise UnreadableAnswer(f"answer is one of {', '.join(answers_by_key)}, not {key!r:.80}")
    return answers_by_key[key]


def trim_to_user_message(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages without what a turn that was cut off has added behind the user's: it is run again."""
    end = len(messages)
    while end and (messages[end - 1].role == "tool" or messages[end - 1].tool_calls):
        end -= 1
    return messages[:end] if end < len(messages) else messages


def _parse_json_object(text: str) -> Mapping[str, Any]:
    try:
        answer = json.loads(strip_code_fence(text))
    except ValueError as error:
        raise UnreadableAnswer(f"it is not JSON ({error})") from None
    except RecursionError:
        raise UnreadableAnswer("it is nested too deeply") from None
    if not isinstance(answer, Mapping):
        raise UnreadableAnswer(f"it is a {type(answer).__name__}, not a JSON object")
    return answer


def _parse_scores(value: Any, questions: Questions, problems: list[str]) -> dict[str, float]:
    ids = {questions.keys[route.id]: route.id for route in questions.scored}
    if isinstance(value, Mapping):
        value = [{"route": key, "score": score} for key, score in value.items()]
    if not isinstance(value, list | None):
        problems.append(f"routes is no list: {value!r:.80}")
    found: dict[str, float] = {}
    for each in value if isinstance(value, list) else []:
        key, score = (each.get("route"), each.get("score")) if isinstance(each, Mapping) else (each, None)
        if not isinstance(key, str) or key not in ids:
            problems.append(f"unknown route {key!r:.80}")
        elif isinstance(score, bool) or not isinstance(score, int | float) or score != score:
            problems.append(f"no score for {key!r}: {score!r:.80}")
        else:
            found[ids[key]] = max(float(min(max(score, 0), 100)), found.get(ids[key], 0.0))
    return found


def _parse_values(
    value: Any, routes: Mapping[str, Route], problems: list[str]
) -> tuple[dict[str, dict[str, Any]], list[RejectedValue]]:
    found: dict[str, dict[str, Any]] = {}
    rejected: list[RejectedValue] = []
    for field_name, field_value in _parse_stated_fields(value, problems):
        key, _, name = _qualify_field(field_name, routes).partition(".")
        route = routes.get(key)
        if field_value is None:
            continue  # how some models say that nothing was stated
        if route is None or name not in route.gatherable:
            problems.append(f"unknown field {field_name!r:.80}")
            continue
        try:
            found.setdefault(route.id, {})[name] = _validate_value(route, name, field_value)
        except InvalidValue as problem:
            rejected.append(RejectedValue(name, field_value, str(problem), route.id))
    return {id: values for id, values in found.items() if values}, rejected


def reject_inconsistent_values(
    routes: Mapping[str, Route], session: SessionState, interpretation: Interpretation
) -> Interpretation:
    """What was heard without values that do not go together with what is known: a return before the departure.

    That can be told once nothing needed is missing. The values of this message are set aside then.
    """
    data, rejected = dict(interpretation.data), list(interpretation.rejected)
    for id, stated in interpretation.data.items():
        route, known = routes[id], get_route_data(session, id)
        forgotten = interpretation.forgotten.get(id, ())
        combined = {**{name: value for name, value in known.items() if name not in forgotten}, **stated}
        try:
            route.schema.typed(combined)
        except InvalidValue as problem:
            if not _is_consistent(route, known):
                continue  # what was known did not go together before: nobody is held to that now
            plain = route.schema.plain(stated)
            rejected += [RejectedValue(name, plain[name], str(problem), id) for name in stated]
            del data[id]
    return (
        interpretation
        if len(data) == len(interpretation.data)
        else replace(interpretation, data=data, rejected=tuple(rejected))
    )


def _is_consistent(route: Route, data: Mapping[str, Any]) -> bool:
    try:
        route.schema.typed(data)
    except InvalidValue:
        return False
    return True


def _validate_value(route: Route, name: str, value: Any) -> Any:
    try:
        return route.schema.check(name, value)
    except InvalidValue:
        if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
            raise
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            parsed = value
        return route.schema.check(name, parsed)


def _parse_stated_fields(answer: Any, problems: list[str]) -> list[tuple[str, Any]]:
    """Fields and values; models that are held to no schema also write them as an object, by route or with a dot."""
    if isinstance(answer, Mapping):
        found = []
        for key, value in answer.items():
            if isinstance(value, Mapping) and "." not in key:
                found += [(f"{key}.{name}", each) for name, each in value.items()]
            else:
                found.append((key, value))
        return found
    found = []
    for each in answer if isinstance(answer, list) else []:
        if isinstance(each, Mapping) and isinstance(each.get("field"), str):
            found.append((each["field"], each.get("value")))
        else:
            problems.append(f"data has no field in {each!r:.80}")
    if not isinstance(answer, list | None):
        problems.append(f"data is no list: {answer!r:.80}")
    return found


def _qualify_field(field_name: str, routes: Mapping[str, Route]) -> str:
    """A field with its route; models leave that out where there is no doubt."""
    found = [key for key, route in routes.items() if field_name in route.gatherable]
    return f"{found[0]}.{field_name}" if len(found) == 1 and "." not in field_name else field_name


def _parse_forgotten(
    value: Any, routes: Mapping[str, Route], data: Mapping[str, Mapping[str, Any]], problems: list[str]
) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for each in _parse_text_list(value, "forget", problems):
        key, _, name = _qualify_field(each, routes).partition(".")
        route = routes.get(key)
        if route is None or name not in route.gatherable:
            problems.append(f"unknown field to forget: {each!r:.80}")
        elif name not in data.get(route.id, {}):
            found[route.id] = (*found.get(route.id, ()), name)
    return found


def _parse_text_list(value: Any, name: str, problems: list[str]) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        problems.append(f"{name} is no list of texts: {value!r:.80}")
        return []
    return value
