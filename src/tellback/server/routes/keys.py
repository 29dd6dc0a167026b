"""`/ai-admin/keys`: API keys of the credential's own tenant and app."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Response

from tellback.errors import NotAllowedError, NotFoundError
from tellback.server.answers import (
    CursorParam,
    LimitParam,
    decode_cursor,
    json_response,
    list_page_response,
    problem_responses,
    resolve_page_size,
)
from tellback.server.callers import AdminDep, Principal
from tellback.server.idempotency import NOT_STORED
from tellback.server.route import StrictRoute
from tellback.wire.access import ApiKeyWire, CreateKey, NewApiKeyWire
from tellback.wire.base import Page

keys_router = APIRouter(prefix="/ai-admin/keys", tags=["admin"], route_class=StrictRoute)

ApiKeyIdPath = Annotated[str, Path(max_length=200, examples=["key_018f3c0de0a17b2c4d5e6f708192"])]


# Its answer is not kept for a retry: nobody can show a secret again.
@keys_router.post(
    "", status_code=201, response_model=NewApiKeyWire, responses=problem_responses(), openapi_extra=NOT_STORED
)
async def create_key(admin: AdminDep, body: CreateKey) -> Response:
    """Make an API key for your tenant and app. Its secret is in the answer, and nowhere else.

    A credential that ends, or has a limit of its own, makes keys that end with it, and have its limit at most.
    """
    principal = admin.principal
    arguments = _limit_new_key(principal, body.arguments())
    created = await admin.server.rc.keys.create(**arguments, tenant_id=principal.tenant_id, app_id=principal.app_id)
    return json_response(NewApiKeyWire.of(created), 201, {"Cache-Control": "no-store"})


@keys_router.get("", response_model=Page[ApiKeyWire], responses=problem_responses())
async def list_keys(admin: AdminDep, limit: LimitParam = None, cursor: CursorParam = None) -> Response:
    """The keys of your tenant and app, also revoked and expired ones, the oldest first."""
    found = await admin.server.rc.keys.list(admin.principal.tenant_id, admin.principal.app_id)
    return list_page_response(ApiKeyWire, found, resolve_page_size(admin, limit), decode_cursor(cursor))


@keys_router.get("/{id}", response_model=ApiKeyWire, responses=problem_responses(404))
async def get_key(admin: AdminDep, id: ApiKeyIdPath) -> Response:
    """A key of your tenant and app."""
    found = await admin.server.rc.keys.get(id)
    scope = (admin.principal.tenant_id, admin.principal.app_id)
    if found is None or (found.tenant_id, found.app_id) != scope:
        raise NotFoundError("API key", id)
    return json_response(ApiKeyWire.of(found))


@keys_router.delete("/{id}", response_model=ApiKeyWire, responses=problem_responses(404), openapi_extra=NOT_STORED)
async def revoke_key(admin: AdminDep, id: ApiKeyIdPath) -> Response:
    """End a key for good. It stays in the list, with the moment it was revoked."""
    principal = admin.principal
    revoked = await admin.server.rc.keys.revoke(id, tenant_id=principal.tenant_id, app_id=principal.app_id)
    return json_response(ApiKeyWire.of(revoked))


def _limit_new_key(principal: Principal, arguments: dict[str, Any]) -> dict[str, Any]:
    """What a new key is made of: no more than the one it is made with may do, nor for longer."""
    limit, end = arguments.get("rate_limit"), arguments.get("expires_at")
    if principal.rate_limit is not None and limit is not None and limit > principal.rate_limit:
        raise NotAllowedError(f"rateLimit is at most {principal.rate_limit} here: your own credential has no more.")
    if principal.expires_at is not None and end is not None and end > principal.expires_at:
        raise NotAllowedError(
            f"expiresAt is at most {principal.expires_at.isoformat()} here: your own credential ends then."
        )
    return {
        **arguments,
        "rate_limit": principal.rate_limit if limit is None else limit,
        "expires_at": principal.expires_at if end is None else end,
    }
