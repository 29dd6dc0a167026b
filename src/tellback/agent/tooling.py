"""Tools of an agent: made of handlers, and run for a state."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tellback.agent.ids import generate_tool_id
from tellback.errors import ToolSchemaError
from tellback.tools import Tool
from tellback.tools.context import ToolContext, current_tool_host

_CONTEXT_NAMES = frozenset(("ctx", "context", "tool_context", "_", "_ctx", "_context"))


@dataclass(frozen=True, slots=True, eq=False)
class DefinedTool(Tool):
    """A tool with an id of its own."""

    id: str = ""

    def __post_init__(self) -> None:
        Tool.__post_init__(self)
        if not self.id:
            object.__setattr__(self, "id", generate_tool_id(self.name))


def define_tool(
    name: str,
    handler: Callable[..., Any],
    id: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    *,
    timeout: float | None = None,
    requires_approval: bool = False,
) -> DefinedTool:
    """A tool from a handler whose first parameter is the `ToolContext`; the rest are the model's to fill.

    A handler that takes no context may leave it out, if its first parameter has a type. `parameters` is a JSON schema
    for handlers whose parameters have no types.

    >>> async def get_data(ctx, id: str) -> dict: return {"id": id, "for": ctx.context["user"]}
    >>> define_tool("get_data", get_data, description="Fetches data by id.").parameters["required"]
    ['id']
    """
    if not callable(handler):
        raise ToolSchemaError(f"Tool {name!r}: handler is a function, not {handler!r:.80}.")
    fn = _bind_context(name, handler)
    inferred = Tool.from_fn(fn, name=name, description=description) if parameters is None else None
    return DefinedTool(
        name=name,
        description=(inferred.description if inferred is not None else description) or "",
        parameters=inferred.parameters if inferred is not None else parameters,  # type: ignore[arg-type]
        fn=fn,
        timeout=timeout,
        requires_approval=requires_approval,
        bind=None if inferred is None else inferred.bind,  # type: ignore[arg-type]
        id=id or "",
    )


def _bind_context(name: str, handler: Callable[..., Any]) -> Callable[..., Any]:
    """The handler without its first parameter, where that is the context."""
    try:
        signature = inspect.signature(handler, eval_str=False)
    except (TypeError, ValueError) as error:
        raise ToolSchemaError(f"Tool {name!r}: the signature of {handler!r} cannot be read: {error}") from error
    parameters = list(signature.parameters.values())
    if not parameters or not _is_context(parameters[0]):
        return handler
    context_parameter = parameters[0]

    def context() -> ToolContext:
        turn = current_tool_host()
        if turn is None:
            raise RuntimeError(f"{name} takes a ToolContext, so only an Agent can run it")
        return turn.tool_context()

    async def call_async(*args: Any, **kwargs: Any) -> Any:
        return await handler(context(), *args, **kwargs)

    def call_sync(*args: Any, **kwargs: Any) -> Any:
        return handler(context(), *args, **kwargs)

    call: Any = call_async if inspect.iscoroutinefunction(handler) else call_sync
    call.__name__ = name
    call.__doc__ = handler.__doc__
    call.__signature__ = signature.replace(parameters=parameters[1:])
    hints = {
        key: value for key, value in getattr(handler, "__annotations__", {}).items() if key != context_parameter.name
    }
    call.__annotations__ = hints
    call.__wrapped__ = _Hints(handler, hints)
    bound: Callable[..., Any] = call
    return bound


class _Hints:
    """Where the hints of a wrapped handler are resolved: in the module that defines it."""

    def __init__(self, handler: Any, hints: Mapping[str, Any]) -> None:
        self.__annotations__ = dict(hints)
        self.__globals__ = getattr(handler, "__globals__", {})
        self.__qualname__ = getattr(handler, "__qualname__", "")


def _is_context(parameter: inspect.Parameter) -> bool:
    hint = parameter.annotation
    if hint is inspect.Parameter.empty:
        return True
    return (
        hint is ToolContext
        or str(hint).rpartition(".")[2] in ("ToolContext", "ToolContext'>")
        or (hint in (Any, "Any", "typing.Any") and parameter.name in _CONTEXT_NAMES)
    )
