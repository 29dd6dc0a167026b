"""Input schemas that another program sent: which can be used, and the check of a call's input against them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from recollect.tools.schema import Bind, InvalidInput

MAX_SCHEMA_CHARS = 100_000
MAX_DEPTH = 60
MAX_STEPS = 10_000

_ONE = (
    *("additionalItems", "additionalProperties", "contains", "contentSchema", "items", "propertyNames"),
    *("unevaluatedItems", "unevaluatedProperties"),
)
_MANY = ("items", "prefixItems")
_NAMED = ("$defs", "definitions", "patternProperties", "properties")
_ONE_IN_PLACE = ("else", "if", "not", "then")
_MANY_IN_PLACE = ("allOf", "anyOf", "oneOf")
_NAMED_IN_PLACE = ("dependentSchemas", "dependencies")
_REFS = ("$ref", "$dynamicRef", "$recursiveRef")

Lookup = Callable[[str], Any]


class UnusableSchema(ValueError):
    """A tool's input schema cannot be used; the message says why."""


def usable_schema(schema: Any) -> dict[str, Any]:
    """The schema as providers take it; raises `UnusableSchema`. Nothing is ever fetched.

    >>> usable_schema({"properties": {"x": {"type": "integer"}}})["type"]
    'object'
    """
    if not isinstance(schema, dict):
        raise UnusableSchema(f"its input schema is {type(schema).__name__}, not an object")
    if schema.get("type", "object") != "object":
        raise UnusableSchema(f"its input schema is for {schema['type']!r:.80}, not for an object")
    if _depth_over(schema, MAX_DEPTH):
        raise UnusableSchema(f"its input schema is nested deeper than {MAX_DEPTH}")
    size = len(json.dumps(schema))
    if size > MAX_SCHEMA_CHARS:
        raise UnusableSchema(f"its input schema has {size} characters, over the limit of {MAX_SCHEMA_CHARS}")
    _check_form(schema)
    try:
        _check_references(schema)
    except RecursionError:
        raise UnusableSchema("its references form too long a chain") from None
    kept = {key: value for key, value in schema.items() if key not in ("$schema", "$id", "id")}
    return {"properties": {}, **kept, "type": "object"}


def binder_for(schema: Mapping[str, Any]) -> Bind:
    """The check of a call's input against a schema that `usable_schema` has let pass.

    Patterns are left to the server: a regular expression from outside can be made to run for ever.
    """
    from jsonschema.exceptions import best_match
    from referencing import Registry

    checker = _without_patterns()(schema, registry=Registry())

    def bind(values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        try:
            worst = best_match(checker.iter_errors(values))
        except RecursionError:
            raise InvalidInput("the arguments are nested too deeply") from None
        if worst is not None:
            where = ".".join(str(step) for step in worst.absolute_path)
            message = f"{where}: {worst.message}" if where else worst.message
            raise InvalidInput(message if len(message) <= 500 else f"{message[:500]}…")
        return [], dict(values)

    return bind


def _without_patterns() -> Any:
    from jsonschema import Draft202012Validator, validators

    extend: Any = validators.extend
    additional: Any = Draft202012Validator.VALIDATORS["additionalProperties"]

    def unchecked(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        return iter(())

    def unless_patterned(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if "patternProperties" not in schema:
            yield from additional(validator, value, instance, schema)

    replaced: dict[str, Any] = dict.fromkeys(("pattern", "patternProperties", "unevaluatedProperties"), unchecked)
    replaced["additionalProperties"] = unless_patterned
    return extend(Draft202012Validator, replaced)


def _check_form(schema: dict[str, Any]) -> None:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        where = ".".join(str(step) for step in error.absolute_path) or "top"
        raise UnusableSchema(
            f"its input schema is not valid JSON schema at {where:.80}: {error.message:.200}"
        ) from None


def _check_references(schema: dict[str, Any]) -> None:
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    root = {key: value for key, value in schema.items() if key not in ("$schema", "$id")}
    resolver = Registry[Any]().with_resource("", DRAFT202012.create_resource(root)).resolver()

    def lookup(ref: Any) -> Any:
        if not isinstance(ref, str) or not ref.startswith("#"):
            raise UnusableSchema(f"its input schema refers to {ref!r:.120}, outside itself; nothing is fetched")
        try:
            return resolver.lookup(ref).contents
        except (Unresolvable, ValueError, TypeError, KeyError, IndexError):
            raise UnusableSchema(f"its input schema refers to {ref!r:.120}, which it does not hold") from None

    steps: dict[int, int] = {}
    waiting: list[Any] = [root]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict) and id(found) not in steps:
            if found is not root and isinstance(found.get("$id"), str):
                raise UnusableSchema("its input schema holds another one with an $id of its own")
            _steps(found, lookup, steps, set())
            waiting.extend(_within(found))
            waiting.extend(lookup(found[key]) for key in _REFS if key in found)


def _steps(schema: Any, lookup: Lookup, known: dict[int, int], open_: set[int]) -> int:
    """How many schemas one value is checked against; a circle would never end, and doublings take as long."""
    if not isinstance(schema, dict):
        return 1
    if id(schema) in known:
        return known[id(schema)]
    if id(schema) in open_:
        raise UnusableSchema("its input schema refers to itself in a circle that never ends")
    open_.add(id(schema))
    count = 1 + sum(_steps(child, lookup, known, open_) for child in _in_place(schema, lookup))
    if count > MAX_STEPS:
        raise UnusableSchema("its input schema takes too long to check")
    open_.remove(id(schema))
    known[id(schema)] = count
    return count


def _in_place(schema: dict[str, Any], lookup: Lookup) -> Iterator[Any]:
    """The schemas that are checked against the same value."""
    yield from (lookup(schema[key]) for key in _REFS if key in schema)
    yield from _children(schema, _ONE_IN_PLACE, _MANY_IN_PLACE, _NAMED_IN_PLACE)


def _within(schema: dict[str, Any]) -> Iterator[Any]:
    yield from _children(schema, _ONE, _MANY, _NAMED)
    yield from _children(schema, _ONE_IN_PLACE, _MANY_IN_PLACE, _NAMED_IN_PLACE)


def _children(schema: dict[str, Any], one: Any, many: Any, named: Any) -> Iterator[Any]:
    for key in one:
        if isinstance(schema.get(key), dict):
            yield schema[key]
    for key in many:
        if isinstance(schema.get(key), list):
            yield from schema[key]
    for key in named:
        if isinstance(schema.get(key), dict):
            yield from schema[key].values()


def _depth_over(value: Any, limit: int) -> bool:
    level: list[Any] = [value]
    for _ in range(limit):
        level = [
            child
            for item in level
            if isinstance(item, (dict, list))
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return False
    return True
