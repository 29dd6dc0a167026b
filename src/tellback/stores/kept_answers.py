"""Answers that are kept, in SQL: `KeptAnswers` on any engine."""

from __future__ import annotations

import secrets
import time
from datetime import datetime
from functools import partial
from typing import Any

from tellback.errors import IdempotencyConflictError, RequestInProgressError
from tellback.stores import access_rows
from tellback.stores.engine import Operation, SqlEngine
from tellback.stores.ports.answers import RESPONSE_LIFETIME, IdempotencyClaim, StoredResponse
from tellback.types.scope import Scope
from tellback.types.times import to_micros

CLEANUP_SECONDS = 60.0
"""How often to look for answers that are too old, once none was left."""

CLEANUP_BATCH = 100
"""So many of them are deleted at a time."""


class SqlIdempotencyStore:
    """`KeptAnswers` on an engine."""

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
            "owner": secrets.token_hex(16),
            "now": to_micros(now),
            "lease_until": to_micros(lease_until),
            "kept_since": to_micros(now - RESPONSE_LIFETIME),
        }
        return await self._engine.write(scope, partial(_claim_key, values))

    async def finish(self, scope: Scope, key: str, owner: str, response: StoredResponse, *, now: datetime) -> bool:
        values = {"key": key, "owner": owner, "now": to_micros(now), **access_rows.stored_response_values(response)}
        return await self._engine.write(scope, partial(_store_response, values))

    async def abandon(self, scope: Scope, key: str, owner: str) -> None:
        await self._engine.write(scope, partial(_release_key, {"key": key, "owner": owner}))

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
        if (yield "answer_begin", values):
            return IdempotencyClaim(values["owner"])
        found = yield "answer_get", values
        if found:  # or it was given up between the two, and is free
            return _existing_response(values, *found[0])


def _existing_response(values: dict[str, Any], fingerprint: str, status: int | None, *columns: Any) -> StoredResponse:
    if fingerprint != values["fingerprint"]:
        raise IdempotencyConflictError(values["key"])
    if status is None:
        raise RequestInProgressError(values["key"])
    return access_rows.stored_response_from_columns(status, *columns)


def _store_response(values: dict[str, Any]) -> Operation[bool]:
    return bool((yield "answer_finish", values))


def _release_key(values: dict[str, Any]) -> Operation[None]:
    yield "answer_abandon", values


def _delete_responses(values: dict[str, Any]) -> Operation[int]:
    return len((yield "platform_answers_forget", values))
