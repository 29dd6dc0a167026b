"""The REST routes under `/ai-…`: those of the table, with the functions that some of its operations need.

`endpoint` builds the routes; the other modules hold what is particular about a group of operations.
Only `server.app` imports this package, and the console what it shows in the same way.
"""

from __future__ import annotations

from functools import cache

from fastapi import APIRouter

from tellback.server.openai import routes as openai
from tellback.server.routes import admin as admin
from tellback.server.routes import agents, events, turns
from tellback.server.routes import conversations as conversations
from tellback.server.routes import extraction as extraction
from tellback.server.routes import memory as memory
from tellback.server.routes.endpoint import build_router
from tellback.wire.operations import OPERATIONS


@cache
def all_routers() -> list[APIRouter]:
    """Every path there is."""
    return [
        turns.router,
        build_router([*OPERATIONS.values()]),
        events.router,
        agents.router,
        agents.sessions_router,
        openai.router,
    ]
