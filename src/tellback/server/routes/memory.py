"""`/ai-memory/spaces`: the parts of a user's memory."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from tellback.errors import NotFoundError
from tellback.server.answers import (
    CursorParam,
    LimitParam,
    decode_cursor,
    json_response,
    list_page_response,
    no_content,
    problem_responses,
    resolve_page_size,
)
from tellback.server.callers import CallerDep, UserDep
from tellback.server.route import StrictRoute
from tellback.wire.base import Page
from tellback.wire.memory import CreateSpace, SpaceWire

spaces_router = APIRouter(prefix="/ai-memory", tags=["memory"], route_class=StrictRoute)

SpaceIdPath = Annotated[str, Path(max_length=200, examples=["ms_018f3c0de0a17b2c4d5e6f708192"])]


@spaces_router.post("/spaces", status_code=201, response_model=SpaceWire, responses=problem_responses())
async def create_space(user: UserDep, body: CreateSpace) -> Response:
    """Make a space. With `once`, the first space of that name is given back if there is one."""
    return json_response(SpaceWire.of(await user.memory.create_space(**body.arguments())), 201)


@spaces_router.get("/spaces", response_model=Page[SpaceWire], responses=problem_responses())
async def list_spaces(
    caller: CallerDep,
    name: Annotated[str | None, Query(max_length=200)] = None,
    limit: LimitParam = None,
    cursor: CursorParam = None,
) -> Response:
    """The user's spaces, the oldest first; with a name, those called that."""
    found = await caller.user.memory.list_spaces(name)
    return list_page_response(SpaceWire, found, resolve_page_size(caller, limit), decode_cursor(cursor))


@spaces_router.get("/spaces/{id}", response_model=SpaceWire, responses=problem_responses(404))
async def get_space(user: UserDep, id: SpaceIdPath) -> Response:
    """A space."""
    found = await user.memory.get_space(id)
    if found is None:
        raise NotFoundError("space", id)
    return json_response(SpaceWire.of(found))


@spaces_router.delete("/spaces/{id}", status_code=204, responses=problem_responses(404))
async def delete_space(user: UserDep, id: SpaceIdPath) -> Response:
    """Hide a space with all that is in it."""
    await user.memory.delete_space(id)
    return no_content()
