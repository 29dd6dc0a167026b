"""`bind`: validate the arguments of an invocation and bind them to a spec."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from pydantic import ValidationError

from tellback.errors import AgentSpecError
from tellback.specs.loader import build_spec_error, copy_plain_json, declared_names, format_unknown_name, is_json_type
from tellback.specs.model import OMITTED, AgentSpec, BoundSpec, Parameter, find_parameters, map_tree, spec_to_tree


def bind(spec: AgentSpec, arguments: Mapping[str, Any] | None = None, *, resuming: bool = False) -> BoundSpec:
    """Return the spec with every parameter replaced by its argument.

    Values are used literally: a value such as `$other` stays a text. A missing argument, a null that is not declared,
    or a value of the wrong type raises `AgentSpecError`. With `resuming`, no message is required, because the paused
    turn already has one.

    >>> from tellback.specs import load_spec
    >>> bind(load_spec({"name": "support", "model": "$model"}), {"model": "m-1", "userMessage": "Hi"}).model
    'm-1'
    """
    return bind_with_arguments(spec, arguments, resuming=resuming)[0]


def bind_with_arguments(
    spec: AgentSpec, arguments: Mapping[str, Any] | None, *, resuming: bool
) -> tuple[BoundSpec, dict[str, Any]]:
    """Like `bind`, but also return the used arguments by name, without those used only in the message."""
    tree = spec_to_tree(spec)
    message = tree.pop("userMessage")
    values = _resolve_arguments(
        spec,
        {} if arguments is None else arguments,
        _parameter_names(message) - _parameter_names(tree) if resuming else (),
    )
    resolve_leaf = partial(_resolve_leaf, spec, values)
    bound_tree = map_tree(tree, resolve_leaf)
    if not resuming:
        bound_tree |= map_tree({"userMessage": message}, resolve_leaf)
    try:
        bound = BoundSpec.model_validate(bound_tree)
    except ValidationError as error:
        raise build_spec_error(error, spec.name) from error
    if bound.user_message is None and not resuming:
        raise AgentSpecError("userMessage", "there is no message: its argument is missing.", spec.name)
    return bound, {name: values[name] for name in _parameter_names(tree) if name in values}


def _parameter_names(tree: Any) -> set[str]:
    return {parameter.name for _, parameter in find_parameters(tree)}


def _resolve_arguments(spec: AgentSpec, arguments: Any, optional: Collection[str]) -> dict[str, Any]:
    """Return the arguments as plain JSON, validated against the declarations and completed with defaults."""
    if not isinstance(arguments, Mapping):
        raise AgentSpecError("arguments", f"must be a mapping, got {arguments!r:.60}.", spec.name)
    values: dict[str, Any] = {}
    for name, value in arguments.items():
        if not isinstance(name, str):
            raise AgentSpecError("arguments", f"argument names must be strings, got {name!r:.60}.", spec.name)
        values[name] = copy_plain_json(value, f"arguments.{name}", max_length=None, agent=spec.name)
    if spec.arguments is None:
        return values
    for name in values:
        if name not in declared_names(spec):
            problem = format_unknown_name(name, declared_names(spec), "argument")
            raise AgentSpecError(f"arguments.{name}", problem, spec.name)
    for name, declared in spec.arguments.items():
        if name not in values and declared.has_default:
            values[name] = copy_plain_json(declared.default)
        elif name not in values and declared.required and name not in optional:
            raise AgentSpecError(f"arguments.{name}", "required, but missing.", spec.name)
        elif name in values and declared.may_be_null and values[name] is None:
            continue
        elif name in values and declared.type is not None and not is_json_type(declared.type, values[name]):
            problem = f"must be of type {declared.type}, got {values[name]!r:.60}."
            raise AgentSpecError(f"arguments.{name}", problem, spec.name)
    return values


def _resolve_leaf(spec: AgentSpec, values: Mapping[str, Any], leaf: Any, path: str) -> Any:
    """Return the value of a parameter, or `OMITTED` for a missing optional argument."""
    if not isinstance(leaf, Parameter):
        return leaf
    name, declared = leaf.name, (spec.arguments or {}).get(leaf.name)
    if name in values:
        if values[name] is None and not (declared is not None and declared.may_be_null):
            problem = f"the argument {name!r} is null: pass a value, or declare it with required: false"
            raise AgentSpecError(path, f"{problem} and default: null.", spec.name)
        return values[name]
    if declared is not None:
        return OMITTED
    problem = f"the argument {name!r} is missing: pass arguments={{{name!r}: …}}."
    raise AgentSpecError(path, problem, spec.name)
