"""Validation of arguments to `user.memory`, and their limits. Each function returns the normalized value or raises
`InvalidArgumentError`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeVar

from tellback import validation
from tellback.errors import InvalidArgumentError
from tellback.stores import AtomDraft
from tellback.types.ids import new_id
from tellback.types.memory import Category, CategoryKind

EnumT = TypeVar("EnumT", bound=StrEnum)

MAX_TEXT_LENGTH = 50_000
MAX_NAME_LENGTH = 500
MAX_IDS = 10_000

DEFAULT_CATEGORY = Category("fact", CategoryKind.FACT)
ATOM_FIELDS = frozenset(AtomDraft.__dataclass_fields__) - {
    "id",
    "origin",
    "embedder",
    "vector",
    "other_sources",
    "slot",
    "value",
}

DatetimeLike = datetime | str | None

CategoryLike = Category | Mapping[str, Any] | tuple[str, str]


def validate_text(value: Any) -> str:
    """A text to remember."""
    return validation.validate_name("text", value, MAX_TEXT_LENGTH)


def validate_query(what: str, value: Any) -> str:
    """Something that is asked; what is longer than a memory is cut, for nothing could match it all."""
    if not isinstance(value, str) or not value.strip():
        raise InvalidArgumentError(f"{what} is a text that is not empty, not {value!r:.80}.")
    return value[:MAX_TEXT_LENGTH].replace("\x00", " ").encode(errors="replace").decode()


def parse_category_name(value: Any) -> str:
    """The name of a category: of a value, of a mapping, or by itself."""
    if isinstance(value, Category):
        return value.name
    return validation.validate_name(
        "category", value["name"] if isinstance(value, Mapping) and "name" in value else value
    )


def validate_category(value: Any) -> Category:
    """A category to write: a value, a mapping, or a name with a kind. None can be a pattern: those are found."""
    if isinstance(value, tuple | list) and len(value) == 2:
        value = {"name": value[0], "kind": value[1]}
    if isinstance(value, Category):
        category = value
    elif isinstance(value, Mapping):
        unknown = set(value) - {"name", "kind"}
        if unknown or "name" not in value or "kind" not in value:
            raise InvalidArgumentError(f"a category has a name and a kind, not {dict(value)!r:.120}.")
        category = Category(value["name"], validate_enum("the category's kind", value["kind"], CategoryKind))
    else:
        raise InvalidArgumentError(
            f"category is a Category or a mapping such as {{'name': 'diet', 'kind': 'FACT'}}, not {value!r:.80}."
        )
    validation.validate_name("the category's name", category.name)
    if category.kind is CategoryKind.PATTERN:
        raise InvalidArgumentError("patterns are found by the platform; write a FACT, RULE or PREFERENCE instead.")
    return category


def validate_enum(what: str, value: Any, enum_type: type[EnumT]) -> EnumT:
    """One of an enumeration's words, in any case."""
    try:
        return enum_type(value.upper() if isinstance(value, str) else value)
    except ValueError:
        raise InvalidArgumentError(f"{what} is one of {', '.join(enum_type)}, not {value!r:.80}.") from None


def validate_importance(value: Any) -> int:
    """From 1 to 5."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 5:
        raise InvalidArgumentError(f"importance is a whole number from 1 to 5, not {value!r:.80}.")
    return value


def validate_ratio(what: str, value: Any) -> float:
    """From 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidArgumentError(f"{what} is a number from 0 to 1, not {value!r:.80}.")
    return float(value)


def validate_ids(what: str, value: Iterable[str]) -> tuple[str, ...]:
    """Ids, each once."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidArgumentError(f"{what} is a list of ids, not {value!r:.80}.")
    found = tuple(
        dict.fromkeys(validation.validate_name(f"each of {what}", each, validation.KEY_LENGTH) for each in value)
    )
    if len(found) > MAX_IDS:
        raise InvalidArgumentError(f"{what} has {len(found)} ids; {MAX_IDS} is the limit.")
    return found


def validate_mappings(what: str, value: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Mappings, in a list."""
    is_many = isinstance(value, Iterable) and not isinstance(value, str | Mapping)
    found = [*value] if is_many else []
    if not is_many or not all(isinstance(each, Mapping) for each in found):
        raise InvalidArgumentError(f"{what} is a list of mappings, each with a text, not {value!r:.80}.")
    return found


def validate_names(what: str, value: Iterable[str] | None) -> tuple[str, ...] | None:
    """Names, or None for any."""
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidArgumentError(f"{what} is a list of names, not {value!r:.80}.")
    return tuple(validation.validate_name(f"each of {what}", each) for each in value)


def validate_moment(what: str, value: datetime | str | None) -> datetime | None:
    """A point in time, or None."""
    return None if value is None else validation.parse_datetime(what, value)


def build_atom_draft(fields: Mapping[str, Any], now: datetime) -> AtomDraft:
    """An atom from what `add_atom` takes; None is as if it were not given."""
    unknown = set(fields) - ATOM_FIELDS
    if unknown or "text" not in fields:
        problem = f"no {', '.join(sorted(map(str, unknown)))}" if unknown else "a text"
        raise InvalidArgumentError(f"an atom has {problem}; it takes {', '.join(sorted(ATOM_FIELDS))}.")
    values = {name: value for name, value in fields.items() if value is not None}
    valid_from = validate_moment("valid_from", values.get("valid_from")) or now.astimezone(UTC)
    valid_to = validate_moment("valid_to", values.get("valid_to"))
    if valid_to is not None and valid_to <= valid_from:
        raise InvalidArgumentError(f"valid_to ({valid_to.isoformat()}) is not after {valid_from.isoformat()}.")
    source = values.get("source_conversation_id")
    return AtomDraft(
        id=new_id("atom"),
        text=validate_text(fields["text"]),
        category=validate_category(values.get("category", DEFAULT_CATEGORY)),
        valid_from=valid_from,
        importance=validate_importance(values.get("importance", 3)),
        confidence=validate_ratio("confidence", values.get("confidence", 1.0)),
        valid_to=valid_to,
        source_conversation_id=validation.validate_optional_text(
            "source_conversation_id", source, validation.KEY_LENGTH
        ),
        source_message_ids=validate_ids("source_message_ids", values.get("source_message_ids", ())),
        entity_ids=validate_ids("entity_ids", values.get("entity_ids", ())),
    )
