"""The REST interface, one module for each path."""

from __future__ import annotations

from fastapi import APIRouter

from tellback.server.openai import routes as openai
from tellback.server.routes import (
    admin,
    agents,
    atoms,
    bindings,
    conversation_tasks,
    conversations,
    entities,
    events,
    jobs,
    keys,
    memory,
    operating,
    recall,
    sessions,
    turns,
    working_context,
)


def all_routers() -> list[APIRouter]:
    """Every path there is."""
    return [
        conversation_tasks.fixed_path_router,  # before what has an id where these have a word
        turns.router,
        conversations.router,
        memory.spaces_router,
        atoms.atoms_router,
        entities.entities_router,
        recall.recall_router,
        bindings.bindings_router,
        jobs.jobs_router,
        events.router,
        working_context.working_context_router,
        agents.router,
        sessions.router,
        admin.user_data_router,
        operating.operators_router,
        keys.keys_router,
        openai.router,
    ]
