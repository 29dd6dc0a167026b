"""`/ai-memory/spaces/{id}/recall-…`: what is remembered, by topic, by entity, along time."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from tellback.server.answers import json_response, problem_responses, resolve_result_limit
from tellback.server.callers import Caller, CallerDep
from tellback.server.disconnects import cancel_on_disconnect
from tellback.server.idempotency import NOT_STORED
from tellback.server.route import StrictRoute
from tellback.server.routes.memory import SpaceIdPath
from tellback.wire.base import InputModel
from tellback.wire.recall import RecallByEntityInput, RecallByTopicInput, RecallResultWire, RecallTimelineInput

recall_router = APIRouter(prefix="/ai-memory/spaces/{space_id}", tags=["memory"], route_class=StrictRoute)


@recall_router.post(
    "/recall-by-topic", response_model=RecallResultWire, responses=problem_responses(404, 502), openapi_extra=NOT_STORED
)
async def recall_by_topic(
    request: Request, caller: CallerDep, space_id: SpaceIdPath, body: RecallByTopicInput
) -> Response:
    """What answers a question best, ranked by words, meaning, time, speakers, entities, age and importance."""
    work = caller.user.memory.recall_by_topic(space_id, **_recall_arguments(caller, body))
    return json_response(RecallResultWire.of(await cancel_on_disconnect(request, work)))


@recall_router.post(
    "/recall-by-entity", response_model=RecallResultWire, responses=problem_responses(404), openapi_extra=NOT_STORED
)
async def recall_by_entity(caller: CallerDep, space_id: SpaceIdPath, body: RecallByEntityInput) -> Response:
    """Everything about an entity, the newest first. A name that no entity has recalls what mentions it."""
    found = await caller.user.memory.recall_by_entity(space_id, **_recall_arguments(caller, body))
    return json_response(RecallResultWire.of(found))


@recall_router.post(
    "/recall-timeline", response_model=RecallResultWire, responses=problem_responses(404, 502), openapi_extra=NOT_STORED
)
async def recall_timeline(
    request: Request, caller: CallerDep, space_id: SpaceIdPath, body: RecallTimelineInput
) -> Response:
    """How things changed: what held at some moment from `from` to `to`, the oldest first, even if it is over."""
    work = caller.user.memory.recall_timeline(space_id, **_recall_arguments(caller, body))
    return json_response(RecallResultWire.of(await cancel_on_disconnect(request, work)))


def _recall_arguments(caller: Caller, body: InputModel) -> dict[str, Any]:
    arguments = body.arguments()
    if arguments.get("limit") is not None:
        arguments["limit"] = resolve_result_limit(caller, arguments["limit"])
    return arguments
