"""`Idempotency-Key`: store the response to a request for a day, and replay it when the request is sent again.

Routes that declare the header handle it themselves. Routes marked `NOT_STORED` do not support it, because they change
nothing or can be repeated safely. Error responses, streams, and turns that wait for client tools are not stored.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant

from tellback import validation
from tellback.errors import IdempotencyConflictError, RequestInProgressError, StoreError
from tellback.server.auth import Caller
from tellback.stores import IdempotencyClaim, IdempotencyStore, StoredResponse
from tellback.types.access import Scope
from tellback.types.ids import utc_now

log = logging.getLogger("tellback.server")

KEY_HEADER = "Idempotency-Key"
REPLAYED_HEADER = "Idempotency-Replayed"
LEASES = {"stored": timedelta(minutes=2), "turn": timedelta(minutes=15)}
"""How long a request that never finishes keeps its key: longer than the request may take."""

NOT_STORED: dict[str, Any] = {"x-idempotency": "none"}
LONG_RUNNING: dict[str, Any] = {"x-idempotency": "turn"}
"""Values of `openapi_extra`: for routes whose responses are not stored, and for routes that wait for a model."""

KEY_PARAMETER: dict[str, Any] = {
    "name": KEY_HEADER,
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": validation.KEY_LENGTH},
    "description": "A unique key for the request. Retries with the same key get the same response for a day.",
}

_WRITE_METHODS = {"POST", "PATCH", "DELETE", "PUT"}
_FINGERPRINT_HEADERS = ("if-match", "x-tellback-conversation", "x-tellback-session", "x-tellback-namespace")
_STORED_HEADERS = ("etag", "location", "cache-control")

_UNFINISHED_MARK = "tellback_response_unfinished"

RequestHandler = Callable[[Request], Awaitable[Response]]


def resolve_lease(methods: set[str] | None, dependant: Dependant, extra: dict[str, Any] | None) -> timedelta | None:
    """Return how long a request may hold its key, or None for a route whose responses are not stored."""
    if not (methods or set()) & _WRITE_METHODS or _takes_header(dependant):
        return None
    return LEASES.get((extra or {}).get("x-idempotency", "stored"))


def _takes_header(dependant: Dependant) -> bool:
    return any(each.alias.lower() == KEY_HEADER.lower() for each in dependant.header_params) or any(
        map(_takes_header, dependant.dependencies)
    )


async def run_once(request: Request, handle: RequestHandler, lease: timedelta) -> Response:
    """Return the stored response of a repeated request, or call `handle` and store its response."""
    key = request.headers.get(KEY_HEADER)
    if key is None or await _requests_stream(request):
        return await handle(request)
    caller: Caller = request.scope["state"]["caller"]
    # For turns, a key is scoped to the request's path, which contains the conversation.
    path = request.scope["path"] if lease == LEASES["turn"] else ""
    claim = _KeyClaim(caller, path, validation.validate_name(KEY_HEADER, key, validation.KEY_LENGTH))
    started = await claim.begin(await _fingerprint(request, caller.user_id), lease)
    if isinstance(started, StoredResponse):
        return Response(
            started.body, started.status, {**started.headers, REPLAYED_HEADER: "true"}, started.content_type or None
        )
    try:
        response = await handle(request)
    except BaseException as error:
        # Keep the key if the work may have been done. A turn's key is always released: a retry stores no message twice.
        if lease == LEASES["turn"] or not _may_have_succeeded(error):
            await asyncio.shield(claim.abandon(started))
        raise
    await claim.finish(started, response)
    return response


def _may_have_succeeded(error: BaseException) -> bool:
    return isinstance(error, asyncio.CancelledError) or (isinstance(error, StoreError) and error.in_doubt)


def mark_unfinished(response: Response) -> Response:
    """Mark a response that another request must continue, so that it is not stored and replayed."""
    setattr(response, _UNFINISHED_MARK, True)
    return response


class _KeyClaim:
    """The claim on a caller's key. Keys are separate for each role, since roles may see different responses."""

    def __init__(self, caller: Caller, path: str, key: str) -> None:
        principal = caller.principal
        self._client_key = key
        # A digest, because path and key can be longer than a database index allows.
        self._key = hashlib.sha256("\0".join((principal.role, path, key)).encode(errors="surrogatepass")).hexdigest()
        self._scope = Scope(principal.tenant_id, principal.app_id, caller.user.scope.user_id)
        self._store: IdempotencyStore = caller.server.tb.store.idempotency

    async def begin(self, fingerprint: str, lease: timedelta) -> IdempotencyClaim | StoredResponse:
        now = _lease_clock()
        try:
            return await self._store.begin(self._scope, self._key, fingerprint, now=now, lease_until=now + lease)
        except (IdempotencyConflictError, RequestInProgressError) as error:
            raise type(error)(self._client_key) from None

    async def abandon(self, started: IdempotencyClaim) -> None:
        try:
            await self._store.abandon(self._scope, self._key, started.claim_token)
        except StoreError:  # the caller gets the original error
            log.warning("Could not release an idempotency key", exc_info=True)

    async def finish(self, started: IdempotencyClaim, response: Response) -> None:
        is_buffered = isinstance(getattr(response, "body", None), bytes)
        if response.status_code >= 400 or not is_buffered or hasattr(response, _UNFINISHED_MARK):
            await self.abandon(started)
            return
        headers = {name: value for name, value in response.headers.items() if name in _STORED_HEADERS}
        stored = StoredResponse(response.status_code, response.media_type or "", bytes(response.body), headers)
        try:
            await self._store.finish(self._scope, self._key, started.claim_token, stored, now=_lease_clock())
        except StoreError:  # the work was done, so return its response
            log.warning("Could not store the response for an idempotency key", exc_info=True)


def _lease_clock() -> datetime:
    return utc_now()  # leases use the machine's clock


async def _requests_stream(request: Request) -> bool:
    if not request.headers.get("content-type", "").partition(";")[0].strip().lower().endswith("json"):
        return False
    body = await request.json() if await request.body() else None
    return isinstance(body, dict) and body.get("stream") is True


async def _fingerprint(request: Request, user_id: str | None) -> str:
    """Return a digest that is equal for equal requests."""
    parts = [request.method, request.scope["path"], request.url.query, user_id or ""]
    parts += [request.headers.get(name, "") for name in _FINGERPRINT_HEADERS]
    digest = hashlib.sha256()
    for part in [*(each.encode(errors="surrogatepass") for each in parts), await request.body()]:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()
