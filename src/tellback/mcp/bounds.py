"""How much a tool gives at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from tellback.mcp.schemas import ToolOutput

MAX_OUTPUT_CHARACTERS = 30_000
"""What the parts of one answer take as JSON, at most. Its text takes about as much again."""

Item = TypeVar("Item", bound=ToolOutput)


def take_fitting(items: Iterable[Item], max_characters: int = MAX_OUTPUT_CHARACTERS) -> list[Item]:
    """The first parts of an answer, as many as fit; always one, if there is any."""
    taken: list[Item] = []
    for item in items:
        max_characters -= len(item.model_dump_json(by_alias=True, exclude_none=True))
        if max_characters < 0 and taken:
            break
        taken.append(item)
    return taken
