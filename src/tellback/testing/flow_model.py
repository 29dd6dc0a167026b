"""`FlowModel`: plays an agent's model by rules, so that a flow can be walked without a network."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tellback.chat.model import ChatRequest
from tellback.errors import InvalidArgumentError
from tellback.memory.neutral import one_line
from tellback.testing.asked import Asked, asked_in, is_titled
from tellback.testing.function import FunctionModel
from tellback.testing.scripted import Step, answers, says
from tellback.types import message_text
from tellback.types.names import folded

Reads = str | Callable[[str], Any]
"""A regular expression whose first group is the value, or a function of the message that gives it or None."""

MEANT, CURRENT, OTHER = 95, 80, 20

_NEWEST = re.compile(r"^Newest message: (.*)$", re.MULTILINE)
_KNOWN = re.compile(r"^Known: (.*)$", re.MULTILINE)
_TASK = re.compile(r"^Do this: (.*)$", re.MULTILINE)
_ASKED = re.compile(r"^To be asked for: (\S+)", re.MULTILINE)
_OTHERWISE = re.compile(
    r"^(?:(.* waits for a person's approval)\.|(.* is completed) with this|(\w+)\(.*\) failed: )", re.MULTILINE
)
_WORDING = re.compile(r'^- (".*")$', re.MULTILINE)
_RETRY = "the user wants to try this again: "
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_DATE = re.compile(r"\b\d{4}-\d{2}-\d{2}\b")
_NUMBER = re.compile(r"(?<![\w.-])\d+(?![\w-])")
_END = r"(?=\s*(?:[;\n]|,\s*[\w ]{1,40}?\s*(?:[:=]|\bis\b)|[.!?]*\s*$))"
_COMMON = {
    *("the", "and", "user", "users", "wants", "want", "asks", "ask", "about", "with", "for", "from", "that", "this"),
    *("their", "they", "has", "have", "would", "like", "some", "tell", "when", "your", "you", "her", "his", "its"),
}


class FlowModel(FunctionModel):
    """Understands by rule, and says what the flow would have it say.

    It reads `field: value` and `field is value`, separated by `;` (JSON where a value has such marks), and "forget the
    field"; of enums the option that is named, and a day (2026-12-01) or a whole number where the route has one field of
    the kind. `reads` says how other fields are read. A route is meant when a word of its title or conditions is said,
    or one of `routes[title]`; a condition holds when one of the words of `holds[condition]` is said, and "again" tries
    a tool again that failed. Its replies are the first canned response that the agent offers, else the state's
    description and what is asked for.

    It knows no language: no synonyms, no negation, no earlier messages, and it calls no tools. What it misreads says
    nothing about your flow; script such a turn with `understands(...)`.

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
        reads: Mapping[str, Reads] | None = None,
        routes: Mapping[str, Sequence[str]] | None = None,
        holds: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        super().__init__(self._answer, model="flow")
        self._reads = {name: _checked(name, each) for name, each in (reads or {}).items()}
        self._routes = {folded(one_line(title)): each for title, each in _word_lists("routes", routes).items()}
        self._holds = {one_line(text): each for text, each in _word_lists("holds", holds).items()}

    def _answer(self, request: ChatRequest) -> Step:
        asked = asked_in(request)
        if asked is not None:
            return answers(self._understood(asked, message_text(request.messages[0])))
        if request.output_schema is not None:
            return answers({"answer": request.output_schema["properties"]["answer"]["enum"][0]})
        return says(_reply(request.system or ""))

    def _understood(self, asked: Asked, prompt: str) -> dict[str, Any]:
        message = json.loads(_found(_NEWEST, prompt) or '""')
        current = asked.current
        known = json.loads(_found(_KNOWN, prompt) or "{}")
        answer: dict[str, Any] = {}
        meant = None
        if "routes" in asked.parts:
            scores = self._scores(asked.routes, current, message)
            answer["routes"] = [{"route": key, "score": score} for key, score in scores.items()]
            meant = next((key for key, score in scores.items() if score == MEANT), None)
        if "data" in asked.parts:
            about = meant or current
            fields = {key: each for key, each in asked.fields.items() if about in (None, key)}
            stated = [(key, name, each) for key in fields for name, each in self._values(fields[key], message).items()]
            answer["data"] = [{"field": f"{key}.{name}", "value": value} for key, name, value in stated]
            answer["forget"] = [
                f"{key}.{name}"
                for key, each in fields.items()
                for name in each
                if name in known.get(key, {}) and _is_said(f"forget (?:the |my )?{_label(name)}", message)
            ]
        if "conditions" in asked.parts:
            words = {key: self._words(text) for key, text in asked.conditions.items()}
            answer["conditions"] = [key for key, each in words.items() if _any_said(each, message)]
        return answer

    def _words(self, condition: str) -> Sequence[str]:
        return self._holds.get(condition, ("again",) if condition.startswith(_RETRY) else ())

    def _scores(self, routes: Mapping[str, str], current: str | None, message: str) -> dict[str, int]:
        meant = [key for key, about in routes.items() if self._is_meant(about, message)]
        if current in meant or not meant:
            return {} if current is None else {current: MEANT if current in meant else CURRENT}
        return {meant[0]: MEANT, **({} if current is None else {current: OTHER})}

    def _is_meant(self, about: str, message: str) -> bool:
        titles = [title for title in self._routes if is_titled(folded(about), title)]
        if titles:
            return _any_said(self._routes[max(titles, key=len)], message)
        own = re.findall(r"\w+", folded(about.removesuffix(" (completed)")))
        return _any_said([word for word in own if len(word) > 2 and word not in _COMMON], message)

    def _values(self, schemas: Mapping[str, Any], message: str) -> dict[str, Any]:
        found = {name: self._value(name, schema, schemas, message) for name, schema in schemas.items()}
        return {name: value for name, value in found.items() if value is not None}

    def _value(self, name: str, schema: Mapping[str, Any], others: Mapping[str, Any], message: str) -> Any:
        # What is in quotes is a value, whatever it looks like.
        masked = _QUOTED.sub(lambda quoted: "\0" * len(quoted.group()), message)
        labelled = re.search(rf"\b{_label(name)}\s*(?:[:=]|\bis\b)\s*(.+?){_END}", masked, re.IGNORECASE)
        if labelled:
            return _decoded(message, *labelled.span(1))
        reads = self._reads.get(name)
        if callable(reads):
            return reads(message)
        if reads is not None:
            read = re.search(reads, message)
            return None if read is None else read.group(1)
        if "enum" in schema:
            said = [(_last_said(str(each), message), each) for each in schema["enum"]]
            return max(said, key=lambda each: each[0])[1] if any(at >= 0 for at, _ in said) else None
        for is_kind, pattern in ((_is_day, _DATE), (_is_whole, _NUMBER)):
            if is_kind(schema) and sum(map(is_kind, others.values())) == 1:
                values = pattern.findall(message)
                return values[0] if len(values) == 1 else None
        return None


def _checked(name: str, reads: Any) -> Reads:
    if callable(reads):
        given: Reads = reads
        return given
    if not isinstance(reads, str):
        raise InvalidArgumentError(f"reads[{name!r}] is a regular expression or a function, not {reads!r:.80}.")
    try:
        groups = re.compile(reads).groups
    except re.error as error:
        raise InvalidArgumentError(f"reads[{name!r}] is no regular expression: {error}.") from error
    if groups == 0:
        raise InvalidArgumentError(f"reads[{name!r}], {reads!r:.80}, has no group: put (...) around the value.")
    return reads


def _word_lists(what: str, given: Mapping[str, Sequence[str]] | None) -> dict[str, tuple[str, ...]]:
    for name, words in (given or {}).items():
        if isinstance(words, str):
            raise InvalidArgumentError(
                f"{what}[{name!r}] is a list of words, not {words!r:.80}: write [{words!r:.80}]."
            )
    return {name: tuple(words) for name, words in (given or {}).items()}


def _reply(system: str) -> str:
    """What a prompt would have said, in its own words."""
    wording = _WORDING.findall(system.rpartition("# Wording")[2]) if "# Wording" in system else []
    if wording:
        return str(json.loads(wording[0]))
    task = _found(_TASK, system)
    if task is None:
        matches = _OTHERWISE.findall(system)
        if not matches:
            return "How can I help?"
        waits, completed, failed = matches[-1]
        return f"{waits or completed or f'{failed} failed'}."
    asked = ", ".join(f"{name}?" for name in _ASKED.findall(system))
    return f"{task} ({asked})" if asked else task


def _decoded(message: str, start: int, end: int) -> Any:
    """The value there: JSON if it begins like that, else the text."""
    if message[start] in '"[{':
        try:
            return json.JSONDecoder().raw_decode(message, start)[0]
        except ValueError:
            pass  # a text that only looks like it
    return message[start:end].strip()


def _label(name: str) -> str:
    """A field's name as people write it: with or without underscores."""
    return r"[ _]".join(map(re.escape, name.split("_")))


def _is_day(schema: Mapping[str, Any]) -> bool:
    return schema.get("format") == "date"


def _is_whole(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "integer"


def _any_said(words: Sequence[str], message: str) -> bool:
    return any(_is_said(re.escape(word), message) for word in words)


def _is_said(pattern: str, message: str) -> bool:
    return re.search(rf"\b(?:{pattern})\b", message, re.IGNORECASE) is not None


def _last_said(word: str, message: str) -> int:
    places = [each.start() for each in re.finditer(rf"\b{re.escape(word)}\b", message, re.IGNORECASE)]
    return places[-1] if places else -1


def _found(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return None if match is None else match.group(1)
