"""What a route gathers: its fields, and values for them read as people write them, checked and typed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tellback.agent.value_reading import REFERENCE, InvalidValue, Reader, explained, plain_value, sentence, usable
from tellback.errors import FlowError
from tellback.tools.schema import without_titles
from tellback.types.jsontext import dump_json

__all__ = ["Field", "GatherSchema", "InvalidValue"]


@dataclass(frozen=True, slots=True)
class Field:
    """One value to gather: its JSON schema as a model is shown it, and whether a state waits for it."""

    name: str
    schema: Mapping[str, Any]
    needed: bool
    text: str = field(init=False, compare=False, repr=False, default="")

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", dump_json(self.schema))


class _Values(Protocol):
    """How values of one kind of schema are checked."""

    def check(self, name: str, value: Any) -> Any: ...
    def restore(self, name: str, value: Any) -> Any: ...
    def whole(self, data: Mapping[str, Any]) -> Any: ...


class GatherSchema:
    """The fields of a route, from a JSON schema or a pydantic model.

    >>> schema = GatherSchema.of({"type": "object", "properties": {"passengers": {"type": "integer"}}}, "route 'Book'")
    >>> schema.check("passengers", " 2 "), schema.fields["passengers"].needed
    (2, True)
    """

    __slots__ = ("_values", "definitions", "fields")

    def __init__(self, fields: Mapping[str, Field], definitions: Mapping[str, Any], values: _Values) -> None:
        self.fields = fields
        self.definitions = definitions
        self._values = values

    @classmethod
    def of(cls, given: Mapping[str, Any] | type | None, place: str) -> GatherSchema:
        """The schema a route was given; `FlowError` at `place` when it cannot be used."""
        if given is None:
            given = {"type": "object", "properties": {}}
        if isinstance(given, Mapping):
            fields, definitions = _json_fields(given, place)
            return cls(fields, definitions, _JsonValues(fields, definitions))
        from pydantic import BaseModel

        if isinstance(given, BaseModel):
            name = type(given).__name__
            raise FlowError(place, f"gather_schema is an instance of {name}: pass the class, gather_schema={name}.")
        if not (isinstance(given, type) and issubclass(given, BaseModel)):
            raise FlowError(place, f"gather_schema is a JSON schema or a pydantic model class, not {given!r:.80}.")
        fields, definitions = _model_fields(given, place)
        return cls(fields, definitions, _ModelValues(given, fields, definitions))

    def check(self, name: str, value: Any) -> Any:
        """The value as it is kept; `InvalidValue` says why it cannot be."""
        if name not in self.fields:
            raise InvalidValue(f"is not gathered here; what is: {', '.join(self.fields) or 'nothing'}")
        try:
            return self._values.check(name, usable(plain_value(value)))
        except RecursionError:
            raise InvalidValue("is nested too deeply") from None

    def restore(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Values that came back from JSON with their types; what is unknown or fits no more is as it was."""
        return {name: self._values.restore(name, each) if name in self.fields else each for name, each in data.items()}

    def plain(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """The values as JSON has them."""
        return {name: plain_value(value, str) for name, value in data.items()}

    def typed(self, data: Mapping[str, Any]) -> Any:
        """An instance of the model, when the schema is one and nothing needed is missing; else a dict."""
        if any(field.needed and name not in data for name, field in self.fields.items()):
            return dict(data)
        return self._values.whole(data)


class _JsonValues:
    """Values that stay JSON, checked by a JSON schema."""

    def __init__(self, fields: Mapping[str, Field], definitions: Mapping[str, Any]) -> None:
        self._reader = Reader(definitions)
        self._fields = {name: field.schema for name, field in fields.items()}
        self._validators = {name: self._reader.validator.evolve(schema=each) for name, each in self._fields.items()}

    def check(self, name: str, value: Any) -> Any:
        from jsonschema.exceptions import best_match

        read = self._reader.read(self._fields[name], value)
        worst = best_match(self._validators[name].iter_errors(read))
        if worst is not None:
            raise InvalidValue(sentence(worst.absolute_path, worst.message))
        return read

    def restore(self, name: str, value: Any) -> Any:
        return value

    def whole(self, data: Mapping[str, Any]) -> Any:
        return dict(data)


class _ModelValues:
    """Values typed by a pydantic model, each checked alone: what the model says of all together must not run."""

    def __init__(self, model: Any, fields: Mapping[str, Field], definitions: Mapping[str, Any]) -> None:
        from pydantic_core import SchemaValidator

        self._model = model
        self._reader = Reader(definitions)
        self._fields = {name: field.schema for name, field in fields.items()}
        core, config, shared = _field_cores(model)
        own = [decorator.func for decorator in model.__pydantic_decorators__.field_validators.values()]
        typed = {name: _without(each, own) for name, each in core.items()}

        def validator(name: str, each: Any) -> Any:
            # As the only field of a model, so that validators find the `info.data` they may look at.
            alone: Any = {"type": "model-fields", "fields": {name: {"type": "model-field", "schema": each}}}
            return SchemaValidator({"type": "definitions", "schema": alone, "definitions": shared}, config)

        self._checked = {name: validator(name, each) for name, each in core.items()}
        self._typed = {name: validator(name, each) for name, each in typed.items()}
        self._reads_itself = {name for name, each in core.items() if _reads_itself(each)}

    def check(self, name: str, value: Any) -> Any:
        # A validator that runs before the type may read more than we do, so it is given text as it was written.
        if name in self._reads_itself and isinstance(value, str) and value.strip():
            try:
                return self._validated(self._checked, name, value.strip())
            except InvalidValue as refused:
                try:
                    value = self._reader.read(self._fields[name], value)
                except InvalidValue:
                    raise refused from None
                return self._validated(self._checked, name, value)
        return self._validated(self._checked, name, self._reader.read(self._fields[name], value))

    def restore(self, name: str, value: Any) -> Any:
        try:  # typed again, not judged again: a date that was in the future is still a date
            return self._validated(self._typed, name, plain_value(value))
        except (ValueError, RecursionError):
            return value

    def whole(self, data: Mapping[str, Any]) -> Any:
        from pydantic import ValidationError

        required = {name: None for name, info in self._model.model_fields.items() if info.is_required()}
        known = {**required, **{name: value for name, value in data.items() if name in self._fields}}
        try:
            return self._model.model_validate(known, by_alias=False, by_name=True)
        except ValidationError as error:
            raise InvalidValue(explained(error, 0)) from None

    def _validated(self, validators: Mapping[str, Any], name: str, value: Any) -> Any:
        from pydantic import ValidationError

        # As JSON, in which strict models take dates and enums too.
        try:
            data, *_ = validators[name].validate_json(json.dumps({name: value}), by_alias=False, by_name=True)
        except ValidationError as error:
            raise InvalidValue(explained(error, 1)) from None
        except (KeyError, TypeError, AttributeError):
            if validators is self._typed:
                raise
            # The model's validator wants fields that are not there yet; it runs again when all are.
            return self._validated(self._typed, name, value)
        if isinstance(data[name], float) and not math.isfinite(data[name]):
            raise InvalidValue("is not a finite number")
        return data[name]


def _json_fields(given: Mapping[str, Any], place: str) -> tuple[dict[str, Field], dict[str, Any]]:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        schema = _copied(given)
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        where = ".".join(map(str, error.absolute_path))
        raise FlowError(
            place, f"gather_schema is no valid JSON schema: {where and where + ': '}{error.message}."
        ) from None
    except TypeError as error:
        raise FlowError(place, f"gather_schema is no valid JSON schema: {error}.") from None
    except RecursionError:
        raise FlowError(place, "gather_schema holds itself: use $ref and $defs instead.") from None
    definitions = {**schema.get("definitions", {}), **schema.get("$defs", {})}
    schema = _followed(schema, definitions)
    if schema.get("type", "object" if "properties" in schema else None) != "object":
        raise FlowError(place, 'gather_schema is a JSON schema of {"type": "object", "properties": {...}}.')
    properties = schema.get("properties", {})
    for name, each in properties.items():
        if not isinstance(name, str) or not name.strip():
            raise FlowError(place, f"a field of gather_schema has no name, but {name!r}.")
        if each is False:
            raise FlowError(place, f"field {name!r} of gather_schema takes no value at all.")
    unknown = [name for name in schema.get("required", ()) if name not in properties]
    if unknown:
        raise FlowError(place, f"gather_schema requires {unknown[0]!r}, which is not among its properties.")
    for part in (properties, definitions):
        _check_references({"properties": part}, definitions, place)
    needed = schema.get("required", list(properties))
    fields = {
        name: Field(name, without_titles({} if each is True else each), name in needed and not _is_nullable(each))
        for name, each in properties.items()
    }
    return fields, without_titles({"$defs": definitions})["$defs"]


def _model_fields(model: Any, place: str) -> tuple[dict[str, Field], dict[str, Any]]:
    import warnings

    from pydantic import RootModel
    from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUserError
    from pydantic.json_schema import PydanticJsonSchemaWarning

    if issubclass(model, RootModel):
        raise FlowError(place, f"gather_schema {model.__name__} is a RootModel, which has no fields to gather.")
    try:
        with warnings.catch_warnings():
            # A default that is no JSON is left out of the schema, which is all it should be.
            warnings.simplefilter("ignore", PydanticJsonSchemaWarning)
            schema = without_titles(model.model_json_schema(by_alias=False))
    except (PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUserError) as error:
        problem = str(error).splitlines()[0]
        raise FlowError(place, f"gather_schema {model.__name__} has no JSON schema: {problem}.") from error
    definitions = schema.get("$defs", {})
    properties = _followed(schema, definitions).get("properties", {})
    fields = {
        name: Field(name, properties.get(name, {}), info.is_required() and not _is_nullable(properties.get(name)))
        for name, info in model.model_fields.items()
    }
    return fields, definitions


def _is_nullable(schema: Any) -> bool:
    """Whether there may be no value, so that nobody is held to a question that they have no answer to."""
    if not isinstance(schema, Mapping):
        return False
    kinds = schema.get("type")
    return (
        kinds == "null"
        or (isinstance(kinds, list) and "null" in kinds)
        or any(_is_nullable(each) for each in (*schema.get("anyOf", ()), *schema.get("oneOf", ())))
    )


def _field_cores(model: Any) -> tuple[dict[str, Any], Any, list[Any]]:
    """The validation of each field of a model, without the model's own; its config; what they share."""
    node = model.__pydantic_core_schema__
    shared = list(node.get("definitions", ()))
    config: Any = None
    while node["type"] != "model-fields":
        if node["type"] == "definition-ref":
            node = next(each for each in shared if each["ref"] == node["schema_ref"])
            continue
        config = node["config"] if node["type"] == "model" else config
        node = node["schema"]
    return {name: field["schema"] for name, field in node["fields"].items()}, config, shared


def _without(core: Any, validators: Sequence[Any]) -> Any:
    """A field's validation without its default and the model's own validators."""
    while core["type"] == "default" or (
        core["type"].startswith("function-") and "schema" in core and core["function"]["function"] in validators
    ):
        core = core["schema"]
    return core


def _reads_itself(core: Any) -> bool:
    while core["type"] in ("default", "function-after"):
        core = core["schema"]
    return core["type"] in ("function-before", "function-wrap", "function-plain")


def _copied(schema: Any) -> Any:
    """A schema in plain containers, its references in the newer spelling."""
    if isinstance(schema, Mapping):
        for name in schema:
            if not isinstance(name, str):
                raise TypeError(f"{name!r} is no name")
        copy = {name: _copied(each) for name, each in schema.items()}
        if isinstance(copy.get("$ref"), str):
            copy["$ref"] = copy["$ref"].replace("#/definitions/", REFERENCE)
        return copy
    return [_copied(each) for each in schema] if isinstance(schema, list | tuple) else schema


def _followed(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema a root reference leads to, which is how recursive models are written."""
    for _ in definitions:
        if "properties" not in schema and isinstance(schema.get("$ref"), str):
            schema = definitions.get(schema["$ref"].removeprefix(REFERENCE), {})
    return schema


def _check_references(schema: Any, definitions: Mapping[str, Any], place: str) -> None:
    if isinstance(schema, list):
        for each in schema:
            _check_references(each, definitions, place)
    if not isinstance(schema, dict):
        return
    target = schema.get("$ref")
    if isinstance(target, str) and target.removeprefix(REFERENCE) not in definitions:
        raise FlowError(place, f"gather_schema refers to {target!r}, which is not in its $defs.")
    for key in ("$id", "$anchor", "$dynamicRef"):
        if isinstance(schema.get(key), str):
            raise FlowError(place, f"gather_schema has {key} in a field: use $ref to $defs only.")
    for key, each in schema.items():
        if key not in ("const", "enum", "default", "examples"):
            _check_references(each, definitions, place)
