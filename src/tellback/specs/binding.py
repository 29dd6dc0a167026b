"""`bind`: an invocation's arguments put into a description's places for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pydantic import ValidationError

from tellback.errors import AgentSpecError
from tellback.specs.loading import declared_names, is_of
from tellback.specs.model import AgentSpec, BoundSpec
from tellback.specs.parameters import Parameter, parameters_in
from tellback.specs.problems import spec_error, unknown
from tellback.specs.trees import plain
from tellback.specs.walking import tree_of

_LEFT_OUT = object()


def bind(spec: AgentSpec, arguments: Mapping[str, Any] | None = None, *, resuming: bool = False) -> BoundSpec:
    """The description with the arguments' values where it names them; nothing else of it changes.

    A value is used as it is: one that looks like `$other` is that text. An argument that is missing, null without
    leave, or does not fit its place, raises `AgentSpecError`. `resuming` needs no message: a turn goes on that has one.

    >>> from tellback.specs import load_spec
    >>> bind(load_spec({"name": "support", "model": "$model"}), {"model": "m-1", "userMessage": "Hi"}).model
    'm-1'
    """
    return bound_with_arguments(spec, arguments, resuming=resuming)[0]


def bound_with_arguments(
    spec: AgentSpec, arguments: Mapping[str, Any] | None, *, resuming: bool
) -> tuple[BoundSpec, dict[str, Any]]:
    """The same, and the values that were put in, by name, but for those of the message alone."""
    tree = tree_of(spec)
    message = tree.pop("userMessage")
    given = _given(spec, {} if arguments is None else arguments, _names(message) - _names(tree) if resuming else ())
    filling = _Filling(spec, given)
    filled = filling.filled(tree, "")
    used = dict(filling.used)
    if not resuming:
        filled |= filling.filled({"userMessage": message}, "")
    try:
        bound = BoundSpec.model_validate(filled)
    except ValidationError as error:
        raise spec_error(error, spec.name) from error
    if bound.user_message is None and not resuming:
        raise AgentSpecError("userMessage", "there is nothing to answer: its argument was not given.", spec.name)
    return bound, used


def _names(tree: Any) -> set[str]:
    return {parameter.name for _, parameter in parameters_in(tree)}


def _given(spec: AgentSpec, arguments: Any, spared: Collection[str]) -> dict[str, Any]:
    """The arguments as plain JSON, checked against those declared, with the defaults; `spared` may be missing."""
    if not isinstance(arguments, Mapping):
        raise AgentSpecError("arguments", f"they are a mapping, not {arguments!r:.60}.", spec.name)
    given: dict[str, Any] = {}
    for name, value in arguments.items():
        if not isinstance(name, str):
            raise AgentSpecError("arguments", f"their names are texts, not {name!r:.60}.", spec.name)
        given[name] = plain(value, f"arguments.{name}", length=None, agent=spec.name)
    if spec.arguments is None:
        return given
    for name in given:
        if name not in declared_names(spec):
            problem = unknown(name, declared_names(spec), "argument")
            raise AgentSpecError(f"arguments.{name}", problem, spec.name)
    for name, declared in spec.arguments.items():
        if name not in given and declared.has_default:
            given[name] = plain(declared.default)
        elif name not in given and declared.required and name not in spared:
            raise AgentSpecError(f"arguments.{name}", "it is required, and was not given.", spec.name)
        elif name in given and declared.may_be_null and given[name] is None:
            continue
        elif name in given and declared.type is not None and not is_of(declared.type, given[name]):
            problem = f"it is of type {declared.type}, not {given[name]!r:.60}."
            raise AgentSpecError(f"arguments.{name}", problem, spec.name)
    return given


class _Filling:
    """Puts values into a tree, and notes which."""

    def __init__(self, spec: AgentSpec, given: Mapping[str, Any]) -> None:
        self._spec = spec
        self._given = given
        self.used: dict[str, Any] = {}

    def filled(self, value: Any, path: str) -> Any:
        """The same tree with values for parameters. An argument that may be missing leaves its place out."""
        if isinstance(value, Parameter):
            return self._value(value, path)
        if isinstance(value, dict):
            pairs = ((key, self.filled(each, f"{path}.{key}" if path else key)) for key, each in value.items())
            return {key: each for key, each in pairs if each is not _LEFT_OUT}
        if isinstance(value, list):
            items = (self.filled(each, f"{path}[{index}]") for index, each in enumerate(value))
            return [each for each in items if each is not _LEFT_OUT]
        return value

    def _value(self, parameter: Parameter, path: str) -> Any:
        name, declared = parameter.name, (self._spec.arguments or {}).get(parameter.name)
        if name in self._given:
            value = self.used[name] = self._given[name]
            if value is None and not (declared is not None and declared.may_be_null):
                problem = f"the argument {name!r} is null: give it a value, or declare it with required: false"
                raise AgentSpecError(path, f"{problem} and default: null.", self._spec.name)
            return value
        if declared is not None:
            return _LEFT_OUT
        problem = f"the argument {name!r} was not given: pass arguments={{{name!r}: …}}."
        raise AgentSpecError(path, problem, self._spec.name)
