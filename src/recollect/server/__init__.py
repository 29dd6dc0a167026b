"""The HTTP server: REST under `/ai-…`, streams by server-sent events, an OpenAI-compatible `/v1`, MCP under `/mcp`.

>>> from recollect import Recollect
>>> from recollect.server import create_app
>>> app = create_app(Recollect(":memory:"))
"""

from __future__ import annotations

from recollect.errors import MissingExtraError

try:
    from recollect.server.app import create_app
    from recollect.server.settings import JwtSettings, ServerSettings
except ModuleNotFoundError as error:
    if error.name not in ("fastapi", "starlette", "uvicorn", "jwt", "prometheus_client"):
        raise
    raise MissingExtraError(str(error.name), "server", "The server") from error

__all__ = ["JwtSettings", "ServerSettings", "create_app"]
