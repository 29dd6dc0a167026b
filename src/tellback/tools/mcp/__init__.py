"""The tools of MCP servers, as tools a model may call here."""

from tellback.tools.mcp.listing import McpToolInfo, RefusedTool
from tellback.tools.mcp.server import McpServer
from tellback.tools.mcp.several import mcp_tools

__all__ = ["McpServer", "McpToolInfo", "RefusedTool", "mcp_tools"]
