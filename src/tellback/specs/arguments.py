"""`bind`: validate an invocation's arguments and put them into a description."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from pydantic import ValidationError

from tellback.errors import AgentSpecError
from tellback.specs.loader import build_spec_error, copy_plain_json, declared_names, format_unknown_name, is_json_type
from tellback.specs.model import OMITTED, AgentSpec, BoundSpec, Parameter, find_parameters, map_tree, spec_to_tree


def bind(spec: AgentSpec, arguments: Mapping[str, Any] | None = None, *, resuming: bool = False) -> BoundSpec:
    """The description with the arguments' values where it names them; nothing else of it changes.

    A value is used as it is: one that looks like `$other` is that text. An argument that is missing, null without
    leave, or does not fit its place, raises `AgentSpecError`. `resuming` needs no message: a turn goes on that has one.

    >>> from tellback.specs import load_spec
    >>> bind(load_spec({"name": "support", "model": "$model"}), {"model": "m-1", "userMessage": "Hi"}).model
    'm-1'
    """
    return bind_with_arguments(spec, arguments, resuming=resuming)[0]


def bind_with_arguments(
    spec: AgentSpec, arguments: Mapping[str, Any] | None, *, resuming: bool
) -> tuple[BoundSpec, dict[str, Any]]:
    """The same, and the values that were put in, by name, but for those of the message alone."""
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
        raise AgentSpecError("userMessage", "there is nothing to answer: its argument was not given.", spec.name)
    return bound, {name: values[name] for name in _parameter_names(tree) if name in values}


def _parameter_names(tree: Any) -> set[str]:
    return {parameter.name for _, parameter in find_parameters(tree)}


def _resolve_arguments(spec: AgentSpec, arguments: Any, optional: Collection[str]) -> dict[str, Any]:
    """The arguments as plain JSON, checked against those declared, with defaults; `optional` ones may be missing."""
    if not isinstance(arguments, Mapping):
        raise AgentSpecError("arguments", f"they are a mapping, not {arguments!r:.60}.", spec.name)
    values: dict[str, Any] = {}
    for name, value in arguments.items():
        if not isinstance(name, str):
            raise AgentSpecError("arguments", f"their names are texts, not {name!r:.60}.", spec.name)
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
            raise AgentSpecError(f"arguments.{name}", "it is required, and was not given.", spec.name)
        elif name in values and declared.may_be_null and values[name] is None:
            continue
        elif name in values and declared.type is not None and not is_json_type(declared.type, values[name]):
            problem = f"it is of type {declared.type}, not {values[name]!r:.60}."
            raise AgentSpecError(f"arguments.{name}", problem, spec.name)
    return values


def _resolve_leaf(spec: AgentSpec, values: Mapping[str, Any], leaf: Any, path: str) -> Any:
    """The value of a parameter. An argument that may be missing leaves its place out."""
    if not isinstance(leaf, Parameter):
        return leaf
    name, declared = leaf.name, (spec.arguments or {}).get(leaf.name)
    if name in values:
        if values[name] is None and not (declared is not None and declared.may_be_null):
            problem = f"the argument {name!r} is null: give it a value, or declare it with required: false"
            raise AgentSpecError(path, f"{problem} and default: null.", spec.name)
        return values[name]
    if declared is not None:
        return OMITTED
    problem = f"the argument {name!r} was not given: pass arguments={{{name!r}: …}}."
    raise AgentSpecError(path, problem, spec.name)
