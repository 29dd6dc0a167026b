"""`/ai-memory`: atoms, the things that are remembered."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field

from tellback.errors import NotFoundError
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
from tellback.server.citing import validate_sources
from tellback.server.idempotency import LONG_RUNNING
from tellback.server.route import StrictRoute
from tellback.server.routes.memory import SpaceIdPath
from tellback.wire.base import Page
from tellback.wire.bounds import AtomStatusIn, DatetimeIn
from tellback.wire.memory import AddAtom, AddAtoms, AtomWire, RememberConversation, SupersedeAtom
from tellback.wire.recall import MAX_CATEGORIES

atoms_router = APIRouter(prefix="/ai-memory", tags=["memory"], route_class=StrictRoute)

AtomIdPath = Annotated[str, Path(max_length=200, examples=["atom_018f3c0de0a17b2c4d5e6f708192"])]
CategoryName = Annotated[str, Field(max_length=200)]


@atoms_router.post(
    "/spaces/{space_id}/atoms", status_code=201, response_model=AtomWire, responses=problem_responses(404, 502)
)
async def add_atom(user: UserDep, space_id: SpaceIdPath, body: AddAtom) -> Response:
    """Remember something. What it cites must be the user's own."""
    arguments = body.arguments()
    await validate_sources(user, [arguments])
    return json_response(AtomWire.of(await user.memory.add_atom(space_id, **arguments)), 201)


@atoms_router.post(
    "/spaces/{space_id}/atoms/batch",
    status_code=201,
    response_model=Page[AtomWire],
    responses=problem_responses(404, 502),
)
async def add_atoms(user: UserDep, space_id: SpaceIdPath, body: AddAtoms) -> Response:
    """Remember many things in one transaction, for imports: all are stored, or none."""
    atoms = body.arguments()["atoms"]
    await validate_sources(user, atoms)
    return _atoms_response(await user.memory.add_atoms(space_id, atoms), 201)


@atoms_router.get("/spaces/{space_id}/atoms", response_model=Page[AtomWire], responses=problem_responses(404))
async def list_atoms(
    caller: CallerDep,
    space_id: SpaceIdPath,
    category: Annotated[
        list[CategoryName] | None,
        Query(max_length=MAX_CATEGORIES, description="A category's name; it may be given often."),
    ] = None,
    status: Annotated[AtomStatusIn | None, Query(description="ACTIVE, if not said.")] = None,
    valid_at: Annotated[DatetimeIn | None, Query(alias="validAt", description="What held at that moment.")] = None,
    known_at: Annotated[DatetimeIn | None, Query(alias="knownAt", description="What was known then.")] = None,
    include_superseded: Annotated[bool, Query(alias="includeSuperseded")] = False,
    limit: LimitParam = None,
    cursor: CursorParam = None,
) -> Response:
    """Atoms, the newest first: those that are not over or, with `validAt`, those that held at that moment."""
    page_size = resolve_page_size(caller, limit)
    found = await caller.user.memory.list_atoms(
        space_id,
        status=status,
        valid_at=valid_at,
        limit=page_size + 1,
        known_at=known_at,
        categories=category,
        include_superseded=include_superseded,
        before=decode_cursor(cursor),
    )
    return page_response(AtomWire, found, page_size, lambda atom: str(atom.id))


@atoms_router.get("/atoms/{id}", response_model=AtomWire, responses=problem_responses(404))
async def get_atom(user: UserDep, id: AtomIdPath) -> Response:
    """An atom, whatever its status."""
    found = await user.memory.get_atom(id)
    if found is None:
        raise NotFoundError("atom", id)
    return json_response(AtomWire.of(found))


@atoms_router.delete("/atoms/{id}", response_model=AtomWire, responses=problem_responses(404))
async def delete_atom(user: UserDep, id: AtomIdPath) -> Response:
    """Forget an atom: it is never recalled again."""
    return json_response(AtomWire.of(await user.memory.delete_atom(id)))


@atoms_router.post(
    "/atoms/{id}/supersede", status_code=201, response_model=AtomWire, responses=problem_responses(404, 409, 502)
)
async def supersede_atom(user: UserDep, id: AtomIdPath, body: SupersedeAtom) -> Response:
    """Put a new atom in an old one's place: the old one held until the new one's `validFrom` (now, if not said).

    Only the last atom of a chain can be superseded; `data.superseded_by` of the problem names what took its place.
    """
    arguments = body.arguments()
    await validate_sources(user, [arguments])
    return json_response(AtomWire.of(await user.memory.supersede_atom(id, **arguments)), 201)


@atoms_router.post("/atoms/{id}/archive", response_model=AtomWire, responses=problem_responses(404))
async def archive_atom(user: UserDep, id: AtomIdPath) -> Response:
    """Put an atom aside: it is kept, and recalled only when asked for."""
    return json_response(AtomWire.of(await user.memory.archive_atom(id)))


@atoms_router.post("/atoms/{id}/restore", response_model=AtomWire, responses=problem_responses(404))
async def restore_atom(user: UserDep, id: AtomIdPath) -> Response:
    """Bring back what was archived."""
    return json_response(AtomWire.of(await user.memory.restore_atom(id)))


@atoms_router.post(
    "/spaces/{space_id}/remember-conversation",
    response_model=Page[AtomWire],
    responses=problem_responses(404, 502),
    openapi_extra=LONG_RUNNING,
)
async def remember_conversation(user: UserDep, space_id: SpaceIdPath, body: RememberConversation) -> Response:
    """Remember a conversation word for word, without any model: each message becomes a dated, cited EPISODE atom.

    Doing it again adds only what was said since. Gives all of its atoms.
    """
    if await user.memory.get_space(space_id) is None:
        raise NotFoundError("space", space_id)
    return _atoms_response(await user.memory.remember_conversation(space_id, **body.arguments()))


def _atoms_response(atoms: list[Any], status: int = 200) -> Response:
    return json_response(Page[Any](items=[AtomWire.of(atom) for atom in atoms]), status)
