"""Answers that are kept, in SQL: `KeptAnswers` on any engine."""

from __future__ import annotations

import secrets
import time
from datetime import datetime
from functools import partial
from typing import Any

from tellback.errors import IdempotencyConflictError, RequestInProgressError
from tellback.stores import access_rows
from tellback.stores.engine import Engine, Operation
from tellback.stores.ports.answers import KEPT, Begun, KeptAnswer
from tellback.types.scope import Scope
from tellback.types.times import to_micros

LOOK_SECONDS = 60.0
"""How often to look for answers that are too old, once none was left."""

FORGOTTEN = 100
"""So many of them are deleted at a time."""


class SqlKeptAnswers:
    """`KeptAnswers` on an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._look_at = 0.0

    async def begin(
        self, scope: Scope, key: str, fingerprint: str, *, now: datetime, lease_until: datetime
    ) -> Begun | KeptAnswer:
        await self._forget_some(now)
        values = {
            "key": key,
            "fingerprint": fingerprint,
            "owner": secrets.token_hex(16),
            "now": to_micros(now),
            "lease_until": to_micros(lease_until),
            "kept_since": to_micros(now - KEPT),
        }
        return await self._engine.write(scope, partial(_begin, values))

    async def finish(self, scope: Scope, key: str, owner: str, answer: KeptAnswer, *, now: datetime) -> bool:
        values = {"key": key, "owner": owner, "now": to_micros(now), **access_rows.answer_values(answer)}
        return await self._engine.write(scope, partial(_finish, values))

    async def abandon(self, scope: Scope, key: str, owner: str) -> None:
        await self._engine.write(scope, partial(_abandon, {"key": key, "owner": owner}))

    async def forget_before(self, moment: datetime, *, limit: int = 500) -> int:
        return await self._engine.write(None, partial(_forget, {"before": to_micros(moment), "limit": limit}))

    async def _forget_some(self, now: datetime) -> None:
        """A few at a time, and at every call for as long as there are more: so it keeps up with any number."""
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + LOOK_SECONDS  # others need not look beside us
            if await self.forget_before(now - KEPT, limit=FORGOTTEN) == FORGOTTEN:
                self._look_at = 0.0


def _begin(values: dict[str, Any]) -> Operation[Begun | KeptAnswer]:
    while True:
        if (yield "answer_begin", values):
            return Begun(values["owner"])
        found = yield "answer_get", values
        if found:  # or it was given up between the two, and is free
            return _answered(values, *found[0])


def _answered(values: dict[str, Any], fingerprint: str, status: int | None, *rest: Any) -> KeptAnswer:
    if fingerprint != values["fingerprint"]:
        raise IdempotencyConflictError(values["key"])
    if status is None:
        raise RequestInProgressError(values["key"])
    return access_rows.answer(status, *rest)


def _finish(values: dict[str, Any]) -> Operation[bool]:
    return bool((yield "answer_finish", values))


def _abandon(values: dict[str, Any]) -> Operation[None]:
    yield "answer_abandon", values


def _forget(values: dict[str, Any]) -> Operation[int]:
    return len((yield "platform_answers_forget", values))
