"""Tellback as an MCP server: a user's memory and conversations, for any MCP client.

`serve_stdio` serves one user over standard input and output, and `http_app` serves many over streamable HTTP; both use
`build_server`. It is based on the low-level server of the official SDK, because the high-level server generates its
own schemas and adds text to every error.
"""

from tellback.errors import MissingExtraError

try:
    import mcp as _sdk  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtraError("mcp", "mcp", "The MCP server") from error

from tellback.mcp.server import McpApp, UserOf, build_server, http_app, serve_stdio

__all__ = ["McpApp", "UserOf", "build_server", "http_app", "serve_stdio"]
