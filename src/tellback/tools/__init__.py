"""Functions a model may call: schemas from type hints, validated input, concurrent dispatch.

`mcp` turns the tools of MCP servers into such functions. Skills, chat, agents, memory and applications import this.
"""

from tellback.tools.dispatch import dispatch, dispatch_all
from tellback.tools.tool import Tool, as_tool, tool, tools_by_name
from tellback.types import ToolCall, ToolResult

__all__ = ["Tool", "ToolCall", "ToolResult", "as_tool", "dispatch", "dispatch_all", "tool", "tools_by_name"]
