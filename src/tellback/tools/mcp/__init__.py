"""MCP client: use the tools of MCP servers as Tellback tools.

`server` manages the connection over `stdio` or `http`; `tool_list` validates the tools that a server lists.
"""

from tellback.tools.mcp.server import McpServer, mcp_tools
from tellback.tools.mcp.tool_list import McpToolInfo, RefusedTool

__all__ = ["McpServer", "McpToolInfo", "RefusedTool", "mcp_tools"]
