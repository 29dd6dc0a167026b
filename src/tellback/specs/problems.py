"""What is wrong with a description, in words: where, what is there, and what could be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import AliasChoices, BaseModel, ValidationError

from tellback.errors import AgentSpecError
from tellback.specs.model import CONFIG_KEYS, TOOL_TYPES, AgentSpec, ArgumentSpec
from tellback.specs.parameters import Parameter


def spec_error(error: ValidationError, agent: str) -> AgentSpecError:
    """The first problem of many; a misspelt key before what is missing because of it."""
    problems: list[Any] = error.errors(include_url=False)
    problem = next((each for each in problems if each["type"] == "extra_forbidden"), problems[0])
    steps = problem["loc"]
    if problem["type"] == "union_tag_invalid":
        steps, said = (*steps, "type"), _of_type(problem["input"]["type"])
    elif problem["type"] == "union_tag_not_found":
        steps, said = (*steps, "type"), f"it is required: one of {', '.join(TOOL_TYPES)}."
    elif problem["type"] == "config_key":
        steps, said = (*steps, problem["ctx"]["key"]), _config_key(problem["ctx"]["key"])
    elif problem["type"] == "extra_forbidden":
        said = _unknown_key(str(steps[-1]), _model_at(steps))
    else:
        said = _said(problem)
    return AgentSpecError(path_of(steps), said, agent)


def path_of(steps: Iterable[str | int]) -> str:
    """A place in a description, as people write it.

    >>> path_of(["tools", 1, "RECALL_BY_TOPIC", "memorySpaceId"])
    'tools[1].memorySpaceId'
    """
    found = ""
    for index, step in enumerate(tuple(steps)):
        if isinstance(step, int):
            found += f"[{step}]"
        elif not (index == 2 and found.startswith("tools[") and step in TOOL_TYPES):
            found += f".{step}" if found else step
    return found


def unknown(given: str, known: Sequence[str], what: str) -> str:
    """That something is not known, and what was perhaps meant."""
    spelt = {each.lower(): each for each in known}
    if near := difflib.get_close_matches(given.lower(), spelt, n=1):
        return f"there is no such {what} as {given!r:.60}; did you mean {spelt[near[0]]!r}?"
    return f"there is no such {what} as {given!r:.60}; there are {', '.join(known) or 'none'}."


def _unknown_key(given: str, model: type[BaseModel]) -> str:
    known = keys_of(model)
    if given in (*known, *(spelling for spellings in known.values() for spelling in spellings)):
        return f"{given!r} is there twice, in two spellings: leave one out."
    return unknown(given, [*known, *(("system",) if "systemPrompt" in known else ())], "key")


def _config_key(given: str) -> str:
    return (
        f"{unknown(given, CONFIG_KEYS, 'option')} A provider's other options are set in code, on a model object:"
        " invoke(model=...), or Tellback(model=...)."
    )


def keys_of(model: type[BaseModel]) -> dict[str, tuple[str, ...]]:
    """The keys that a part of a description may have, and their other spellings."""
    found: dict[str, tuple[str, ...]] = {}
    for name, field in model.model_fields.items():
        if isinstance(field.validation_alias, AliasChoices):
            first, *others = (str(choice) for choice in field.validation_alias.choices)
            found[first] = tuple(others)
        else:
            found[field.alias or name] = (name,)
    return found


def _model_at(steps: Sequence[str | int]) -> type[BaseModel]:
    if len(steps) > 2 and steps[0] == "tools":
        return TOOL_TYPES.get(str(steps[2]), AgentSpec)
    return ArgumentSpec if len(steps) > 2 and steps[0] == "arguments" else AgentSpec


def _of_type(given: Any) -> str:
    if isinstance(given, Parameter):
        return _literal(given)
    return unknown(str(given), list(TOOL_TYPES), "tool type")


def _literal(given: Parameter) -> str:
    return f"it cannot be read from the arguments ({given}): write it out, or {'$' + str(given)!r} for that very text."


_WANTED = {
    "string_type": "a text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}


def _said(problem: Any) -> str:
    kind, given = problem["type"], problem["input"]
    if kind == "missing":
        return "it is required."
    if isinstance(given, Parameter):
        return _literal(given)
    if kind in _WANTED:
        return f"it is {_WANTED[kind]}, not {given!r:.60}."
    if kind == "string_pattern_mismatch":
        if problem["ctx"]["pattern"] == r"\S":
            return "it is a text that is not empty."
        return f"{given!r:.80} cannot be a tool's name: take 1 to 64 letters, digits, '_' and '-'."
    message = str(problem["msg"]).replace("Input should", "it should").replace("String should", "it should")
    return f"{message}, not {given!r:.60}."
