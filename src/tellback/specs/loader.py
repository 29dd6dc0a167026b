"""`load_spec`: parse and validate an agent description from a mapping, JSON or YAML text, or a file."""

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
"""How deep a description may be nested, how many values it may have, and how long it may be, in bytes."""

SpecSource: TypeAlias = "AgentSpec | Mapping[str, Any] | str | PathLike[str]"

FILE_SUFFIXES = (".json", ".yaml", ".yml")
USER_MESSAGE = "userMessage"

_EXPECTED = {
    "string_type": "a text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}


def copy_plain_json(value: Any, path: str = "", *, max_length: int | None = MAX_LENGTH, agent: str = "") -> Any:
    """A copy made of dicts, lists, texts, numbers, booleans and None; anything else is an `AgentSpecError`.

    Without a `max_length`, texts are as long as they like and hold what they like: the place they go to decides.
    """
    return _PlainCopier(max_length, agent).copy(value, path, 0)


class _PlainCopier:
    """Counts while it copies: values that contain each other, or the same one many times, do not get far."""

    def __init__(self, length: int | None, agent: str) -> None:
        self._length_left = length
        self._agent = agent
        self._values_left = MAX_VALUES

    def _error(self, path: str, problem: str) -> AgentSpecError:
        return AgentSpecError(path, problem, self._agent)

    def copy(self, value: Any, path: str, depth: int) -> Any:
        self._values_left -= 1
        if self._values_left < 0:
            raise self._error(path, f"there are more than {MAX_VALUES} values: make it shorter.")
        if depth > MAX_DEPTH:
            raise self._error(path, f"it is nested more than {MAX_DEPTH} deep: make it flatter.")
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
            raise self._error(path, f"keys are texts, not {key!r:.40}: put it in quotes.")
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
                raise self._error(path, f"{value} is not a number that JSON has.")
            return float(value)
        raise self._error(path, f"{value!r:.60} is not JSON: write a text, a number, true, false, a list or an object.")

    def _text(self, text: str, path: str) -> str:
        if self._length_left is not None:
            self._length_left -= len(text)
            if self._length_left < 0:
                raise self._error(path, f"there is more than {MAX_LENGTH // 1024} kB of text: make it shorter.")
            if not is_storable(text):
                raise self._error(path, f"it holds characters that cannot be stored: {text!r:.60}.")
        return str(text)


def read_spec_file(path: PathLike[str]) -> Any:
    """The value in a .json, .yaml or .yml file."""
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
    """The value of a text: JSON if it begins with a brace, YAML otherwise."""
    return parse_spec_json(text) if text.lstrip().startswith("{") else parse_spec_yaml(text)


def parse_spec_json(text: str) -> Any:
    """The value of a JSON text; a key that comes twice is refused."""
    _validate_length(text)
    try:
        return json.loads(text, object_pairs_hook=_build_object, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        raise AgentSpecError("", f"it is not JSON: {error}.") from error


def parse_spec_yaml(text: str) -> Any:
    """The value of a YAML text without tags, anchors and merged keys, for JSON has none."""
    _validate_length(text)
    try:
        return safe_yaml.load_yaml(text, depth=MAX_DEPTH, values=MAX_VALUES)
    except ValueError as error:
        raise AgentSpecError("", f"it is not YAML: {error}.") from error


def _validate_length(text: str) -> None:
    if len(text) > MAX_LENGTH or len(text.encode(errors="surrogatepass")) > MAX_LENGTH:
        raise AgentSpecError("", f"it is longer than {MAX_LENGTH // 1024} kB: make it shorter.")


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    built = dict(pairs)
    if len(built) < len(pairs):
        keys = [key for key, _ in pairs]
        duplicate = next(key for key in keys if keys.count(key) > 1)
        raise AgentSpecError("", f"the key {duplicate!r:.60} is there twice in one object.")
    return built


def _reject_constant(word: str) -> Any:
    raise ValueError(f"{word} is not a number that JSON has")


def build_spec_error(error: ValidationError, agent: str) -> AgentSpecError:
    """The first problem of many; a misspelt key before what is missing because of it."""
    problems: list[Any] = error.errors(include_url=False)
    problem = next((each for each in problems if each["type"] == "extra_forbidden"), problems[0])
    steps = problem["loc"]
    if problem["type"] == "union_tag_invalid":
        steps, message = (*steps, "type"), _describe_unknown_type(problem["input"]["type"])
    elif problem["type"] == "union_tag_not_found":
        steps, message = (*steps, "type"), f"it is required: one of {', '.join(TOOL_TYPES)}."
    elif problem["type"] == "config_key":
        steps, message = (*steps, problem["ctx"]["key"]), _describe_config_key(problem["ctx"]["key"])
    elif problem["type"] == "extra_forbidden":
        message = _describe_unknown_key(str(steps[-1]), _model_at(steps))
    else:
        message = _describe_problem(problem)
    return AgentSpecError(format_path(steps), message, agent)


def format_path(steps: Iterable[str | int]) -> str:
    """A place in a description, as people write it.

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
    """That something is not known, and what was perhaps meant."""
    by_lowercase = {each.lower(): each for each in known}
    if matches := difflib.get_close_matches(name.lower(), by_lowercase, n=1):
        return f"there is no such {kind} as {name!r:.60}; did you mean {by_lowercase[matches[0]]!r}?"
    return f"there is no such {kind} as {name!r:.60}; there are {', '.join(known) or 'none'}."


def _describe_unknown_key(key: str, model: type[BaseModel]) -> str:
    known = list_model_keys(model)
    if key in (*known, *(spelling for spellings in known.values() for spelling in spellings)):
        return f"{key!r} is there twice, in two spellings: leave one out."
    return format_unknown_name(key, [*known, *(("system",) if "systemPrompt" in known else ())], "key")


def _describe_config_key(key: str) -> str:
    return (
        f"{format_unknown_name(key, CONFIG_KEYS, 'option')} A provider's other options are set in code, on a model"
        " object: invoke(model=...), or Tellback(model=...)."
    )


def list_model_keys(model: type[BaseModel]) -> dict[str, tuple[str, ...]]:
    """The keys that a part of a description may have, and their other spellings."""
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
    return f"it cannot be read from the arguments ({parameter}): write it out, or {escaped!r} for that very text."


def _describe_problem(problem: Any) -> str:
    kind, value = problem["type"], problem["input"]
    if kind == "missing":
        return "it is required."
    if isinstance(value, Parameter):
        return _describe_literal_only(value)
    if kind in _EXPECTED:
        return f"it is {_EXPECTED[kind]}, not {value!r:.60}."
    if kind == "string_pattern_mismatch":
        if problem["ctx"]["pattern"] == r"\S":
            return "it is a text that is not empty."
        return f"{value!r:.80} cannot be a tool's name: take 1 to 64 letters, digits, '_' and '-'."
    message = str(problem["msg"]).replace("Input should", "it should").replace("String should", "it should")
    return f"{message}, not {value!r:.60}."


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
        return read_spec_file(source)
    if isinstance(source, str):
        return parse_spec_text(source)
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
