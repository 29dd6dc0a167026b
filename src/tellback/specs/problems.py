"""What is wrong with a description, in words: where, what is there, and what could be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import AliasChoices, BaseModel, ValidationError

from tellback.errors import AgentSpecError
from tellback.specs.model import CONFIG_KEYS, TOOL_TYPES, AgentSpec, ArgumentSpec
from tellback.specs.parameters import Parameter


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
        f"{format_unknown_name(key, CONFIG_KEYS, 'option')} A provider's other options are set in code, on a model object:"
        " invoke(model=...), or Tellback(model=...)."
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
    return f"it cannot be read from the arguments ({parameter}): write it out, or {'$' + str(parameter)!r} for that very text."


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
