"""`/health/live` and `/health/ready`: for whoever restarts processes, and whoever sends them requests."""

from __future__ import annotations

import asyncio
import time

from fastapi import APIRouter, Request, Response
from pydantic import Field

from tellback.app import Tellback
from tellback.errors import StoreError
from tellback.server.answers import answer, problems
from tellback.server.problems import problem, request_id_of
from tellback.wire.base import Wire

STORE_SECONDS = 2.0
"""How long the store may take to answer."""

HOLD_SECONDS = 1.0
"""For how long an answer holds: probes, which need no credential, cannot load the store."""

router = APIRouter(prefix="/health", tags=["operations"])


class Health(Wire):
    """That a server does what is asked for."""

    status: str = Field(examples=["live", "ready"])


@router.get("/live", response_model=Health)
async def live() -> Response:
    """Answers for as long as the process does. If it does not, restart it."""
    return answer(Health(status="live"))


@router.get("/ready", response_model=Health, responses=problems())
async def ready(request: Request) -> Response:
    """Whether requests should be sent here: the store answers, and the server is not stopping."""
    readiness: Readiness = request.app.state.readiness
    missing = "The server is stopping." if request.app.state.stopping.is_set else await readiness.missing()
    if missing is None:
        return answer(Health(status="ready"), headers={"Cache-Control": "no-store"})
    headers = {"Retry-After": "1", "Cache-Control": "no-store"}
    return problem(503, "not-ready", missing, request_id=request_id_of(request), headers=headers)


class Readiness:
    """Whether a Tellback can work. Opening it has migrated its store; this asks whether the store answers now."""

    def __init__(self, rc: Tellback) -> None:
        self._rc = rc
        self._asking = asyncio.Lock()
        self._asked = float("-inf")
        self._missing: str | None = None

    async def missing(self) -> str | None:
        """What is missing, in a sentence; None if nothing is."""
        async with self._asking:
            if time.monotonic() - self._asked > HOLD_SECONDS:
                self._missing = await self._ask()
                self._asked = time.monotonic()
        return self._missing

    async def _ask(self) -> str | None:
        try:
            async with asyncio.timeout(STORE_SECONDS):
                await self._rc.store.events.latest()
        except TimeoutError:
            return f"The store did not answer within {STORE_SECONDS:g} seconds."
        except StoreError as error:
            return f"The store cannot be used now ({type(error).__name__})."
        return None
