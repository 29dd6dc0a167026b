"""`/ai-working-context`: what a model should know before it answers."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from recollect.server.answers import answer, problems
from recollect.server.callers import UserIs
from recollect.server.disconnects import while_awaited
from recollect.server.idempotency import UNKEPT
from recollect.server.route import Route
from recollect.wire.context import BuildWorkingContext, WorkingContextWire

router = APIRouter(prefix="/ai-working-context", tags=["working context"], route_class=Route)


@router.post("", response_model=WorkingContextWire, responses=problems(404, 502), openapi_extra=UNKEPT)
async def build_working_context(request: Request, user: UserIs, body: BuildWorkingContext) -> Response:
    """Put together the rolling summary, always-on memories, recalled memories and recent turns, within a token budget.

    Over budget, the oldest turns go first, then the weakest memories that were recalled.
    """
    given = {"conversation_id": None, **body.arguments()}
    return answer(WorkingContextWire.of(await while_awaited(request, user.working_context.build(**given))))
