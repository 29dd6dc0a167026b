"""API keys and how often they may be used: the ports."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from tellback.types.access import ApiKey


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key with the digest of its secret."""

    key: ApiKey
    digest: str = field(repr=False)


class ApiKeys(Protocol):
    """API keys of all tenants, each change with its event in the same transaction. Secrets are not kept.

    - `create` keeps a key with the digest of its secret; `get` gives both, also if the key is no longer valid.
    - `listed` gives the keys of a tenant and an app, with None of all, the oldest first.
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

    `take` adds up to `wanted` to what was taken of `name` in a window, but never past `most`, and gives how many were
    granted. Windows of all names are numbered alike, by the clock; those more than ten before one that begins
    are forgotten. A name outlives an erasure for as long: it names a credential, never a user.
    """

    async def take(self, name: str, window: int, requested: int, max_total: int) -> int: ...
