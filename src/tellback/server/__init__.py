"""The HTTP server: REST under `/ai-…` with server-sent events, an OpenAI-compatible `/v1`, and MCP under `/mcp`.

>>> from tellback import Tellback
>>> from tellback.server import create_app
>>> app = create_app(Tellback(":memory:"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tellback.errors import MissingExtraError
from tellback.server.settings import JwtSettings, ServerSettings

if TYPE_CHECKING:
    from tellback.server.app import create_app

__all__ = ["JwtSettings", "ServerSettings", "create_app"]


def __getattr__(name: str) -> Any:
    if name != "create_app":  # the command line imports the settings without FastAPI
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from tellback.server.app import create_app
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "starlette", "uvicorn", "jwt", "prometheus_client"):
            raise
        raise MissingExtraError(str(error.name), "server", "The server") from error
    return create_app
