"""Values as people and models write them, read into what a JSON schema declares: dates, numbers, choices."""

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

from tellback.types.jsontext import storable
from tellback.types.names import folded

REFERENCE = "#/$defs/"


class InvalidValue(ValueError):
    """A value does not fit its field; the message is one short sentence for a model or a person to act on."""


class Reader:
    """Reads values as people and models write them into what a JSON schema declares, as far as that is plain."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        from jsonschema import Draft202012Validator, FormatChecker
        from referencing import Registry

        # Those that need no other package, so that a schema means the same on every machine.
        formats = FormatChecker(("email", "ipv4", "ipv6", "uuid"))
        for name, read in _FORMATS.items():
            formats.checks(name, raises=InvalidValue)(functools.partial(_is_read, read))
        self._definitions = definitions
        # A reference elsewhere is not fetched.
        self.validator: Any = Draft202012Validator({"$defs": definitions}, registry=Registry(), format_checker=formats)

    def read(self, schema: Any, value: Any) -> Any:
        """The value as the schema has it, or as it was where the schema says nothing of it."""
        if not isinstance(schema, Mapping):
            return value
        if value is None:
            if self._allows_null(schema):
                return None
            raise InvalidValue("is null, which states nothing")
        if isinstance(value, str):
            value = value.strip()
        if "enum" in schema or "const" in schema:
            return _declared(schema.get("enum", [schema.get("const")]), value)
        if value == "":
            raise InvalidValue("is empty")
        if "$ref" in schema:
            value = self.read(self._target(schema), value)
        for part in schema.get("allOf", ()):
            value = self.read(part, value)
        for key in ("anyOf", "oneOf"):
            if key in schema:
                value = self._either(schema[key], value)
        kind = schema.get("type") or _implied(schema, value)
        if isinstance(kind, list):
            return self._either([{**schema, "type": each} for each in kind], value)
        return self._of_type(kind, schema, value)

    def _of_type(self, kind: str | None, schema: Mapping[str, Any], value: Any) -> Any:
        match kind:
            case "string":
                return _text(schema, value)
            case "integer" | "number":
                return _number(value, whole=kind == "integer")
            case "boolean":
                return _boolean(value)
            case "null":
                raise InvalidValue(f"{_shown(value)} is not null")
            case "array":
                return self._list(schema, value if isinstance(value, list) else [value])
            case "object":
                return self._object(schema, value)
        return value

    def _either(self, branches: Sequence[Any], value: Any) -> Any:
        """What fits as it is wins over what has to be read; a branch that can be read but does not fit comes last."""
        branches = [each for each in branches if not (isinstance(each, Mapping) and each.get("type") == "null")]
        if len(branches) == 1:
            return self.read(branches[0], value)
        for branch in branches:
            if self._fits(branch, value):
                try:
                    return self.read(branch, value)
                except InvalidValue:
                    continue
        readable: list[Any] = []
        problems: dict[str, None] = {}
        for branch in branches:
            try:
                readable.append(self.read(branch, value))
            except InvalidValue as problem:
                problems[str(problem)] = None
                continue
            if self._fits(branch, readable[-1]):
                return readable[-1]
        if not readable:
            raise InvalidValue(", and ".join(problems) or "has no value that would fit")
        return readable[0]

    def _list(self, schema: Mapping[str, Any], values: Sequence[Any]) -> list[Any]:
        first = schema.get("prefixItems", [])
        rest = schema.get("items")
        return [
            self._part(f"item {index + 1}", first[index] if index < len(first) else rest, value)
            for index, value in enumerate(values)
        ]

    def _object(self, schema: Mapping[str, Any], value: Any) -> dict[str, Any]:
        if isinstance(value, str) and value.lstrip().startswith("{"):
            with contextlib.suppress(ValueError, RecursionError):  # a text, then, which is no object
                value = json.loads(value)
        if not isinstance(value, dict):
            raise InvalidValue(f"{_shown(value)} is not an object")
        named, others = schema.get("properties", {}), schema.get("additionalProperties")
        read: dict[str, Any] = {}
        for name, each in value.items():
            part = named.get(name, others)
            # Models write null for what was not stated.
            if each is None and name in named and not self._allows_null(part):
                continue
            read[name] = self._part(name, part, each)
        return read

    def _part(self, where: str, schema: Any, value: Any) -> Any:
        try:
            return self.read(schema, value)
        except InvalidValue as problem:
            raise InvalidValue(f"{where}: {problem}") from None

    def _fits(self, schema: Any, value: Any) -> bool:
        try:
            return bool(self.validator.evolve(schema=schema).is_valid(value))
        except re.error:  # a pattern that pydantic knows and Python does not; pydantic will judge it
            return True

    def _allows_null(self, schema: Any) -> bool:
        if not isinstance(schema, Mapping):
            return False
        if "$ref" in schema and self._allows_null(self._target(schema)):
            return True
        if None in schema.get("enum", ()) or schema.get("const", ...) is None or schema.get("type") == "null":
            return True
        if isinstance(schema.get("type"), list) and "null" in schema["type"]:
            return True
        parts = [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())]
        return any(self._allows_null(each) for each in parts)

    def _target(self, schema: Mapping[str, Any]) -> Any:
        return self._definitions[schema["$ref"].removeprefix(REFERENCE)]


def _implied(schema: Mapping[str, Any], value: Any) -> str | None:
    """The type a schema means that does not say it."""
    if isinstance(value, dict):
        return "object"
    if isinstance(value, list):
        return "array"
    return "string" if isinstance(value, str) and "format" in schema else None


def _declared(options: Sequence[Any], value: Any) -> Any:
    for option in options:
        if option == value and isinstance(option, bool) == isinstance(value, bool):
            return option
    if isinstance(value, str):
        alike = [option for option in options if _says(option, value)]
        if len(alike) == 1:
            return alike[0]
    shown = ", ".join(_shown(option) for option in options[:20])
    raise InvalidValue(f"{_shown(value)} is not {'one of ' if len(options) > 1 else ''}{shown}")


def _says(option: Any, text: str) -> bool:
    if isinstance(option, str):
        return folded(option) == folded(text)
    try:
        if isinstance(option, bool):
            return _boolean(text) is option
        return isinstance(option, int | float) and bool(_number(text, whole=isinstance(option, int)) == option)
    except InvalidValue:
        return False


def _text(schema: Mapping[str, Any], value: Any) -> str:
    read = _FORMATS.get(schema.get("format", ""))
    if read is not None:
        return read(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)  # an order's number, as models write it
    if not isinstance(value, str):
        raise InvalidValue(f"{_shown(value)} is not a text")
    return value


_NUMBER = re.compile(r"[+-]?(\d+(\.\d+)?|\.\d+)")
_GROUPED = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
_ONE_COMMA = re.compile(r"[+-]?\d{1,3},\d{3}")
_ONE_POINT = re.compile(r"[+-]?\d{1,3}\.\d{3}")
_LONGEST_NUMBER = 300
"""Digits a number may have, so that every database and JSON reader can hold it."""


def _number(value: Any, *, whole: bool) -> int | float:
    wanted = "a whole number" if whole else "a number"
    if isinstance(value, str):
        value = _number_of(value, whole)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidValue(f"{_shown(value)} is not {wanted}")
    if whole and isinstance(value, float):
        if not value.is_integer():
            raise InvalidValue(f"{_shown(value)} is not {wanted}")
        return int(value)
    return value


def _number_of(text: str, whole: bool) -> Any:
    """The number a text says, or the text. Some write 1,500 for one and a half, some for fifteen hundred."""
    if len(text) > _LONGEST_NUMBER:
        return text
    if (_ONE_POINT if whole else _ONE_COMMA).fullmatch(text):
        raise InvalidValue(f"{_shown(text)} is ambiguous: give the number without separators")
    if _GROUPED.fullmatch(text):
        text = text.replace(",", "")
    if not _NUMBER.fullmatch(text):
        return text
    return float(text) if "." in text else int(text)


def _boolean(value: Any) -> bool:
    if isinstance(value, str):
        value = {"yes": True, "true": True, "no": False, "false": False}.get(folded(value), value)
    if not isinstance(value, bool):
        raise InvalidValue(f"{_shown(value)} is neither yes nor no")
    return value


_DAY = re.compile(r"(\d{4})([-/.])(\d{1,2})\2(\d{1,2})(?:[Tt ]\s*(.+))?")
_CLOCK = re.compile(
    r"(\d{1,2})(:\d{2}(?::\d{2}(?:\.\d+)?)?)(?:\s*([ap])\.?m\.?)?\s*(z|[+-]\d{2}:?\d{2})?", re.IGNORECASE
)
_TWO_WAYS = re.compile(r"(0?[1-9]|1[0-2])([-/. ])(0?[1-9]|1[0-2])\2\d{2,4}\b.*")


def _date(value: Any) -> str:
    """A day as `2026-12-01`; of a moment, its day."""
    return _moment(value, "YYYY-MM-DD").date().isoformat()


def _datetime(value: Any) -> str:
    """A moment in ISO; of a day, its midnight."""
    return _moment(value, "YYYY-MM-DDTHH:MM").isoformat()


def _moment(value: Any, form: str) -> datetime:
    if not isinstance(value, str):
        raise InvalidValue(f"{_shown(value)} is not a date: give it as {form}")
    if _TWO_WAYS.fullmatch(value):
        raise InvalidValue(f"{_shown(value)} is ambiguous: give the date as {form}")
    found = _DAY.fullmatch(value)
    try:
        if found is None:
            return datetime.fromisoformat(value)
        year, _, month, day, clock = found.groups()
        return datetime.combine(date(int(year), int(month), int(day)), _clock(clock) if clock else time.min)
    except ValueError:
        raise InvalidValue(f"{_shown(value)} is not a date: give it as {form}") from None


def _time(value: Any) -> str:
    """A time of the day as `09:30:00`."""
    try:
        return _clock(value).isoformat()
    except (ValueError, TypeError):
        raise InvalidValue(f"{_shown(value)} is not a time: give it as HH:MM") from None


def _clock(text: str) -> time:
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


_FORMATS: Mapping[str, Callable[[Any], str]] = {"date": _date, "date-time": _datetime, "time": _time}


def _is_read(read: Callable[[Any], str], value: object) -> bool:
    return not isinstance(value, str) or read(value) == value


def plain_value(value: Any, otherwise: Callable[[Any], Any] | None = None) -> Any:
    """A value as JSON has it; `otherwise` makes something of what JSON cannot hold."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return plain_value(value.value, otherwise)
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(plain_value(key, otherwise)): plain_value(each, otherwise) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain_value(each, otherwise) for each in value]
    if hasattr(type(value), "model_fields"):
        # By field, not by model_dump: a serializer may write what its model cannot read.
        names = type(value).model_fields
        if "root" in names:
            return plain_value(value.root, otherwise)
        data = {name: getattr(value, name) for name in names if hasattr(value, name)}
        return plain_value({**data, **(value.model_extra or {})}, otherwise)
    if hasattr(value, "get_secret_value"):
        return plain_value(value.get_secret_value(), otherwise)
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        return to_jsonable_python(value)
    except (PydanticSerializationError, UnicodeDecodeError):
        if otherwise is None:
            raise InvalidValue(f"is of type {type(value).__name__}, which is no JSON value") from None
        return otherwise(value)


def usable(value: Any) -> Any:
    """A JSON value that every database can hold."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidValue("is not a finite number")
    if isinstance(value, int) and abs(value) >= 10**_LONGEST_NUMBER:
        raise InvalidValue("is too large a number")
    if isinstance(value, list):
        return [usable(each) for each in value]
    return {storable(name): usable(each) for name, each in value.items()} if isinstance(value, dict) else value


def explained(error: Any, skipped: int) -> str:
    """The first problems of a pydantic error; `skipped` parts of each path are known to the reader."""
    lines = []
    for problem in error.errors(include_url=False, include_context=False)[:3]:
        message, given = problem["msg"], _shown(problem["input"])
        if problem["type"] in ("value_error", "assertion_error"):
            message = message.partition(", ")[2] or message
        elif problem["type"] == "missing":
            message = "is missing"
        elif message.startswith("Input "):
            message = f"{given}{message.removeprefix('Input')}"
        else:
            message = f"{message}, got {given}"
        lines.append(sentence(problem["loc"][skipped:], message))
    return "; ".join(lines)


def sentence(path: Sequence[Any], message: str) -> str:
    """A problem in one line, with where in the value it is."""
    where = ".".join(map(str, path))
    return f"{where and where + ': '}{' '.join(message.split())}"[:300]


def _shown(value: Any) -> str:
    text = repr(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False, skipkeys=True, default=repr)
    return text if len(text) <= 80 else f"{text[:77]}..."
