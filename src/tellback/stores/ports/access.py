"""The ports a server needs: API keys, rate windows, and stored responses by idempotency key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from tellback.types.access import ApiKey, Scope


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key with the digest of its secret."""

    key: ApiKey
    digest: str = field(repr=False)


class ApiKeys(Protocol):
    """API keys of all tenants, each change with its event in the same transaction. Secrets are not kept.

    - `create` keeps a key with the digest of its secret; `get` gives both, also if the key is no longer valid.
    - `list_keys` gives the keys of a tenant and an app, with None of all, the oldest first.
    - `revoke` ends a key for good; one that was revoked before stays as it is. A key of another tenant or app than
      those named raises `NotFoundError`, as one that never was.
    """

    async def create(self, key: ApiKey, digest: str) -> ApiKey: ...

    async def get(self, id: str) -> StoredKey | None: ...

    async def list_keys(self, *, tenant_id: str | None = None, app_id: str | None = None) -> list[ApiKey]: ...

    async def revoke(
        self, id: str, *, tenant_id: str | None = None, app_id: str | None = None, now: datetime
    ) -> ApiKey: ...


class RateWindows(Protocol):
    """How much of a limit was taken in a window of time, by all processes together.

    `take` adds up to `requested` to what was taken of `name` in a window, but never past `max_total`, and gives how
    many were granted. Windows of all names are numbered alike, by the clock; those more than ten before one that begins
    are forgotten. A name outlives an erasure for as long: it names a credential, never a user.
    """

    async def take(self, name: str, window: int, requested: int, max_total: int) -> int: ...


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
    - `delete_before` deletes what was begun before that moment, no more than `limit`; gives how many. `begin` does so
      now and then.
    """

    async def begin(
        self, scope: Scope, key: str, fingerprint: str, *, now: datetime, lease_until: datetime
    ) -> IdempotencyClaim | StoredResponse: ...

    async def finish(self, scope: Scope, key: str, owner: str, response: StoredResponse, *, now: datetime) -> bool: ...

    async def abandon(self, scope: Scope, key: str, owner: str) -> None: ...

    async def delete_before(self, moment: datetime, *, limit: int = 500) -> int: ...
