"""What a model found becomes an extraction: citations, dates and quotes are checked; what does not hold is left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from tellback.chat.output import InvalidOutput
from tellback.conversations.checks import NAME_LENGTH as CATEGORY_LENGTH
from tellback.memory.checks import MAX_NAME_LENGTH, MAX_TEXT_LENGTH
from tellback.memory.extraction.moments import FIRST_YEAR, parse_period
from tellback.memory.extraction.quotes import is_quoted
from tellback.memory.extraction.schema import EntityOutput, ExtractionOutput, FactOutput
from tellback.memory.extraction.transcript import Transcript, TranscriptLine, visible_text
from tellback.memory.extraction.values import Change, ExtractedEntity, ExtractedFact, Extraction, LeftOut
from tellback.types.jsontext import make_storable
from tellback.types.memory import Category, CategoryKind, EntityType
from tellback.types.names import fold_name

NOT_FROM_USER = "only the assistant said it"
NOT_QUOTED = "its quote is not in the cited words of the user, or too short to tell"
BLANK = "it says nothing"
TOO_LONG = f"it has more than {MAX_TEXT_LENGTH} characters"

RESERVED_CATEGORIES = frozenset(("", "turn", "pattern"))
"""Categories a model cannot write: the last two are the platform's own."""

MAX_PROBLEMS = 10
"""How many things a model is told to mend at once."""


def parse_extraction(output: ExtractionOutput, transcript: Transcript, *, quotes: bool = False) -> Extraction:
    """The extraction that a model's answer amounts to; raises `InvalidOutput` with what it has to mend."""
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
        # Without its type, an entity that is not in the list would become another one of the same name.
        entities=tuple(dict.fromkeys(name for name in mentioned if name is not None)),
        subject=subject,
        attribute=attribute,
        value=value,
        single=item.single and subject is not None and attribute is not None,
        change=Change(item.change),
    )


def _reason_to_omit(item: FactOutput, fact: ExtractedFact, lines: Sequence[TranscriptLine], quotes: bool) -> str | None:
    """Why a fact is left out, if it is."""
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
        raise InvalidOutput("quote: it is missing; copy the user's words that the fact rests on")
    texts = [text for line in user_lines for text in (visible_text(line.message), line.words)]
    return None if is_quoted(item.quote, *texts) else NOT_QUOTED


def _validity_period(item: FactOutput) -> tuple[datetime | None, datetime | None]:
    since, until = _parse_date_field("since", item.since), _parse_date_field("until", item.until)
    valid_from = since and since[0]
    valid_to = until and until[0]
    if until and valid_from and valid_to and valid_to <= valid_from:
        valid_to = until[1]  # from 2020 until 2020 is all of that year
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
    """The entities that have a usable name; what is given twice is one."""
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
    """What the entities are called, by all their names; a name of its own goes before another's alias."""
    entities = list(entities)
    aliases = {fold_name(alias): entity.name for entity in reversed(entities) for alias in entity.aliases}
    return aliases | {fold_name(entity.name): entity.name for entity in reversed(entities)}


def _merge_facts(facts: Iterable[ExtractedFact]) -> tuple[ExtractedFact, ...]:
    """Facts that say the same of the same time are one, with the citations of all."""
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
    """A short text, or None where there is none that could be kept."""
    name = _collapse_spaces(text or "")
    return name if name and len(name) <= MAX_NAME_LENGTH else None


def _collapse_spaces(text: str) -> str:
    return " ".join(make_storable(text).split())


def _short_repr(text: str) -> str:
    return repr(text)[:80]
