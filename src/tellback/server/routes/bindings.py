"""`/ai-memory/bindings`: which conversations become memories, and where."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import APIRouter, Path, Response

from tellback.errors import ConfigurationError, InvalidArgumentError, NotAllowedError, NotFoundError
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
from tellback.server.callers import Caller, CallerDep, UserDep
from tellback.server.route import StrictRoute
from tellback.wire.base import Page
from tellback.wire.bindings import BindingWire, CreateBinding, UpdateBinding

bindings_router = APIRouter(prefix="/ai-memory/bindings", tags=["bindings"], route_class=StrictRoute)

BindingIdPath = Annotated[str, Path(max_length=200, examples=["bind_018f3c0de0a17b2c4d5e6f708192"])]


@bindings_router.post("", status_code=201, response_model=BindingWire, responses=problem_responses(404))
async def create_binding(caller: CallerDep, body: CreateBinding) -> Response:
    """From now on, let conversations become memories.

    Conversations of every user (`*`) or of another one need the role "app" or "admin": they go to those users' own
    spaces of the same names, made when missing.
    """
    scopes = body.conversation_scope
    _require_own_users(caller, [scope.user_id for scope in (scopes if isinstance(scopes, list) else [scopes])])
    with reject_unknown_version(requested_version(body)):
        created = await caller.user.memory.create_binding(**body.arguments())
    return json_response(BindingWire.of(created), 201)


@bindings_router.get("", response_model=Page[BindingWire], responses=problem_responses())
async def list_bindings(caller: CallerDep, limit: LimitParam = None, cursor: CursorParam = None) -> Response:
    """The bindings this user made, and those that are about this user's conversations."""
    found = await caller.user.memory.list_bindings()
    return list_page_response(BindingWire, found, resolve_page_size(caller, limit), decode_cursor(cursor))


@bindings_router.get("/{id}", response_model=BindingWire, responses=problem_responses(404))
async def get_binding(user: UserDep, id: BindingIdPath) -> Response:
    """A binding that this user made, or that is about this user's conversations."""
    found = await user.memory.get_binding(id)
    if found is None:
        raise NotFoundError("binding", id)
    return json_response(BindingWire.of(found))


@bindings_router.patch("/{id}", response_model=BindingWire, responses=problem_responses(404))
async def update_binding(caller: CallerDep, id: BindingIdPath, body: UpdateBinding) -> Response:
    """Change when a binding of this user extracts, or pause it; what it is about never changes."""
    await _require_own_binding(caller, id)
    with reject_unknown_version(requested_version(body)):
        changed = await caller.user.memory.update_binding(id, **body.arguments())
    return json_response(BindingWire.of(changed))


@bindings_router.delete("/{id}", status_code=204, responses=problem_responses(404))
async def delete_binding(caller: CallerDep, id: BindingIdPath) -> Response:
    """End a binding of this user, for everyone it is about; memories it made stay."""
    await _require_own_binding(caller, id)
    await caller.user.memory.delete_binding(id)
    return no_content()


@contextmanager
def reject_unknown_version(version: str | None) -> Iterator[None]:
    """A version of the prompt that a client names and nobody has written is the client's mistake, not the server's."""
    try:
        yield
    except ConfigurationError as error:
        if version is None:
            raise
        raise InvalidArgumentError(f"This server has no extraction prompt of version {version!r:.80}.") from error


def requested_version(body: CreateBinding | UpdateBinding) -> str | None:
    """The version of the prompt that a client names."""
    return None if body.extraction_policy is None else body.extraction_policy.extraction_version


def _require_own_users(caller: Caller, user_ids: Iterable[str]) -> None:
    """Refuse a user's own credential what is about others."""
    own = caller.user.scope.user_id
    if caller.principal.role == "user" and any(user_id != own for user_id in user_ids):
        raise NotAllowedError(
            f"This credential may bind conversations of its own user only: say userId {own!r} in conversationScope."
        )


async def _require_own_binding(caller: Caller, id: str) -> None:
    found = await caller.user.memory.get_binding(id)
    if found is None or found.created_by != caller.user.scope.user_id:
        raise NotFoundError("binding", id)
    _require_own_users(caller, [scope.user_id for scope in found.conversation_scope])
