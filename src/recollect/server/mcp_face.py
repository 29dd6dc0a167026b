"""`/mcp`: the MCP server over streamable HTTP, for the user of each request's credential."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from starlette.routing import Route

from recollect.errors import MissingExtraError
from recollect.server.callers import Caller
from recollect.server.settings import ServerSettings
from recollect.user import User

if TYPE_CHECKING:
    from recollect.mcp import McpApp

PATH = "/mcp"


def add_mcp(app: FastAPI, settings: ServerSettings) -> McpApp | None:
    """Serve MCP if its extra is installed. What is given must be `running()` while requests are answered."""
    try:
        from recollect.mcp import http_app
    except MissingExtraError:
        return None
    # The guard has looked at the host and the credential; pages of other origins are refused here as well.
    face = http_app(
        _user, allowed_hosts=None, allowed_origins=settings.cors_origins, max_body_bytes=settings.body_bytes
    )
    app.router.routes.append(Route(PATH, endpoint=face))
    return face


def _user(scope: Mapping[str, Any]) -> User:
    caller: Caller = scope["state"]["caller"]
    return caller.user
