"""Tellback as an MCP server: one user's memory and conversations, for any program that speaks the protocol.

`serve_stdio` serves one user over standard input and output, `http_app` many over streamable HTTP; `build_server` is
what both run. It stands on the low-level server of the official SDK: the high-level one writes its own schemas, and its
own words around every error.
"""

from tellback.errors import MissingExtraError

try:
    import mcp as _sdk  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtraError("mcp", "mcp", "The MCP server") from error

from tellback.mcp.server import McpApp, UserOf, build_server, http_app, serve_stdio

__all__ = ["McpApp", "UserOf", "build_server", "http_app", "serve_stdio"]
