"""Plain JSON values out of whatever was given, within limits: descriptions may come from strangers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tellback.errors import AgentSpecError
from tellback.types.jsontext import is_storable

MAX_DEPTH = 32
MAX_VALUES = 10_000
MAX_LENGTH = 256 * 1024
"""How deep a description may be nested, how many values it may have, and how long it may be, in bytes."""


def copy_plain_json(value: Any, path: str = "", *, max_length: int | None = MAX_LENGTH, agent: str = "") -> Any:
    """A copy made of dicts, lists, texts, numbers, booleans and None; anything else is an `AgentSpecError`.

    Without a `length`, texts are as long as they like and hold what they like: the place they go to decides.
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
