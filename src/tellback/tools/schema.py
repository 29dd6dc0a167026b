"""Build the JSON schema and input validation of a tool from a function's signature or an existing schema."""

from __future__ import annotations

import functools
import inspect
import types
import typing
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from tellback.errors import ToolSchemaError
from tellback.tools.context import ToolContext, current_tool_host

Bind = Callable[[Mapping[str, Any]], tuple[list[Any], dict[str, Any]]]
"""Validates a call's input and returns positional and keyword arguments; raises `InvalidInput`."""


class InvalidInput(ValueError):
    """A call's input does not match the tool's schema. The message is sent to the model."""


@dataclass(frozen=True, slots=True)
class ToolSignature:
    """A function's description, JSON schema and input validation."""

    description: str
    parameters: dict[str, Any]
    bind: Bind


def read_signature(fn: Callable[..., Any], name: str) -> ToolSignature:
    """Build a description, JSON schema and input validation from the type hints and docstring of `fn`."""
    from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
    from pydantic.fields import FieldInfo
    from pydantic.json_schema import PydanticJsonSchemaWarning
    from pydantic_core import PydanticUndefined

    if inspect.isclass(fn):
        raise ToolSchemaError(f"{name!r} is a class: pass a function that creates the object.")
    parameter_descriptions, description = _parse_docstring(fn)
    parameters = inspect.signature(fn).parameters
    hints = _resolve_hints(fn, name)

    # Fields are numbered and aliased, so that parameters may be called `_x`, `schema` or `model_name`.
    fields: dict[str, Any] = {}
    parameters_by_field: dict[str, inspect.Parameter] = {}
    checked_defaults: set[str] = set()
    injected: list[inspect.Parameter] = []
    extra: typing.Literal["forbid", "allow"] = "forbid"
    for index, (param_name, parameter) in enumerate(parameters.items()):
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise ToolSchemaError(
                f"Tool {name!r}: *{param_name} cannot be described to a model; use a list parameter instead."
            )
        if parameter.kind is parameter.VAR_KEYWORD:
            extra = "allow"
            continue
        if index == 0 and param_name == "self":
            raise ToolSchemaError(
                f"Tool {name!r} is an unbound method: pass the bound method, as in tools=[thing.{name}]."
            )
        annotation = hints.get(param_name, Any)
        if annotation is ToolContext:
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise ToolSchemaError(f"Tool {name!r}: {param_name!r} is a ToolContext and cannot be positional-only.")
            injected.append(parameter)
            continue
        default = ... if parameter.default is parameter.empty else parameter.default
        field_name = f"p{index}"
        if isinstance(default, FieldInfo):  # written as `x: int = Field(ge=1)`
            annotation, default = Annotated[annotation, default], default.get_default()
            default = ... if default is PydanticUndefined else default
            checked_defaults.add(field_name)
        elif default is ...:  # the default may be in an Annotated Field
            default = next((m.default for m in getattr(annotation, "__metadata__", ()) if _has_default(m)), ...)
            checked_defaults.add(field_name)
        _validate_annotation(annotation, param_name, name)
        description_options: dict[str, Any] = {}
        if param_name in parameter_descriptions:
            description_options["description"] = parameter_descriptions[param_name]
        fields[field_name] = (annotation, Field(default, alias=param_name, **description_options))
        parameters_by_field[field_name] = parameter

    model: type[BaseModel] = create_model(f"{name}_input", __config__=ConfigDict(extra=extra), **fields)
    with warnings.catch_warnings():
        # A default that is not JSON, such as a sentinel, is intentionally omitted from the schema.
        warnings.simplefilter("ignore", PydanticJsonSchemaWarning)
        schema = strip_titles(model.model_json_schema(by_alias=True))
    schema.setdefault("properties", {})

    def bind(values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        try:
            checked = model.model_validate(values)
        except ValidationError as error:
            raise InvalidInput(format_validation_error(error)) from None
        args: list[Any] = []
        kwargs: dict[str, Any] = dict(checked.model_extra or {})
        for parameter in injected:
            host = current_tool_host()
            if host is None:
                raise InvalidInput(f"{name} requires a ToolContext, so only an Agent can run it")
            kwargs[parameter.name] = host.tool_context()
        set_fields = checked.model_fields_set
        for field_name, parameter in parameters_by_field.items():
            if parameter.kind is parameter.POSITIONAL_ONLY:
                args.append(getattr(checked, field_name))
            elif field_name in set_fields or field_name in checked_defaults:
                kwargs[parameter.name] = getattr(checked, field_name)
        return args, kwargs

    return ToolSignature(description, schema, bind)


def _has_default(metadata: Any) -> bool:
    from pydantic.fields import FieldInfo
    from pydantic_core import PydanticUndefined

    return isinstance(metadata, FieldInfo) and metadata.default not in (PydanticUndefined, ...)


def build_binder(schema: Mapping[str, Any], name: str) -> Bind:
    """Build the input validation for an existing JSON schema."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError, best_match
    from referencing import Registry

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise ToolSchemaError(f"Tool {name!r}: its parameters are not a valid JSON schema: {error.message}.") from error
    validator = Draft202012Validator(schema, registry=Registry())  # do not fetch external references

    def bind(values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        problem = best_match(validator.iter_errors(values))
        if problem is not None:
            where = ".".join(str(step) for step in problem.absolute_path)
            raise InvalidInput(f"{where}: {problem.message}" if where else problem.message)
        return [], dict(values)

    return bind


def format_validation_error(error: Any) -> str:
    """Format the problems of a pydantic ValidationError, separated by semicolons."""
    lines = []
    for problem in error.errors(include_url=False, include_context=False, include_input=True):
        where = ".".join(str(step) for step in problem["loc"]) or "(whole value)"
        line = f"{where}: {problem['msg']}"
        if problem["type"] not in ("missing", "extra_forbidden"):
            line += f", got {problem['input']!r:.80}"
        lines.append(line)
    return "; ".join(lines)


def strip_titles(schema: Any) -> Any:
    """Remove the titles that pydantic generates, which only cost tokens."""
    if isinstance(schema, list):
        return [strip_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    cleaned: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "title" and isinstance(value, str):
            continue
        if key in ("properties", "$defs", "patternProperties") and isinstance(value, dict):
            cleaned[key] = {name: strip_titles(item) for name, item in value.items()}
        elif key in ("default", "const", "enum", "examples"):
            cleaned[key] = value
        else:
            cleaned[key] = strip_titles(value)
    return cleaned


def _resolve_hints(fn: Callable[..., Any], name: str) -> dict[str, Any]:
    target: Any = inspect.unwrap(fn if inspect.isroutine(fn) else type(fn).__call__)
    while isinstance(fn, functools.partial):
        fn = target = fn.func
    # The return type is not described to the model, so it need not be resolvable.
    annotations = {key: value for key, value in getattr(target, "__annotations__", {}).items() if key != "return"}
    holder = types.SimpleNamespace(__annotations__=annotations)
    global_names = getattr(target, "__globals__", {})
    try:
        return typing.get_type_hints(holder, global_names, include_extras=True)
    except NameError:
        pass
    try:
        return typing.get_type_hints(holder, global_names, _enclosing_locals(target), include_extras=True)
    except NameError as error:
        raise ToolSchemaError(
            f"Tool {name!r}: a type hint cannot be resolved ({error})."
            " Use @tool where the function is defined, or define the type in the module."
        ) from error


def _enclosing_locals(fn: Any) -> dict[str, Any]:
    """Return the local variables of the function in which `fn` was defined, if it is still running.

    With `from __future__ import annotations`, hints are strings that may refer to a type local to that function.
    """
    outer = str(getattr(fn, "__qualname__", "")).rpartition(".<locals>.")[0]
    frame = inspect.currentframe() if outer else None
    while frame is not None:
        if frame.f_code.co_qualname == outer and frame.f_globals is getattr(fn, "__globals__", None):
            return dict(frame.f_locals)
        frame = frame.f_back
    return {}


def _validate_annotation(annotation: Any, parameter: str, name: str) -> None:
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUserError

    try:
        TypeAdapter(annotation).json_schema()
    except (PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUserError) as error:
        raise ToolSchemaError(
            f"Tool {name!r}: parameter {parameter!r} of type {annotation!r} has no JSON schema."
            " Use JSON-like types, dataclasses or pydantic models."
        ) from error


def _parse_docstring(fn: Callable[..., Any]) -> tuple[dict[str, str], str]:
    """Return the parameter descriptions and the function's description."""
    text = inspect.getdoc(fn) or ""
    if not text:
        return {}, ""
    from docstring_parser import ParseError, parse

    try:
        parsed = parse(text)
    except ParseError:
        return {}, text
    description = "\n\n".join(part for part in (parsed.short_description, parsed.long_description) if part)
    return {p.arg_name: " ".join(p.description.split()) for p in parsed.params if p.description}, description
