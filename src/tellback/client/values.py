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
from tellback.wire.blocks import block_json


def given(**arguments: Any) -> dict[str, Any]:
    """The arguments that are not None, by their names on the wire.

    >>> given(valid_from=None, min_importance=3)
    {'minImportance': 3}
    """
    return {camel(name): jsonable(value) for name, value in arguments.items() if value is not None}


def content_json(content: Content) -> Any:
    """A message's content: a text, or a list of blocks. What cannot be one is refused here, as in process."""
    if isinstance(content, str):
        return content
    return [block_json(block) for block in checks.content(content)]


def metadata_json(metadata: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Data of the caller's own: a JSON object, as in process; what is none is refused here."""
    return None if metadata is None else checks.metadata(metadata)


def usage_json(usage: Any, provider: str | None = None, model: str | None = None) -> dict[str, Any] | None:
    """Usage numbers, in whatever names they come."""
    counted = checks.usage(usage, provider, model)
    return None if counted is None else jsonable(counted)


def moment_json(what: str, value: datetime | str | None) -> str | None:
    """A moment, with its timezone."""
    return None if value is None else checks.moment(what, value).isoformat()


def seconds_json(what: str, value: timedelta | float | None) -> float | None:
    """A length of time in seconds."""
    return None if value is None else checks.duration(what, value).total_seconds()


def jsonable(value: Any) -> Any:
    """Anything that can be sent: values become mappings with the names of the wire, moments become texts.

    What the caller wrote as a mapping keeps its keys.
    """
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str | bool | int | float) or value is None:
        return value
    if isinstance(value, datetime):
        return moment_json("a moment", value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {_key(name): jsonable(each) for name, each in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        found = {camel(field.name): getattr(value, field.name) for field in fields(value)}
        return {name: jsonable(each) for name, each in found.items() if each is not None}
    if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray | memoryview):
        return [jsonable(each) for each in value]
    raise InvalidArgumentError(f"{value!r:.80} cannot be sent to a server.")


def named(value: Any) -> Any:
    """A value or a mapping, in either spelling, with the names of the wire."""
    if isinstance(value, Mapping):
        return {camel(_key(name)): jsonable(each) for name, each in value.items()}
    return jsonable(value)


def _key(name: Any) -> str:
    if not isinstance(name, str):
        raise InvalidArgumentError(f"{name!r:.80} cannot be sent as the name of something: names are texts.")
    return name
