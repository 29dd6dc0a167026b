"""`/ai-memory`: entities, what memories are about."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from tellback.conversations import checks
from tellback.errors import InvalidArgumentError, NotFoundError
from tellback.server.answers import CursorIs, LimitIs, answer, page, page_limit, problems, read_cursor
from tellback.server.callers import CallerIs, UserIs
from tellback.server.route import Route
from tellback.server.routes.memory import SpaceIs
from tellback.wire.base import Page
from tellback.wire.bounds import EntityTypeIn
from tellback.wire.memory import CreateEntity, EntityWire, MergeEntity

router = APIRouter(prefix="/ai-memory", tags=["memory"], route_class=Route)

EntityIs = Annotated[str, Path(max_length=200, examples=["ent_018f3c0de0a17b2c4d5e6f708192"])]
TypeIs = Annotated[EntityTypeIn | None, Query(description="Of all types, if not said.")]
QueryIs = Annotated[
    str | None,
    Query(
        max_length=checks.QUERY_LENGTH, description="A part of a name; an empty one ranks those most spoken of first."
    ),
]


@router.post("/spaces/{space_id}/entities", status_code=201, response_model=EntityWire, responses=problems(404))
async def create_entity(user: UserIs, space_id: SpaceIs, body: CreateEntity) -> Response:
    """Make an entity that atoms can be about."""
    return answer(EntityWire.of(await user.memory.create_entity(space_id, **body.arguments())), 201)


@router.get("/spaces/{space_id}/entities", response_model=Page[EntityWire], responses=problems(404))
async def search_entities(
    caller: CallerIs,
    space_id: SpaceIs,
    query: QueryIs = None,
    type: TypeIs = None,
    limit: LimitIs = None,
    cursor: CursorIs = None,
) -> Response:
    """All entities, the oldest first; with a query, those whose names or description match, the best first.

    What matches is ranked anew for each page: what changes meanwhile may move an entity to another page.
    """
    most, place, memory = page_limit(caller, limit), read_cursor(cursor), caller.user.memory
    if query is None:
        after = checks.optional_text("cursor", place, checks.KEY_LENGTH)
        found = await memory.list_entities(space_id, type, most + 1, after=after)
        return page(EntityWire, found, most, lambda entity: str(entity.id))
    shown = _count(place)
    ranked = await memory.search_entities(space_id, query, type, shown + most + 1)
    return page(EntityWire, ranked[shown:], most, lambda _: str(shown + most))


@router.get("/spaces/{space_id}/entities/by-name", response_model=EntityWire, responses=problems(404))
async def find_entity_by_name(
    user: UserIs, space_id: SpaceIs, name: Annotated[str, Query(max_length=500)], type: TypeIs = None
) -> Response:
    """The entity called that, by its own name or by an alias; case, accents and spacing do not matter."""
    found = await user.memory.find_entity_by_name(space_id, type, name)
    if found is None:
        raise NotFoundError("entity", name)
    return answer(EntityWire.of(found))


@router.get("/entities/{id}", response_model=EntityWire, responses=problems(404))
async def get_entity(user: UserIs, id: EntityIs) -> Response:
    """An entity, also one that was merged: `mergedInto` names the one that stands for it."""
    found = await user.memory.get_entity(id)
    if found is None:
        raise NotFoundError("entity", id)
    return answer(EntityWire.of(found))


@router.post("/entities/{id}/merge", response_model=EntityWire, responses=problems(404))
async def merge_entities(user: UserIs, id: EntityIs, body: MergeEntity) -> Response:
    """Let this entity stand for another: atoms about the alias become atoms about it, and the names are kept."""
    return answer(EntityWire.of(await user.memory.merge_entities(id, body.alias_id)))


def _count(place: str | None) -> int:
    """How many of a ranked list have been shown."""
    if place is None:
        return 0
    if not (place.isascii() and place.isdecimal()) or len(place) > 9:
        raise InvalidArgumentError("cursor is what nextCursor of the page before was.")
    return int(place)
