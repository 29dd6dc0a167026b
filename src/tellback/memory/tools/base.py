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
from tellback.tools.schema import Bind, build_binder

DEFAULT_TIMEOUT = 30.0
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
        default_description: str,
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
            name=checks.validate_name("name", name),
            description=default_description
            if description is None
            else checks.validate_name("description", description, 100_000),
            parameters=schema,
            fn=fn,
            timeout=_validate_timeout(timeout),
            requires_approval=requires_approval,
            bind=_input_binder(json.dumps(schema)),
        )


@functools.lru_cache(maxsize=64)
def _input_binder(schema_json: str) -> Bind:
    """The input check of a schema. One takes milliseconds to make, and tools are made for every turn."""
    schema = json.loads(schema_json)
    bind_checked = build_binder(schema, "memory tool")
    required = frozenset(schema["required"])

    def bind(values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        # Many models write null for what they leave out.
        return bind_checked({name: value for name, value in values.items() if value is not None or name in required})

    return bind


def _validate_timeout(timeout: Any) -> float | None:
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
        raise InvalidArgumentError(f"timeout is a number of seconds above 0, or None, not {timeout!r:.80}.")
    return float(timeout)
