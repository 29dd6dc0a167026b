"""`SpecRegistry`: the agents an application knows, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tellback.errors import AgentSpecError, ConfigurationError, NotFoundError, ToolError
from tellback.tools import Tool, tools_by_name

if TYPE_CHECKING:
    from tellback.specs.loading import SpecSource
    from tellback.specs.model import AgentSpec


@dataclass(frozen=True, slots=True)
class RegisteredSpec:
    """A description, and the functions its tools may name."""

    spec: AgentSpec
    functions: Mapping[str, Tool]


class SpecRegistry:
    """The agents that were registered, for all users.

    >>> registry = SpecRegistry()
    >>> registry.register({"name": "support", "systemPrompt": "Be kind."}).name
    'support'
    >>> registry.names
    ('support',)
    """

    def __init__(self) -> None:
        self._agents: dict[str, RegisteredSpec] = {}

    def register(
        self, spec: SpecSource, tools: Iterable[Tool | Callable[..., Any]] = (), replace: bool = False
    ) -> AgentSpec:
        """Add a description, with the functions for its tools of type FUNCTION; others of `tools` are not used.

        A name that is taken raises `AgentSpecError`, unless `replace`.
        """
        from tellback.specs.loading import load_spec

        loaded = load_spec(spec)
        if loaded.name in self._agents and not replace:
            raise AgentSpecError(
                "name", "there is such an agent already: pass replace=True to replace it.", loaded.name
            )
        if callable(tools) or isinstance(tools, str | Mapping) or not isinstance(tools, Iterable):
            raise AgentSpecError(
                "tools", f"they are a list of functions, not {tools!r:.80}: write tools=[…].", loaded.name
            )
        try:
            functions = tools_by_name(tools)
        except (ConfigurationError, ToolError) as error:
            raise AgentSpecError("tools", str(error), loaded.name) from error
        _validate_functions(loaded, functions)
        self._agents[loaded.name] = RegisteredSpec(loaded, functions)
        return loaded

    def get(self, name: str) -> AgentSpec | None:
        """The description of that name, or None."""
        found = self._agents.get(name) if isinstance(name, str) else None
        return None if found is None else found.spec

    def registered(self, name: str) -> RegisteredSpec:
        """The same with its functions; an unknown name raises `NotFoundError`."""
        found = self._agents.get(name) if isinstance(name, str) else None
        if found is None:
            known = ", ".join(map(repr, self._agents)) or "none"
            raise NotFoundError("agent", name, f"Registered are: {known}.")
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in the order of registration."""
        return tuple(self._agents)


def _validate_functions(spec: AgentSpec, functions: Mapping[str, Tool]) -> None:
    from tellback.specs.problems import format_unknown_name

    for index, tool in enumerate(spec.tools):
        if tool.type == "FUNCTION" and tool.name not in functions:
            problem = format_unknown_name(tool.name, list(functions), "function")
            raise AgentSpecError(
                f"tools[{index}].name", f"{problem} Pass it: register_agent(spec, tools=[…]).", spec.name
            )
