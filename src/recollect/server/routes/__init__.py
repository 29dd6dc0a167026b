"""The REST interface, one module for each path."""

from __future__ import annotations

from fastapi import APIRouter

from recollect.server.routes import (
    admin,
    atoms,
    bindings,
    conversation_tasks,
    conversations,
    entities,
    jobs,
    keys,
    memory,
    operating,
    recall,
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
        working_context.router,
        admin.router,
        operating.router,
        keys.router,
    ]
