"""JSON text to and from values, for what models write and read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def dump_json(value: Any) -> str:
    """Compact JSON for a model to read; values JSON does not know are converted where pydantic can."""
    try:
        return _ENCODER.encode(value)
    except TypeError:  # keys that JSON does not know
        from pydantic_core import to_jsonable_python

        return _ENCODER.encode(to_jsonable_python(value, fallback=str))


def _to_jsonable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, fallback=str)


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_to_jsonable)


_LINE_BREAKS = str.maketrans({mark: f"\\u{ord(mark):04x}" for mark in "\x85\u2028\u2029"})


def dump_json_line(value: Any) -> str:
    """The same on one line, whatever takes which marks for the end of one.

    >>> dump_json_line("one\\u2028two")
    '"one\\\\u2028two"'
    """
    return dump_json(value).translate(_LINE_BREAKS)


def strip_code_fence(text: str) -> str:
    """A model's JSON without the Markdown fence around it.

    >>> strip_code_fence('```json\\n{"city": "Rome"}\\n```')
    '{"city": "Rome"}'
    """
    body = text.strip()
    if body.startswith("```") and body.endswith("```"):
        first, newline, rest = body[3:-3].partition("\n")
        if (newline and first.strip().isalpha()) or not first.strip():
            return rest.strip()
    return body


def parse_arguments(text: str | None) -> tuple[dict[str, Any], str | None]:
    """A tool call's arguments: the object, and the raw text if it was not one.

    Nothing at all means no arguments: several hosts leave the field out for tools that take none.
    """
    if text is None or not text.strip():
        return {}, None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}, text
    if isinstance(value, dict):
        return value, None
    return ({}, None) if value is None else ({}, text)


def make_storable(text: str) -> str:
    """The text without what no database can hold."""
    return text if is_storable(text) else text.replace("\x00", "").encode("utf-8", "ignore").decode()


def is_storable(text: str) -> bool:
    """Whether every database can hold it as it is: PostgreSQL has no NUL, and UTF-8 no lone surrogates."""
    if "\x00" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
