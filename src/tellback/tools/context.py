"""`ToolContext` gives a tool access to the running agent, and `ToolUpdate` lets it change the agent's data."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from tellback.request import current
from tellback.types import ToolCall

_current_call: ContextVar[ToolCall | None] = ContextVar("tellback_tool_call", default=None)


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The agent's state, passed to a tool parameter of this type; the model does not see the parameter.

    `context` is the agent's context, `session` the session state, `data` the data gathered in the route, and `domains`
    the domains available to the route.

    >>> def whoami(ctx: ToolContext) -> str:
    ...     return ctx.context["name"]
    >>> whoami(ToolContext({"name": "Maya"}))
    'Maya'
    """

    context: Any = None
    session: Any = None
    data: Mapping[str, Any] = field(default_factory=dict)
    domains: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolUpdate:
    """A tool's result with updates for the agent: `data` for the gathered data, `context` for the agent's context.

    A value of None removes the field.

    >>> ToolUpdate({"flights": 3}, data={"cheapest": 120}).value
    {'flights': 3}
    """

    value: Any = None
    data: Mapping[str, Any] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("data", "context"):
            if not isinstance(getattr(self, name), Mapping):
                raise TypeError(f"ToolUpdate: {name} must be a mapping, got {getattr(self, name)!r:.80}")


class ToolHost(Protocol):
    """The running turn of an agent, bound in `tellback.request`."""

    def tool_context(self) -> ToolContext:
        """Return the context for the turn's tools."""
        ...

    def update(self, update: ToolUpdate) -> None:
        """Apply the update of a tool."""
        ...


def current_tool_host() -> ToolHost | None:
    """Return the running agent turn, or None."""
    found: ToolHost | None = current().agent
    return found


def current_call() -> ToolCall | None:
    """Return the running tool call, or None outside of a call.

    The call's id does not change when a turn is resumed, so a tool can detect a repeated call.
    """
    return _current_call.get()


class bind_call:  # noqa: N801
    """Make `current_call` return this call inside the block."""

    __slots__ = ("_call", "_previous")

    def __init__(self, call: ToolCall) -> None:
        self._call = call

    def __enter__(self) -> None:
        self._previous = _current_call.get()
        _current_call.set(self._call)

    def __exit__(self, *_: object) -> None:
        _current_call.set(self._previous)  # not reset(token): the block may end in another context
