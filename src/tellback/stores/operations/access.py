"""API keys, stored responses by idempotency key, and rate windows in SQL, on any engine."""

from __future__ import annotations

import secrets
import time
from datetime import datetime
from functools import partial
from typing import Any

from tellback.errors import IdempotencyConflictError, NotFoundError, RequestInProgressError
from tellback.stores import rows
from tellback.stores.engine import Operation, SqlEngine, event_statement, run_in_scope
from tellback.stores.ports.store import RESPONSE_LIFETIME, IdempotencyClaim, StoredKey, StoredResponse
from tellback.types.access import ApiKey, Scope
from tellback.types.ids import to_micros

CLEANUP_SECONDS = 60.0
"""How often to look for answers that are too old, once none was left."""

CLEANUP_BATCH = 100
"""So many of them are deleted at a time."""

STORED_WINDOWS = 10
"""So many windows are kept: clocks of processes may differ by as much."""

WINDOW_DELETE_BATCH = 100
"""At most so many are deleted when one begins."""


class SqlApiKeys:
    """`ApiKeys` on an engine."""

    def __init__(self, engine: SqlEngine) -> None:
        self._engine = engine

    async def create(self, key: ApiKey, digest: str) -> ApiKey:
        return await self._engine.write(None, partial(_create_key, key, digest))

    async def get(self, id: str) -> StoredKey | None:
        return await self._engine.read(None, partial(_get_key, id), brief=True)

    async def list_keys(self, *, tenant_id: str | None = None, app_id: str | None = None) -> list[ApiKey]:
        return await self._engine.read(None, partial(_list_keys, {"tenant": tenant_id, "app": app_id}))

    async def revoke(
        self, id: str, *, tenant_id: str | None = None, app_id: str | None = None, now: datetime
    ) -> ApiKey:
        values = {"id": id, "tenant": tenant_id, "app": app_id, "now": to_micros(now)}
        return await self._engine.write(None, partial(_revoke_key, values))


def _create_key(key: ApiKey, digest: str) -> Operation[ApiKey]:
    owner = {"tenant": key.tenant_id, "app": key.app_id, "user": key.user_id}
    values = rows.row_values(key, digest=digest, **owner)
    yield "platform_api_key_create", values
    yield from _write_key_event("key.created", key, values["created_at"])
    return key


def _get_key(id: str) -> Operation[StoredKey | None]:
    found = yield "platform_api_key_get", {"id": id}
    return StoredKey(rows.API_KEY.read(found[0]), found[0]["digest"]) if found else None


def _list_keys(values: dict[str, Any]) -> Operation[list[ApiKey]]:
    found = yield "platform_api_keys", values
    return rows.API_KEY.read_all(found)


def _revoke_key(values: dict[str, Any]) -> Operation[ApiKey]:
    found = yield "platform_api_key_revoke", values
    if found:
        key = rows.API_KEY.read(found[0])
        yield from _write_key_event("key.revoked", key, values["now"])
        return key
    revoked_before = yield "platform_api_key_get_in_app", values
    if not revoked_before:
        raise NotFoundError("API key", values["id"])
    return rows.API_KEY.read(revoked_before[0])


def _write_key_event(event_type: str, key: ApiKey, now: int) -> Operation[None]:
    """The event belongs to the key's user; that of a key for all users to nobody."""
    yield from run_in_scope(Scope(key.tenant_id, key.app_id, key.user_id or ""), _key_event(event_type, key, now))


def _key_event(event_type: str, key: ApiKey, now: int) -> Operation[None]:
    yield event_statement(event_type, key.id, {"role": key.role}, now)


class SqlIdempotencyStore:
    """`IdempotencyStore` on an engine."""

    def __init__(self, engine: SqlEngine) -> None:
        self._engine = engine
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

    async def finish(
        self, scope: Scope, key: str, claim_token: str, response: StoredResponse, *, now: datetime
    ) -> bool:
        values = {
            "key": key,
            "claim_token": claim_token,
            "now": to_micros(now),
            **rows.row_values(response),
        }
        return await self._engine.write(scope, partial(_store_response, values))

    async def abandon(self, scope: Scope, key: str, claim_token: str) -> None:
        await self._engine.write(scope, partial(_release_key, {"key": key, "claim_token": claim_token}))

    async def delete_before(self, moment: datetime, *, limit: int = 500) -> int:
        return await self._engine.write(None, partial(_delete_responses, {"before": to_micros(moment), "limit": limit}))

    async def _delete_expired(self, now: datetime) -> None:
        """A few at a time, and at every call for as long as there are more: so it keeps up with any number."""
        if time.monotonic() >= self._next_cleanup:
            self._next_cleanup = time.monotonic() + CLEANUP_SECONDS  # others need not look beside us
            if await self.delete_before(now - RESPONSE_LIFETIME, limit=CLEANUP_BATCH) == CLEANUP_BATCH:
                self._next_cleanup = 0.0


def _claim_key(values: dict[str, Any]) -> Operation[IdempotencyClaim | StoredResponse]:
    while True:
        if (yield "idempotency_key_claim", values):
            return IdempotencyClaim(values["claim_token"])
        found = yield "idempotent_response_get", values
        if found:  # or it was given up between the two, and is free
            return _existing_response(values, found[0])


def _existing_response(values: dict[str, Any], row: rows.Row) -> StoredResponse:
    if row["fingerprint"] != values["fingerprint"]:
        raise IdempotencyConflictError(values["key"])
    if row["status"] is None:
        raise RequestInProgressError(values["key"])
    return rows.RESPONSE.read(row)


def _store_response(values: dict[str, Any]) -> Operation[bool]:
    return bool((yield "idempotent_response_store", values))


def _release_key(values: dict[str, Any]) -> Operation[None]:
    yield "idempotency_key_release", values


def _delete_responses(values: dict[str, Any]) -> Operation[int]:
    return len((yield "platform_idempotent_responses_delete_expired", values))


class SqlRateWindows:
    """`RateWindows` on an engine."""

    def __init__(self, engine: SqlEngine) -> None:
        self._engine = engine

    async def take(self, name: str, window: int, requested: int, max_total: int) -> int:
        if requested <= 0 or max_total <= 0:
            return 0
        return await self._engine.write(None, partial(_take_from_window, name, window, requested, max_total))


def _take_from_window(name: str, window: int, requested: int, max_total: int) -> Operation[int]:
    values = {
        "name": name,
        "window": window,
        "wanted": requested,
        "most": max_total,
        "first": min(requested, max_total),
    }
    [row] = yield "platform_rate_take", values
    if row["granted"] == row["taken"]:  # it has just begun
        yield "platform_rates_delete_expired", {"before": window - STORED_WINDOWS, "limit": WINDOW_DELETE_BATCH}
    return int(row["granted"])
