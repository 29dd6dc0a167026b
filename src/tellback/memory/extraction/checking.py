"""What an extractor gave, checked before anything is made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from datetime import datetime
from typing import Any

from tellback.conversations.checks import validate_optional_text
from tellback.errors import ExtractionError, InvalidArgumentError
from tellback.memory import checks
from tellback.memory.extraction.ledger import TURN_CATEGORY
from tellback.memory.extraction.moments import FIRST_YEAR
from tellback.memory.extraction.values import Change, ExtractedEntity, ExtractedFact, Extraction, Window
from tellback.types.jsontext import make_storable
from tellback.types.memory import Category, EntityType

MAX_SHOWN_NAME = 60


def validate_extraction(extraction: Any, window: Window) -> Extraction:
    """The extraction as it is; raises `ExtractionError` if something in it cannot be remembered, and names that."""
    if not isinstance(extraction, Extraction):
        raise ExtractionError(f"An extractor gives an Extraction, not {extraction!r:.80}.", _format_raw(extraction))
    ids = {message.id for message in window.messages}
    _validate_items(extraction, "facts", ExtractedFact, lambda fact: _validate_fact(fact, ids))
    _validate_items(extraction, "entities", ExtractedEntity, _validate_entity)
    return extraction


def _validate_items(extraction: Extraction, what: str, kind: type, validate: Callable[[Any], None]) -> None:
    items = getattr(extraction, what)
    if not isinstance(items, tuple | list):
        raise _invalid_extraction(extraction, what, f"it is a tuple, not {items!r:.80}", items)
    for number, each in enumerate(items):
        if not isinstance(each, kind):
            raise _invalid_extraction(extraction, f"{what}.{number}", f"it is no {kind.__name__}", each)
        try:
            validate(each)
        except InvalidArgumentError as problem:
            name = str(getattr(each, "text", None) or getattr(each, "name", ""))[:MAX_SHOWN_NAME]
            raise _invalid_extraction(
                extraction, f"{what}.{number} ({name!r})", str(problem).rstrip("."), each
            ) from None


def _invalid_extraction(extraction: Extraction, where: str, why: str, value: Any) -> ExtractionError:
    return ExtractionError(
        f"What the extractor gave cannot be remembered: {where}: {why}. Mend the extractor, then retry the job.",
        _format_raw(value),
        extraction.usage if isinstance(extraction.usage, tuple | list) else (),
    )


def _validate_fact(fact: ExtractedFact, ids: Set[str]) -> None:
    checks.validate_text(fact.text)
    if not isinstance(fact.category, Category):
        raise InvalidArgumentError(f"category is a Category, not {fact.category!r:.80}")
    if checks.validate_category(fact.category).name == TURN_CATEGORY:
        raise InvalidArgumentError(f"category {TURN_CATEGORY!r} is for what was said word for word; use another name")
    _validate_citations(fact.message_ids, ids)
    checks.validate_importance(fact.importance)
    checks.validate_ratio("confidence", fact.confidence)
    _validate_period(fact.valid_from, fact.valid_to)
    _validate_name_list("entities", fact.entities)
    for what in ("subject", "attribute", "value"):
        validate_optional_text(what, getattr(fact, what), checks.MAX_NAME_LENGTH)
    if not isinstance(fact.single, bool):
        raise InvalidArgumentError(f"single is True or False, not {fact.single!r:.80}")
    if not isinstance(fact.change, Change):
        raise InvalidArgumentError(f"change is a Change, not {fact.change!r:.80}")


def _validate_citations(cited: Iterable[str], ids: Set[str]) -> None:
    unknown = [id for id in checks.validate_ids("message_ids", cited) if id not in ids]
    if unknown:
        raise InvalidArgumentError(f"message_ids: the window has no message {', '.join(unknown)[:200]}")
    if not cited:
        raise InvalidArgumentError("message_ids: it cites no message of the window")


def _validate_period(valid_from: datetime | None, valid_to: datetime | None) -> None:
    for what, value in (("valid_from", valid_from), ("valid_to", valid_to)):
        if value is not None and not isinstance(value, datetime):
            raise InvalidArgumentError(f"{what} is a datetime, not {value!r:.80}")
        moment = checks.validate_moment(what, value)
        if moment is not None and moment.year < FIRST_YEAR:
            raise InvalidArgumentError(f"{what} is {moment.isoformat()}; nothing is dated before {FIRST_YEAR}")
    if valid_from is not None and valid_to is not None and valid_to <= valid_from:
        raise InvalidArgumentError(f"valid_to ({valid_to.isoformat()}) is not after {valid_from.isoformat()}")


def _validate_entity(entity: ExtractedEntity) -> None:
    _validate_name_list("name", (entity.name,))
    _validate_name_list("aliases", entity.aliases)
    validate_optional_text("description", entity.description, checks.MAX_TEXT_LENGTH)
    if not isinstance(entity.type, EntityType):
        raise InvalidArgumentError(f"type is an EntityType, not {entity.type!r:.80}")


def _validate_name_list(what: str, names: Iterable[str]) -> None:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise InvalidArgumentError(f"{what} is a list of names, not {names!r:.80}")
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise InvalidArgumentError(f"{what}: a name is a text that is not empty, not {name!r:.80}")
        validate_optional_text(what, name, checks.MAX_NAME_LENGTH)


def _format_raw(value: Any) -> str:
    return make_storable(repr(value)[: checks.MAX_TEXT_LENGTH])
