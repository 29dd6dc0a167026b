"""What all memory tools have in common: how they are described to a model, and what they take from it."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from tellback.conversations import checks
from tellback.errors import InvalidArgumentError
from tellback.tools import Tool
from tellback.tools.schema import Bind, binder_for_schema

SECONDS = 30.0
"""How long a tool may take, unless it is made with another timeout."""


class MemoryTool(Tool):
    """A tool whose input is made of these properties and no others. One that is not required may be null."""

    __slots__ = ()

    def __init__(
        self,
        fn: Callable[..., Any],
        properties: Mapping[str, Any],
        *required: str,
        name: str,
        description: str | None,
        usual: str,
        timeout: float | None,
        requires_approval: bool = False,
    ) -> None:
        schema = {
            "type": "object",
            "properties": dict(properties),
            "required": list(required),
            "additionalProperties": False,
        }
        super().__init__(
            name=checks.name("name", name),
            description=usual if description is None else checks.name("description", description, 100_000),
            parameters=schema,
            fn=fn,
            timeout=_seconds(timeout),
            requires_approval=requires_approval,
            bind=_binder(json.dumps(schema)),
        )


@functools.lru_cache(maxsize=64)
def _binder(written: str) -> Bind:
    """The input check of a schema. One takes milliseconds to make, and tools are made for every turn."""
    schema = json.loads(written)
    check = binder_for_schema(schema, "memory tool")
    required = frozenset(schema["required"])

    def bind(values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        # Many models write null for what they leave out.
        return check({name: value for name, value in values.items() if value is not None or name in required})

    return bind


def _seconds(timeout: Any) -> float | None:
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
        raise InvalidArgumentError(f"timeout is a number of seconds above 0, or None, not {timeout!r:.80}.")
    return float(timeout)
