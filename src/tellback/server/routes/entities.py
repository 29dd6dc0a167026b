"""`/ai-memory`: entities, what memories are about."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from tellback.conversations import checks
from tellback.errors import InvalidArgumentError, NotFoundError
from tellback.server.answers import (
    CursorParam,
    LimitParam,
    decode_cursor,
    json_response,
    page_response,
    problem_responses,
    resolve_page_size,
)
from tellback.server.callers import CallerDep, UserDep
from tellback.server.route import StrictRoute
from tellback.server.routes.memory import SpaceIdPath
from tellback.wire.base import Page
from tellback.wire.bounds import EntityTypeIn
from tellback.wire.memory import CreateEntity, EntityWire, MergeEntity

entities_router = APIRouter(prefix="/ai-memory", tags=["memory"], route_class=StrictRoute)

EntityIdPath = Annotated[str, Path(max_length=200, examples=["ent_018f3c0de0a17b2c4d5e6f708192"])]
EntityTypeParam = Annotated[EntityTypeIn | None, Query(description="Of all types, if not said.")]
EntityQueryParam = Annotated[
    str | None,
    Query(
        max_length=checks.QUERY_LENGTH, description="A part of a name; an empty one ranks those most spoken of first."
    ),
]


@entities_router.post(
    "/spaces/{space_id}/entities", status_code=201, response_model=EntityWire, responses=problem_responses(404)
)
async def create_entity(user: UserDep, space_id: SpaceIdPath, body: CreateEntity) -> Response:
    """Make an entity that atoms can be about."""
    return json_response(EntityWire.of(await user.memory.create_entity(space_id, **body.arguments())), 201)


@entities_router.get("/spaces/{space_id}/entities", response_model=Page[EntityWire], responses=problem_responses(404))
async def search_entities(
    caller: CallerDep,
    space_id: SpaceIdPath,
    query: EntityQueryParam = None,
    type: EntityTypeParam = None,
    limit: LimitParam = None,
    cursor: CursorParam = None,
) -> Response:
    """All entities, the oldest first; with a query, those whose names or description match, the best first.

    What matches is ranked anew for each page: what changes meanwhile may move an entity to another page.
    """
    page_size, position, memory = resolve_page_size(caller, limit), decode_cursor(cursor), caller.user.memory
    if query is None:
        after = checks.validate_optional_text("cursor", position, checks.KEY_LENGTH)
        found = await memory.list_entities(space_id, type, page_size + 1, after=after)
        return page_response(EntityWire, found, page_size, lambda entity: str(entity.id))
    offset = _parse_offset(position)
    ranked = await memory.search_entities(space_id, query, type, offset + page_size + 1)
    return page_response(EntityWire, ranked[offset:], page_size, lambda _: str(offset + page_size))


@entities_router.get("/spaces/{space_id}/entities/by-name", response_model=EntityWire, responses=problem_responses(404))
async def find_entity_by_name(
    user: UserDep, space_id: SpaceIdPath, name: Annotated[str, Query(max_length=500)], type: EntityTypeParam = None
) -> Response:
    """The entity called that, by its own name or by an alias; case, accents and spacing do not matter."""
    found = await user.memory.find_entity_by_name(space_id, type, name)
    if found is None:
        raise NotFoundError("entity", name)
    return json_response(EntityWire.of(found))


@entities_router.get("/entities/{id}", response_model=EntityWire, responses=problem_responses(404))
async def get_entity(user: UserDep, id: EntityIdPath) -> Response:
    """An entity, also one that was merged: `mergedInto` names the one that stands for it."""
    found = await user.memory.get_entity(id)
    if found is None:
        raise NotFoundError("entity", id)
    return json_response(EntityWire.of(found))


@entities_router.post("/entities/{id}/merge", response_model=EntityWire, responses=problem_responses(404))
async def merge_entities(user: UserDep, id: EntityIdPath, body: MergeEntity) -> Response:
    """Let this entity stand for another: atoms about the alias become atoms about it, and the names are kept."""
    return json_response(EntityWire.of(await user.memory.merge_entities(id, body.alias_id)))


def _parse_offset(position: str | None) -> int:
    """How many of a ranked list have been shown."""
    if position is None:
        return 0
    if not (position.isascii() and position.isdecimal()) or len(position) > 9:
        raise InvalidArgumentError("cursor is what nextCursor of the page before was.")
    return int(position)
