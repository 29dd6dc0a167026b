"""JSON schemas and input checks for tools, from a function's signature or from a schema given by hand."""

from __future__ import annotations

import inspect
import typing
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from recollect.errors import ToolSchemaError

Bind = Callable[[Mapping[str, Any]], tuple[list[Any], dict[str, Any]]]
"""Checks a call's input and gives the positional and keyword arguments; raises `InvalidInput`."""


class InvalidInput(ValueError):
    """A call's input does not fit the tool's schema; the message is written for the model."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function looks like from outside."""

    description: str
    parameters: dict[str, Any]
    bind: Bind


def signature_of(fn: Callable[..., Any], name: str) -> Signature:
    """Read type hints and docstring of `fn` into a description, a JSON schema and an input check."""
    from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
    from pydantic.json_schema import PydanticJsonSchemaWarning

    described, about = _docstring(fn)
    parameters = inspect.signature(fn).parameters
    hints = _hints(fn, name)

    # Fields are numbered and aliased, so that parameters may be called `_x`, `schema` or `model_name`.
    fields: dict[str, Any] = {}
    names: dict[str, inspect.Parameter] = {}
    extra: typing.Literal["forbid", "allow"] = "forbid"
    for index, (param_name, parameter) in enumerate(parameters.items()):
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise ToolSchemaError(
                f"Tool {name!r}: *{param_name} cannot be described to a model; take a list parameter instead."
            )
        if parameter.kind is parameter.VAR_KEYWORD:
            extra = "allow"
            continue
        annotation = hints.get(param_name, Any)
        _check_annotation(annotation, param_name, name)
        default = ... if parameter.default is parameter.empty else parameter.default
        field_name = f"p{index}"
        about_it: dict[str, Any] = {"description": described[param_name]} if param_name in described else {}
        fields[field_name] = (annotation, Field(default, alias=param_name, **about_it))
        names[field_name] = parameter

    model: type[BaseModel] = create_model(f"{name}_input", __config__=ConfigDict(extra=extra), **fields)
    with warnings.catch_warnings():
        # A default that is no JSON (a sentinel, a client) is left out of the schema, which is all it should be.
        warnings.simplefilter("ignore", PydanticJsonSchemaWarning)
        schema = without_titles(model.model_json_schema(by_alias=True))
    schema.setdefault("properties", {})

    def bind(values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        try:
            checked = model.model_validate(values)
        except ValidationError as error:
            raise InvalidInput(explain(error)) from None
        args: list[Any] = []
        kwargs: dict[str, Any] = dict(checked.model_extra or {})
        given = checked.model_fields_set
        for field_name, parameter in names.items():
            if parameter.kind is parameter.POSITIONAL_ONLY:
                args.append(getattr(checked, field_name))
            elif field_name in given:
                kwargs[parameter.name] = getattr(checked, field_name)
        return args, kwargs

    return Signature(about, schema, bind)


def binder_for_schema(schema: Mapping[str, Any], name: str) -> Bind:
    """An input check for a JSON schema written by hand or sent by another program."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError, best_match

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise ToolSchemaError(f"Tool {name!r}: its parameters are not a valid JSON schema: {error.message}.") from error
    validator = Draft202012Validator(schema)

    def bind(values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        worst = best_match(validator.iter_errors(values))
        if worst is not None:
            where = ".".join(str(step) for step in worst.absolute_path)
            raise InvalidInput(f"{where}: {worst.message}" if where else worst.message)
        return [], dict(values)

    return bind


def explain(error: Any) -> str:
    """A pydantic ValidationError in one line per problem, for a model or a person to act on."""
    lines = []
    for problem in error.errors(include_url=False, include_context=False, include_input=True):
        where = ".".join(str(step) for step in problem["loc"]) or "(whole value)"
        line = f"{where}: {problem['msg']}"
        if problem["type"] not in ("missing", "extra_forbidden"):
            line += f", got {problem['input']!r:.80}"
        lines.append(line)
    return "; ".join(lines)


def without_titles(schema: Any) -> Any:
    """The schema without pydantic's generated titles, which only cost tokens."""
    if isinstance(schema, list):
        return [without_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    cleaned: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "title" and isinstance(value, str):
            continue
        if key in ("properties", "$defs", "patternProperties") and isinstance(value, dict):
            cleaned[key] = {name: without_titles(item) for name, item in value.items()}
        elif key in ("default", "const", "enum", "examples"):
            cleaned[key] = value
        else:
            cleaned[key] = without_titles(value)
    return cleaned


def _hints(fn: Callable[..., Any], name: str) -> dict[str, Any]:
    target = fn if inspect.isroutine(fn) else type(fn).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except NameError as error:
        raise ToolSchemaError(
            f"Tool {name!r}: a type hint cannot be resolved ({error}). Import the type where the function is defined."
        ) from error


def _check_annotation(annotation: Any, parameter: str, name: str) -> None:
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUserError

    try:
        TypeAdapter(annotation).json_schema()
    except (PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUserError) as error:
        raise ToolSchemaError(
            f"Tool {name!r}: no JSON schema can be made for parameter {parameter!r} of type {annotation!r}."
            " Use JSON-like types, dataclasses or pydantic models."
        ) from error


def _docstring(fn: Callable[..., Any]) -> tuple[dict[str, str], str]:
    """Descriptions of the parameters, and of the function."""
    text = inspect.getdoc(fn) or ""
    if not text:
        return {}, ""
    from docstring_parser import ParseError, parse

    try:
        parsed = parse(text)
    except ParseError:
        return {}, text
    about = "\n\n".join(part for part in (parsed.short_description, parsed.long_description) if part)
    return {p.arg_name: " ".join(p.description.split()) for p in parsed.params if p.description}, about
