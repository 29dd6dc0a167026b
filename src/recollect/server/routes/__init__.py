"""The REST interface, one module for each path."""

from __future__ import annotations

from fastapi import APIRouter

from recollect.server.routes import conversations


def all_routers() -> list[APIRouter]:
    """Every path there is."""
    return [conversations.router]
