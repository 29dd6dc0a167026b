"""`/ai-admin/keys`: API keys of the credential's own tenant and app."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Response

from tellback.errors import NotAllowedError, NotFoundError
from tellback.server.answers import CursorIs, LimitIs, answer, page_limit, page_of_all, problems, read_cursor
from tellback.server.callers import AdminIs, Principal
from tellback.server.idempotency import UNKEPT
from tellback.server.route import Route
from tellback.wire.access import ApiKeyWire, CreateKey, NewApiKeyWire
from tellback.wire.base import Page

router = APIRouter(prefix="/ai-admin/keys", tags=["admin"], route_class=Route)

KeyIdIs = Annotated[str, Path(max_length=200, examples=["key_018f3c0de0a17b2c4d5e6f708192"])]


# Its answer is not kept for a retry: nobody can show a secret again.
@router.post("", status_code=201, response_model=NewApiKeyWire, responses=problems(), openapi_extra=UNKEPT)
async def create_key(admin: AdminIs, body: CreateKey) -> Response:
    """Make an API key for your tenant and app. Its secret is in the answer, and nowhere else.

    A credential that ends, or has a limit of its own, makes keys that end with it, and have its limit at most.
    """
    principal = admin.principal
    given = _within(principal, body.arguments())
    made = await admin.home.rc.keys.create(**given, tenant_id=principal.tenant_id, app_id=principal.app_id)
    return answer(NewApiKeyWire.of(made), 201, {"Cache-Control": "no-store"})


@router.get("", response_model=Page[ApiKeyWire], responses=problems())
async def list_keys(admin: AdminIs, limit: LimitIs = None, cursor: CursorIs = None) -> Response:
    """The keys of your tenant and app, also revoked and expired ones, the oldest first."""
    found = await admin.home.rc.keys.list(admin.principal.tenant_id, admin.principal.app_id)
    return page_of_all(ApiKeyWire, found, page_limit(admin, limit), read_cursor(cursor))


@router.get("/{id}", response_model=ApiKeyWire, responses=problems(404))
async def get_key(admin: AdminIs, id: KeyIdIs) -> Response:
    """A key of your tenant and app."""
    found = await admin.home.rc.keys.get(id)
    here = (admin.principal.tenant_id, admin.principal.app_id)
    if found is None or (found.tenant_id, found.app_id) != here:
        raise NotFoundError("API key", id)
    return answer(ApiKeyWire.of(found))


@router.delete("/{id}", response_model=ApiKeyWire, responses=problems(404), openapi_extra=UNKEPT)
async def revoke_key(admin: AdminIs, id: KeyIdIs) -> Response:
    """End a key for good. It stays in the list, with the moment it was revoked."""
    principal = admin.principal
    revoked = await admin.home.rc.keys.revoke(id, tenant_id=principal.tenant_id, app_id=principal.app_id)
    return answer(ApiKeyWire.of(revoked))


def _within(principal: Principal, given: dict[str, Any]) -> dict[str, Any]:
    """What a new key is made of: no more than the one it is made with may do, nor for longer."""
    limit, end = given.get("rate_limit"), given.get("expires_at")
    if principal.rate_limit is not None and limit is not None and limit > principal.rate_limit:
        raise NotAllowedError(f"rateLimit is at most {principal.rate_limit} here: your own credential has no more.")
    if principal.expires_at is not None and end is not None and end > principal.expires_at:
        raise NotAllowedError(
            f"expiresAt is at most {principal.expires_at.isoformat()} here: your own credential ends then."
        )
    return {
        **given,
        "rate_limit": principal.rate_limit if limit is None else limit,
        "expires_at": principal.expires_at if end is None else end,
    }
