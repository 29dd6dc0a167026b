"""`/ai-working-context`: what a model should know before it answers."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from tellback.server.answers import json_response, problem_responses
from tellback.server.callers import UserDep
from tellback.server.disconnects import cancel_on_disconnect
from tellback.server.idempotency import NOT_STORED
from tellback.server.route import StrictRoute
from tellback.wire.context import BuildWorkingContext, WorkingContextWire

working_context_router = APIRouter(prefix="/ai-working-context", tags=["working context"], route_class=StrictRoute)


@working_context_router.post(
    "", response_model=WorkingContextWire, responses=problem_responses(404, 502), openapi_extra=NOT_STORED
)
async def build_working_context(request: Request, user: UserDep, body: BuildWorkingContext) -> Response:
    """Put together the rolling summary, always-on memories, recalled memories and recent turns, within a token budget.

    Over budget, the oldest turns go first, then the weakest memories that were recalled.
    """
    arguments = {"conversation_id": None, **body.arguments()}
    return json_response(
        WorkingContextWire.of(await cancel_on_disconnect(request, user.working_context.build(**arguments)))
    )
