"""Tools: functions a model may call, with schemas from type hints, input validation and concurrent dispatch.

`mcp` provides the tools of MCP servers.
"""

from tellback.tools.dispatch import dispatch, dispatch_all
from tellback.tools.tool import Tool, as_tool, tool, tools_by_name
from tellback.types import ToolCall, ToolResult

__all__ = ["Tool", "ToolCall", "ToolResult", "as_tool", "dispatch", "dispatch_all", "tool", "tools_by_name"]
