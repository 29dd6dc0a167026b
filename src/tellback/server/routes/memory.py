"""`/ai-memory` and `/ai-working-context`: spaces, atoms, entities, recall and working contexts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import Field

from tellback import validation
from tellback.errors import InvalidArgumentError, NotFoundError
from tellback.server.auth import Caller, CallerDep, UserDep
from tellback.server.idempotency import LONG_RUNNING, NOT_STORED
from tellback.server.lifecycle import cancel_on_disconnect
from tellback.server.requests import StrictRoute
from tellback.server.responses import (
    CursorParam,
    LimitParam,
    decode_cursor,
    json_response,
    list_page_response,
    no_content,
    page_response,
    problem_responses,
    resolve_page_size,
    resolve_result_limit,
)
from tellback.user import User
from tellback.wire.base import AtomStatusIn, DatetimeIn, EntityTypeIn, InputModel, Page
from tellback.wire.memory import (
    MAX_CATEGORIES,
    AddAtom,
    AddAtoms,
    BuildWorkingContext,
    CreateEntity,
    CreateSpace,
    MergeEntity,
    RecallByEntityInput,
    RecallByTopicInput,
    RecallTimelineInput,
    RememberConversation,
    SupersedeAtom,
)
from tellback.wire.values import AtomWire, EntityWire, RecallResultWire, SpaceWire, WorkingContextWire

router = APIRouter(prefix="/ai-memory", tags=["memory"], route_class=StrictRoute)
recall_router = APIRouter(prefix="/ai-memory/spaces/{space_id}", tags=["memory"], route_class=StrictRoute)
working_context_router = APIRouter(prefix="/ai-working-context", tags=["working context"], route_class=StrictRoute)

SpaceIdPath = Annotated[str, Path(max_length=200, examples=["ms_018f3c0de0a17b2c4d5e6f708192"])]
AtomIdPath = Annotated[str, Path(max_length=200, examples=["atom_018f3c0de0a17b2c4d5e6f708192"])]
CategoryName = Annotated[str, Field(max_length=200)]
EntityIdPath = Annotated[str, Path(max_length=200, examples=["ent_018f3c0de0a17b2c4d5e6f708192"])]
EntityTypeParam = Annotated[EntityTypeIn | None, Query(description="Of all types, if not said.")]
EntityQueryParam = Annotated[
    str | None,
    Query(
        max_length=validation.QUERY_LENGTH,
        description="A part of a name; an empty one ranks those most spoken of first.",
    ),
]

MAX_CITED = 1_000
"""How many messages one request may cite: each is looked up."""


@router.post("/spaces", status_code=201, response_model=SpaceWire, responses=problem_responses())
async def create_space(user: UserDep, body: CreateSpace) -> Response:
    """Make a space. With `once`, the first space of that name is given back if there is one."""
    return json_response(SpaceWire.from_value(await user.memory.create_space(**body.arguments())), 201)


@router.get("/spaces", response_model=Page[SpaceWire], responses=problem_responses())
async def list_spaces(
    caller: CallerDep,
    name: Annotated[str | None, Query(max_length=200)] = None,
    limit: LimitParam = None,
    cursor: CursorParam = None,
) -> Response:
    """The user's spaces, the oldest first; with a name, those called that."""
    found = await caller.user.memory.list_spaces(name)
    return list_page_response(SpaceWire, found, resolve_page_size(caller, limit), decode_cursor(cursor))


@router.get("/spaces/{id}", response_model=SpaceWire, responses=problem_responses(404))
async def get_space(user: UserDep, id: SpaceIdPath) -> Response:
    """A space."""
    found = await user.memory.get_space(id)
    if found is None:
        raise NotFoundError("space", id)
    return json_response(SpaceWire.from_value(found))


@router.delete("/spaces/{id}", status_code=204, responses=problem_responses(404))
async def delete_space(user: UserDep, id: SpaceIdPath) -> Response:
    """Hide a space with all that is in it."""
    await user.memory.delete_space(id)
    return no_content()


async def validate_sources(user: User, atoms: Iterable[Mapping[str, Any]]) -> None:
    """Refuse atoms that cite a conversation or a message which is not the user's, or not of that conversation."""
    conversations: set[str] = set()
    messages: dict[str, set[str | None]] = {}
    for atom in atoms:
        source = atom.get("source_conversation_id")
        if source is not None:
            conversations.add(source)
        for id in atom.get("source_message_ids") or ():
            messages.setdefault(id, set()).add(source)
    if len(messages) > MAX_CITED:
        raise InvalidArgumentError(f"{len(messages)} messages are cited; {MAX_CITED} in one request is the limit.")
    for id in conversations:
        if await user.conversations.get(id) is None:
            raise NotFoundError("conversation", id)
    for id, sources in messages.items():
        message = await user.conversations.message(id)
        if message is None or sources - {None, message.conversation_id}:
            raise NotFoundError("message", id)


@router.post(
    "/spaces/{space_id}/atoms", status_code=201, response_model=AtomWire, responses=problem_responses(404, 502)
)
async def add_atom(user: UserDep, space_id: SpaceIdPath, body: AddAtom) -> Response:
    """Remember something. What it cites must be the user's own."""
    arguments = body.arguments()
    await validate_sources(user, [arguments])
    return json_response(AtomWire.from_value(await user.memory.add_atom(space_id, **arguments)), 201)


@router.post(
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


@router.get("/spaces/{space_id}/atoms", response_model=Page[AtomWire], responses=problem_responses(404))
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


@router.get("/atoms/{id}", response_model=AtomWire, responses=problem_responses(404))
async def get_atom(user: UserDep, id: AtomIdPath) -> Response:
    """An atom, whatever its status."""
    found = await user.memory.get_atom(id)
    if found is None:
        raise NotFoundError("atom", id)
    return json_response(AtomWire.from_value(found))


@router.delete("/atoms/{id}", response_model=AtomWire, responses=problem_responses(404))
async def delete_atom(user: UserDep, id: AtomIdPath) -> Response:
    """Forget an atom: it is never recalled again."""
    return json_response(AtomWire.from_value(await user.memory.delete_atom(id)))


@router.post(
    "/atoms/{id}/supersede", status_code=201, response_model=AtomWire, responses=problem_responses(404, 409, 502)
)
async def supersede_atom(user: UserDep, id: AtomIdPath, body: SupersedeAtom) -> Response:
    """Put a new atom in an old one's place: the old one held until the new one's `validFrom` (now, if not said).

    Only the last atom of a chain can be superseded; `data.superseded_by` of the problem names what took its place.
    """
    arguments = body.arguments()
    await validate_sources(user, [arguments])
    return json_response(AtomWire.from_value(await user.memory.supersede_atom(id, **arguments)), 201)


@router.post("/atoms/{id}/archive", response_model=AtomWire, responses=problem_responses(404))
async def archive_atom(user: UserDep, id: AtomIdPath) -> Response:
    """Put an atom aside: it is kept, and recalled only when asked for."""
    return json_response(AtomWire.from_value(await user.memory.archive_atom(id)))


@router.post("/atoms/{id}/restore", response_model=AtomWire, responses=problem_responses(404))
async def restore_atom(user: UserDep, id: AtomIdPath) -> Response:
    """Bring back what was archived."""
    return json_response(AtomWire.from_value(await user.memory.restore_atom(id)))


@router.post(
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
    return json_response(Page[Any](items=[AtomWire.from_value(atom) for atom in atoms]), status)


@router.post(
    "/spaces/{space_id}/entities", status_code=201, response_model=EntityWire, responses=problem_responses(404)
)
async def create_entity(user: UserDep, space_id: SpaceIdPath, body: CreateEntity) -> Response:
    """Make an entity that atoms can be about."""
    return json_response(EntityWire.from_value(await user.memory.create_entity(space_id, **body.arguments())), 201)


@router.get("/spaces/{space_id}/entities", response_model=Page[EntityWire], responses=problem_responses(404))
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
        after = validation.validate_optional_text("cursor", position, validation.KEY_LENGTH)
        found = await memory.list_entities(space_id, type, page_size + 1, after=after)
        return page_response(EntityWire, found, page_size, lambda entity: str(entity.id))
    offset = _parse_offset(position)
    ranked = await memory.search_entities(space_id, query, type, offset + page_size + 1)
    return page_response(EntityWire, ranked[offset:], page_size, lambda _: str(offset + page_size))


@router.get("/spaces/{space_id}/entities/by-name", response_model=EntityWire, responses=problem_responses(404))
async def find_entity_by_name(
    user: UserDep, space_id: SpaceIdPath, name: Annotated[str, Query(max_length=500)], type: EntityTypeParam = None
) -> Response:
    """The entity called that, by its own name or by an alias; case, accents and spacing do not matter."""
    found = await user.memory.find_entity_by_name(space_id, type, name)
    if found is None:
        raise NotFoundError("entity", name)
    return json_response(EntityWire.from_value(found))


@router.get("/entities/{id}", response_model=EntityWire, responses=problem_responses(404))
async def get_entity(user: UserDep, id: EntityIdPath) -> Response:
    """An entity, also one that was merged: `mergedInto` names the one that stands for it."""
    found = await user.memory.get_entity(id)
    if found is None:
        raise NotFoundError("entity", id)
    return json_response(EntityWire.from_value(found))


@router.post("/entities/{id}/merge", response_model=EntityWire, responses=problem_responses(404))
async def merge_entities(user: UserDep, id: EntityIdPath, body: MergeEntity) -> Response:
    """Let this entity stand for another: atoms about the alias become atoms about it, and the names are kept."""
    return json_response(EntityWire.from_value(await user.memory.merge_entities(id, body.alias_id)))


def _parse_offset(position: str | None) -> int:
    """How many of a ranked list have been shown."""
    if position is None:
        return 0
    if not (position.isascii() and position.isdecimal()) or len(position) > 9:
        raise InvalidArgumentError("cursor is what nextCursor of the page before was.")
    return int(position)


@recall_router.post(
    "/recall-by-topic", response_model=RecallResultWire, responses=problem_responses(404, 502), openapi_extra=NOT_STORED
)
async def recall_by_topic(
    request: Request, caller: CallerDep, space_id: SpaceIdPath, body: RecallByTopicInput
) -> Response:
    """What answers a question best, ranked by words, meaning, time, speakers, entities, age and importance."""
    work = caller.user.memory.recall_by_topic(space_id, **_recall_arguments(caller, body))
    return json_response(RecallResultWire.from_value(await cancel_on_disconnect(request, work)))


@recall_router.post(
    "/recall-by-entity", response_model=RecallResultWire, responses=problem_responses(404), openapi_extra=NOT_STORED
)
async def recall_by_entity(caller: CallerDep, space_id: SpaceIdPath, body: RecallByEntityInput) -> Response:
    """Everything about an entity, the newest first. A name that no entity has recalls what mentions it."""
    found = await caller.user.memory.recall_by_entity(space_id, **_recall_arguments(caller, body))
    return json_response(RecallResultWire.from_value(found))


@recall_router.post(
    "/recall-timeline", response_model=RecallResultWire, responses=problem_responses(404, 502), openapi_extra=NOT_STORED
)
async def recall_timeline(
    request: Request, caller: CallerDep, space_id: SpaceIdPath, body: RecallTimelineInput
) -> Response:
    """How things changed: what held at some moment from `from` to `to`, the oldest first, even if it is over."""
    work = caller.user.memory.recall_timeline(space_id, **_recall_arguments(caller, body))
    return json_response(RecallResultWire.from_value(await cancel_on_disconnect(request, work)))


def _recall_arguments(caller: Caller, body: InputModel) -> dict[str, Any]:
    arguments = body.arguments()
    if arguments.get("limit") is not None:
        arguments["limit"] = resolve_result_limit(caller, arguments["limit"])
    return arguments


@working_context_router.post(
    "", response_model=WorkingContextWire, responses=problem_responses(404, 502), openapi_extra=NOT_STORED
)
async def build_working_context(request: Request, user: UserDep, body: BuildWorkingContext) -> Response:
    """Put together the rolling summary, always-on memories, recalled memories and recent turns, within a token budget.

    Over budget, the oldest turns go first, then the weakest memories that were recalled.
    """
    arguments = {"conversation_id": None, **body.arguments()}
    return json_response(
        WorkingContextWire.from_value(await cancel_on_disconnect(request, user.working_context.build(**arguments)))
    )
