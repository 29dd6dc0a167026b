"""`/ai-memory`: atoms, the things that are remembered."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field

from tellback.errors import NotFoundError
from tellback.server.answers import CursorIs, LimitIs, answer, page, page_limit, problems, read_cursor
from tellback.server.callers import CallerIs, UserIs
from tellback.server.citing import check_sources
from tellback.server.idempotency import TURN
from tellback.server.route import Route
from tellback.server.routes.memory import SpaceIs
from tellback.wire.base import Page
from tellback.wire.bounds import AtomStatusIn, MomentIn
from tellback.wire.memory import AddAtom, AddAtoms, AtomWire, RememberConversation, SupersedeAtom
from tellback.wire.recall import MOST_CATEGORIES

router = APIRouter(prefix="/ai-memory", tags=["memory"], route_class=Route)

AtomIs = Annotated[str, Path(max_length=200, examples=["atom_018f3c0de0a17b2c4d5e6f708192"])]
NameIs = Annotated[str, Field(max_length=200)]


@router.post("/spaces/{space_id}/atoms", status_code=201, response_model=AtomWire, responses=problems(404, 502))
async def add_atom(user: UserIs, space_id: SpaceIs, body: AddAtom) -> Response:
    """Remember something. What it cites must be the user's own."""
    given = body.arguments()
    await check_sources(user, [given])
    return answer(AtomWire.of(await user.memory.add_atom(space_id, **given)), 201)


@router.post(
    "/spaces/{space_id}/atoms/batch", status_code=201, response_model=Page[AtomWire], responses=problems(404, 502)
)
async def add_atoms(user: UserIs, space_id: SpaceIs, body: AddAtoms) -> Response:
    """Remember many things in one transaction, for imports: all are stored, or none."""
    given = body.arguments()["atoms"]
    await check_sources(user, given)
    return _all(await user.memory.add_atoms(space_id, given), 201)


@router.get("/spaces/{space_id}/atoms", response_model=Page[AtomWire], responses=problems(404))
async def list_atoms(
    caller: CallerIs,
    space_id: SpaceIs,
    category: Annotated[
        list[NameIs] | None, Query(max_length=MOST_CATEGORIES, description="A category's name; it may be given often.")
    ] = None,
    status: Annotated[AtomStatusIn | None, Query(description="ACTIVE, if not said.")] = None,
    valid_at: Annotated[MomentIn | None, Query(alias="validAt", description="What held at that moment.")] = None,
    known_at: Annotated[MomentIn | None, Query(alias="knownAt", description="What was known then.")] = None,
    include_superseded: Annotated[bool, Query(alias="includeSuperseded")] = False,
    limit: LimitIs = None,
    cursor: CursorIs = None,
) -> Response:
    """Atoms, the newest first: those that are not over or, with `validAt`, those that held at that moment."""
    most = page_limit(caller, limit)
    found = await caller.user.memory.list_atoms(
        space_id,
        status=status,
        valid_at=valid_at,
        limit=most + 1,
        known_at=known_at,
        categories=category,
        include_superseded=include_superseded,
        before=read_cursor(cursor),
    )
    return page(AtomWire, found, most, lambda atom: str(atom.id))


@router.get("/atoms/{id}", response_model=AtomWire, responses=problems(404))
async def get_atom(user: UserIs, id: AtomIs) -> Response:
    """An atom, whatever its status."""
    found = await user.memory.get_atom(id)
    if found is None:
        raise NotFoundError("atom", id)
    return answer(AtomWire.of(found))


@router.delete("/atoms/{id}", response_model=AtomWire, responses=problems(404))
async def delete_atom(user: UserIs, id: AtomIs) -> Response:
    """Forget an atom: it is never recalled again."""
    return answer(AtomWire.of(await user.memory.delete_atom(id)))


@router.post("/atoms/{id}/supersede", status_code=201, response_model=AtomWire, responses=problems(404, 409, 502))
async def supersede_atom(user: UserIs, id: AtomIs, body: SupersedeAtom) -> Response:
    """Put a new atom in an old one's place: the old one held until the new one's `validFrom` (now, if not said).

    Only the last atom of a chain can be superseded; `data.superseded_by` of the problem names what took its place.
    """
    given = body.arguments()
    await check_sources(user, [given])
    return answer(AtomWire.of(await user.memory.supersede_atom(id, **given)), 201)


@router.post("/atoms/{id}/archive", response_model=AtomWire, responses=problems(404))
async def archive_atom(user: UserIs, id: AtomIs) -> Response:
    """Put an atom aside: it is kept, and recalled only when asked for."""
    return answer(AtomWire.of(await user.memory.archive_atom(id)))


@router.post("/atoms/{id}/restore", response_model=AtomWire, responses=problems(404))
async def restore_atom(user: UserIs, id: AtomIs) -> Response:
    """Bring back what was archived."""
    return answer(AtomWire.of(await user.memory.restore_atom(id)))


@router.post(
    "/spaces/{space_id}/remember-conversation",
    response_model=Page[AtomWire],
    responses=problems(404, 502),
    openapi_extra=TURN,
)
async def remember_conversation(user: UserIs, space_id: SpaceIs, body: RememberConversation) -> Response:
    """Remember a conversation word for word, without any model: each message becomes a dated, cited EPISODE atom.

    Doing it again adds only what was said since. Gives all of its atoms.
    """
    if await user.memory.get_space(space_id) is None:
        raise NotFoundError("space", space_id)
    return _all(await user.memory.remember_conversation(space_id, **body.arguments()))


def _all(atoms: list[Any], status: int = 200) -> Response:
    return answer(Page[Any](items=[AtomWire.of(atom) for atom in atoms]), status)
