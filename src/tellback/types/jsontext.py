"""JSON text: compact for models, strict for databases, and lenient for JSON that models wrote."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

MAX_JSON_DEPTH = 100
"""The maximum nesting of values. A deeper value could be encoded, but not decoded later from a deeper call stack."""

_LINE_BREAKS = str.maketrans({mark: f"\\u{ord(mark):04x}" for mark in "\x85\u2028\u2029"})


def dump_json(value: Any) -> str:
    """Encode compact JSON for a model; pydantic converts values that JSON does not have."""
    try:
        return _ENCODER.encode(value)
    except TypeError:  # keys that JSON does not allow
        from pydantic_core import to_jsonable_python

        return _ENCODER.encode(to_jsonable_python(value, fallback=str))


def _to_jsonable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, fallback=str)


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_to_jsonable)


def dump_json_line(value: Any) -> str:
    """Encode compact JSON on one line: Unicode line separators are escaped.

    >>> dump_json_line("one\\u2028two")
    '"one\\\\u2028two"'
    """
    return dump_json(value).translate(_LINE_BREAKS)


def strip_code_fence(text: str) -> str:
    """Remove the Markdown code fence around a model's JSON.

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
    """Parse the arguments of a tool call: return the object, and the raw text if it is not a JSON object.

    An empty text means no arguments: several servers omit the field for tools without parameters.
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
    """Remove characters that a database cannot store."""
    return text if is_storable(text) else text.replace("\x00", "").encode("utf-8", "ignore").decode()


def is_storable(text: str) -> bool:
    """Whether every database can store the text: PostgreSQL rejects NUL, and UTF-8 has no lone surrogates."""
    if "\x00" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _mapping_to_dict(value: Any) -> Any:
    """Encode mappings other than dict; raise TypeError for other values, which would not survive a round trip."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{value!r:.80} is not JSON")


_STORED_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_mapping_to_dict)
_STORED_ASCII_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_mapping_to_dict)


def validate_depth(value: Any, levels_left: int = MAX_JSON_DEPTH) -> None:
    """Raise ValueError if a value is nested too deeply."""
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return
    if not levels_left:
        raise ValueError(f"the value is nested more than {MAX_JSON_DEPTH} levels deep")
    for inner in value:
        validate_depth(inner, levels_left - 1)


def dump_stored_json(value: Any) -> str:
    """Encode valid JSON: infinite and NaN numbers, which models sometimes write, become null."""
    try:
        return dump_strict_json(value)
    except ValueError:
        validate_depth(value)  # also detects cycles
        return dump_strict_json(replace_nonfinite(value))


def replace_nonfinite(value: Any) -> Any:
    """Replace infinite and NaN numbers, which JSON does not have, with None."""
    if isinstance(value, Mapping):
        return {name: replace_nonfinite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [replace_nonfinite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def dump_strict_json(value: Any) -> str:
    """Encode JSON that every database can store: lone surrogates are escaped."""
    text = _STORED_ENCODER.encode(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        return _STORED_ASCII_ENCODER.encode(value)
    return text


def to_json_value(value: Any) -> Any:
    """Convert a value to JSON values: dataclasses by field, datetimes in ISO 8601, durations in seconds.

    >>> to_json_value({"at": datetime(2026, 3, 1), "took": timedelta(seconds=2), "error": KeyError("x")})
    {'at': '2026-03-01T00:00:00', 'took': 2.0, 'error': "KeyError: 'x'"}
    """
    if isinstance(value, Enum):
        return to_json_value(value.value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str | int | None):
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: to_json_value(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json_value(each) for key, each in value.items()}
    if isinstance(value, list | tuple | Set):
        return [to_json_value(each) for each in value]
    if hasattr(value, "model_dump"):  # a pydantic model, such as the output of a run with `output_type`
        return value.model_dump(mode="json")
    return str(value)
