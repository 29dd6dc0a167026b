"""`$name` in a description: a value that is read from an invocation's arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tellback.errors import AgentSpecError

PARAMETER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_MALFORMED_PARAMETER = re.compile(r"\$(\{.*\}|[A-Za-z_]\S*)\Z")
"""What looks like an argument to people who know other templates: `${x}`, `$a-b`, `$a.b`."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """Stands in a description for the argument of that name.

    >>> str(Parameter("userMessage"))
    '$userMessage'
    """

    name: str

    def __str__(self) -> str:
        return f"${self.name}"


def parse_parameter(text: str, path: str = "") -> str | Parameter:
    """A text of a description: the argument it names if it is `$name` and nothing else, or the text itself.

    `$$` at the beginning stands for one `$`. What is meant for an argument and names none raises `AgentSpecError`.

    >>> parse_parameter("$space"), parse_parameter("$$space"), parse_parameter("costs $5"), parse_parameter("$5")
    (Parameter(name='space'), '$space', 'costs $5', '$5')
    """
    if text.startswith("$$"):
        return text[1:]
    if text.startswith("$") and PARAMETER_NAME.match(text[1:]):
        return Parameter(text[1:])
    if _MALFORMED_PARAMETER.match(text):
        raise AgentSpecError(
            path,
            f"{text!r:.60} names no argument: write '$name', with letters, digits and '_', or {'$' + text!r:.60} for"
            " that very text.",
        )
    return text


def escape_text(text: str) -> str:
    """A text as a description has it: the inverse of `read_text`.

    >>> escape_text("$space"), escape_text("costs $5")
    ('$$space', 'costs $5')
    """
    return f"${text}" if text.startswith("$") else text


def parse_parameter_tree(value: Any, path: str = "") -> Any:
    """The same for all texts in a JSON value; keys stay as they are."""
    if isinstance(value, str):
        return parse_parameter(value, path)
    if isinstance(value, Mapping):
        return {key: parse_parameter_tree(each, f"{path}.{key}" if path else str(key)) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [parse_parameter_tree(each, f"{path}[{index}]") for index, each in enumerate(value)]
    return value


def find_parameters(value: Any, path: str = "") -> Iterator[tuple[str, Parameter]]:
    """Every parameter in a tree, with its path."""
    if isinstance(value, Parameter):
        yield path, value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from find_parameters(each, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for index, each in enumerate(value):
            yield from find_parameters(each, f"{path}[{index}]")
