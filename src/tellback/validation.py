"""Validation of arguments: names, texts, ids, lists, mappings, numbers, moments, content, categories.

Each function returns the validated value, or raises `InvalidArgumentError` with the name and value of the argument.
Every package above `types` and `errors` may import this module. Rules about one kind of object are in its own module.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar

from tellback.errors import InvalidArgumentError, NotFoundError
from tellback.types.blocks import Content, ContentBlock, TextBlock, as_blocks, load_blocks
from tellback.types.conversations import VISIBILITIES
from tellback.types.ids import as_utc
from tellback.types.jsontext import dump_strict_json, is_storable, validate_depth
from tellback.types.memory import Category, CategoryKind

T = TypeVar("T")
EnumT = TypeVar("EnumT", bound=StrEnum)
DatetimeLike = datetime | str | None
CategoryLike = Category | Mapping[str, Any] | tuple[str, str]

NAME_LENGTH = 200
TITLE_LENGTH = 1_000
KEY_LENGTH = 500
METADATA_BYTES = 16_384
QUERY_LENGTH = 4_000
"""How many characters of a user's message are used as a recall query. A whole document gives poor results."""
CONTENT_LENGTH = 20_000_000
MAX_TEXT_LENGTH = 50_000
MAX_NAME_LENGTH = 500
"""The longest text of an atom, and the longest name of an entity."""
MAX_IDS = 10_000
MAX_INTEGER = 2**62

RECALL_OPTION_NAMES = (
    *("memory_space_id", "recall_query", "recent_turns", "recall_limit", "token_budget", "include_rolling_summary"),
    *("always_on_category_names", "template_id", "count_tokens", "now", "min_score"),
)
"""The arguments of `working_context.build` except the conversation."""


def _error(label: str, expected: str, value: Any) -> InvalidArgumentError:
    return InvalidArgumentError(f"{label} must be {expected}, got {value!r:.80}.")


def validate_scope_id(label: str, value: Any) -> str:
    """Validate the id of a tenant, app or user. "*" is reserved, because it means every user in a binding."""
    checked = validate_name(label, value)
    if checked == "*":
        raise InvalidArgumentError(f"{label} cannot be '*': in bindings it means every user.")
    return checked


def validate_name(label: str, value: Any, limit: int = NAME_LENGTH) -> str:
    """Validate a non-empty string of limited length that every database can store."""
    return _validate_storable(label, validate_text(label, value), limit)


def validate_optional_text(label: str, value: Any, limit: int) -> str | None:
    """Validate an optional string of limited length that every database can store."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise _error(label, "a string", value)
    return _validate_storable(label, value, limit)


def _validate_storable(label: str, value: str, limit: int) -> str:
    if len(value) > limit:
        raise InvalidArgumentError(f"{label} has {len(value)} characters; {limit} is the limit.")
    if not is_storable(value):
        raise InvalidArgumentError(f"{label} contains characters that cannot be stored: {value!r:.80}.")
    return value


def validate_text(label: str, value: Any) -> str:
    """Validate a non-empty string of any length."""
    if not isinstance(value, str) or not value.strip():
        raise _error(label, "a non-empty string", value)
    return value


def validate_memory_text(value: Any) -> str:
    """Validate the text of an atom."""
    return validate_name("text", value, MAX_TEXT_LENGTH)


def validate_query(label: str, value: Any) -> str:
    """Validate a recall query; cut it to the maximum length of an atom."""
    return validate_text(label, value)[:MAX_TEXT_LENGTH].replace("\x00", " ").encode(errors="replace").decode()


def validate_list(label: str, value: Any) -> tuple[Any, ...]:
    """Validate a list. A single value is rejected: most likely the brackets were forgotten."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise InvalidArgumentError(f"{label} must be a list, got {value!r:.80}: write {label}=[...].")
    return tuple(value)


def validate_texts(label: str, value: Any) -> tuple[str, ...]:
    """Validate a list of non-empty strings."""
    return tuple(validate_text(f"each of {label}", each) for each in validate_list(label, value))


def validate_names(label: str, value: Iterable[str] | None) -> tuple[str, ...] | None:
    """Validate an optional list of names."""
    if value is None:
        return None
    return tuple(validate_name(f"each of {label}", each) for each in validate_list(label, value))


def validate_ids(label: str, value: Iterable[str]) -> tuple[str, ...]:
    """Validate a list of ids and remove duplicates."""
    found = dict.fromkeys(validate_name(f"each of {label}", each, KEY_LENGTH) for each in validate_list(label, value))
    if len(found) > MAX_IDS:
        raise InvalidArgumentError(f"{label} has {len(found)} ids; {MAX_IDS} is the limit.")
    return tuple(found)


def validate_mappings(label: str, value: Iterable[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """Validate a list of mappings."""
    return tuple(validate_mapping(f"each of {label}", each) for each in validate_list(label, value))


def validate_choice(label: str, value: Any, choices: tuple[str, ...]) -> str:
    """Validate one of several strings."""
    if value not in choices:
        raise _error(label, " or ".join(map(repr, choices)), value)
    return str(value)


def validate_enum(label: str, value: Any, enum_type: type[EnumT]) -> EnumT:
    """Parse a member of an enumeration, ignoring case."""
    try:
        return enum_type(value.upper() if isinstance(value, str) else value)
    except ValueError:
        raise _error(label, f"one of {', '.join(enum_type)}", value) from None


def validate_visibility(value: Any) -> str:
    """Validate the visibility of a message."""
    return validate_choice("visibility", value, VISIBILITIES)


def validate_metadata(value: Mapping[str, Any] | None) -> dict[str, Any]:
    """Validate metadata: a JSON object of limited size."""
    if value is None:
        return {}
    mapping = validate_mapping("metadata", value)
    try:
        text = json.dumps(dict(mapping), allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"metadata must be JSON: {error}.") from None
    size = len(text.encode(errors="surrogatepass"))
    if size > METADATA_BYTES:
        raise InvalidArgumentError(f"metadata has {size} bytes as JSON; {METADATA_BYTES} is the limit.")
    plain: dict[str, Any] = json.loads(text)
    return plain


def validate_mapping(label: str, value: Any) -> Mapping[str, Any]:
    """Validate a mapping with string keys; None becomes an empty mapping."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise _error(label, "a mapping with strings as keys", value)
    return value


def validate_callable(label: str, value: Any) -> Any:
    """Validate an optional function."""
    if value is not None and not callable(value):
        raise _error(label, "a function", value)
    return value


def build_instance(label: str, kind: type[T], value: Any) -> T:
    """Return an instance of `kind`: the value itself, or one built from a mapping of its fields."""
    if value is None or isinstance(value, Mapping):
        try:
            return kind(**(value or {}))
        except TypeError as error:
            # The message leaves out the value: it may contain a password.
            raise InvalidArgumentError(f"{label} must have the fields of {kind.__name__}: {error}.") from error
    if not isinstance(value, kind):
        raise _error(label, f"a {kind.__name__}", value)
    return value


def validate_recall_options(label: str, value: Mapping[str, Any] | None, more: tuple[str, ...] = ()) -> None:
    """Validate recall options: arguments of `working_context.build`, or names in `more`."""
    unknown = [name for name in validate_mapping(label, value) if name not in RECALL_OPTION_NAMES and name not in more]
    if unknown:
        raise InvalidArgumentError(
            f"{label} has unknown options: {', '.join(unknown)}. Known: {', '.join((*more, *RECALL_OPTION_NAMES))}."
        )


def parse_datetime(label: str, value: datetime | str) -> datetime:
    """Parse a datetime."""
    return _wrap_errors(label, as_utc, value)


def parse_optional_datetime(label: str, value: DatetimeLike) -> datetime | None:
    """Parse an optional datetime."""
    return None if value is None else parse_datetime(label, value)


def parse_content(value: Content) -> tuple[ContentBlock, ...]:
    """Parse the content of a message into blocks."""
    blocks = (TextBlock(value),) if type(value) is str else _wrap_errors("content", as_blocks, value)
    if not blocks:
        raise InvalidArgumentError("content is empty: a message needs at least one block.")
    if len(blocks) == 1 and isinstance(blocks[0], TextBlock) and blocks[0].meta is None:
        size = len(blocks[0].text)
    else:
        # Normalize to the values that the store returns later: string keys, lists instead of tuples, JSON only.
        text = _wrap_errors("content", _encode_blocks, blocks)
        size, blocks = len(text), load_blocks(json.loads(text))
    if size > CONTENT_LENGTH:
        raise InvalidArgumentError(f"content has {size} characters; {CONTENT_LENGTH} is the limit.")
    return blocks


def _encode_blocks(blocks: tuple[ContentBlock, ...]) -> str:
    plain = [dict(block) for block in blocks]
    validate_depth(plain)
    return dump_strict_json(plain)


def validate_count(label: str, value: Any, minimum: int = 0) -> int:
    """Validate an integer."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise _error(label, f"an integer of at least {minimum}", value)
    return min(value, MAX_INTEGER)


def validate_importance(value: Any) -> int:
    """Validate an importance from 1 to 5."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 5:
        raise _error("importance", "an integer from 1 to 5", value)
    return value


def validate_ratio(label: str, value: Any) -> float:
    """Validate a number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise _error(label, "a number from 0 to 1", value)
    return float(value)


def validate_seconds(label: str, value: Any) -> float:
    """Validate a number of seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise _error(label, "a number of seconds of at least 0", value)
    return float(value)


def parse_duration(label: str, value: Any) -> timedelta:
    """Parse a timedelta or a number of seconds."""
    try:
        age = value if isinstance(value, timedelta) else timedelta(seconds=validate_seconds(label, value))
    except OverflowError:
        age = timedelta(-1)
    if not timedelta(0) <= age <= timedelta(days=365_000):
        raise _error(label, "a timedelta or a number of seconds, from 0 to 365,000 days", value)
    return age


def parse_category_name(value: Any) -> str:
    """Return the name of a category that is passed as a `Category`, a mapping or a name."""
    if isinstance(value, Category):
        return value.name
    return validate_name("category", value["name"] if isinstance(value, Mapping) and "name" in value else value)


def validate_category(value: Any) -> Category:
    """Parse a category to write: a `Category`, a mapping, or a pair of name and kind. PATTERN is reserved."""
    if isinstance(value, tuple | list) and len(value) == 2:
        value = {"name": value[0], "kind": value[1]}
    if isinstance(value, Category):
        category = value
    elif isinstance(value, Mapping):
        unknown = set(value) - {"name", "kind"}
        if unknown or "name" not in value or "kind" not in value:
            raise _error("category", "a name and a kind", dict(value))
        category = Category(value["name"], validate_enum("the category's kind", value["kind"], CategoryKind))
    else:
        raise _error("category", "a Category or a mapping such as {'name': 'diet', 'kind': 'FACT'}", value)
    validate_name("the category's name", category.name)
    if category.kind is CategoryKind.PATTERN:
        raise InvalidArgumentError(
            "category kind PATTERN is reserved for pattern mining: use FACT, RULE or PREFERENCE."
        )
    return category


def is_valid_id(value: Any) -> bool:
    """Whether a value can be an id."""
    return isinstance(value, str) and is_storable(value)


def validate_id(kind: str, value: Any) -> str:
    """Validate an id; raise `NotFoundError` for a value that cannot be an id."""
    if not is_valid_id(value):
        raise NotFoundError(kind, value)
    checked: str = value
    return checked


def _wrap_errors(label: str, convert: Callable[[Any], T], value: Any) -> T:
    try:
        return convert(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidArgumentError(f"{label}: {error}.") from error
