"""Parse a model's answer about a message: its values are compared with the user's words and with the schema."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from tellback.agent.definitions.route import Route
from tellback.agent.definitions.value_parser import InvalidValue
from tellback.agent.flow.interpretation import Interpretation, RejectedValue
from tellback.agent.prompts.evidence import find_content, find_missing_evidence, is_literal, is_quoted
from tellback.agent.prompts.numerals import fold_text, word_set
from tellback.agent.prompts.understand import MAX_EARLIER_MESSAGES, Questions
from tellback.agent.sessions.session import SessionState, find_unfinished, get_route_data
from tellback.types import Message, message_text
from tellback.types.jsontext import dump_json, strip_code_fence


class UnreadableAnswer(ValueError):
    """The model's answer cannot be parsed; the message is written for the model."""


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """The interpretation, and the parts of the answer that were ignored."""

    interpretation: Interpretation = Interpretation()
    problems: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class UserMessages:
    """The user's messages, with which the values of an answer are compared.

    `today` is the date at the user's place, and `known` is the data of each route. With `has_completed`, a route was
    completed before, so that a remark must not begin it again. Fields in `asked` were asked for by
    the agent; values of fields in `fresh` are read only from the newest message.
    """

    newest: str
    today: date
    earlier: tuple[str, ...] = ()
    known: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    asked: frozenset[tuple[str, str]] = frozenset()
    fresh: frozenset[tuple[str, str]] = frozenset()
    has_completed: bool = False


def collect_user_messages(
    questions: Questions, session: SessionState, history: Sequence[Message], today: date
) -> UserMessages:
    """Collect what the values of an answer are compared with."""
    *before, newest = history
    known: dict[str, Mapping[str, Any]] = {}
    fresh: set[tuple[str, str]] = set()
    for route in questions.open:
        unfinished = find_unfinished(session, route.id)
        known[route.id] = get_route_data(session, route.id)
        # Values of a pass that has ended are not read again for the next one.
        had_pass = any(visit.route_id == route.id and visit.completed for visit in session.route_history)
        completed = route.gatherable if had_pass else ()
        fresh |= {(route.id, name) for name in (*completed, *(unfinished.progress.forgotten if unfinished else ()))}
    asked: set[tuple[str, str]] = set()
    for route in questions.open:
        current = session.current_state
        is_current = session.current_route is not None and session.current_route.id == route.id
        state = route.state(current.id) if is_current and current is not None else None
        if state is not None:  # it also asks for what the next states require
            names = {*state.gather, *(name for each in state.next_states() for name in each.required_data)}
            asked |= {(route.id, name) for name in names}
    texts = [message_text(each) for each in before[-MAX_EARLIER_MESSAGES:] if each.role == "user"]
    if consists_of_questions(message_text(newest)):  # a question is no reason to read earlier messages again
        texts = []
    has_completed = any(visit.completed for visit in session.route_history)
    return UserMessages(
        message_text(newest), today, tuple(texts), known, frozenset(asked), frozenset(fresh), has_completed
    )


_QUESTION_MARKS = "?\uff1f\u061f"
_SENTENCE = re.compile(rf"(.+?)([.!\u3002\uff01…{_QUESTION_MARKS}]+(?=\s|$)|\n|$)", re.DOTALL)


_WORDS = re.compile(r"[^\W\d_]+")
_REFUSALS = word_set("no nope nah not never stop cancel nein nicht nee non não nie nej нет いいえ 不 لا नहीं")
_AGREEMENTS = word_set(
    "yes yep yeah yup ok okay sure certainly absolutely exactly fine great perfect agreed correct right ja"
    " jawohl gerne genau klar si claro vale perfecto oui parfait certo perfetto sim da да tak はい 是 好"
)


def consists_of_questions(text: str) -> bool:
    """Whether every sentence of the text is a question, and the text does not begin with a word of agreement.

    >>> consists_of_questions("How long does it take?"), consists_of_questions("Yes, how long does it take?")
    (True, False)
    """
    if not any(mark in text for mark in _QUESTION_MARKS):
        return False
    first = _WORDS.search(fold_text(text))
    if first is not None and first[0] in _AGREEMENTS:
        return False
    ends = [end for words, end in _SENTENCE.findall(text.strip()) if any(each.isalnum() for each in words)]
    return bool(ends) and all(any(mark in end for mark in _QUESTION_MARKS) for end in ends)


def is_remark(text: str) -> bool:
    """Whether every sentence of the text is a question, or consists of greetings, thanks and words of agreement.

    >>> is_remark("Great, thanks! Has it been sent?"), is_remark("Great, and another one, please")
    (True, False)
    """
    return all(
        any(mark in end for mark in _QUESTION_MARKS) or find_content(words) <= _AGREEMENTS
        for words, end in _SENTENCE.findall(text.strip())
    )


def begins_with_refusal(text: str) -> bool:
    """Whether the text begins with a word such as "no", and contains no word of agreement.

    >>> begins_with_refusal("No, thanks"), begins_with_refusal("No, that is fine")
    (True, False)
    """
    words = _WORDS.findall(fold_text(text))
    return bool(words) and words[0] in _REFUSALS and _AGREEMENTS.isdisjoint(words)


def parse_answer(
    text: str, questions: Questions, messages: UserMessages | None = None, *, trusted: bool = False
) -> ParsedAnswer:
    """Parse the model's answer; raise `UnreadableAnswer` if it is not a JSON object.

    Values that do not fit their field are rejected with a reason; so are values that the user's words do not support,
    if the `messages` are passed and the answer is not `trusted`. Unknown routes, fields and conditions are ignored and
    listed in `problems`.
    """
    answer = _parse_json_object(text)
    problems: list[str] = []
    routes = {questions.keys[route.id]: route for route in questions.open}
    replaced = set(_parse_text_list(answer.get("forget"), "forget", []))
    data, rejected = _parse_values(answer.get("data"), routes, replaced, problems, None if trusted else messages)
    conditions_by_key = questions.condition_keys
    keys = _parse_text_list(answer.get("conditions"), "conditions", problems)
    problems += [f"unknown condition {key!r:.80}" for key in keys if key not in conditions_by_key]
    interpretation = Interpretation(
        scores=_parse_scores(answer.get("routes"), questions, problems) if questions.scored else None,
        data=data,
        forgotten=_parse_forgotten(answer.get("forget"), routes, answer.get("data"), data, problems),
        true_conditions=frozenset(conditions_by_key[key] for key in keys if key in conditions_by_key),
        rejected=tuple(rejected),
        answered=_parse_answered(answer.get("answered"), questions, problems, trusted=trusted),
        only_asks=messages is not None and consists_of_questions(messages.newest),
        declines=messages is not None and begins_with_refusal(messages.newest),
        is_remark=messages is not None and messages.has_completed and is_remark(messages.newest),
    )
    return ParsedAnswer(interpretation, tuple(problems))


def parse_choice(text: str, answers_by_key: Mapping[str, str]) -> str:
    """Return the chosen answer; raise `UnreadableAnswer` if the key is unknown."""
    try:
        key = _parse_json_object(text).get("answer")
    except UnreadableAnswer as problem:
        raise UnreadableAnswer(f"{problem}; answer must be one of {', '.join(answers_by_key)}") from None
    if not isinstance(key, str) or key not in answers_by_key:
        raise UnreadableAnswer(f"answer must be one of {', '.join(answers_by_key)}, got {key!r:.80}")
    return answers_by_key[key]


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
        problems.append(f"routes is not a list: {value!r:.80}")
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


def _parse_answered(value: Any, questions: Questions, problems: list[str], *, trusted: bool) -> bool | None:
    if questions.step is None or isinstance(value, bool):
        return value if questions.step is not None else None
    if value is None and trusted:
        return None
    problems.append(f"answered is not true or false: {value!r:.80}")
    return False  # without the model's word, no answer is assumed


def _parse_values(
    value: Any,
    routes: Mapping[str, Route],
    replaced: Set[str],
    problems: list[str],
    messages: UserMessages | None,
) -> tuple[dict[str, dict[str, Any]], list[RejectedValue]]:
    found: dict[str, dict[str, Any]] = {}
    rejected: list[RejectedValue] = []
    stated = _parse_stated_fields(value, problems)
    for field_name, field_value, words in stated:
        if field_value is None:
            continue  # some models write null for values that were not stated
        meant = _find_field(field_name, routes)
        if meant is None:
            problems.append(f"unknown field {field_name!r:.80}")
            continue
        route, name = meant
        reason = None
        if messages is not None and not is_literal(field_value, words, messages.newest):
            others = [f"{key} {each}" for key, each, _ in stated if key != field_name and isinstance(each, str)]
            is_replaced = field_name in replaced or name in replaced
            reason = _find_missing_evidence(route, name, field_value, words, messages, others, is_replaced=is_replaced)
        if reason is not None:
            if reason:
                rejected.append(RejectedValue(name, field_value, reason, route.id, explained=False))
            continue
        try:
            checked = _validate_value(route, name, field_value)
        except InvalidValue as problem:
            is_new = messages is None or is_quoted(words or messages.newest, messages.newest)
            rejected.append(RejectedValue(name, field_value, str(problem), route.id, explained=is_new))
            continue
        values = found.setdefault(route.id, {})
        if name in values and values[name] != checked:
            if route.schema.is_list(name):
                checked = route.schema.extend(name, values[name], checked)
            else:
                plain = route.schema.plain({name: values[name]})[name]
                reason = f"the message also states {dump_json(field_value)}, which is used"
                rejected.append(RejectedValue(name, plain, reason, route.id, explained=False))
        values[name] = checked
    return {id: values for id, values in found.items() if values}, rejected


def _find_missing_evidence(
    route: Route,
    name: str,
    value: Any,
    words: str | None,
    messages: UserMessages,
    others: Iterable[str],
    *,
    is_replaced: bool,
) -> str | None:
    """Return why a value is not supported by the user's words, or None if it is.

    Words that only state one of the `others`, each a field with its text, are no answer: "to Rome" does not state one
    passenger. If a list replaces the known one, its known items need no support. The reason is empty for a value that
    is known already and that the newest message does not mention.
    """
    schema, place = {**route.schema.fields[name].schema, "$defs": route.schema.definitions}, (route.id, name)
    content, is_closed = find_content(words or ""), isinstance(value, bool) or "enum" in schema or "anyOf" in schema
    is_other = bool(content) and not is_closed and any(content <= find_content(other) for other in others)
    asked = place in messages.asked and not is_other
    known = route.schema.plain(messages.known.get(route.id, {})).get(name)
    if isinstance(known, list) and known:
        items = _read_items(value)
        if is_replaced or (len(items) > len(known) and items[: len(known)] == known):
            value = _find_changes(items, known)
            if not value and is_quoted(words or messages.newest, messages.newest):
                return None
    reason = find_missing_evidence(schema, name, value, words, messages.newest, (), asked=asked, today=messages.today)
    if reason is None or place in messages.fresh:
        return reason
    if known is not None and known == value:
        return ""
    return find_missing_evidence(
        schema, name, value, words, messages.newest, messages.earlier, asked=asked, today=messages.today
    )


def _read_items(value: Any) -> list[Any]:
    """Return the items of a list, in which a model may write objects as JSON text, or the whole list."""
    items = _read_json(value)
    return [_read_json(each) for each in items] if isinstance(items, list) else [items]


def _read_json(value: Any) -> Any:
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _find_changes(items: Sequence[Any], known: Sequence[Any]) -> list[Any]:
    """Return the items that are not in the known list; of an object that is like a known one, what is different."""
    left, changes = list(known), []
    for item in items:
        if isinstance(item, Mapping):
            likes = [each for each in left if isinstance(each, Mapping)]
            like = max(likes, key=functools.partial(_count_equal, item), default={})
            different = {name: each for name, each in item.items() if like.get(name) != each}
            if len(different) < len(item):
                left.remove(like)
            changes += [different] if different else []
        elif item in left:
            left.remove(item)
        else:
            changes.append(item)
    return changes


def _count_equal(one: Mapping[str, Any], other: Mapping[str, Any]) -> int:
    return sum(name in other and other[name] == value for name, value in one.items())


def reject_inconsistent_values(
    routes: Mapping[str, Route], session: SessionState, interpretation: Interpretation
) -> Interpretation:
    """Reject values of this message that are inconsistent with known ones, such as a return before the departure.

    Of the stated values, only those are rejected without which the rest is consistent.
    """
    data, rejected = dict(interpretation.data), list(interpretation.rejected)
    for id, stated in interpretation.data.items():
        route, known = routes[id], get_route_data(session, id)
        forgotten = interpretation.forgotten.get(id, ())
        before = {name: value for name, value in known.items() if name not in forgotten}
        problem = route.schema.find_inconsistency({**before, **stated})
        # If the data was already inconsistent, the values of this message are not rejected.
        if problem is None or route.schema.find_inconsistency(known) is not None:
            continue
        others = ({name: stated[name] for name in stated if name != each} for each in stated)
        causes = [
            each
            for each, rest in zip(stated, others, strict=True)
            if route.schema.find_inconsistency({**before, **rest}) is None
        ]
        plain = route.schema.plain(stated)
        rejected += [RejectedValue(name, plain[name], problem, id) for name in causes or stated]
        data[id] = {name: value for name, value in stated.items() if causes and name not in causes}
    if len(rejected) == len(interpretation.rejected):
        return interpretation
    return replace(interpretation, data={id: stated for id, stated in data.items() if stated}, rejected=tuple(rejected))


def _validate_value(route: Route, name: str, value: Any) -> Any:
    try:
        return route.schema.check(name, value)
    except InvalidValue:
        parsed = _read_items(value) if isinstance(value, list) else _read_json(value)
        if parsed == value:
            raise
        return route.schema.check(name, parsed)


def _parse_stated_fields(answer: Any, problems: list[str]) -> list[tuple[str, Any, str | None]]:
    """Return field, value and the words it was taken from, if given.

    Models without schema enforcement also write an object: `{"route.field": value}` or `{"route": {"field": value}}`.
    """
    found: list[tuple[str, Any, str | None]] = []
    if isinstance(answer, Mapping):
        for key, value in answer.items():
            if isinstance(value, Mapping) and "." not in key:
                found += [(f"{key}.{name}", each, None) for name, each in value.items()]
            else:
                found.append((key, value, None))
        return found
    for each in answer if isinstance(answer, list) else []:
        if isinstance(each, Mapping) and isinstance(each.get("field"), str):
            words = each.get("words")
            found.append((each["field"], each.get("value"), words if isinstance(words, str) else None))
        else:
            problems.append(f"an item of data has no field: {each!r:.80}")
    if not isinstance(answer, list | None):
        problems.append(f"data is not a list: {answer!r:.80}")
    return found


def _find_field(text: str, routes: Mapping[str, Route]) -> tuple[Route, str] | None:
    """Find the field by its name. Models sometimes omit the route; this works if only one route has the field."""
    having = [route for route in routes.values() if text in route.gatherable]
    if len(having) == 1 and "." not in text:
        return having[0], text
    key, _, name = text.partition(".")
    route = routes.get(key)
    return None if route is None or name not in route.gatherable else (route, name)


def _parse_forgotten(
    value: Any,
    routes: Mapping[str, Route],
    values: Any,
    data: Mapping[str, Mapping[str, Any]],
    problems: list[str],
) -> dict[str, tuple[str, ...]]:
    """Return the fields to forget. A field with a value in the same answer is not forgotten, even if the value was
    rejected; but accepted items of a list replace the known ones."""
    stated = {_find_field(name, routes) for name, value, _ in _parse_stated_fields(values, []) if value is not None}
    found: dict[str, tuple[str, ...]] = {}
    for each in _parse_text_list(value, "forget", problems):
        meant = _find_field(each, routes)
        if meant is None:
            problems.append(f"unknown field to forget: {each!r:.80}")
            continue
        route, name = meant
        is_stored = name in data.get(route.id, {})
        if meant in stated and not is_stored:
            problems.append(f"{each!r} is not forgotten, because the answer also has a value for it")
        elif not is_stored or route.schema.is_list(name):
            found[route.id] = (*found.get(route.id, ()), name)
    return found


def _parse_text_list(value: Any, name: str, problems: list[str]) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        problems.append(f"{name} is not a list of strings: {value!r:.80}")
        return []
    return value
