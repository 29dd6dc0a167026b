"""`load_spec`: a description from wherever it is, checked."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any, TypeAlias

from pydantic import ValidationError

from tellback.errors import AgentSpecError
from tellback.specs import reading
from tellback.specs.model import AgentSpec
from tellback.specs.parameters import PARAMETER_NAME, Parameter, find_parameters
from tellback.specs.problems import build_spec_error, format_unknown_name
from tellback.specs.trees import copy_plain_json
from tellback.specs.walking import spec_to_tree

SpecSource: TypeAlias = "AgentSpec | Mapping[str, Any] | str | PathLike[str]"

USER_MESSAGE = "userMessage"


def load_spec(source: SpecSource) -> AgentSpec:
    """An agent's description from a mapping, from JSON or YAML text, or from a .json, .yaml or .yml file.

    A file is given as a `pathlib.Path`: a text is always the description itself, never the name of a file. Whatever
    is wrong with it raises `AgentSpecError`, which says where.

    >>> load_spec("name: support\\nsystemPrompt: Be brief.").system
    'Be brief.'
    """
    spec = source if isinstance(source, AgentSpec) else _parse_spec(_read_source(source))
    _validate_tool_names(spec)
    _validate_arguments(spec)
    return spec


def _read_source(source: Any) -> Any:
    if isinstance(source, Mapping):
        return source
    if isinstance(source, PathLike):
        return reading.read_spec_file(source)
    if isinstance(source, str):
        return reading.parse_spec_text(source)
    raise AgentSpecError("", f"it is a mapping, JSON or YAML text, or a pathlib.Path, not {source!r:.80}.")


def _parse_spec(value: Any) -> AgentSpec:
    if not isinstance(value, Mapping):
        hint = " A file is given as pathlib.Path(...)." if isinstance(value, str) else ""
        raise AgentSpecError("", f"it is an object with a name, not {value!r:.80}.{hint}")
    name = value.get("name")
    agent = name[:200] if isinstance(name, str) else ""
    try:
        return AgentSpec.model_validate(copy_plain_json(value, agent=agent))
    except ValidationError as error:
        raise build_spec_error(error, agent) from error
    except AgentSpecError as error:  # a text was read before the agent's name was known
        raise AgentSpecError(error.path, error.problem, agent) from error


def _validate_tool_names(spec: AgentSpec) -> None:
    seen: set[str] = set()
    for index, tool in enumerate(spec.tools):
        if tool.name in seen:
            raise AgentSpecError(f"tools[{index}].name", f"another tool is called {tool.name!r}, too.", spec.name)
        seen.add(tool.name)


def _validate_arguments(spec: AgentSpec) -> None:
    """What is read from the arguments is among those declared, if any are."""
    if spec.arguments is None:
        return
    for name, declared in spec.arguments.items():
        if not PARAMETER_NAME.match(name):
            raise AgentSpecError(
                f"arguments.{name}", "an argument's name has letters, digits and '_', no digit first.", spec.name
            )
        if declared.may_be_null:
            continue
        if declared.has_default and declared.default is None:
            raise AgentSpecError(f"arguments.{name}.default", "null takes `required: false`, too.", spec.name)
        if declared.has_default and declared.type is not None and not is_json_type(declared.type, declared.default):
            problem = f"it is of type {declared.type}, not {declared.default!r:.60}."
            raise AgentSpecError(f"arguments.{name}.default", problem, spec.name)
    for path, parameter in find_parameters(spec_to_tree(spec)):
        if parameter.name not in declared_names(spec):
            problem_text = format_unknown_name(parameter.name, declared_names(spec), "argument")
            raise AgentSpecError(path, f"{problem_text} Declare it in `arguments`.", spec.name)


def declared_names(spec: AgentSpec) -> list[str]:
    """The arguments that a description declares. The one for the message need not be, where it is not renamed."""
    names = list(spec.arguments or ())
    message: object = spec.user_message
    return [*names, USER_MESSAGE] if message == Parameter(USER_MESSAGE) and USER_MESSAGE not in names else names


def is_json_type(kind: str, value: Any) -> bool:
    """Whether a value is of a JSON type; a whole number is a number, a boolean is not."""
    if isinstance(value, bool):
        return kind == "boolean"
    kinds: dict[str, tuple[type, ...]] = {
        "string": (str,),
        "number": (int, float),
        "integer": (int,),
        "boolean": (),
        "array": (list, tuple),
        "object": (Mapping,),
    }
    return isinstance(value, kinds[kind])
