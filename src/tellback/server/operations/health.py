"""`/health/live` and `/health/ready`: liveness and readiness probes."""

from __future__ import annotations

import asyncio
import time

from fastapi import APIRouter, Request, Response
from pydantic import Field

from tellback.app import Tellback
from tellback.errors import StoreError
from tellback.server.problems import get_request_id, problem_response
from tellback.server.responses import json_response, problem_responses
from tellback.wire.base import WireModel

STORE_TIMEOUT_SECONDS = 2.0
"""Timeout of the store check."""

CACHE_SECONDS = 1.0
"""How long a result is cached, so that unauthenticated probes cannot overload the store."""

router = APIRouter(prefix="/health", tags=["operations"])


class Health(WireModel):
    """The status of the server."""

    status: str = Field(examples=["live", "ready"])


@router.get("/live", response_model=Health)
async def live() -> Response:
    """Report that the process is alive. If this fails, restart the process."""
    return json_response(Health(status="live"))


@router.get("/ready", response_model=Health, responses=problem_responses())
async def ready(request: Request) -> Response:
    """Report whether the server can handle requests: the store responds and the server is not shutting down."""
    readiness: Readiness = request.app.state.readiness
    reason = "Shutting down." if request.app.state.stopping.is_set else await readiness.unavailable_reason()
    if reason is None:
        return json_response(Health(status="ready"), headers={"Cache-Control": "no-store"})
    headers = {"Retry-After": "1", "Cache-Control": "no-store"}
    return problem_response(503, "not-ready", reason, request_id=get_request_id(request), headers=headers)


class Readiness:
    """Checks that the store responds. Its schema is already migrated, because the Tellback is open."""

    def __init__(self, tb: Tellback) -> None:
        self._tb = tb
        self._lock = asyncio.Lock()
        self._checked_at = float("-inf")
        self._reason: str | None = None

    async def unavailable_reason(self) -> str | None:
        """Return why the server is not ready, or None if it is."""
        async with self._lock:
            if time.monotonic() - self._checked_at > CACHE_SECONDS:
                self._reason = await self._check_store()
                self._checked_at = time.monotonic()
        return self._reason

    async def _check_store(self) -> str | None:
        try:
            async with asyncio.timeout(STORE_TIMEOUT_SECONDS):
                await self._tb.store.events.latest()
        except TimeoutError:
            return f"The store did not answer within {STORE_TIMEOUT_SECONDS:g} seconds."
        except StoreError as error:
            return f"The store is unavailable ({type(error).__name__})."
        return None
