"""Requests that come again: what a request with an `Idempotency-Key` was answered is kept for a day, and given again.

A route that takes the header itself does so in its own way; one that is marked `UNKEPT` has no such thing, because it
changes nothing, or the same when it is done again. Answers that tell of a problem are not kept, as nothing was changed,
nor are streams, nor turns that wait for results of the caller's tools.
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

from tellback.conversations import checks
from tellback.errors import IdempotencyConflictError, RequestInProgressError, StoreError
from tellback.server.callers import Caller
from tellback.stores.ports.answers import Begun, KeptAnswer, KeptAnswers
from tellback.types.scope import Scope
from tellback.types.times import utc_now

log = logging.getLogger("tellback.server")

HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
LEASES = {"kept": timedelta(minutes=2), "turn": timedelta(minutes=15)}
"""How long a request that never ended keeps its key: longer than what it does may take."""

UNKEPT: dict[str, Any] = {"x-idempotency": "none"}
TURN: dict[str, Any] = {"x-idempotency": "turn"}
"""Mark a route whose answers must not be kept, and one that waits for a model: `openapi_extra=UNKEPT`."""

DESCRIBED: dict[str, Any] = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": checks.KEY_LENGTH},
    "description": "The same request with the same key is done once, and answered the same for a day.",
}

_METHODS = {"POST", "PATCH", "DELETE", "PUT"}
_MEANT = ("if-match", "x-tellback-conversation", "x-tellback-session", "x-tellback-namespace")
_KEPT_HEADERS = ("etag", "location", "cache-control")

_GOES_ON = "tellback_goes_on"

Handle = Callable[[Request], Awaitable[Response]]


def lease_of(methods: set[str] | None, dependant: Dependant, extra: dict[str, Any] | None) -> timedelta | None:
    """How long a request of a route may take with its key, or None for a route whose answers are not kept."""
    if not (methods or set()) & _METHODS or _takes_header(dependant):
        return None
    return LEASES.get((extra or {}).get("x-idempotency", "kept"))


def _takes_header(dependant: Dependant) -> bool:
    return any(each.alias.lower() == HEADER.lower() for each in dependant.header_params) or any(
        map(_takes_header, dependant.dependencies)
    )


async def answered_once(request: Request, handle: Handle, lease: timedelta) -> Response:
    """The answer to a request: the kept one if it came before, else that of `handle`."""
    key = request.headers.get(HEADER)
    if key is None or await _wants_stream(request):
        return await handle(request)
    caller: Caller = request.scope["state"]["caller"]
    # Turns are numbered by conversation, if at all: there a key is for its path.
    path = request.scope["path"] if lease == LEASES["turn"] else ""
    claim = _Claim(caller, path, checks.name(HEADER, key, checks.KEY_LENGTH))
    begun = await claim.begin(await _fingerprint(request, caller.user_id), lease)
    if isinstance(begun, KeptAnswer):
        return Response(begun.body, begun.status, {**begun.headers, REPLAYED: "true"}, begun.content_type or None)
    try:
        response = await handle(request)
    except BaseException as error:
        # What may have been done is not done again unseen. A turn is: its message is stored once by the same key.
        if lease == LEASES["turn"] or not _may_be_done(error):
            await asyncio.shield(claim.abandon(begun))
        raise
    await claim.end(begun, response)
    return response


def _may_be_done(error: BaseException) -> bool:
    return isinstance(error, asyncio.CancelledError) or (isinstance(error, StoreError) and error.in_doubt)


def goes_on(response: Response) -> Response:
    """An answer that waits for another request: given again, it would have what it waits for done twice."""
    setattr(response, _GOES_ON, True)
    return response


class _Claim:
    """A key of a caller's. Those of a role are apart from others', who may not be allowed what it was answered."""

    def __init__(self, caller: Caller, path: str, key: str) -> None:
        principal = caller.principal
        self._given = key
        # A digest, as paths and keys are longer than what a database finds by.
        self._key = hashlib.sha256("\0".join((principal.role, path, key)).encode(errors="surrogatepass")).hexdigest()
        self._scope = Scope(principal.tenant_id, principal.app_id, caller.user.scope.user_id)
        self._answers: KeptAnswers = caller.home.rc.store.kept_answers

    async def begin(self, fingerprint: str, lease: timedelta) -> Begun | KeptAnswer:
        now = _now()
        try:
            return await self._answers.begin(self._scope, self._key, fingerprint, now=now, lease_until=now + lease)
        except (IdempotencyConflictError, RequestInProgressError) as error:
            raise type(error)(self._given) from None

    async def abandon(self, begun: Begun) -> None:
        try:
            await self._answers.abandon(self._scope, self._key, begun.owner)
        except StoreError:  # what went wrong first is what the caller is told
            log.warning("an idempotency key could not be freed", exc_info=True)

    async def end(self, begun: Begun, response: Response) -> None:
        is_whole = isinstance(getattr(response, "body", None), bytes)
        if response.status_code >= 400 or not is_whole or hasattr(response, _GOES_ON):
            await self.abandon(begun)
            return
        headers = {name: value for name, value in response.headers.items() if name in _KEPT_HEADERS}
        kept = KeptAnswer(response.status_code, response.media_type or "", bytes(response.body), headers)
        try:
            await self._answers.finish(self._scope, self._key, begun.owner, kept, now=_now())
        except StoreError:  # it was done: the caller must hear of that
            log.warning("an answer could not be kept for retries", exc_info=True)


def _now() -> datetime:
    return utc_now()  # leases go by the machine's clock


async def _wants_stream(request: Request) -> bool:
    if not request.headers.get("content-type", "").partition(";")[0].strip().lower().endswith("json"):
        return False
    read = await request.json() if await request.body() else None
    return isinstance(read, dict) and read.get("stream") is True


async def _fingerprint(request: Request, user_id: str | None) -> str:
    """What makes two requests the same."""
    parts = [request.method, request.scope["path"], request.url.query, user_id or ""]
    parts += [request.headers.get(name, "") for name in _MEANT]
    digest = hashlib.sha256()
    for part in [*(each.encode(errors="surrogatepass") for each in parts), await request.body()]:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()
