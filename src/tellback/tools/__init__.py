"""Functions a model may call: schemas from type hints, checked input, concurrent dispatch."""

from tellback.tools.dispatch import dispatch, dispatch_all
from tellback.tools.tool import Tool, as_tool, tool, tools_by_name
from tellback.types import ToolCall, ToolResult

__all__ = ["Tool", "ToolCall", "ToolResult", "as_tool", "dispatch", "dispatch_all", "tool", "tools_by_name"]
