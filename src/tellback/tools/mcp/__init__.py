"""The tools of MCP servers, as tools a model may call here.

`server` keeps the connection, over `stdio` or `http`; `tool_list` validates what it offers. Agents, specs and
applications import this.
"""

from tellback.tools.mcp.server import McpServer, mcp_tools
from tellback.tools.mcp.tool_list import McpToolInfo, RefusedTool

__all__ = ["McpServer", "McpToolInfo", "RefusedTool", "mcp_tools"]
