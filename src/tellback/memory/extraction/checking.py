"""What an extractor gave, checked before anything is made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from datetime import datetime
from typing import Any

from tellback.conversations.checks import optional_text
from tellback.errors import ExtractionError, InvalidArgumentError
from tellback.memory import checks
from tellback.memory.extraction.ledger import TURN
from tellback.memory.extraction.moments import FIRST_YEAR
from tellback.memory.extraction.values import Change, ExtractedEntity, ExtractedFact, Extraction, Window
from tellback.types.jsontext import storable
from tellback.types.memory import Category, EntityType

SHOWN = 60


def checked(extraction: Any, window: Window) -> Extraction:
    """The extraction as it is; raises `ExtractionError` if something in it cannot be remembered, and names that."""
    if not isinstance(extraction, Extraction):
        raise ExtractionError(f"An extractor gives an Extraction, not {extraction!r:.80}.", _shown(extraction))
    ids = {message.id for message in window.messages}
    _each(extraction, "facts", ExtractedFact, lambda fact: _check_fact(fact, ids))
    _each(extraction, "entities", ExtractedEntity, _check_entity)
    return extraction


def _each(extraction: Extraction, what: str, kind: type, check: Callable[[Any], None]) -> None:
    given = getattr(extraction, what)
    if not isinstance(given, tuple | list):
        raise _wrong(extraction, what, f"it is a tuple, not {given!r:.80}", given)
    for number, each in enumerate(given):
        if not isinstance(each, kind):
            raise _wrong(extraction, f"{what}.{number}", f"it is no {kind.__name__}", each)
        try:
            check(each)
        except InvalidArgumentError as problem:
            name = str(getattr(each, "text", None) or getattr(each, "name", ""))[:SHOWN]
            raise _wrong(extraction, f"{what}.{number} ({name!r})", str(problem).rstrip("."), each) from None


def _wrong(extraction: Extraction, where: str, why: str, given: Any) -> ExtractionError:
    return ExtractionError(
        f"What the extractor gave cannot be remembered: {where}: {why}. Mend the extractor, then retry the job.",
        _shown(given),
        extraction.usage if isinstance(extraction.usage, tuple | list) else (),
    )


def _check_fact(fact: ExtractedFact, ids: Set[str]) -> None:
    checks.text(fact.text)
    if not isinstance(fact.category, Category):
        raise InvalidArgumentError(f"category is a Category, not {fact.category!r:.80}")
    if checks.category(fact.category).name == TURN:
        raise InvalidArgumentError(f"category {TURN!r} is for what was said word for word; use another name")
    _check_citations(fact.message_ids, ids)
    checks.importance(fact.importance)
    checks.share("confidence", fact.confidence)
    _check_period(fact.valid_from, fact.valid_to)
    _check_names("entities", fact.entities)
    for what in ("subject", "attribute", "value"):
        optional_text(what, getattr(fact, what), checks.NAME_LENGTH)
    if not isinstance(fact.single, bool):
        raise InvalidArgumentError(f"single is True or False, not {fact.single!r:.80}")
    if not isinstance(fact.change, Change):
        raise InvalidArgumentError(f"change is a Change, not {fact.change!r:.80}")


def _check_citations(cited: Iterable[str], ids: Set[str]) -> None:
    unknown = [id for id in checks.ids("message_ids", cited) if id not in ids]
    if unknown:
        raise InvalidArgumentError(f"message_ids: the window has no message {', '.join(unknown)[:200]}")
    if not cited:
        raise InvalidArgumentError("message_ids: it cites no message of the window")


def _check_period(valid_from: datetime | None, valid_to: datetime | None) -> None:
    for what, value in (("valid_from", valid_from), ("valid_to", valid_to)):
        if value is not None and not isinstance(value, datetime):
            raise InvalidArgumentError(f"{what} is a datetime, not {value!r:.80}")
        moment = checks.moment(what, value)
        if moment is not None and moment.year < FIRST_YEAR:
            raise InvalidArgumentError(f"{what} is {moment.isoformat()}; nothing is dated before {FIRST_YEAR}")
    if valid_from is not None and valid_to is not None and valid_to <= valid_from:
        raise InvalidArgumentError(f"valid_to ({valid_to.isoformat()}) is not after {valid_from.isoformat()}")


def _check_entity(entity: ExtractedEntity) -> None:
    _check_names("name", (entity.name,))
    _check_names("aliases", entity.aliases)
    optional_text("description", entity.description, checks.TEXT_LENGTH)
    if not isinstance(entity.type, EntityType):
        raise InvalidArgumentError(f"type is an EntityType, not {entity.type!r:.80}")


def _check_names(what: str, names: Iterable[str]) -> None:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise InvalidArgumentError(f"{what} is a list of names, not {names!r:.80}")
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise InvalidArgumentError(f"{what}: a name is a text that is not empty, not {name!r:.80}")
        optional_text(what, name, checks.NAME_LENGTH)


def _shown(given: Any) -> str:
    return storable(repr(given)[: checks.TEXT_LENGTH])
