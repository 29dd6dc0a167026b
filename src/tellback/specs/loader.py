"""`load_spec`: parse and validate an agent spec from a mapping, JSON or YAML text, or a file."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import AliasChoices, BaseModel, ValidationError

from tellback import safe_yaml
from tellback.errors import AgentSpecError
from tellback.specs.model import (
    CONFIG_KEYS,
    PARAMETER_NAME,
    TOOL_TYPES,
    AgentSpec,
    ArgumentSpec,
    Parameter,
    find_parameters,
    spec_to_tree,
)
from tellback.types.jsontext import is_storable

MAX_DEPTH = 32
MAX_VALUES = 10_000
MAX_LENGTH = 256 * 1024
"""Limits of a spec: its nesting depth, number of values, and length in bytes."""

SpecSource: TypeAlias = "AgentSpec | Mapping[str, Any] | str | PathLike[str]"

FILE_SUFFIXES = (".json", ".yaml", ".yml")
USER_MESSAGE = "userMessage"

_EXPECTED = {
    "string_type": "a string",
    "int_type": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}


def copy_plain_json(value: Any, path: str = "", *, max_length: int | None = MAX_LENGTH, agent: str = "") -> Any:
    """Copy a value of dicts, lists, strings, numbers, booleans and None; raise `AgentSpecError` for anything else.

    Without `max_length`, strings are not checked here, because the field they are bound to checks them.
    """
    return _PlainCopier(max_length, agent).copy(value, path, 0)


class _PlainCopier:
    """Copies a value and counts its parts, so cyclic and heavily shared values are rejected early."""

    def __init__(self, length: int | None, agent: str) -> None:
        self._length_left = length
        self._agent = agent
        self._values_left = MAX_VALUES

    def _error(self, path: str, problem: str) -> AgentSpecError:
        return AgentSpecError(path, problem, self._agent)

    def copy(self, value: Any, path: str, depth: int) -> Any:
        self._values_left -= 1
        if self._values_left < 0:
            raise self._error(path, f"more than {MAX_VALUES} values: make it shorter.")
        if depth > MAX_DEPTH:
            raise self._error(path, f"nested more than {MAX_DEPTH} levels deep: make it flatter.")
        if isinstance(value, Mapping):
            return {
                self._key(key, path): self.copy(each, f"{path}.{key}" if path else str(key), depth + 1)
                for key, each in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.copy(each, f"{path}[{index}]", depth + 1) for index, each in enumerate(value)]
        return self._scalar(value, path)

    def _key(self, key: Any, path: str) -> str:
        if not isinstance(key, str):
            raise self._error(path, f"keys must be strings, got {key!r:.40}: put it in quotes.")
        return self._text(key, path)

    def _scalar(self, value: Any, path: str) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self._text(value, path)
        if isinstance(value, int):
            if abs(value) >= 2**63:
                raise self._error(path, "the number is too large.")
            return int(value)
        if isinstance(value, float):
            if not math.isfinite(value):
                raise self._error(path, f"{value} is not a valid JSON number.")
            return float(value)
        raise self._error(path, f"{value!r:.60} is not JSON: use a string, number, boolean, list or object.")

    def _text(self, text: str, path: str) -> str:
        if self._length_left is not None:
            self._length_left -= len(text)
            if self._length_left < 0:
                raise self._error(path, f"more than {MAX_LENGTH // 1024} kB of text: make it shorter.")
            if not is_storable(text):
                raise self._error(path, f"contains characters that cannot be stored: {text!r:.60}.")
        return str(text)


def read_spec_file(path: PathLike[str]) -> Any:
    """Read the value of a .json, .yaml or .yml file."""
    file = Path(path)
    if file.suffix.lower() not in FILE_SUFFIXES:
        raise AgentSpecError("", f"{str(file)!r} is not a {', '.join(FILE_SUFFIXES[:-1])} or {FILE_SUFFIXES[-1]} file.")
    try:
        if not file.is_file():
            raise AgentSpecError("", f"there is no file {str(file)!r}.")
        with file.open("rb") as opened:
            content = opened.read(MAX_LENGTH + 1)
    except OSError as error:
        raise AgentSpecError("", f"{str(file)!r} cannot be read: {error.strerror}.") from error
    if len(content) > MAX_LENGTH:
        raise AgentSpecError("", f"{str(file)!r} is longer than {MAX_LENGTH // 1024} kB: make it shorter.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise AgentSpecError("", f"{str(file)!r} is not UTF-8: {error}.") from error
    return parse_spec_json(text) if file.suffix.lower() == ".json" else parse_spec_yaml(text)


def parse_spec_text(text: str) -> Any:
    """Parse a text: as JSON if it begins with a brace, otherwise as YAML."""
    return parse_spec_json(text) if text.lstrip().startswith("{") else parse_spec_yaml(text)


def parse_spec_json(text: str) -> Any:
    """Parse a JSON text; duplicate keys are rejected."""
    _validate_length(text)
    try:
        return json.loads(text, object_pairs_hook=_build_object, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        raise AgentSpecError("", f"invalid JSON: {error}.") from error


def parse_spec_yaml(text: str) -> Any:
    """Parse a YAML text. Tags, anchors and merge keys are rejected, because JSON has none."""
    _validate_length(text)
    try:
        return safe_yaml.load_yaml(text, depth=MAX_DEPTH, values=MAX_VALUES)
    except ValueError as error:
        raise AgentSpecError("", f"invalid YAML: {error}.") from error


def _validate_length(text: str) -> None:
    if len(text) > MAX_LENGTH or len(text.encode(errors="surrogatepass")) > MAX_LENGTH:
        raise AgentSpecError("", f"longer than {MAX_LENGTH // 1024} kB: make it shorter.")


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    built = dict(pairs)
    if len(built) < len(pairs):
        keys = [key for key, _ in pairs]
        duplicate = next(key for key in keys if keys.count(key) > 1)
        raise AgentSpecError("", f"duplicate key {duplicate!r:.60}.")
    return built


def _reject_constant(word: str) -> Any:
    raise ValueError(f"{word} is not a valid JSON number")


def build_spec_error(error: ValidationError, agent: str) -> AgentSpecError:
    """Convert the most useful problem to an error: an unknown key first, since other problems may follow from it."""
    problems: list[Any] = error.errors(include_url=False)
    problem = next((each for each in problems if each["type"] == "extra_forbidden"), problems[0])
    steps = problem["loc"]
    if problem["type"] == "union_tag_invalid":
        steps, message = (*steps, "type"), _describe_unknown_type(problem["input"]["type"])
    elif problem["type"] == "union_tag_not_found":
        steps, message = (*steps, "type"), f"required: one of {', '.join(TOOL_TYPES)}."
    elif problem["type"] == "config_key":
        steps, message = (*steps, problem["ctx"]["key"]), _describe_config_key(problem["ctx"]["key"])
    elif problem["type"] == "extra_forbidden":
        message = _describe_unknown_key(str(steps[-1]), _model_at(steps))
    else:
        message = _describe_problem(problem)
    return AgentSpecError(format_path(steps), message, agent)


def format_path(steps: Iterable[str | int]) -> str:
    """Format the path of a value in a spec.

    >>> format_path(["tools", 1, "RECALL_BY_TOPIC", "memorySpaceId"])
    'tools[1].memorySpaceId'
    """
    path = ""
    for index, step in enumerate(tuple(steps)):
        if isinstance(step, int):
            path += f"[{step}]"
        elif not (index == 2 and path.startswith("tools[") and step in TOOL_TYPES):
            path += f".{step}" if path else step
    return path


def format_unknown_name(name: str, known: Sequence[str], kind: str) -> str:
    """Return a message that a name is unknown, with a suggestion or the known names."""
    by_lowercase = {each.lower(): each for each in known}
    if matches := difflib.get_close_matches(name.lower(), by_lowercase, n=1):
        return f"unknown {kind} {name!r:.60}; did you mean {by_lowercase[matches[0]]!r}?"
    return f"unknown {kind} {name!r:.60}; use one of: {', '.join(known) or '(none)'}."


def _describe_unknown_key(key: str, model: type[BaseModel]) -> str:
    known = list_model_keys(model)
    if key in (*known, *(spelling for spellings in known.values() for spelling in spellings)):
        return f"{key!r} is set twice, in two spellings: remove one."
    return format_unknown_name(key, [*known, *(("system",) if "systemPrompt" in known else ())], "key")


def _describe_config_key(key: str) -> str:
    return (
        f"{format_unknown_name(key, CONFIG_KEYS, 'option')} Set other provider options in code, on a model object:"
        " invoke(model=...) or Tellback(model=...)."
    )


def list_model_keys(model: type[BaseModel]) -> dict[str, tuple[str, ...]]:
    """Return the keys that a part of a spec may have, with their other spellings."""
    keys: dict[str, tuple[str, ...]] = {}
    for name, field in model.model_fields.items():
        if isinstance(field.validation_alias, AliasChoices):
            first, *others = (str(choice) for choice in field.validation_alias.choices)
            keys[first] = tuple(others)
        else:
            keys[field.alias or name] = (name,)
    return keys


def _model_at(steps: Sequence[str | int]) -> type[BaseModel]:
    if len(steps) > 2 and steps[0] == "tools":
        return TOOL_TYPES.get(str(steps[2]), AgentSpec)
    return ArgumentSpec if len(steps) > 2 and steps[0] == "arguments" else AgentSpec


def _describe_unknown_type(value: Any) -> str:
    if isinstance(value, Parameter):
        return _describe_literal_only(value)
    return format_unknown_name(str(value), list(TOOL_TYPES), "tool type")


def _describe_literal_only(parameter: Parameter) -> str:
    escaped = "$" + str(parameter)
    return f"cannot be a parameter ({parameter}): write a literal value, or {escaped!r} for that exact text."


def _describe_problem(problem: Any) -> str:
    kind, value = problem["type"], problem["input"]
    if kind == "missing":
        return "required."
    if isinstance(value, Parameter):
        return _describe_literal_only(value)
    if kind in _EXPECTED:
        return f"must be {_EXPECTED[kind]}, got {value!r:.60}."
    if kind == "string_pattern_mismatch":
        if problem["ctx"]["pattern"] == r"\S":
            return "must not be empty."
        return f"{value!r:.80} is not a valid tool name: use 1 to 64 letters, digits, '_' and '-'."
    message = str(problem["msg"]).replace("Input should", "should").replace("String should", "should")
    return f"{message}, got {value!r:.60}."


def load_spec(source: SpecSource) -> AgentSpec:
    """Load an agent spec from a mapping, from JSON or YAML text, or from a .json, .yaml or .yml file.

    Pass a file as `pathlib.Path`: a string is always the spec itself, never a file name. Raises `AgentSpecError` with
    the path of the invalid value.

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
        return read_spec_file(source)
    if isinstance(source, str):
        return parse_spec_text(source)
    raise AgentSpecError("", f"must be a mapping, JSON or YAML text, or a pathlib.Path, got {source!r:.80}.")


def _parse_spec(value: Any) -> AgentSpec:
    if not isinstance(value, Mapping):
        hint = " Pass a file as pathlib.Path(...)." if isinstance(value, str) else ""
        raise AgentSpecError("", f"must be an object with a name, got {value!r:.80}.{hint}")
    name = value.get("name")
    agent = name[:200] if isinstance(name, str) else ""
    try:
        return AgentSpec.model_validate(copy_plain_json(value, agent=agent))
    except ValidationError as error:
        raise build_spec_error(error, agent) from error
    except AgentSpecError as error:  # raised by a parser that does not know the agent's name
        raise AgentSpecError(error.path, error.problem, agent) from error


def _validate_tool_names(spec: AgentSpec) -> None:
    seen: set[str] = set()
    for index, tool in enumerate(spec.tools):
        if tool.name in seen:
            raise AgentSpecError(f"tools[{index}].name", f"another tool has the same name {tool.name!r}.", spec.name)
        seen.add(tool.name)


def _validate_arguments(spec: AgentSpec) -> None:
    """Check that the spec uses only declared arguments, if it declares any."""
    if spec.arguments is None:
        return
    for name, declared in spec.arguments.items():
        if not PARAMETER_NAME.match(name):
            raise AgentSpecError(
                f"arguments.{name}",
                "an argument name consists of letters, digits and '_', and does not start with a digit.",
                spec.name,
            )
        if declared.may_be_null:
            continue
        if declared.has_default and declared.default is None:
            raise AgentSpecError(
                f"arguments.{name}.default", "a null default also requires `required: false`.", spec.name
            )
        if declared.has_default and declared.type is not None and not is_json_type(declared.type, declared.default):
            problem = f"must be of type {declared.type}, got {declared.default!r:.60}."
            raise AgentSpecError(f"arguments.{name}.default", problem, spec.name)
    for path, parameter in find_parameters(spec_to_tree(spec)):
        if parameter.name not in declared_names(spec):
            problem_text = format_unknown_name(parameter.name, declared_names(spec), "argument")
            raise AgentSpecError(path, f"{problem_text} Declare it in `arguments`.", spec.name)


def declared_names(spec: AgentSpec) -> list[str]:
    """Return the declared arguments. `userMessage` is included unless the spec renames it."""
    names = list(spec.arguments or ())
    message: object = spec.user_message
    return [*names, USER_MESSAGE] if message == Parameter(USER_MESSAGE) and USER_MESSAGE not in names else names


def is_json_type(kind: str, value: Any) -> bool:
    """Whether a value is of a JSON type. An integer is a number; a boolean is not."""
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
