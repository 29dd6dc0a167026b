"""Model output: its JSON schemas and its parser, which checks citations, dates, quotes and decisions.

Errors that the model must correct, such as an unknown message id, raise `InvalidOutput`. A fact that the user's
messages do not support is left out.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field

from tellback.chat.output import InvalidOutput
from tellback.memory.extraction.transcript import Transcript, TranscriptLine, visible_text
from tellback.memory.extraction.values import (
    FIRST_YEAR,
    Change,
    Decision,
    ExtractedEntity,
    ExtractedFact,
    Extraction,
    LeftOut,
    Question,
    Verdict,
)
from tellback.tools.schema import strip_titles
from tellback.types.ids import fold_name
from tellback.types.jsontext import make_storable
from tellback.types.memory import Atom, Category, CategoryKind, EntityType
from tellback.validation import MAX_NAME_LENGTH, MAX_TEXT_LENGTH
from tellback.validation import NAME_LENGTH as CATEGORY_LENGTH

_YEAR_OR_MONTH = re.compile(r"(\d{4})(?:-(\d{2}))?\Z")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}\Z")

_LAST_MOMENT = datetime.max.replace(tzinfo=UTC)

MIN_QUOTED_WORDS = 2
"""A quote with fewer words proves nothing, unless it is the whole message."""

_ELLIPSIS = re.compile(r"\[?(?:…|\.\.\.)\]?")
# Thai, Lao, Burmese, Khmer, Japanese and Chinese have no spaces: any character may begin or end a word.
_UNSPACED_SCRIPTS = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
_APOSTROPHES = frozenset("'\u2019\u02bc`\u00b4")

NOT_FROM_USER = "only the assistant said it"
NOT_QUOTED = "its quote is too short, or not in the cited messages of the user"
BLANK = "its text is empty"
TOO_LONG = f"it has more than {MAX_TEXT_LENGTH} characters"

RESERVED_CATEGORIES = frozenset(("", "turn", "pattern"))
"""Categories that a model cannot use. The last two belong to the platform."""

MAX_PROBLEMS = 10
"""How many problems are reported to a model at a time."""


MAX_ENUM_IDS = 400
"""A longer list of ids is not included in the schema, because providers limit its size."""


def _upper(value: Any) -> Any:
    return value.strip().upper() if isinstance(value, str) else value


def _lower(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


KindField = Annotated[Literal["FACT", "RULE", "INTENTION", "EPISODE", "PREFERENCE"], BeforeValidator(_upper)]
EntityTypeField = Annotated[
    Literal["PERSON", "ORGANIZATION", "PLACE", "OBJECT", "CONCEPT", "EVENT", "AGREEMENT"], BeforeValidator(_upper)
]
ChangeField = Annotated[Literal["none", "changed", "corrected"], BeforeValidator(_lower)]
VerdictField = Annotated[Literal["same", "replaces", "corrects", "new"], BeforeValidator(_lower)]


class FactOutput(BaseModel):
    """A fact in a model's output."""

    messages: list[str] = Field(min_length=1, description="ids of the messages that support it")
    quote: str | None = Field(None, description="the user's exact words")
    text: str = Field(description="one self-contained sentence")
    kind: KindField
    category: str = Field("", description="one or two plain words")
    subject: str | None = Field(None, description='the person or thing it is about, such as "user"')
    attribute: str | None = Field(None, description='such as "home city"')
    value: str | None = Field(None, description='such as "Lisbon"')
    single: bool = Field(False, description="only one such value at a time")
    change: ChangeField = "none"
    since: str | None = Field(None, description="date, month or year: 2026-03-04, 2026-03, 2026")
    until: str | None = Field(None, description="date, month or year")
    importance: int = Field(3, ge=1, le=5)
    confidence: float = Field(0.8, ge=0, le=1)
    entities: list[str] = Field([], description="names of entities")


class EntityOutput(BaseModel):
    """An entity in a model's output."""

    name: str
    type: EntityTypeField
    aliases: list[str] = []
    description: str | None = None


class ExtractionOutput(BaseModel):
    """The facts and entities that a model found in a window."""

    facts: list[FactOutput]
    entities: list[EntityOutput] = []


class DecisionOutput(BaseModel):
    """The relation of a fact to the candidate with that number."""

    fact: int
    verdict: VerdictField
    candidate: int | None = Field(None, description="null if new")


class DecisionsOutput(BaseModel):
    """A decision for each fact."""

    decisions: list[DecisionOutput]


def extraction_schema(ids: Sequence[str], *, quotes: bool) -> dict[str, Any]:
    """Return the schema of `ExtractionOutput` for a window: only its own messages can be cited."""
    schema = deepcopy(_strict_schema(ExtractionOutput))
    properties = schema["properties"]["facts"]["items"]["properties"]
    if quotes:
        properties["quote"] = {"type": "string", "description": properties["quote"]["description"]}
    else:
        del properties["quote"]
        schema["properties"]["facts"]["items"]["required"].remove("quote")
    if len(ids) <= MAX_ENUM_IDS:
        properties["messages"]["items"]["enum"] = list(ids)
    return schema


def decisions_schema(facts: int, candidates: int) -> dict[str, Any]:
    """Return the schema of `DecisionsOutput` for a number of facts and the highest number of candidates per fact."""
    schema = deepcopy(_strict_schema(DecisionsOutput))
    decisions = schema["properties"]["decisions"]
    decisions.update(minItems=facts, maxItems=facts)
    properties = decisions["items"]["properties"]
    properties["fact"].update(minimum=1, maximum=facts)
    properties["candidate"]["anyOf"][0].update(minimum=1, maximum=candidates)
    return schema


@cache
def _strict_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return a model's schema as providers can enforce it: no references, all properties required, no others
    allowed."""
    schema = strip_titles(model.model_json_schema())
    strict: dict[str, Any] = _inline_references(schema, schema.pop("$defs", {}))
    return strict


def _inline_references(node: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inline_references(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _inline_references(definitions[node["$ref"].removeprefix("#/$defs/")], definitions)
    closed = {
        key: _inline_references(value, definitions)
        for key, value in node.items()
        if key not in ("default", "properties")
    }
    if node.get("type") == "object":
        closed.pop("description", None)  # the docstring is for developers
        closed["properties"] = {
            name: _inline_references(value, definitions) for name, value in node["properties"].items()
        }
        closed["required"] = list(closed["properties"])
        closed["additionalProperties"] = False
    return closed


def parse_period(text: str) -> tuple[datetime, datetime]:
    """Return the start and end of a year, month or date; a moment starts and ends at the same time.

    Raises ValueError for anything else, and for dates before `FIRST_YEAR`.

    >>> [str(moment.date()) for moment in parse_period("2026-02")]
    ['2026-02-01', '2026-03-01']
    """
    begins, ends = _parse_range(text)
    if begins.year < FIRST_YEAR:
        raise ValueError(f"{text} is before the year {FIRST_YEAR}")
    return begins, ends


def _parse_range(text: str) -> tuple[datetime, datetime]:
    if found := _YEAR_OR_MONTH.match(text):
        year, month = int(found[1]), int(found[2] or 1)
        begins = datetime(year, month, 1, tzinfo=UTC)
        return begins, _first_of_month(year + 1, 1) if found[2] is None else _first_of_month(year, month + 1)
    moment = datetime.fromisoformat(text)
    try:
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        return moment, moment + timedelta(days=1) if _DATE.match(text) else moment
    except OverflowError:
        raise ValueError(f"{text} is out of range") from None


def _first_of_month(year: int, month: int) -> datetime:
    if month > 12:
        year, month = year + 1, 1
    return _LAST_MOMENT if year > datetime.max.year else datetime(year, month, 1, tzinfo=UTC)


def is_quoted(quote: str, *texts: str) -> bool:
    """Whether a quote is in one of the texts: at least two whole words in a row, or the whole text.

    If the quote has gaps ("…"), the text must contain its pieces in the same order.

    >>> is_quoted("i MOVED … to lisbon", "Well, I moved back to Lisbon!")
    True
    >>> is_quoted("I moved to Porto", "I moved to Lisbon."), is_quoted("I", "I moved to Lisbon.")
    (False, False)
    """
    pieces = [piece for piece in map(_normalize, _ELLIPSIS.split(quote)) if piece.letters]
    if not pieces:  # a message may be only an emoji
        has_symbol = any(unicodedata.category(char) == "So" for char in quote)
        return has_symbol and any(quote.strip() in text for text in texts)
    is_long_enough = any(piece.word_count >= MIN_QUOTED_WORDS for piece in pieces)
    whole = _normalize(quote).letters
    return any(text.letters == whole or (is_long_enough and text.contains(pieces)) for text in map(_normalize, texts))


@dataclass(frozen=True, slots=True)
class _NormalizedText:
    """The letters, digits and combining marks of a text, and the positions of word boundaries."""

    letters: str
    edges: frozenset[int]

    @property
    def word_count(self) -> int:
        return len(self.edges) - 1

    def contains(self, pieces: list[_NormalizedText]) -> bool:
        position = 0
        for piece in pieces:
            found = self._find(piece.letters, position)
            if found < 0:
                return False
            position = found + len(piece.letters)
        return True

    def _find(self, letters: str, position: int) -> int:
        found = self.letters.find(letters, position)
        while found >= 0 and not {found, found + len(letters)} <= self.edges:
            found = self.letters.find(letters, found + 1)
        return found


def _normalize(text: str) -> _NormalizedText:
    folded_text = unicodedata.normalize("NFKC", text).casefold()
    letters: list[str] = []
    edges = {0}
    for position, char in enumerate(folded_text):
        if unicodedata.category(char)[0] in "LNM":
            letters.append(char)
            if _UNSPACED_SCRIPTS.match(char):
                edges |= {len(letters) - 1, len(letters)}
        elif not _is_inner_apostrophe(folded_text, position):
            edges.add(len(letters))
    edges.add(len(letters))
    return _NormalizedText("".join(letters), frozenset(edges))


def _is_inner_apostrophe(text: str, position: int) -> bool:
    """Whether a character is an apostrophe inside a word."""
    around = text[position - 1 : position] + text[position + 1 : position + 2]
    return text[position] in _APOSTROPHES and len(around) == 2 and around.isalpha()


def parse_extraction(output: ExtractionOutput, transcript: Transcript, *, quotes: bool = False) -> Extraction:
    """Convert a model's output to an extraction, or raise `InvalidOutput` with the problems to correct."""
    entities = _merge_entities(output.entities)
    names = _names_by_alias(entities)
    facts: list[ExtractedFact] = []
    left_out: list[LeftOut] = []
    problems: list[str] = []
    for number, item in enumerate(output.facts):
        try:
            lines = _cited_lines(item, transcript)
            fact = _to_fact(item, lines, names)
            reason = _reason_to_omit(item, fact, lines, quotes)
        except InvalidOutput as problem:
            problems.append(f"facts.{number} ({item.text[:60]!r}): {problem}")
            continue
        if reason is None:
            facts.append(fact)
        else:
            left_out.append(LeftOut(fact.text[:MAX_TEXT_LENGTH], reason))
    if problems:
        raise InvalidOutput("; ".join(problems[:MAX_PROBLEMS]))
    used_names = {name for fact in facts for name in fact.entities}
    used_entities = tuple(entity for entity in entities if entity.name in used_names)
    return Extraction(_merge_facts(facts), used_entities, tuple(left_out))


def _cited_lines(item: FactOutput, transcript: Transcript) -> list[TranscriptLine]:
    ids = list(dict.fromkeys(id.strip() for id in item.messages))
    unknown = [id for id in ids if id not in transcript.lines]
    if unknown:
        raise InvalidOutput(
            f"messages: the record has no message {', '.join(map(_short_repr, unknown))}; cite ids such as"
            f" {', '.join([*transcript.lines][:3])}"
        )
    return [transcript.lines[id] for id in ids]


def _to_fact(item: FactOutput, lines: Sequence[TranscriptLine], names: Mapping[str, str]) -> ExtractedFact:
    valid_from, valid_to = _validity_period(item)
    subject, attribute, value = map(_clean_name, (item.subject, item.attribute, item.value))
    mentioned = (names.get(fold_name(make_storable(name))) for name in item.entities)
    return ExtractedFact(
        text=_collapse_spaces(item.text),
        category=_to_category(item),
        message_ids=tuple(line.message.id for line in lines),
        importance=item.importance,
        confidence=item.confidence,
        valid_from=valid_from,
        valid_to=valid_to,
        # An entity that is not in the list has no type, and would become a duplicate.
        entities=tuple(dict.fromkeys(name for name in mentioned if name is not None)),
        subject=subject,
        attribute=attribute,
        value=value,
        single=item.single and subject is not None and attribute is not None,
        change=Change(item.change),
    )


def _reason_to_omit(item: FactOutput, fact: ExtractedFact, lines: Sequence[TranscriptLine], quotes: bool) -> str | None:
    if not fact.text:
        return BLANK
    if len(fact.text) > MAX_TEXT_LENGTH:
        return TOO_LONG
    user_lines = [line for line in lines if line.is_from_user]
    if not user_lines:
        return NOT_FROM_USER
    if not quotes:
        return None
    if item.quote is None:
        raise InvalidOutput("quote: it is missing; copy the user's words that support the fact")
    texts = [text for line in user_lines for text in (visible_text(line.message), line.words)]
    return None if is_quoted(item.quote, *texts) else NOT_QUOTED


def _validity_period(item: FactOutput) -> tuple[datetime | None, datetime | None]:
    since, until = _parse_date_field("since", item.since), _parse_date_field("until", item.until)
    valid_from = since and since[0]
    valid_to = until and until[0]
    if until and valid_from and valid_to and valid_to <= valid_from:
        valid_to = until[1]  # from 2020 until 2020 means the whole year
        if valid_to <= valid_from:
            raise InvalidOutput(f"until: {item.until} is not after since ({item.since})")
    return valid_from, valid_to


def _parse_date_field(field: str, text: str | None) -> tuple[datetime, datetime] | None:
    if text is None or not text.strip():
        return None
    try:
        return parse_period(text.strip())
    except ValueError:
        raise InvalidOutput(
            f"{field}: {_short_repr(text)} is not a date from {FIRST_YEAR} on; write it as 2026-03-04, 2026-03 or 2026,"
            " or null"
        ) from None


def _to_category(item: FactOutput) -> Category:
    name = _collapse_spaces(item.category).lower()[:CATEGORY_LENGTH].strip()
    return Category(item.kind.lower() if name in RESERVED_CATEGORIES else name, CategoryKind(item.kind))


def _merge_entities(items: Iterable[EntityOutput]) -> list[ExtractedEntity]:
    """Return the entities that have a usable name, without duplicates."""
    merged: dict[tuple[str, str], ExtractedEntity] = {}
    for item in items:
        name = _clean_name(item.name)
        if name is None:
            continue
        aliases = [alias for each in item.aliases if (alias := _clean_name(each)) is not None]
        description = _collapse_spaces(item.description or "")[:MAX_TEXT_LENGTH] or None
        key = (fold_name(name), item.type)
        known = merged.get(key)
        if known is None:
            known = ExtractedEntity(name, EntityType(item.type), description=description)
        aliases = [alias for alias in (*known.aliases, *aliases) if fold_name(alias) != fold_name(known.name)]
        distinct = {fold_name(alias): alias for alias in reversed(aliases)}
        merged[key] = replace(
            known, aliases=tuple(reversed(distinct.values())), description=known.description or description
        )
    return [*merged.values()]


def _names_by_alias(entities: Iterable[ExtractedEntity]) -> dict[str, str]:
    """Map all names of the entities to their main names. A main name has priority over another entity's alias."""
    entities = list(entities)
    aliases = {fold_name(alias): entity.name for entity in reversed(entities) for alias in entity.aliases}
    return aliases | {fold_name(entity.name): entity.name for entity in reversed(entities)}


def _merge_facts(facts: Iterable[ExtractedFact]) -> tuple[ExtractedFact, ...]:
    """Merge facts with the same text and time, with the citations of all."""
    merged: dict[tuple[object, ...], ExtractedFact] = {}
    for fact in facts:
        key = (fact.text.casefold().rstrip(".! "), fact.valid_from, fact.valid_to)
        known = merged.get(key)
        merged[key] = fact if known is None else _merge_two(known, fact)
    return tuple(merged.values())


def _merge_two(one: ExtractedFact, other: ExtractedFact) -> ExtractedFact:
    return replace(
        one,
        message_ids=tuple(dict.fromkeys((*one.message_ids, *other.message_ids))),
        entities=tuple(dict.fromkeys((*one.entities, *other.entities))),
        importance=max(one.importance, other.importance),
        confidence=max(one.confidence, other.confidence),
    )


def _clean_name(text: str | None) -> str | None:
    """Return a cleaned short text, or None if nothing usable is left."""
    name = _collapse_spaces(text or "")
    return name if name and len(name) <= MAX_NAME_LENGTH else None


def _collapse_spaces(text: str) -> str:
    return " ".join(make_storable(text).split())


def _short_repr(text: str) -> str:
    return repr(text)[:80]


def parse_decisions(output: DecisionsOutput, questions: Sequence[Question]) -> tuple[Decision, ...]:
    """Return a decision for each question, or raise `InvalidOutput` with the problems to correct."""
    by_fact: dict[int, Decision] = {}
    for item in output.decisions:
        if not 1 <= item.fact <= len(questions):
            raise InvalidOutput(f"there is no fact {item.fact}; facts are numbered from 1 to {len(questions)}")
        if item.fact in by_fact:
            raise InvalidOutput(f"fact {item.fact} has two decisions")
        by_fact[item.fact] = _to_decision(item, questions[item.fact - 1].candidates)
    missing = [str(number) for number in range(1, len(questions) + 1) if number not in by_fact]
    if missing:
        raise InvalidOutput(f"fact {', '.join(missing)}: the decision is missing")
    return tuple(by_fact[number] for number in range(1, len(questions) + 1))


def _to_decision(item: DecisionOutput, candidates: Sequence[Atom]) -> Decision:
    verdict = Verdict(item.verdict)
    if verdict is Verdict.NEW:
        return Decision(verdict)
    if item.candidate is None or not 1 <= item.candidate <= len(candidates):
        raise InvalidOutput(
            f"fact {item.fact} has no candidate {item.candidate}: with {verdict.value!r}, give a number"
            f" from 1 to {len(candidates)}, or say 'new'"
        )
    return Decision(verdict, candidates[item.candidate - 1].id)
