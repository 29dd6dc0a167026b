"""`/ai-working-context`: what a model should know before it answers."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from tellback.server.answers import answer, problems
from tellback.server.callers import UserIs
from tellback.server.disconnects import while_awaited
from tellback.server.idempotency import UNKEPT
from tellback.server.route import Route
from tellback.wire.context import BuildWorkingContext, WorkingContextWire

router = APIRouter(prefix="/ai-working-context", tags=["working context"], route_class=Route)


@router.post("", response_model=WorkingContextWire, responses=problems(404, 502), openapi_extra=UNKEPT)
async def build_working_context(request: Request, user: UserIs, body: BuildWorkingContext) -> Response:
    """Put together the rolling summary, always-on memories, recalled memories and recent turns, within a token budget.

    Over budget, the oldest turns go first, then the weakest memories that were recalled.
    """
    given = {"conversation_id": None, **body.arguments()}
    return answer(WorkingContextWire.of(await while_awaited(request, user.working_context.build(**given))))
