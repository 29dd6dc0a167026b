"""`/ai-memory/spaces`: the parts of a user's memory."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from tellback.errors import NotFoundError
from tellback.server.answers import (
    CursorIs,
    LimitIs,
    answer,
    nothing,
    page_limit,
    page_of_all,
    problems,
    read_cursor,
)
from tellback.server.callers import CallerIs, UserIs
from tellback.server.route import Route
from tellback.wire.base import Page
from tellback.wire.memory import CreateSpace, SpaceWire

router = APIRouter(prefix="/ai-memory", tags=["memory"], route_class=Route)

SpaceIs = Annotated[str, Path(max_length=200, examples=["ms_018f3c0de0a17b2c4d5e6f708192"])]


@router.post("/spaces", status_code=201, response_model=SpaceWire, responses=problems())
async def create_space(user: UserIs, body: CreateSpace) -> Response:
    """Make a space. With `once`, the first space of that name is given back if there is one."""
    return answer(SpaceWire.of(await user.memory.create_space(**body.arguments())), 201)


@router.get("/spaces", response_model=Page[SpaceWire], responses=problems())
async def list_spaces(
    caller: CallerIs,
    name: Annotated[str | None, Query(max_length=200)] = None,
    limit: LimitIs = None,
    cursor: CursorIs = None,
) -> Response:
    """The user's spaces, the oldest first; with a name, those called that."""
    found = await caller.user.memory.list_spaces(name)
    return page_of_all(SpaceWire, found, page_limit(caller, limit), read_cursor(cursor))


@router.get("/spaces/{id}", response_model=SpaceWire, responses=problems(404))
async def get_space(user: UserIs, id: SpaceIs) -> Response:
    """A space."""
    found = await user.memory.get_space(id)
    if found is None:
        raise NotFoundError("space", id)
    return answer(SpaceWire.of(found))


@router.delete("/spaces/{id}", status_code=204, responses=problems(404))
async def delete_space(user: UserIs, id: SpaceIs) -> Response:
    """Hide a space with all that is in it."""
    await user.memory.delete_space(id)
    return nothing()
