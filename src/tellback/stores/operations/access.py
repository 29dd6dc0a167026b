"""API keys, stored responses by idempotency key, and rate windows, in SQL."""

from __future__ import annotations

import secrets
import time
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from tellback.errors import IdempotencyConflictError, NotFoundError, RequestInProgressError
from tellback.stores import rows
from tellback.stores.engine import Operation, SqlEngine, StorePart, event_statement, reads, reads_briefly, writes
from tellback.stores.values import IdempotencyClaim, StoredKey, StoredResponse
from tellback.types.access import ApiKey, Scope
from tellback.types.ids import to_micros

RESPONSE_LIFETIME = timedelta(hours=24)
"""How long a response is stored."""

CLEANUP_SECONDS = 60.0
"""How often to look for expired responses, unless more of them remain."""

CLEANUP_BATCH = 100
"""How many expired responses are deleted at a time."""

STORED_WINDOWS = 10
"""How many windows are stored: the clocks of processes may differ by up to this many windows."""

WINDOW_DELETE_BATCH = 100
"""How many old windows are deleted at most when a new one begins."""


class ApiKeys(StorePart):
    """API keys of all tenants. Each change writes its event in the same transaction. Secrets are not stored.

    - `create` stores a key with the digest of its secret. `get` returns both, even if the key is no longer valid.
    - `list_keys` returns the keys of a tenant and an app (None matches all), oldest first.
    - `revoke` revokes a key for good; revoking it again changes nothing. A key of another tenant or app raises
      `NotFoundError`, like an unknown key.
    """

    @writes
    def create(self, key: ApiKey, digest: str) -> Operation[ApiKey]:
        owner = {"tenant": key.tenant_id, "app": key.app_id, "user": key.user_id}
        values = rows.row_values(key, digest=digest, **owner)
        yield "platform_api_key_create", values
        yield _key_event("key.created", key, values["created_at"])
        return key

    @reads_briefly
    def get(self, id: str) -> Operation[StoredKey | None]:
        found = yield "platform_api_key_get", {"id": id}
        return StoredKey(rows.API_KEY.read(found[0]), found[0]["digest"]) if found else None

    @reads
    def list_keys(self, *, tenant_id: str | None = None, app_id: str | None = None) -> Operation[list[ApiKey]]:
        return rows.API_KEY.read_all((yield "platform_api_keys", {"tenant": tenant_id, "app": app_id}))

    @writes
    def revoke(
        self, id: str, *, tenant_id: str | None = None, app_id: str | None = None, now: datetime
    ) -> Operation[ApiKey]:
        values = {"id": id, "tenant": tenant_id, "app": app_id, "now": to_micros(now)}
        found = yield "platform_api_key_revoke", values
        if found:
            yield _key_event("key.revoked", rows.API_KEY.read(found[0]), to_micros(now))
        else:  # already revoked, or unknown
            found = yield "platform_api_key_get_in_app", values
        if not found:
            raise NotFoundError("API key", id)
        return rows.API_KEY.read(found[0])


def _key_event(event_type: str, key: ApiKey, now: int) -> tuple[str, dict[str, Any]]:
    """Return the statement that writes a key's event. It belongs to the key's user, if the key has one."""
    scope = Scope(key.tenant_id, key.app_id, key.user_id or "")
    return event_statement(event_type, key.id, {"role": key.role}, now, scope)


class IdempotencyStore(StorePart):
    """Responses by the idempotency key of their request, separate for each user, for one day.

    - `begin` claims a key until `lease_until`, if it is unused or its claim has expired without a response. It returns
      the stored response to a request with the same `fingerprint`. Another fingerprint raises
      `IdempotencyConflictError`; a claim held by another request raises `RequestInProgressError`. `begin` periodically
      deletes expired responses.
    - `finish` stores the response and returns whether it was stored. `abandon` frees the key after a request that
      changed nothing. Both do nothing unless the claim with `claim_token` is still current.
    - `delete_before` deletes at most `limit` responses begun before a time, and returns how many it deleted.
    """

    def __init__(self, engine: SqlEngine) -> None:
        super().__init__(engine)
        self._next_cleanup = 0.0

    async def begin(
        self, scope: Scope, key: str, fingerprint: str, *, now: datetime, lease_until: datetime
    ) -> IdempotencyClaim | StoredResponse:
        await self._delete_expired(now)
        values = {
            "key": key,
            "fingerprint": fingerprint,
            "claim_token": secrets.token_hex(16),
            "now": to_micros(now),
            "lease_until": to_micros(lease_until),
            "expired_before": to_micros(now - RESPONSE_LIFETIME),
        }
        return await self._engine.write(scope, partial(_claim_key, values))

    @writes
    def finish(
        self, scope: Scope, key: str, claim_token: str, response: StoredResponse, *, now: datetime
    ) -> Operation[bool]:
        values = rows.row_values(response, key=key, claim_token=claim_token, now=to_micros(now))
        return bool((yield "idempotent_response_store", values))

    @writes
    def abandon(self, scope: Scope, key: str, claim_token: str) -> Operation[None]:
        yield "idempotency_key_release", {"key": key, "claim_token": claim_token}

    @writes
    def delete_before(self, moment: datetime, *, limit: int = 500) -> Operation[int]:
        values = {"before": to_micros(moment), "limit": limit}
        return len((yield "platform_idempotent_responses_delete_expired", values))

    async def _delete_expired(self, now: datetime) -> None:
        """Delete one batch of expired responses per interval, or per call while full batches remain."""
        if time.monotonic() >= self._next_cleanup:
            self._next_cleanup = time.monotonic() + CLEANUP_SECONDS  # other calls need not clean up as well
            if await self.delete_before(now - RESPONSE_LIFETIME, limit=CLEANUP_BATCH) == CLEANUP_BATCH:
                self._next_cleanup = 0.0


def _claim_key(values: dict[str, Any]) -> Operation[IdempotencyClaim | StoredResponse]:
    while True:
        if (yield "idempotency_key_claim", values):
            return IdempotencyClaim(values["claim_token"])
        for row in (yield "idempotent_response_get", values):  # no row: it was abandoned between the two statements
            if row["fingerprint"] != values["fingerprint"]:
                raise IdempotencyConflictError(values["key"])
            if row["status"] is None:
                raise RequestInProgressError(values["key"])
            return rows.RESPONSE.read(row)


class RateWindows(StorePart):
    """The used part of rate limits in time windows, shared by all processes.

    `take` adds up to `requested` to the used amount of `name` in a window, but never beyond `max_total`, and returns
    how many were granted. Windows of all names are numbered by the clock; when one begins, those more than ten before
    it are deleted. A name refers to a credential, never a user, so an erasure does not delete it.
    """

    async def take(self, name: str, window: int, requested: int, max_total: int) -> int:
        return 0 if requested <= 0 or max_total <= 0 else await self._take(name, window, requested, max_total)

    @writes
    def _take(self, name: str, window: int, requested: int, max_total: int) -> Operation[int]:
        values = {"name": name, "window": window, "wanted": requested, "most": max_total}
        [row] = yield "platform_rate_take", {**values, "first": min(requested, max_total)}
        if row["granted"] == row["taken"]:  # the window has just begun
            yield "platform_rates_delete_expired", {"before": window - STORED_WINDOWS, "limit": WINDOW_DELETE_BATCH}
        return int(row["granted"])
