"""Validation of arguments that several packages take: names, texts, ids, metadata, content, times.

Each function returns the checked value, or raises `InvalidArgumentError` naming the argument and its value."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

from tellback.errors import InvalidArgumentError, NotFoundError
from tellback.types.blocks import Content, ContentBlock, TextBlock, as_blocks, load_blocks
from tellback.types.conversations import VISIBILITIES
from tellback.types.ids import as_utc
from tellback.types.jsontext import dump_strict_json, is_storable, validate_depth
from tellback.types.replies import ChatUsage

T = TypeVar("T")

NAME_LENGTH = 200
TITLE_LENGTH = 1_000
KEY_LENGTH = 500
METADATA_BYTES = 16_384
QUERY_LENGTH = 4_000
"""How much of a user's message is recalled by: a pasted document has no topic."""
CONTENT_LENGTH = 20_000_000
MAX_INTEGER = 2**62

RECALL_OPTION_NAMES = (
    *("memory_space_id", "recall_query", "recent_turns", "recall_limit", "token_budget", "include_rolling_summary"),
    *("always_on_category_names", "template_id", "count_tokens", "now", "min_score"),
)
"""The arguments of `working_context.build`, but for the conversation."""


def validate_scope_id(label: str, value: Any) -> str:
    """A tenant's, an app's or a user's id. "*" means everyone in bindings, so nobody may be called that."""
    checked = validate_name(label, value)
    if checked == "*":
        raise InvalidArgumentError(f"{label} cannot be '*'.")
    return checked


def validate_name(label: str, value: Any, limit: int = NAME_LENGTH) -> str:
    """A short text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise InvalidArgumentError(f"{label} is a text that is not empty, not {value!r:.80}.")
    checked = validate_optional_text(label, value, limit)
    assert checked is not None
    return checked


def validate_optional_text(label: str, value: Any, limit: int) -> str | None:
    """A text within a limit, that every database can hold, or None."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidArgumentError(f"{label} is a text, not {value!r:.80}.")
    if len(value) > limit:
        raise InvalidArgumentError(f"{label} has {len(value)} characters; {limit} is the limit.")
    if not is_storable(value):
        raise InvalidArgumentError(f"{label} holds characters that cannot be stored: {value!r:.80}.")
    return value


def validate_choice(label: str, value: Any, choices: tuple[str, ...]) -> str:
    """One of a few words."""
    if value not in choices:
        raise InvalidArgumentError(f"{label} is {' or '.join(map(repr, choices))}, not {value!r:.80}.")
    return str(value)


def validate_visibility(value: Any) -> str:
    """Who sees a message."""
    return validate_choice("visibility", value, VISIBILITIES)


def validate_metadata(value: Mapping[str, Any] | None) -> dict[str, Any]:
    """Your own data about a conversation: a JSON object, not too large."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InvalidArgumentError(f"metadata is a mapping with texts as keys, not {value!r:.80}.")
    try:
        text = json.dumps(dict(value), allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"metadata must be JSON: {error}.") from None
    size = len(text.encode(errors="surrogatepass"))
    if size > METADATA_BYTES:
        raise InvalidArgumentError(f"metadata takes {size} bytes as JSON; {METADATA_BYTES} is the limit.")
    plain: dict[str, Any] = json.loads(text)
    return plain


def validate_mapping(label: str, value: Mapping[str, Any] | None) -> None:
    """What an application binds for its tools: any values, by name."""
    if value is not None and not (isinstance(value, Mapping) and all(isinstance(key, str) for key in value)):
        raise InvalidArgumentError(f"{label} is a mapping with texts as keys, not {value!r:.80}.")


def validate_recall_options(label: str, value: Mapping[str, Any] | None, more: tuple[str, ...] = ()) -> None:
    """How to recall: arguments of `working_context.build`, or `more`."""
    validate_mapping(label, value)
    unknown = [name for name in value or () if name not in RECALL_OPTION_NAMES and name not in more]
    if unknown:
        raise InvalidArgumentError(
            f"{label} has {', '.join((*more, *RECALL_OPTION_NAMES))}, but not {', '.join(unknown)}."
        )


def parse_datetime(label: str, value: datetime | str) -> datetime:
    """A point in time."""
    return _wrap_errors(label, as_utc, value)


def parse_content(value: Content) -> tuple[ContentBlock, ...]:
    """A message's content as blocks."""
    blocks = (TextBlock(value),) if type(value) is str else _wrap_errors("content", as_blocks, value)
    if not blocks:
        raise InvalidArgumentError("content is empty: a message has at least one block.")
    if len(blocks) == 1 and isinstance(blocks[0], TextBlock) and blocks[0].meta is None:
        size = len(blocks[0].text)
    else:
        # As it will be read back: keys become texts and tuples lists, and what is not JSON is refused.
        text = _wrap_errors("content", _encode_blocks, blocks)
        size, blocks = len(text), load_blocks(json.loads(text))
    if size > CONTENT_LENGTH:
        raise InvalidArgumentError(f"content has {size} characters; {CONTENT_LENGTH} is the limit.")
    return blocks


def _encode_blocks(blocks: tuple[ContentBlock, ...]) -> str:
    plain = [dict(block) for block in blocks]
    validate_depth(plain)
    return dump_strict_json(plain)


def parse_usage(
    value: ChatUsage | Mapping[str, Any] | None, provider: str | None, model: str | None
) -> ChatUsage | None:
    """Usage numbers, in our names, in camelCase or in a provider's own."""
    if value is None or isinstance(value, ChatUsage):
        return value
    from tellback.chat import make_usage

    if not isinstance(value, Mapping):
        raise InvalidArgumentError(f"usage is a ChatUsage or a mapping, not {value!r:.80}.")
    return make_usage({_to_snake_case(str(key)): amount for key, amount in value.items()}, provider, model)


def validate_count(label: str, value: Any, minimum: int = 0) -> int:
    """A whole number."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise InvalidArgumentError(f"{label} is a whole number of at least {minimum}, not {value!r:.80}.")
    return min(value, MAX_INTEGER)


def validate_seconds(label: str, value: Any) -> float:
    """A length of time in seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise InvalidArgumentError(f"{label} is a number of seconds, not {value!r:.80}.")
    return float(value)


def parse_duration(label: str, value: Any) -> timedelta:
    """A length of time, or its seconds."""
    try:
        age = value if isinstance(value, timedelta) else timedelta(seconds=validate_seconds(label, value))
    except OverflowError:
        age = timedelta(-1)
    if not timedelta(0) <= age <= timedelta(days=365_000):
        raise InvalidArgumentError(f"{label} is a length of time, not {value!r:.80}.")
    return age


def is_valid_id(value: Any) -> bool:
    """Whether anything could have that id."""
    return isinstance(value, str) and is_storable(value)


def validate_id(kind: str, value: Any) -> str:
    """An id to act on: one that nothing can have is not found."""
    if not is_valid_id(value):
        raise NotFoundError(kind, value)
    checked: str = value
    return checked


def _wrap_errors(label: str, convert: Callable[[Any], T], value: Any) -> T:
    try:
        return convert(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidArgumentError(f"{label}: {error}.") from error


def _to_snake_case(key: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in key)
