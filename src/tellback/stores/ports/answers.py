"""Answers that are kept for requests that come again: the port."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from tellback.types.scope import Scope

RESPONSE_LIFETIME = timedelta(hours=24)
"""How long an answer is kept."""


@dataclass(frozen=True, slots=True)
class IdempotencyClaim:
    """The request is ours to answer: `owner` says so when it is finished or abandoned."""

    owner: str


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """What a request was answered."""

    status: int
    content_type: str
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, hash=False)


class IdempotencyStore(Protocol):
    """Answers by the idempotency key of their request, each user's their own, for a day.

    - `begin` claims a key that nobody has used, or whose claim has run out without an answer, until `lease_until`. It
      gives the answer if there is one to a request of the same `fingerprint`. Another fingerprint raises
      `IdempotencyConflictError`, a claim that someone else holds `RequestInProgressError`.
    - `finish` keeps the answer, and `abandon` frees the key, as nothing was changed; both do nothing unless the claim
      is still the owner's. `finish` says whether the answer was kept.
    - `forget_before` deletes what was begun before that moment, no more than `limit`; gives how many. `begin` does so
      now and then.
    """

    async def begin(
        self, scope: Scope, key: str, fingerprint: str, *, now: datetime, lease_until: datetime
    ) -> IdempotencyClaim | StoredResponse: ...

    async def finish(self, scope: Scope, key: str, owner: str, response: StoredResponse, *, now: datetime) -> bool: ...

    async def abandon(self, scope: Scope, key: str, owner: str) -> None: ...

    async def delete_before(self, moment: datetime, *, limit: int = 500) -> int: ...
