"""`Idempotency-Key`: store the response to a request for a day, and replay it when the request is sent again.

A route that reads the header itself handles it in its own way; routes marked `NOT_STORED` do not support it, because
they change nothing or can be repeated safely. Error responses, streams, and turns that wait for client tools are not
stored.
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
"""How long a request that never ended keeps its key: longer than what it does may take."""

NOT_STORED: dict[str, Any] = {"x-idempotency": "none"}
LONG_RUNNING: dict[str, Any] = {"x-idempotency": "turn"}
"""Mark a route whose answers are not stored, and one that waits for a model: `openapi_extra=NOT_STORED`."""

KEY_PARAMETER: dict[str, Any] = {
    "name": KEY_HEADER,
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": validation.KEY_LENGTH},
    "description": "The same request with the same key is done once, and answered the same for a day.",
}

_WRITE_METHODS = {"POST", "PATCH", "DELETE", "PUT"}
_FINGERPRINT_HEADERS = ("if-match", "x-tellback-conversation", "x-tellback-session", "x-tellback-namespace")
_STORED_HEADERS = ("etag", "location", "cache-control")

_UNFINISHED_MARK = "tellback_response_unfinished"

RequestHandler = Callable[[Request], Awaitable[Response]]


def resolve_lease(methods: set[str] | None, dependant: Dependant, extra: dict[str, Any] | None) -> timedelta | None:
    """How long a request of a route may take with its key, or None for a route whose answers are not stored."""
    if not (methods or set()) & _WRITE_METHODS or _takes_header(dependant):
        return None
    return LEASES.get((extra or {}).get("x-idempotency", "stored"))


def _takes_header(dependant: Dependant) -> bool:
    return any(each.alias.lower() == KEY_HEADER.lower() for each in dependant.header_params) or any(
        map(_takes_header, dependant.dependencies)
    )


async def run_once(request: Request, handle: RequestHandler, lease: timedelta) -> Response:
    """The answer to a request: the stored one if it came before, else that of `handle`."""
    key = request.headers.get(KEY_HEADER)
    if key is None or await _requests_stream(request):
        return await handle(request)
    caller: Caller = request.scope["state"]["caller"]
    # Turns are numbered by conversation, if at all: there a key is for its path.
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
        # What may have been done is not done again unseen. A turn is: its message is stored once by the same key.
        if lease == LEASES["turn"] or not _may_have_succeeded(error):
            await asyncio.shield(claim.abandon(started))
        raise
    await claim.finish(started, response)
    return response


def _may_have_succeeded(error: BaseException) -> bool:
    return isinstance(error, asyncio.CancelledError) or (isinstance(error, StoreError) and error.in_doubt)


def mark_unfinished(response: Response) -> Response:
    """An answer that waits for another request: given again, it would have what it waits for done twice."""
    setattr(response, _UNFINISHED_MARK, True)
    return response


class _KeyClaim:
    """A key of a caller's. Those of a role are apart from others', who may not be allowed what it was answered."""

    def __init__(self, caller: Caller, path: str, key: str) -> None:
        principal = caller.principal
        self._client_key = key
        # A digest, as paths and keys are longer than what a database finds by.
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
        except StoreError:  # what went wrong first is what the caller is told
            log.warning("an idempotency key could not be freed", exc_info=True)

    async def finish(self, started: IdempotencyClaim, response: Response) -> None:
        is_buffered = isinstance(getattr(response, "body", None), bytes)
        if response.status_code >= 400 or not is_buffered or hasattr(response, _UNFINISHED_MARK):
            await self.abandon(started)
            return
        headers = {name: value for name, value in response.headers.items() if name in _STORED_HEADERS}
        stored = StoredResponse(response.status_code, response.media_type or "", bytes(response.body), headers)
        try:
            await self._store.finish(self._scope, self._key, started.claim_token, stored, now=_lease_clock())
        except StoreError:  # it was done: the caller must hear of that
            log.warning("an answer could not be kept for retries", exc_info=True)


def _lease_clock() -> datetime:
    return utc_now()  # leases go by the machine's clock


async def _requests_stream(request: Request) -> bool:
    if not request.headers.get("content-type", "").partition(";")[0].strip().lower().endswith("json"):
        return False
    body = await request.json() if await request.body() else None
    return isinstance(body, dict) and body.get("stream") is True


async def _fingerprint(request: Request, user_id: str | None) -> str:
    """What makes two requests the same."""
    parts = [request.method, request.scope["path"], request.url.query, user_id or ""]
    parts += [request.headers.get(name, "") for name in _FINGERPRINT_HEADERS]
    digest = hashlib.sha256()
    for part in [*(each.encode(errors="surrogatepass") for each in parts), await request.body()]:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()
