"""Tools of an agent: `define_tool` for handlers with a `ToolContext`, and domains that group tools by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

from tellback.agent.definitions.state import generate_tool_id
from tellback.errors import FlowError, ToolSchemaError
from tellback.tools import Tool
from tellback.tools.context import ToolContext, current_tool_host

_CONTEXT_NAMES = frozenset(("ctx", "context", "tool_context", "_", "_ctx", "_context"))
_PLAIN_TYPES = (str, bytes, int, float, complex, list, tuple, set, frozenset, type(None))
"""Types whose attributes are not the members of a domain."""


@dataclass(frozen=True, slots=True, eq=False)
class DefinedTool(Tool):
    """A tool with its own id."""

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
    """Create a tool from a handler whose first parameter is the `ToolContext`; the model fills the others.

    A handler that needs no context may omit it, if its first parameter has a type hint. `parameters` is a JSON schema
    for handlers without type hints.

    >>> async def get_data(ctx, id: str) -> dict: return {"id": id, "for": ctx.context["user"]}
    >>> define_tool("get_data", get_data, description="Fetches data by id.").parameters["required"]
    ['id']
    """
    if not callable(handler):
        raise ToolSchemaError(f"Tool {name!r}: handler must be a function, got {handler!r:.80}.")
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
    """Return the handler without its first parameter, if that is the context."""
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
            raise RuntimeError(f"{name} has a ToolContext parameter, so only an Agent can run it")
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
    """Provides the annotations of a wrapped handler, to be resolved in the module that defines it."""

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


class DomainRegistry:
    """The domains of an agent, by name.

    A domain is a mapping of names to values, an object or a module: services, settings, functions and tools for your
    own code and for tools, which read them from `ToolContext.domains`. The model can call only the tools in it. Of an
    object, a domain has the public attributes and methods with their current values, but no properties.

    >>> domains = DomainRegistry()
    >>> domains.register("payment", {"process_payment": lambda amount: f"paid {amount}", "fee": 2})
    >>> domains.namespace.payment.process_payment(5), domains.namespace.payment.fee
    ('paid 5', 2)
    >>> domains.names
    ('payment',)
    """

    def __init__(self) -> None:
        self._domains: dict[str, Any] = {}

    def __copy__(self) -> DomainRegistry:
        copied = DomainRegistry()
        copied._domains.update(self._domains)
        return copied

    def register(self, name: str, domain: Any) -> None:
        """Add a domain under a new name.

        >>> DomainRegistry().register("empty", {})
        Traceback (most recent call last):
            ...
        tellback.errors.FlowError: Domain 'empty': it contains nothing. ...
        """
        if not isinstance(name, str) or not name.strip():
            raise FlowError("a domain", f"name must be a non-empty string, got {name!r:.80}.")
        if name in self._domains:
            raise FlowError(
                _domain_place(name), "a domain with this name exists. Choose another name, or merge the two."
            )
        self._domains[name] = _validate_domain(name, domain)

    def get(self, name: str) -> dict[str, Any] | None:
        """Return the members of a domain, or None if it does not exist.

        >>> DomainRegistry().get("payment") is None
        True
        """
        return _members(self._domains[name]) if name in self._domains else None

    def has(self, name: str) -> bool:
        """Whether a domain with this name exists.

        >>> DomainRegistry().has("payment")
        False
        """
        return name in self._domains

    def all(self) -> dict[str, dict[str, Any]]:
        """Return all domains.

        >>> DomainRegistry().all()
        {}
        """
        return self.filtered()

    def filtered(self, names: Iterable[str] | None = None) -> dict[str, dict[str, Any]]:
        """Return the domains with these names; None means all domains. Raise `FlowError` for an unknown name.

        >>> domains = DomainRegistry()
        >>> domains.register("payment", {"refund": print})
        >>> domains.register("shipping", {"cost": print})
        >>> list(domains.filtered(["shipping"]))
        ['shipping']
        """
        if isinstance(names, str):
            raise FlowError(_domain_place(names), f"domain names must be a list: write [{names!r}].")
        selected = self.names if names is None else tuple(names)
        for name in selected:
            if name not in self._domains:
                raise FlowError(
                    _domain_place(name), f"this domain does not exist. Known domains: {_join_names(self._domains)}."
                )
        return {name: _members(self._domains[name]) for name in selected}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all domains, in the order of registration."""
        return tuple(self._domains)

    @property
    def namespace(self) -> DomainNamespace:
        """The domains as attributes: `namespace.payment.process_payment(5)`."""
        return DomainNamespace(self._domains, "domain")

    def tools(self, names: Iterable[str] | None = None) -> list[Tool]:
        """Return the tools of these domains, or of all. Plain functions and other values are not included.

        >>> from tellback.tools import tool
        >>> @tool
        ... def refund(id: str) -> str:
        ...     "Pay back."
        ...     return "done"
        >>> domains = DomainRegistry()
        >>> domains.register("payment", {"refund": refund, "audit": print})
        >>> [each.name for each in domains.tools()]
        ['refund']
        """
        tools_by_name: dict[str, tuple[Tool, str]] = {}
        for domain, members in self.filtered(names).items():
            for member in members.values():
                if not isinstance(member, Tool):
                    continue
                first, first_domain = tools_by_name.setdefault(member.name, (member, domain))
                if first is not member:
                    raise FlowError(
                        _domain_place(domain),
                        f"domain {first_domain!r} also has a tool called {member.name!r}, and a model could not"
                        " distinguish them. Rename one with @tool(name=...).",
                    )
        return [tool for tool, _ in tools_by_name.values()]


class DomainNamespace:
    """Named members as attributes, or by `[name]` if the name is not an identifier."""

    __slots__ = ("_kind", "_members")

    def __init__(self, members: Mapping[str, Any], kind: str) -> None:
        self._members = members
        self._kind = kind

    def __getattr__(self, name: str) -> Any:
        # Not self._members: copying reads attributes before they are set, which would recurse forever.
        if name not in object.__getattribute__(self, "_members"):
            raise AttributeError(self._unknown_name_message(name), name=name, obj=self)
        return self[name]

    def __getitem__(self, name: str) -> Any:
        if name not in self._members:
            raise KeyError(self._unknown_name_message(name))
        found = self._members[name]
        return DomainNamespace(_members(found), "member") if self._kind == "domain" else found

    def _unknown_name_message(self, name: str) -> str:
        return f"Unknown {self._kind} {name!r}. Known: {_join_names(self._members)}."

    def __dir__(self) -> list[str]:
        return sorted(self._members)

    def __repr__(self) -> str:
        return f"<{self._kind}s: {_join_names(self._members)}>"


def _validate_domain(name: str, domain: Any) -> Any:
    """Return the domain; a mapping is copied."""
    if isinstance(domain, Mapping):
        for key, member in domain.items():
            if not isinstance(key, str) or not key:
                raise FlowError(_domain_place(name), f"it must map names to values, got {key!r:.80}: {member!r:.80}.")
        domain = dict(domain)
    elif isinstance(domain, _PLAIN_TYPES):
        raise FlowError(
            _domain_place(name), f"it must be a mapping of names to values, an object or a module, got {domain!r:.80}."
        )
    if not _members(domain):
        raise FlowError(_domain_place(name), "it contains nothing. Register a mapping of names to values.")
    return domain


def _members(domain: Any) -> dict[str, Any]:
    return dict(domain) if isinstance(domain, Mapping) else dict(_public_attributes(domain))


def _public_attributes(domain: Any) -> Iterator[tuple[str, Any]]:
    """Yield the public attributes of an object. Properties are not read, because that runs code."""
    for name in dir(domain):
        if name.startswith("_") or isinstance(inspect.getattr_static(domain, name, None), property | cached_property):
            continue
        try:
            member = getattr(domain, name)
        except AttributeError:  # a slot without a value
            continue
        if not isinstance(domain, ModuleType) or _is_exported(domain, name, member):
            yield name, member


def _is_exported(module: ModuleType, name: str, member: Any) -> bool:
    """Whether the module exports this member; names that it imported are not exported."""
    exported = getattr(module, "__all__", None)
    if exported is not None:
        return name in exported
    function = member.fn if isinstance(member, Tool) else member
    if not callable(function):
        return not isinstance(function, ModuleType)
    return getattr(function, "__module__", None) == module.__name__


def _domain_place(name: Any) -> str:
    return f"domain {name!r:.80}"


def _join_names(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
