"""The tools of MCP servers, as tools a model may call here."""

from recollect.tools.mcp.listing import McpToolInfo, Refused
from recollect.tools.mcp.server import McpServer
from recollect.tools.mcp.several import mcp_tools

__all__ = ["McpServer", "McpToolInfo", "Refused", "mcp_tools"]
