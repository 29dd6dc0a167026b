"""The REST routes under `/ai-…`, one module for each group of paths, and the order they are registered in.

Only `server.app` imports this package.
"""

from __future__ import annotations

from fastapi import APIRouter

from tellback.server.openai import routes as openai
from tellback.server.routes import admin, agents, conversations, events, extraction, memory, turns
from tellback.server.routes.endpoint import build_router
from tellback.wire.operations import OPERATIONS


def all_routers() -> list[APIRouter]:
    """Every path there is."""
    return [
        conversations.fixed_path_router,  # before what has an id where these have a word
        turns.router,
        conversations.router,
        build_router([*OPERATIONS.values()]),
        extraction.bindings_router,
        extraction.jobs_router,
        events.router,
        memory.working_context_router,
        agents.router,
        agents.sessions_router,
        admin.router,
        admin.keys_router,
        openai.router,
    ]
