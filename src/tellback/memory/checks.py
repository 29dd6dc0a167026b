"""What may be remembered, and how much of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from tellback.conversations import checks
from tellback.conversations.checks import name
from tellback.errors import InvalidArgumentError
from tellback.types.memory import Category, CategoryKind

Word = TypeVar("Word", bound=StrEnum)

TEXT_LENGTH = 50_000
NAME_LENGTH = 500
IDS = 10_000


def text(value: Any) -> str:
    """A text to remember."""
    return checks.name("text", value, TEXT_LENGTH)


def question(what: str, value: Any) -> str:
    """Something that is asked; what is longer than a memory is cut, for nothing could match it all."""
    if not isinstance(value, str) or not value.strip():
        raise InvalidArgumentError(f"{what} is a text that is not empty, not {value!r:.80}.")
    return value[:TEXT_LENGTH].replace("\x00", " ").encode(errors="replace").decode()


def category_name(value: Any) -> str:
    """The name of a category: of a value, of a mapping, or by itself."""
    if isinstance(value, Category):
        return value.name
    return name("category", value["name"] if isinstance(value, Mapping) and "name" in value else value)


def category(value: Any) -> Category:
    """A category to write: a value, a mapping, or a name with a kind. None can be a pattern: those are found."""
    if isinstance(value, tuple | list) and len(value) == 2:
        value = {"name": value[0], "kind": value[1]}
    if isinstance(value, Category):
        made = value
    elif isinstance(value, Mapping):
        unknown = set(value) - {"name", "kind"}
        if unknown or "name" not in value or "kind" not in value:
            raise InvalidArgumentError(f"a category has a name and a kind, not {dict(value)!r:.120}.")
        made = Category(value["name"], one_of("the category's kind", value["kind"], CategoryKind))
    else:
        raise InvalidArgumentError(
            f"category is a Category or a mapping such as {{'name': 'diet', 'kind': 'FACT'}}, not {value!r:.80}."
        )
    checks.name("the category's name", made.name)
    if made.kind is CategoryKind.PATTERN:
        raise InvalidArgumentError("patterns are found by the platform; write a FACT, RULE or PREFERENCE instead.")
    return made


def one_of(what: str, value: Any, words: type[Word]) -> Word:
    """One of an enumeration's words, in any case."""
    try:
        return words(value.upper() if isinstance(value, str) else value)
    except ValueError:
        raise InvalidArgumentError(f"{what} is one of {', '.join(words)}, not {value!r:.80}.") from None


def importance(value: Any) -> int:
    """From 1 to 5."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 5:
        raise InvalidArgumentError(f"importance is a whole number from 1 to 5, not {value!r:.80}.")
    return value


def share(what: str, value: Any) -> float:
    """From 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidArgumentError(f"{what} is a number from 0 to 1, not {value!r:.80}.")
    return float(value)


def ids(what: str, value: Iterable[str]) -> tuple[str, ...]:
    """Ids, each once."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidArgumentError(f"{what} is a list of ids, not {value!r:.80}.")
    found = tuple(dict.fromkeys(checks.name(f"each of {what}", each, checks.KEY_LENGTH) for each in value))
    if len(found) > IDS:
        raise InvalidArgumentError(f"{what} has {len(found)} ids; {IDS} is the limit.")
    return found


def mappings(what: str, value: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Mappings, in a list."""
    is_many = isinstance(value, Iterable) and not isinstance(value, str | Mapping)
    found = [*value] if is_many else []
    if not is_many or not all(isinstance(each, Mapping) for each in found):
        raise InvalidArgumentError(f"{what} is a list of mappings, each with a text, not {value!r:.80}.")
    return found


def names(what: str, value: Iterable[str] | None) -> tuple[str, ...] | None:
    """Names, or None for any."""
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidArgumentError(f"{what} is a list of names, not {value!r:.80}.")
    return tuple(checks.name(f"each of {what}", each) for each in value)


def moment(what: str, value: datetime | str | None) -> datetime | None:
    """A point in time, or None."""
    return None if value is None else checks.moment(what, value)
