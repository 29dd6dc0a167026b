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
        conversation_tasks.router,  # before what has an id where these have a word
        turns.router,
        conversations.router,
        memory.router,
        atoms.router,
        entities.router,
        recall.router,
        bindings.router,
        jobs.router,
        events.router,
        working_context.router,
        agents.router,
        sessions.router,
        admin.router,
        operating.router,
        keys.router,
        openai.router,
    ]
