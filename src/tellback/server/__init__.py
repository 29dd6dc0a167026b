"""The HTTP server: REST under `/ai-…`, streams by server-sent events, an OpenAI-compatible `/v1`, MCP under `/mcp`.

>>> from tellback import Tellback
>>> from tellback.server import create_app
>>> app = create_app(Tellback(":memory:"))
"""

from __future__ import annotations

from tellback.errors import MissingExtraError

try:
    from tellback.server.app import create_app
    from tellback.server.settings import JwtSettings, ServerSettings
except ModuleNotFoundError as error:
    if error.name not in ("fastapi", "starlette", "uvicorn", "jwt", "prometheus_client"):
        raise
    raise MissingExtraError(str(error.name), "server", "The server") from error

__all__ = ["JwtSettings", "ServerSettings", "create_app"]
