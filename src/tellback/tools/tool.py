"""`Tool`: a function a model may call."""

from __future__ import annotations

import functools
import inspect
import re
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict, Unpack, overload
from weakref import WeakKeyDictionary

from tellback.errors import ConfigurationError, ToolSchemaError
from tellback.tools.schema import Bind, ToolSignature, build_binder, read_signature

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")

# Reading a signature takes a millisecond, so it is cached per function. A cached signature must not reference the
# function or a method's object, because neither would then ever be freed.
_signatures: WeakKeyDictionary[Any, dict[tuple[bool, str], ToolSignature]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Tool:
    """A function a model may call, with the JSON schema of its input.

    Create one with `@tool` or `Tool.from_fn`. For a custom schema, use `Tool(name, description, parameters, fn)` with
    a function that accepts the input's properties as keyword arguments. `timeout` is in seconds. If a tool
    `requires_approval`, the loop does not run it, but stops and returns the call.

    >>> def add(x: int, y: int) -> int:
    ...     "Add two numbers."
    ...     return x + y
    >>> Tool.from_fn(add).parameters["required"]
    ['x', 'y']
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    fn: Callable[..., Any]
    timeout: float | None = None
    requires_approval: bool = False
    bind: Bind = field(default=None, repr=False)  # type: ignore[assignment]
    is_async: bool = field(init=False, repr=False, default=False)

    def __post_init__(self) -> None:
        if not _NAME.match(self.name):
            raise ToolSchemaError(f"{self.name!r} is not a valid tool name: use 1 to 64 letters, digits, '_' and '-'.")
        if self.bind is None:
            object.__setattr__(self, "bind", build_binder(self.parameters, self.name))
        object.__setattr__(self, "is_async", is_async_function(self.fn))

    @classmethod
    def from_fn(
        cls,
        fn: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        timeout: float | None = None,
        requires_approval: bool = False,
    ) -> Tool:
        """Create a tool from a function, with the schema from its type hints and docstring.

        From a tool, it creates a copy with the given fields.

        >>> Tool.from_fn(len, name="length", description="How long a list is.").name
        'length'
        """
        if isinstance(fn, Tool):
            fields = {"name": name, "description": description, "timeout": timeout}
            changes: dict[str, Any] = {field: value for field, value in fields.items() if value is not None}
            return replace(fn, **changes, requires_approval=fn.requires_approval or requires_approval)
        tool_name = name or _function_name(fn)
        try:
            signature = _cached_signature(fn, tool_name)
        except (TypeError, ValueError) as error:
            raise ToolSchemaError(f"Tool {tool_name!r}: the signature of {fn!r} cannot be read: {error}") from error
        return cls(
            name=tool_name,
            description=signature.description if description is None else description,
            parameters=signature.parameters,
            fn=fn,
            timeout=timeout,
            requires_approval=requires_approval,
            bind=signature.bind,
        )

    @property
    def input_schema(self) -> Mapping[str, Any]:
        """An alias of `parameters`."""
        return self.parameters

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function directly."""
        return self.fn(*args, **kwargs)


class ToolFields(TypedDict, total=False):
    """The arguments of `@tool`; see `Tool`."""

    name: str | None
    description: str | None
    timeout: float | None
    requires_approval: bool


@overload
def tool(fn: Callable[..., Any], /) -> Tool: ...
@overload
def tool(**fields: Unpack[ToolFields]) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    fn: Callable[..., Any] | None = None, /, **fields: Unpack[ToolFields]
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Decorate a function to make it a tool; it can still be called as before.

    >>> @tool
    ... def shout(text: str) -> str:
    ...     "Say it louder."
    ...     return text.upper()
    >>> shout("hi"), shout.description
    ('HI', 'Say it louder.')
    """
    make = functools.partial(Tool.from_fn, **fields)
    return make if fn is None else make(fn)


def as_tool(entry: Tool | Callable[..., Any]) -> Tool:
    """Return a tool unchanged, or convert a function to a tool.

    >>> def add(x: int, y: int) -> int:
    ...     "Add two numbers."
    ...     return x + y
    >>> as_tool(add).description
    'Add two numbers.'
    """
    if isinstance(entry, Tool):
        return entry
    if not callable(entry):
        raise ConfigurationError(f"{entry!r} is not a tool: pass a function or a Tool.")
    return Tool.from_fn(entry)


def _cached_signature(fn: Callable[..., Any], name: str) -> ToolSignature:
    if not isinstance(fn, types.FunctionType | types.MethodType):
        return read_signature(fn, name)
    is_bound = isinstance(fn, types.MethodType)
    cached = _signatures.setdefault(getattr(fn, "__func__", fn), {})
    if (is_bound, name) not in cached:
        cached[is_bound, name] = read_signature(fn, name)
    return cached[is_bound, name]


def tools_by_name(entries: Iterable[Tool | Callable[..., Any]]) -> dict[str, Tool]:
    """Return the tools by name; two different tools with the same name raise `ConfigurationError`.

    >>> def add(x: int, y: int) -> int: return x + y
    >>> tools_by_name([add])["add"](17, 25)
    42
    """
    found: dict[str, Tool] = {}
    for entry in entries:
        converted = as_tool(entry)
        if converted.name in found and found[converted.name].fn != converted.fn:
            raise ConfigurationError(f"Two tools are named {converted.name!r}: rename one with @tool(name=...).")
        found[converted.name] = converted
    return found


def _function_name(fn: Callable[..., Any]) -> str:
    name = getattr(_unwrap_partial(fn), "__name__", type(fn).__name__)
    if name == "<lambda>":
        raise ToolSchemaError("A lambda has no name for the model to use: pass name=..., or define a function.")
    return str(name)


def is_async_function(fn: Any) -> bool:
    """Whether a call returns an awaitable: for coroutine functions, objects with an async `__call__`, and partials."""
    fn = _unwrap_partial(fn)
    return inspect.iscoroutinefunction(fn if inspect.isroutine(fn) else getattr(fn, "__call__", fn))  # noqa: B004


def _unwrap_partial(fn: Any) -> Any:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn
