"""`/ai-memory/spaces/{id}/recall-…`: what is remembered, by topic, by entity, along time."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from tellback.server.answers import answer, problems, whole_limit
from tellback.server.callers import Caller, CallerIs
from tellback.server.disconnects import while_awaited
from tellback.server.idempotency import UNKEPT
from tellback.server.route import Route
from tellback.server.routes.memory import SpaceIs
from tellback.wire.base import Input
from tellback.wire.recall import RecallByEntity, RecallByTopic, RecallResultWire, RecallTimeline

router = APIRouter(prefix="/ai-memory/spaces/{space_id}", tags=["memory"], route_class=Route)


@router.post("/recall-by-topic", response_model=RecallResultWire, responses=problems(404, 502), openapi_extra=UNKEPT)
async def recall_by_topic(request: Request, caller: CallerIs, space_id: SpaceIs, body: RecallByTopic) -> Response:
    """What answers a question best, ranked by words, meaning, time, speakers, entities, age and importance."""
    work = caller.user.memory.recall_by_topic(space_id, **_arguments(caller, body))
    return answer(RecallResultWire.of(await while_awaited(request, work)))


@router.post("/recall-by-entity", response_model=RecallResultWire, responses=problems(404), openapi_extra=UNKEPT)
async def recall_by_entity(caller: CallerIs, space_id: SpaceIs, body: RecallByEntity) -> Response:
    """Everything about an entity, the newest first. A name that no entity has recalls what mentions it."""
    found = await caller.user.memory.recall_by_entity(space_id, **_arguments(caller, body))
    return answer(RecallResultWire.of(found))


@router.post("/recall-timeline", response_model=RecallResultWire, responses=problems(404, 502), openapi_extra=UNKEPT)
async def recall_timeline(request: Request, caller: CallerIs, space_id: SpaceIs, body: RecallTimeline) -> Response:
    """How things changed: what held at some moment from `from` to `to`, the oldest first, even if it is over."""
    work = caller.user.memory.recall_timeline(space_id, **_arguments(caller, body))
    return answer(RecallResultWire.of(await while_awaited(request, work)))


def _arguments(caller: Caller, body: Input) -> dict[str, Any]:
    given = body.arguments()
    if given.get("limit") is not None:
        given["limit"] = whole_limit(caller, given["limit"])
    return given
