"""The REST routes under `/ai-…`: those of the table, with the functions that some of its operations need.

`endpoint` builds the routes; the other modules hold what is particular about a group of operations.
Only `server.app` imports this package, and the console what it shows in the same way.
"""

from __future__ import annotations

from functools import cache

from fastapi import APIRouter

from tellback.server.openai import routes as openai
from tellback.server.routes import admin, agents, conversations, events, memory, turns
from tellback.server.routes.endpoint import build_router
from tellback.wire.operations import OPERATIONS

__all__ = ["admin", "agents", "all_routers", "conversations", "events", "memory", "turns"]


@cache
def all_routers() -> list[APIRouter]:
    """Every path there is."""
    return [build_router([*OPERATIONS.values()]), openai.router]
