"""`FlowModel`: a rule-based model for an agent, to try a flow without a network."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tellback.chat.model import SCRIPTED_READING, ChatRequest
from tellback.errors import InvalidArgumentError
from tellback.memory.templates import sanitize_line
from tellback.testing.models import FunctionModel, Step, answers, says
from tellback.testing.nlu import UnderstandingRequest, has_title, parse_understanding_request, search_group
from tellback.types import message_text
from tellback.types.ids import fold_name

FieldReader = str | Callable[[str], Any]
"""A regular expression whose first group is the value, or a function of the message that returns the value or None."""

MEANT_SCORE, CURRENT_SCORE, OTHER_SCORE = 95, 80, 20

_NEWEST_MESSAGE = re.compile(r"^Newest message: (.*)$", re.MULTILINE)
_KNOWN_DATA = re.compile(r"^Known: (.*)$", re.MULTILINE)
_TASK = re.compile(r"^Do this: (.*)$", re.MULTILINE)
_REQUESTED_FIELD = re.compile(r"^Ask for: (\S+)", re.MULTILINE)
_OUTCOME = re.compile(
    r"^(?:(.* waits for a person's approval)\.|(.* is completed)\.|(\w+)\(.*\) failed: )", re.MULTILINE
)
_WORDING = re.compile(r'^- (".*")$', re.MULTILINE)
_RETRY = "the user wants to try this again: "
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_DATE = re.compile(r"\b\d{4}-\d{2}-\d{2}\b")
_NUMBER = re.compile(r"(?<![\w.-])\d+(?![\w-])")
_VALUE_END = r"(?=\s*(?:[;\n]|,\s*[\w ]{1,40}?\s*(?:[:=]|\bis\b)|[.!?]*\s*$))"
_STOPWORDS = {
    *("the", "and", "user", "users", "wants", "want", "asks", "ask", "about", "with", "for", "from", "that", "this"),
    *("their", "they", "has", "have", "would", "like", "some", "tell", "when", "your", "you", "her", "his", "its"),
}


_REFUSAL = re.compile(r"\s*no\b", re.IGNORECASE)


class FlowModel(FunctionModel):
    """A model that interprets messages by rules and replies with the texts of the flow.

    - Values: it reads `field: value` and `field is value`, separated by `;` (JSON if a value contains such characters),
      and "forget the field". It reads the option of an enum, and a date (2026-12-01) or an integer if the route has one
      field of that type. `reads` maps other fields to rules.
    - Routes: a route matches if the message contains a word of its title, its conditions or `routes[title]`.
    - Answers: a message answers a step without fields unless it ends with a question mark, or begins with "no".
    - Conditions: a condition is true if the message contains one of the words in `holds[condition]`. "again" repeats a
      failed tool.
    - Replies: the first canned response of the agent, otherwise the description of the state and the missing fields.

    It knows no synonyms, no negation and no earlier messages, and calls no tools. If it misunderstands a message, your
    flow may still be correct; script such a turn with `understands(...)`.

    >>> import asyncio
    >>> from tellback.agent import Agent
    >>> schema = {"type": "object", "properties": {"to": {"type": "string"}, "seats": {"type": "integer"}}}
    >>> agent = Agent("Wanda", model=FlowModel(reads={"to": r"to ([A-Z]\\w+)"}))
    >>> route = agent.create_route(title="Book a flight", gather_schema=schema)
    >>> _ = route.initial_state.transition_to(chat_state="Ask where to and how many", gather=["to", "seats"])
    >>> asyncio.run(agent.respond("A flight to Rome")).message
    'Ask where to and how many (seats?)'
    """

    def __init__(
        self,
        *,
        reads: Mapping[str, FieldReader] | None = None,
        routes: Mapping[str, Sequence[str]] | None = None,
        holds: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        super().__init__(self._answer, model="flow")
        self._reads = {name: _validate_reader(name, each) for name, each in (reads or {}).items()}
        self._routes = {
            fold_name(sanitize_line(title)): each for title, each in _validate_word_lists("routes", routes).items()
        }
        self._holds = {sanitize_line(text): each for text, each in _validate_word_lists("holds", holds).items()}

    def _answer(self, request: ChatRequest) -> Step:
        understanding = parse_understanding_request(request)
        if understanding is not None:
            reading = answers(self._understand(understanding, message_text(request.messages[0])))
            return replace(reading, reply=replace(reading.reply, raw=SCRIPTED_READING))
        if request.output_schema is not None:
            return answers({"answer": request.output_schema["properties"]["answer"]["enum"][0]})
        return says(_compose_reply(request.instructions))

    def _understand(self, understanding: UnderstandingRequest, prompt: str) -> dict[str, Any]:
        message = json.loads(search_group(_NEWEST_MESSAGE, prompt) or '""')
        current = understanding.current_route
        known = json.loads(search_group(_KNOWN_DATA, prompt) or "{}")
        answer: dict[str, Any] = {}
        meant = None
        if "routes" in understanding.parts:
            scores = self._scores(understanding.routes, current, message)
            answer["routes"] = [{"route": key, "score": score} for key, score in scores.items()]
            meant = next((key for key, score in scores.items() if score == MEANT_SCORE), None)
        if "data" in understanding.parts:
            focus = meant or current
            fields = {key: each for key, each in understanding.fields.items() if focus in (None, key)}
            stated = [
                (key, name, each) for key in fields for name, each in self._read_values(fields[key], message).items()
            ]
            answer["data"] = [{"field": f"{key}.{name}", "value": value} for key, name, value in stated]
            answer["forget"] = [
                f"{key}.{name}"
                for key, each in fields.items()
                for name in each
                if name in known.get(key, {}) and _contains(f"forget (?:the |my )?{_label_pattern(name)}", message)
            ]
        if "conditions" in understanding.parts:
            words = {key: self._condition_words(text) for key, text in understanding.conditions.items()}
            answer["conditions"] = [key for key, each in words.items() if _contains_any(each, message)]
        if "answered" in understanding.parts:
            answer["answered"] = not message.rstrip().endswith("?") and not _REFUSAL.match(message)
        return answer

    def _condition_words(self, condition: str) -> Sequence[str]:
        return self._holds.get(condition, ("again",) if condition.startswith(_RETRY) else ())

    def _scores(self, routes: Mapping[str, str], current: str | None, message: str) -> dict[str, int]:
        meant = [key for key, description in routes.items() if self._is_meant(description, message)]
        if current in meant or not meant:
            return {} if current is None else {current: MEANT_SCORE if current in meant else CURRENT_SCORE}
        return {meant[0]: MEANT_SCORE, **({} if current is None else {current: OTHER_SCORE})}

    def _is_meant(self, description: str, message: str) -> bool:
        titles = [title for title in self._routes if has_title(fold_name(description), title)]
        if titles:
            return _contains_any(self._routes[max(titles, key=len)], message)
        own = re.findall(r"\w+", fold_name(description.removesuffix(" (completed)")))
        return _contains_any([word for word in own if len(word) > 2 and word not in _STOPWORDS], message)

    def _read_values(self, schemas: Mapping[str, Any], message: str) -> dict[str, Any]:
        found = {name: self._read_value(name, schema, schemas, message) for name, schema in schemas.items()}
        return {name: value for name, value in found.items() if value is not None}

    def _read_value(self, name: str, schema: Mapping[str, Any], others: Mapping[str, Any], message: str) -> Any:
        # Quoted text is always a value.
        masked = _QUOTED.sub(lambda quoted: "\0" * len(quoted.group()), message)
        labelled = re.search(rf"\b{_label_pattern(name)}\s*(?:[:=]|\bis\b)\s*(.+?){_VALUE_END}", masked, re.IGNORECASE)
        if labelled:
            return _decode_value(message, *labelled.span(1))
        reads = self._reads.get(name)
        if callable(reads):
            return reads(message)
        if reads is not None:
            read = re.search(reads, message)
            return None if read is None else read.group(1)
        if "enum" in schema:
            mentions = [(_last_position(str(each), message), each) for each in schema["enum"]]
            return max(mentions, key=lambda each: each[0])[1] if any(at >= 0 for at, _ in mentions) else None
        for is_kind, pattern in ((_is_date_field, _DATE), (_is_integer_field, _NUMBER)):
            if is_kind(schema) and sum(map(is_kind, others.values())) == 1:
                values = pattern.findall(message)
                return values[0] if len(values) == 1 else None
        return None


def _validate_reader(name: str, reads: Any) -> FieldReader:
    if callable(reads):
        reader: FieldReader = reads
        return reader
    if not isinstance(reads, str):
        raise InvalidArgumentError(f"reads[{name!r}] must be a regular expression or a function, got {reads!r:.80}.")
    try:
        groups = re.compile(reads).groups
    except re.error as error:
        raise InvalidArgumentError(f"reads[{name!r}] is not a valid regular expression: {error}.") from error
    if groups == 0:
        raise InvalidArgumentError(f"reads[{name!r}], {reads!r:.80}, has no group: add (...) around the value.")
    return reads


def _validate_word_lists(option: str, lists: Mapping[str, Sequence[str]] | None) -> dict[str, tuple[str, ...]]:
    for name, words in (lists or {}).items():
        if isinstance(words, str):
            raise InvalidArgumentError(
                f"{option}[{name!r}] must be a list of words, got {words!r:.80}: write [{words!r:.80}]."
            )
    return {name: tuple(words) for name, words in (lists or {}).items()}


def _compose_reply(instructions: str) -> str:
    """Return the reply that the instructions for a turn ask for, in their words."""
    wording = _WORDING.findall(instructions.rpartition("# Wording")[2]) if "# Wording" in instructions else []
    if wording:
        return str(json.loads(wording[0]))
    task = search_group(_TASK, instructions)
    if task is None:
        matches = _OUTCOME.findall(instructions)
        if not matches:
            return "How can I help?"
        waits, completed, failed = matches[-1]
        return f"{waits or completed or f'{failed} failed'}."
    questions = ", ".join(f"{name}?" for name in _REQUESTED_FIELD.findall(instructions))
    return f"{task} ({questions})" if questions else task


def _decode_value(message: str, start: int, end: int) -> Any:
    """Parse a value: JSON if it begins like JSON, otherwise text."""
    if message[start] in '"[{':
        try:
            return json.JSONDecoder().raw_decode(message, start)[0]
        except ValueError:
            pass  # a text that only looks like JSON
    return message[start:end].strip()


def _label_pattern(name: str) -> str:
    """Return a pattern for a field name with or without underscores."""
    return r"[ _]".join(map(re.escape, name.split("_")))


def _is_date_field(schema: Mapping[str, Any]) -> bool:
    return schema.get("format") == "date"


def _is_integer_field(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "integer"


def _contains_any(words: Sequence[str], message: str) -> bool:
    return any(_contains(re.escape(word), message) for word in words)


def _contains(pattern: str, message: str) -> bool:
    return re.search(rf"\b(?:{pattern})\b", message, re.IGNORECASE) is not None


def _last_position(word: str, message: str) -> int:
    places = [each.start() for each in re.finditer(rf"\b{re.escape(word)}\b", message, re.IGNORECASE)]
    return places[-1] if places else -1
