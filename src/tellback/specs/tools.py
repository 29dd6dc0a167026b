"""Build the tools that a bound description asks for, in the spaces of the user who invokes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tellback.errors import NotFoundError
from tellback.memory.tools import Forget, RecallByEntity, RecallByTopic, RecallTimeline, Remember
from tellback.specs.model import BoundSpec, FunctionSpec, MemoryToolSpec, ToolSpec
from tellback.tools import Tool

if TYPE_CHECKING:
    from tellback.memory.memory import Memory

_MEMORY_TOOLS: Mapping[str, type[Any]] = {
    "RECALL_BY_TOPIC": RecallByTopic,
    "RECALL_BY_ENTITY": RecallByEntity,
    "RECALL_TIMELINE": RecallTimeline,
    "REMEMBER": Remember,
    "FORGET": Forget,
}


async def validate_spaces(spec: BoundSpec, memory: Memory, extra_space_id: str | None = None) -> None:
    """Every space must be one of this user's: another's raises `NotFoundError`, as if there were none."""
    space_ids = [tool.memory_space_id for tool in spec.tools if isinstance(tool, MemoryToolSpec)]
    for id in dict.fromkeys(space_ids if extra_space_id is None else [*space_ids, extra_space_id]):
        if await memory.get_space(id) is None:
            raise NotFoundError("space", id, f"Agent {spec.name!r} was invoked with it.")


def build_tools(spec: BoundSpec, memory: Memory, functions: Mapping[str, Tool]) -> list[Tool]:
    """The tools, in the description's order."""
    return [
        _build_function_tool(tool, functions[tool.name])
        if isinstance(tool, FunctionSpec)
        else _build_memory_tool(tool, memory)
        for tool in spec.tools
    ]


def _build_memory_tool(tool: ToolSpec, memory: Memory) -> Tool:
    assert isinstance(tool, MemoryToolSpec)
    fields = {name: getattr(tool, name) for name in tool.model_fields_set - {"type", "memory_space_id"}}
    options = {name: value for name, value in fields.items() if value is not None}
    built: Tool = _MEMORY_TOOLS[tool.type](memory, tool.memory_space_id, **options)
    return built


def _build_function_tool(tool: FunctionSpec, registered: Tool) -> Tool:
    """A registered function with what the description says of it: it can be stricter than the function, never laxer."""
    return Tool(
        name=registered.name,
        description=registered.description if tool.description is None else tool.description,
        parameters=registered.parameters,
        fn=registered.fn,
        timeout=min((each for each in (registered.timeout, tool.timeout) if each is not None), default=None),
        requires_approval=registered.requires_approval or tool.requires_approval,
        bind=registered.bind,
    )
