"""How much a tool gives at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from tellback.mcp.schemas import Answer

MOST_CHARACTERS = 30_000
"""What the parts of one answer take as JSON, at most. Its text takes about as much again."""

Part = TypeVar("Part", bound=Answer)


def fitting(parts: Iterable[Part], most: int = MOST_CHARACTERS) -> list[Part]:
    """The first parts of an answer, as many as fit; always one, if there is any."""
    kept: list[Part] = []
    for part in parts:
        most -= len(part.model_dump_json(by_alias=True, exclude_none=True))
        if most < 0 and kept:
            break
        kept.append(part)
    return kept
