"""The REST routes under `/ai-…`, built from the operation table, with custom functions for some operations.

`endpoint` builds the routes; the other modules contain the custom parts of each group of operations. Only `server.app`
and the console import this package. The console uses it for downloads and for the view of jobs.
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
    """Return the routers of all paths."""
    return [build_router([*OPERATIONS.values()]), openai.router]
