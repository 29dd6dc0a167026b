"""What a tool may know of the agent that runs it, and what it may give back besides its result."""

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
    """What an agent gives a tool that has a parameter of this type; the model does not see the parameter.

    `context` is the agent's, `session` where the conversation stands, `data` what was gathered in the route, `domains`
    what the route may use.

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
    """A tool's result with changes for the agent: `data` goes to the gathered data, `context` to the agent's context.

    A field that is set to None is forgotten.

    >>> ToolUpdate({"flights": 3}, data={"cheapest": 120}).value
    {'flights': 3}
    """

    value: Any = None
    data: Mapping[str, Any] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("data", "context"):
            if not isinstance(getattr(self, name), Mapping):
                raise TypeError(f"ToolUpdate takes {name} as a mapping, not {getattr(self, name)!r:.80}")


class ToolHost(Protocol):
    """The turn of an agent that is running, bound in `tellback.request`."""

    def tool_context(self) -> ToolContext:
        """What its tools may know."""
        ...

    def update(self, update: ToolUpdate) -> None:
        """Take what a tool gives back."""
        ...


def current_tool_host() -> ToolHost | None:
    """The agent's turn that is running, if one is."""
    found: ToolHost | None = current().agent
    return found


def current_call() -> ToolCall | None:
    """The call that is being run, for a tool that must know its id; None outside of one.

    The id stays the same however often the turn is gone on with, so that a tool can tell a call from its repetition.
    """
    return _current_call.get()


class bind_call:  # noqa: N801
    """Let `current_call` give this call for the block."""

    __slots__ = ("_call", "_previous")

    def __init__(self, call: ToolCall) -> None:
        self._call = call

    def __enter__(self) -> None:
        self._previous = _current_call.get()
        _current_call.set(self._call)

    def __exit__(self, *_: object) -> None:
        _current_call.set(self._previous)  # not by a token: a run that is abandoned may end in another context
