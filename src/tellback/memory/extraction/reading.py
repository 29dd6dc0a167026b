"""What a model found becomes an extraction: citations, dates and quotes are checked; what does not hold is left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from tellback.chat.output import InvalidOutput
from tellback.conversations.checks import NAME_LENGTH as CATEGORY_LENGTH
from tellback.memory.checks import NAME_LENGTH, TEXT_LENGTH
from tellback.memory.extraction.moments import FIRST_YEAR, period
from tellback.memory.extraction.quotes import is_quoted
from tellback.memory.extraction.schema import Found, FoundEntity, FoundFact
from tellback.memory.extraction.transcript import Line, Transcript, words_of
from tellback.memory.extraction.values import Change, ExtractedEntity, ExtractedFact, Extraction, LeftOut
from tellback.types.jsontext import storable
from tellback.types.memory import Category, CategoryKind, EntityType
from tellback.types.names import folded

NOT_THE_USERS = "only the assistant said it"
NOT_QUOTED = "its quote is not in the cited words of the user, or too short to tell"
BLANK = "it says nothing"
TOO_LONG = f"it has more than {TEXT_LENGTH} characters"

RESERVED = frozenset(("", "turn", "pattern"))
"""Categories a model cannot write: the last two are the platform's own."""

PROBLEMS = 10
"""How many things a model is told to mend at once."""


def read(found: Found, transcript: Transcript, *, quotes: bool = False) -> Extraction:
    """The extraction that a model's answer amounts to; raises `InvalidOutput` with what it has to mend."""
    entities = _entities(found.entities)
    names = _names(entities)
    facts: list[ExtractedFact] = []
    left_out: list[LeftOut] = []
    problems: list[str] = []
    for number, given in enumerate(found.facts):
        try:
            lines = _cited(given, transcript)
            fact = _fact(given, lines, names)
            why = _why_not(given, fact, lines, quotes)
        except InvalidOutput as problem:
            problems.append(f"facts.{number} ({given.text[:60]!r}): {problem}")
            continue
        if why is None:
            facts.append(fact)
        else:
            left_out.append(LeftOut(fact.text[:TEXT_LENGTH], why))
    if problems:
        raise InvalidOutput("; ".join(problems[:PROBLEMS]))
    used = {name for fact in facts for name in fact.entities}
    kept = tuple(entity for entity in entities if entity.name in used)
    return Extraction(_merged(facts), kept, tuple(left_out))


def _cited(given: FoundFact, transcript: Transcript) -> list[Line]:
    ids = list(dict.fromkeys(id.strip() for id in given.messages))
    unknown = [id for id in ids if id not in transcript.lines]
    if unknown:
        raise InvalidOutput(
            f"messages: the record has no message {', '.join(map(_shown, unknown))}; cite ids such as"
            f" {', '.join([*transcript.lines][:3])}"
        )
    return [transcript.lines[id] for id in ids]


def _fact(given: FoundFact, lines: Sequence[Line], names: Mapping[str, str]) -> ExtractedFact:
    valid_from, valid_to = _validity(given)
    subject, attribute, value = map(_name, (given.subject, given.attribute, given.value))
    mentioned = (names.get(folded(storable(name))) for name in given.entities)
    return ExtractedFact(
        text=_spaced(given.text),
        category=_category(given),
        message_ids=tuple(line.message.id for line in lines),
        importance=given.importance,
        confidence=given.confidence,
        valid_from=valid_from,
        valid_to=valid_to,
        # Without its type, an entity that is not in the list would become another one of the same name.
        entities=tuple(dict.fromkeys(name for name in mentioned if name is not None)),
        subject=subject,
        attribute=attribute,
        value=value,
        single=given.single and subject is not None and attribute is not None,
        change=Change(given.change),
    )


def _why_not(given: FoundFact, fact: ExtractedFact, lines: Sequence[Line], quotes: bool) -> str | None:
    """Why a fact is left out, if it is."""
    if not fact.text:
        return BLANK
    if len(fact.text) > TEXT_LENGTH:
        return TOO_LONG
    users = [line for line in lines if line.is_users]
    if not users:
        return NOT_THE_USERS
    if not quotes:
        return None
    if given.quote is None:
        raise InvalidOutput("quote: it is missing; copy the user's words that the fact rests on")
    said = [text for line in users for text in (words_of(line.message), line.words)]
    return None if is_quoted(given.quote, *said) else NOT_QUOTED


def _validity(given: FoundFact) -> tuple[datetime | None, datetime | None]:
    since, until = _period("since", given.since), _period("until", given.until)
    valid_from = since and since[0]
    valid_to = until and until[0]
    if until and valid_from and valid_to and valid_to <= valid_from:
        valid_to = until[1]  # from 2020 until 2020 is all of that year
        if valid_to <= valid_from:
            raise InvalidOutput(f"until: {given.until} is not after since ({given.since})")
    return valid_from, valid_to


def _period(field: str, text: str | None) -> tuple[datetime, datetime] | None:
    if text is None or not text.strip():
        return None
    try:
        return period(text.strip())
    except ValueError:
        raise InvalidOutput(
            f"{field}: {_shown(text)} is not a date from {FIRST_YEAR} on; write it as 2026-03-04, 2026-03 or 2026,"
            " or null"
        ) from None


def _category(given: FoundFact) -> Category:
    name = _spaced(given.category).lower()[:CATEGORY_LENGTH].strip()
    return Category(given.kind.lower() if name in RESERVED else name, CategoryKind(given.kind))


def _entities(found: Iterable[FoundEntity]) -> list[ExtractedEntity]:
    """The entities that have a usable name; what is given twice is one."""
    kept: dict[tuple[str, str], ExtractedEntity] = {}
    for given in found:
        name = _name(given.name)
        if name is None:
            continue
        aliases = [alias for each in given.aliases if (alias := _name(each)) is not None]
        description = _spaced(given.description or "")[:TEXT_LENGTH] or None
        key = (folded(name), given.type)
        known = kept.get(key)
        if known is None:
            known = ExtractedEntity(name, EntityType(given.type), description=description)
        aliases = [alias for alias in (*known.aliases, *aliases) if folded(alias) != folded(known.name)]
        distinct = {folded(alias): alias for alias in reversed(aliases)}
        kept[key] = replace(
            known, aliases=tuple(reversed(distinct.values())), description=known.description or description
        )
    return [*kept.values()]


def _names(entities: Iterable[ExtractedEntity]) -> dict[str, str]:
    """What the entities are called, by all their names; a name of its own goes before another's alias."""
    entities = list(entities)
    aliases = {folded(alias): entity.name for entity in reversed(entities) for alias in entity.aliases}
    return aliases | {folded(entity.name): entity.name for entity in reversed(entities)}


def _merged(facts: Iterable[ExtractedFact]) -> tuple[ExtractedFact, ...]:
    """Facts that say the same of the same time are one, with the citations of all."""
    merged: dict[tuple[object, ...], ExtractedFact] = {}
    for fact in facts:
        key = (fact.text.casefold().rstrip(".! "), fact.valid_from, fact.valid_to)
        known = merged.get(key)
        merged[key] = fact if known is None else _together(known, fact)
    return tuple(merged.values())


def _together(one: ExtractedFact, other: ExtractedFact) -> ExtractedFact:
    return replace(
        one,
        message_ids=tuple(dict.fromkeys((*one.message_ids, *other.message_ids))),
        entities=tuple(dict.fromkeys((*one.entities, *other.entities))),
        importance=max(one.importance, other.importance),
        confidence=max(one.confidence, other.confidence),
    )


def _name(text: str | None) -> str | None:
    """A short text, or None where there is none that could be kept."""
    name = _spaced(text or "")
    return name if name and len(name) <= NAME_LENGTH else None


def _spaced(text: str) -> str:
    return " ".join(storable(text).split())


def _shown(text: str) -> str:
    return repr(text)[:80]
