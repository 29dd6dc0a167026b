"""Values of Python on their way to a server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from tellback.conversations import checks
from tellback.errors import InvalidArgumentError
from tellback.types.blocks import Content
from tellback.wire.base import camel
from tellback.wire.blocks import encode_block


def encode_arguments(**arguments: Any) -> dict[str, Any]:
    """The arguments that are not None, by their names on the wire.

    >>> encode_arguments(valid_from=None, min_importance=3)
    {'minImportance': 3}
    """
    return {camel(name): encode_value(value) for name, value in arguments.items() if value is not None}


def encode_content(content: Content) -> Any:
    """A message's content: a text, or a list of blocks. What cannot be one is refused here, as in process."""
    if isinstance(content, str):
        return content
    return [encode_block(block) for block in checks.parse_content(content)]


def encode_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Data of the caller's own: a JSON object, as in process; what is none is refused here."""
    return None if metadata is None else checks.validate_metadata(metadata)


def encode_usage(usage: Any, provider: str | None = None, model: str | None = None) -> dict[str, Any] | None:
    """Usage numbers, in whatever names they come."""
    counted = checks.parse_usage(usage, provider, model)
    return None if counted is None else encode_value(counted)


def encode_datetime(name: str, value: datetime | str | None) -> str | None:
    """A moment, with its timezone."""
    return None if value is None else checks.parse_datetime(name, value).isoformat()


def encode_duration(name: str, value: timedelta | float | None) -> float | None:
    """A length of time in seconds."""
    return None if value is None else checks.parse_duration(name, value).total_seconds()


def encode_value(value: Any) -> Any:
    """Anything that can be sent: values become mappings with the names of the wire, moments become texts.

    What the caller wrote as a mapping keeps its keys.
    """
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str | bool | int | float) or value is None:
        return value
    if isinstance(value, datetime):
        return encode_datetime("a moment", value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {_validate_key(name): encode_value(each) for name, each in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        fields_by_name = {camel(field.name): getattr(value, field.name) for field in fields(value)}
        return {name: encode_value(each) for name, each in fields_by_name.items() if each is not None}
    if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray | memoryview):
        return [encode_value(each) for each in value]
    raise InvalidArgumentError(f"{value!r:.80} cannot be sent to a server.")


def encode_mapping(value: Any) -> Any:
    """A value or a mapping, in either spelling, with the names of the wire."""
    if isinstance(value, Mapping):
        return {camel(_validate_key(name)): encode_value(each) for name, each in value.items()}
    return encode_value(value)


def _validate_key(name: Any) -> str:
    if not isinstance(name, str):
        raise InvalidArgumentError(f"{name!r:.80} cannot be sent as the name of something: names are texts.")
    return name
