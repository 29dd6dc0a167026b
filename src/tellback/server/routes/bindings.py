"""`/ai-memory/bindings`: which conversations become memories, and where."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import APIRouter, Path, Response

from tellback.errors import ConfigurationError, InvalidArgumentError, NotAllowedError, NotFoundError
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
from tellback.server.callers import Caller, CallerIs, UserIs
from tellback.server.route import Route
from tellback.wire.base import Page
from tellback.wire.bindings import BindingWire, CreateBinding, UpdateBinding

router = APIRouter(prefix="/ai-memory/bindings", tags=["bindings"], route_class=Route)

BindingIs = Annotated[str, Path(max_length=200, examples=["bind_018f3c0de0a17b2c4d5e6f708192"])]


@router.post("", status_code=201, response_model=BindingWire, responses=problems(404))
async def create_binding(caller: CallerIs, body: CreateBinding) -> Response:
    """From now on, let conversations become memories.

    Conversations of every user (`*`) or of another one need the role "app" or "admin": they go to those users' own
    spaces of the same names, made when missing.
    """
    scopes = body.conversation_scope
    _check_whose(caller, [scope.user_id for scope in (scopes if isinstance(scopes, list) else [scopes])])
    with known_version(version_of(body)):
        made = await caller.user.memory.create_binding(**body.arguments())
    return answer(BindingWire.of(made), 201)


@router.get("", response_model=Page[BindingWire], responses=problems())
async def list_bindings(caller: CallerIs, limit: LimitIs = None, cursor: CursorIs = None) -> Response:
    """The bindings this user made, and those that are about this user's conversations."""
    found = await caller.user.memory.list_bindings()
    return page_of_all(BindingWire, found, page_limit(caller, limit), read_cursor(cursor))


@router.get("/{id}", response_model=BindingWire, responses=problems(404))
async def get_binding(user: UserIs, id: BindingIs) -> Response:
    """A binding that this user made, or that is about this user's conversations."""
    found = await user.memory.get_binding(id)
    if found is None:
        raise NotFoundError("binding", id)
    return answer(BindingWire.of(found))


@router.patch("/{id}", response_model=BindingWire, responses=problems(404))
async def update_binding(caller: CallerIs, id: BindingIs, body: UpdateBinding) -> Response:
    """Change when a binding of this user extracts, or pause it; what it is about never changes."""
    await _check_owned(caller, id)
    with known_version(version_of(body)):
        changed = await caller.user.memory.update_binding(id, **body.arguments())
    return answer(BindingWire.of(changed))


@router.delete("/{id}", status_code=204, responses=problems(404))
async def delete_binding(caller: CallerIs, id: BindingIs) -> Response:
    """End a binding of this user, for everyone it is about; memories it made stay."""
    await _check_owned(caller, id)
    await caller.user.memory.delete_binding(id)
    return nothing()


@contextmanager
def known_version(version: str | None) -> Iterator[None]:
    """A version of the prompt that a client names and nobody has written is the client's mistake, not the server's."""
    try:
        yield
    except ConfigurationError as error:
        if version is None:
            raise
        raise InvalidArgumentError(f"This server has no extraction prompt of version {version!r:.80}.") from error


def version_of(body: CreateBinding | UpdateBinding) -> str | None:
    """The version of the prompt that a client names."""
    return None if body.extraction_policy is None else body.extraction_policy.extraction_version


def _check_whose(caller: Caller, user_ids: Iterable[str]) -> None:
    """Refuse a user's own credential what is about others."""
    own = caller.user.scope.user_id
    if caller.principal.role == "user" and any(user_id != own for user_id in user_ids):
        raise NotAllowedError(
            f"This credential may bind conversations of its own user only: say userId {own!r} in conversationScope."
        )


async def _check_owned(caller: Caller, id: str) -> None:
    found = await caller.user.memory.get_binding(id)
    if found is None or found.created_by != caller.user.scope.user_id:
        raise NotFoundError("binding", id)
    _check_whose(caller, [scope.user_id for scope in found.conversation_scope])
