"""Parse values as people and models write them (dates, numbers, choices) into the types of a JSON schema."""

from __future__ import annotations

import contextlib
import functools
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from enum import Enum
from typing import Any

from tellback.types.ids import fold_name, from_micros
from tellback.types.jsontext import make_storable

REFERENCE_PREFIX = "#/$defs/"
MAX_WRITTEN_DATE_LENGTH = 40


class InvalidValue(ValueError):
    """A value does not fit its field; the message is short, and readable for a model or a person."""


class ValueParser:
    """Parses values as people and models write them into the types of a JSON schema, where the meaning is clear."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        from jsonschema import Draft202012Validator, FormatChecker
        from referencing import Registry

        # Only formats that need no other package, so that a schema means the same on every machine.
        formats = FormatChecker(("email", "ipv4", "ipv6", "uuid"))
        for name, parse in _FORMAT_PARSERS.items():
            formats.checks(name, raises=InvalidValue)(functools.partial(_is_normalized, parse))
        self._definitions = definitions
        # The empty registry prevents fetching of remote references.
        self.validator: Any = Draft202012Validator({"$defs": definitions}, registry=Registry(), format_checker=formats)

    def parse(self, schema: Any, value: Any) -> Any:
        """Return the value with the schema's type, or unchanged where the schema declares none."""
        if not isinstance(schema, Mapping):
            return value
        if value is None:
            if self._allows_null(schema):
                return None
            raise InvalidValue("is null, which is not a value")
        if isinstance(value, str):
            value = value.strip()
        if "enum" in schema or "const" in schema:
            return _parse_choice(schema.get("enum", [schema.get("const")]), value)
        if value == "":
            raise InvalidValue("is empty")
        if "$ref" in schema:
            value = self.parse(self._resolve_reference(schema), value)
        for part in schema.get("allOf", ()):
            value = self.parse(part, value)
        for key in ("anyOf", "oneOf"):
            if key in schema:
                value = self._parse_any_of(schema[key], value)
        kind = schema.get("type") or _implied_type(schema, value)
        if isinstance(kind, list):
            return self._parse_any_of([{**schema, "type": each} for each in kind], value)
        return self._parse_type(kind, schema, value)

    def _parse_type(self, kind: str | None, schema: Mapping[str, Any], value: Any) -> Any:
        match kind:
            case "string":
                return _parse_text(schema, value)
            case "integer" | "number":
                return _parse_number(value, whole=kind == "integer")
            case "boolean":
                return _parse_boolean(value)
            case "null":
                raise InvalidValue(f"{_format_value(value)} is not null")
            case "array":
                return self._parse_list(schema, value if isinstance(value, list) else [value])
            case "object":
                return self._parse_object(schema, value)
        return value

    def _parse_any_of(self, branches: Sequence[Any], value: Any) -> Any:
        """Prefer a branch that fits the value unchanged, then one that fits it parsed, then any that can parse it."""
        branches = [each for each in branches if not (isinstance(each, Mapping) and each.get("type") == "null")]
        if len(branches) == 1:
            return self.parse(branches[0], value)
        for branch in branches:
            if self._is_valid(branch, value):
                try:
                    return self.parse(branch, value)
                except InvalidValue:
                    continue
        readable: list[Any] = []
        problems: dict[str, None] = {}
        for branch in branches:
            try:
                readable.append(self.parse(branch, value))
            except InvalidValue as problem:
                problems[str(problem)] = None
                continue
            if self._is_valid(branch, readable[-1]):
                return readable[-1]
        if not readable:
            raise InvalidValue(", and ".join(problems) or "fits no branch of the schema")
        return readable[0]

    def _parse_list(self, schema: Mapping[str, Any], values: Sequence[Any]) -> list[Any]:
        first = schema.get("prefixItems", [])
        rest = schema.get("items")
        return [
            self._parse_part(f"item {index + 1}", first[index] if index < len(first) else rest, value)
            for index, value in enumerate(values)
        ]

    def _parse_object(self, schema: Mapping[str, Any], value: Any) -> dict[str, Any]:
        if isinstance(value, str) and value.lstrip().startswith("{"):
            with contextlib.suppress(ValueError, RecursionError):  # then it is a plain string
                value = json.loads(value)
        if not isinstance(value, dict):
            raise InvalidValue(f"{_format_value(value)} is not an object")
        named, others = schema.get("properties", {}), schema.get("additionalProperties")
        parsed: dict[str, Any] = {}
        for name, each in value.items():
            part = named.get(name, others)
            # Models write null for values the user did not state.
            if each is None and name in named and not self._allows_null(part):
                continue
            parsed[name] = self._parse_part(name, part, each)
        return parsed

    def _parse_part(self, where: str, schema: Any, value: Any) -> Any:
        try:
            return self.parse(schema, value)
        except InvalidValue as problem:
            raise InvalidValue(f"{where}: {problem}") from None

    def _is_valid(self, schema: Any, value: Any) -> bool:
        try:
            return bool(self.validator.evolve(schema=schema).is_valid(value))
        except re.error:  # pydantic supports patterns that Python does not, and checks them later
            return True

    def _allows_null(self, schema: Any) -> bool:
        if not isinstance(schema, Mapping):
            return False
        if "$ref" in schema and self._allows_null(self._resolve_reference(schema)):
            return True
        if None in schema.get("enum", ()) or schema.get("const", ...) is None or schema.get("type") == "null":
            return True
        if isinstance(schema.get("type"), list) and "null" in schema["type"]:
            return True
        parts = [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())]
        return any(self._allows_null(each) for each in parts)

    def _resolve_reference(self, schema: Mapping[str, Any]) -> Any:
        return self._definitions[schema["$ref"].removeprefix(REFERENCE_PREFIX)]


def _implied_type(schema: Mapping[str, Any], value: Any) -> str | None:
    """Return the type implied by a schema without `type`."""
    if isinstance(value, dict):
        return "object"
    if isinstance(value, list):
        return "array"
    return "string" if isinstance(value, str) and "format" in schema else None


def _parse_choice(options: Sequence[Any], value: Any) -> Any:
    for option in options:
        if option == value and isinstance(option, bool) == isinstance(value, bool):
            return option
    if isinstance(value, str):
        matches = [option for option in options if _matches_option(option, value)]
        if len(matches) == 1:
            return matches[0]
    shown = ", ".join(_format_value(option) for option in options[:20])
    raise InvalidValue(f"{_format_value(value)} is not {'one of ' if len(options) > 1 else ''}{shown}")


def _matches_option(option: Any, text: str) -> bool:
    if isinstance(option, str):
        return fold_name(option) == fold_name(text)
    try:
        if isinstance(option, bool):
            return _parse_boolean(text) is option
        return isinstance(option, int | float) and bool(_parse_number(text, whole=isinstance(option, int)) == option)
    except InvalidValue:
        return False


def _parse_text(schema: Mapping[str, Any], value: Any) -> str:
    parse = _FORMAT_PARSERS.get(schema.get("format", ""))
    if parse is not None:
        return parse(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)  # models write order numbers as integers
    if not isinstance(value, str):
        raise InvalidValue(f"{_format_value(value)} is not a string")
    return value


_NUMBER = re.compile(r"[+-]?(\d+(\.\d+)?|\.\d+)")
_GROUPED = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
_ONE_COMMA = re.compile(r"[+-]?\d{1,3},\d{3}")
_ONE_POINT = re.compile(r"[+-]?\d{1,3}\.\d{3}")
_MAX_DIGITS = 300
"""The maximum number of digits of a number, so that every database and JSON reader can store it."""


def _parse_number(value: Any, *, whole: bool) -> int | float:
    expected = "a whole number" if whole else "a number"
    if isinstance(value, str):
        value = _number_from_text(value, whole)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidValue(f"{_format_value(value)} is not {expected}")
    if whole and isinstance(value, float):
        if not value.is_integer():
            raise InvalidValue(f"{_format_value(value)} is not {expected}")
        return int(value)
    return value


def _number_from_text(text: str, whole: bool) -> Any:
    """Return the number in a text, or the text if it is not a number. Reject ambiguous texts: "1,500" may mean 1.5 or
    1500."""
    if len(text) > _MAX_DIGITS:
        return text
    if (_ONE_POINT if whole else _ONE_COMMA).fullmatch(text):
        raise InvalidValue(f"{_format_value(text)} is ambiguous: give the number without separators")
    if _GROUPED.fullmatch(text):
        text = text.replace(",", "")
    if not _NUMBER.fullmatch(text):
        return text
    return float(text) if "." in text else int(text)


def _parse_boolean(value: Any) -> bool:
    if isinstance(value, str):
        value = {"yes": True, "true": True, "no": False, "false": False}.get(fold_name(value), value)
    if not isinstance(value, bool):
        raise InvalidValue(f"{_format_value(value)} is neither yes nor no")
    return value


_DAY = re.compile(r"(\d{4})([-/.])(\d{1,2})\2(\d{1,2})(?:[Tt ]\s*(.+))?")
_CLOCK = re.compile(
    r"(\d{1,2})(:\d{2}(?::\d{2}(?:\.\d+)?)?)(?:\s*([ap])\.?m\.?)?\s*(z|[+-]\d{2}:?\d{2})?", re.IGNORECASE
)
_YEAR = re.compile(r"(?<!\d)[12]\d{3}(?!\d)")
_AMBIGUOUS_DATE = re.compile(r"(0?[1-9]|1[0-2])([-/. ])(0?[1-9]|1[0-2])\2\d{2,4}\b.*")


def _parse_date(value: Any) -> str:
    """Return a date as `2026-12-01`; a datetime gives its date."""
    return _parse_moment(value, "YYYY-MM-DD").date().isoformat()


def _parse_datetime(value: Any) -> str:
    """Return a datetime in ISO format; a date gives its midnight."""
    return _parse_moment(value, "YYYY-MM-DDTHH:MM").isoformat()


def _parse_moment(value: Any, form: str) -> datetime:
    if not isinstance(value, str):
        raise InvalidValue(f"{_format_value(value)} is not a date: give it as {form}")
    if _AMBIGUOUS_DATE.fullmatch(value):
        raise InvalidValue(f"{_format_value(value)} is ambiguous: give the date as {form}")
    found = _DAY.fullmatch(value)
    try:
        if found is None:
            written = _parse_written_date(value)
            return datetime.fromisoformat(value) if written is None else datetime.combine(written, time.min)
        year, _, month, day, clock = found.groups()
        return datetime.combine(date(int(year), int(month), int(day)), _parse_clock(clock) if clock else time.min)
    except ValueError:
        raise InvalidValue(f"{_format_value(value)} is not a date: give it as {form}") from None


def _parse_written_date(text: str) -> date | None:
    """Return the day of a complete date such as "17 May 2001", or None for all other texts."""
    if len(text) > MAX_WRITTEN_DATE_LENGTH or text[:4].isdecimal():
        return None
    from tellback.memory.recall.dates.parser import parse_time_spans  # imported only if needed

    spans = parse_time_spans(text, 0)
    if len(spans) != 1 or spans[0].precision != "day" or not _YEAR.search(spans[0].text):
        return None
    other_words = len(text) - len(spans[0].text)
    return None if other_words > len("the ") else from_micros(spans[0].start).date()


def _parse_time(value: Any) -> str:
    """Return a time of day as `09:30:00`."""
    try:
        return _parse_clock(value).isoformat()
    except (ValueError, TypeError):
        raise InvalidValue(f"{_format_value(value)} is not a time: give it as HH:MM") from None


def _parse_clock(text: str) -> time:
    found = _CLOCK.fullmatch(text)
    if found is None:
        raise ValueError(text)
    hour, rest, half, offset = found.groups()
    number = int(hour)
    if half is not None:
        if not 1 <= number <= 12:
            raise ValueError(text)
        number = number % 12 + (12 if half in "pP" else 0)
    return time.fromisoformat(f"{number:02}{rest}{(offset or '').upper()}")


_FORMAT_PARSERS: Mapping[str, Callable[[Any], str]] = {
    "date": _parse_date,
    "date-time": _parse_datetime,
    "time": _parse_time,
}


def _is_normalized(parse: Callable[[Any], str], value: object) -> bool:
    return not isinstance(value, str) or parse(value) == value


def to_plain_value(value: Any, fallback: Callable[[Any], Any] | None = None) -> Any:
    """Return the value as JSON represents it; `fallback` converts values that JSON does not support."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return to_plain_value(value.value, fallback)
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(to_plain_value(key, fallback)): to_plain_value(each, fallback) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain_value(each, fallback) for each in value]
    if hasattr(type(value), "model_fields"):
        # By field, not by model_dump: a serializer may write what its model cannot read.
        names = type(value).model_fields
        if "root" in names:
            return to_plain_value(value.root, fallback)
        data = {name: getattr(value, name) for name in names if hasattr(value, name)}
        return to_plain_value({**data, **(value.model_extra or {})}, fallback)
    if hasattr(value, "get_secret_value"):
        return to_plain_value(value.get_secret_value(), fallback)
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        return to_jsonable_python(value)
    except (PydanticSerializationError, UnicodeDecodeError):
        if fallback is None:
            raise InvalidValue(f"is of type {type(value).__name__}, which JSON does not support") from None
        return fallback(value)


def validate_storable(value: Any) -> Any:
    """Return a JSON value that every database can store."""
    if isinstance(value, str):
        return make_storable(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidValue("is not a finite number")
    if isinstance(value, int) and abs(value) >= 10**_MAX_DIGITS:
        raise InvalidValue("is too large a number")
    if isinstance(value, list):
        return [validate_storable(each) for each in value]
    if isinstance(value, dict):
        return {make_storable(name): validate_storable(each) for name, each in value.items()}
    return value


def explain_validation_error(error: Any, skip_parts: int) -> str:
    """Format the first three problems of a pydantic error without the first `skip_parts` parts of each path."""
    lines = []
    for problem in error.errors(include_url=False, include_context=False)[:3]:
        message, shown_input = problem["msg"], _format_value(problem["input"])
        if problem["type"] in ("value_error", "assertion_error"):
            message = message.partition(", ")[2] or message
        elif problem["type"] == "missing":
            message = "is missing"
        elif message.startswith("Input "):
            message = f"{shown_input}{message.removeprefix('Input')}"
        else:
            message = f"{message}, got {shown_input}"
        lines.append(format_problem(problem["loc"][skip_parts:], message))
    return "; ".join(lines)


def format_problem(path: Sequence[Any], message: str) -> str:
    """Format a problem as one line that begins with its path in the value."""
    where = ".".join(map(str, path))
    return f"{where and where + ': '}{' '.join(message.split())}"[:300]


def _format_value(value: Any) -> str:
    text = repr(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False, skipkeys=True, default=repr)
    return text if len(text) <= 80 else f"{text[:77]}..."
