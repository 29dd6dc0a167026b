"""The REST interface, one module for each path."""

from __future__ import annotations

from fastapi import APIRouter

from tellback.server.openai import routes as openai
from tellback.server.routes import admin, agents, conversations, events, extraction, memory, turns


def all_routers() -> list[APIRouter]:
    """Every path there is."""
    return [
        conversations.fixed_path_router,  # before what has an id where these have a word
        turns.router,
        conversations.router,
        memory.spaces_router,
        memory.atoms_router,
        memory.entities_router,
        memory.recall_router,
        extraction.bindings_router,
        extraction.jobs_router,
        events.router,
        memory.working_context_router,
        agents.router,
        agents.sessions_router,
        admin.user_data_router,
        admin.operators_router,
        admin.keys_router,
        openai.router,
    ]
