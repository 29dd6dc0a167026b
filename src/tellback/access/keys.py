"""`rc.keys`: API keys for a server, made, listed, checked and revoked."""

from __future__ import annotations

import builtins
import hmac
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import cast

from tellback.access.held import ApiKeyCache
from tellback.access.secret_text import generate_secret, parse_secret
from tellback.conversations import checks
from tellback.errors import InvalidArgumentError, NotAuthenticatedError
from tellback.stores import ApiKeys
from tellback.types.access import API_KEY_ROLES, ApiKey, ApiKeyRole, NewApiKey

CACHE_SECONDS = 5.0
"""For how long a key that was checked is good for more requests without asking the store."""

_UNKNOWN_DIGEST = "0" * 64


class Keys:
    """API keys of all tenants and apps. Their secrets are shown once, when they are made, and never stored.

    >>> import asyncio
    >>> from tellback import Tellback
    >>> async def main():
    ...     async with Tellback(":memory:", worker=False) as rc:
    ...         made = await rc.keys.create("user", name="Maya's phone", user_id="maya")
    ...         key = await rc.keys.check(made.secret)
    ...         return key.name, key.user_id
    >>> asyncio.run(main())
    ("Maya's phone", 'maya')
    """

    def __init__(
        self,
        store: ApiKeys,
        clock: Callable[[], datetime],
        *,
        cache_seconds: float = CACHE_SECONDS,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._clock = clock
        self._cache = ApiKeyCache(store.get, cache_seconds, timer)

    async def create(
        self,
        role: ApiKeyRole = "app",
        *,
        name: str = "",
        tenant_id: str = "default",
        app_id: str = "default",
        user_id: str | None = None,
        expires_at: datetime | str | timedelta | None = None,
        rate_limit: int | None = None,
    ) -> NewApiKey:
        """Make a key. `expires_at` is a moment, or how long from now; `rate_limit` is in requests a minute.

        A key of the role "user" is fixed to `user_id`, one of "app" acts for any user of its tenant and app, and one of
        "admin" may also do what concerns all of them.
        """
        now = self._clock()
        id, secret, digest = generate_secret()
        key = ApiKey(
            id=id,
            name=checks.validate_optional_text("name", name, checks.NAME_LENGTH) or "",
            tenant_id=checks.validate_scope_id("tenant_id", tenant_id),
            app_id=checks.validate_scope_id("app_id", app_id),
            role=cast("ApiKeyRole", checks.validate_choice("role", role, API_KEY_ROLES)),
            created_at=now,
            user_id=_validate_user(role, user_id),
            expires_at=None if expires_at is None else _parse_expiry(expires_at, now),
            rate_limit=None if rate_limit is None else checks.validate_count("rate_limit", rate_limit, 1),
        )
        return NewApiKey(await self._store.create(key, digest), secret)

    async def list(self, tenant_id: str | None = None, app_id: str | None = None) -> builtins.list[ApiKey]:
        """All keys, or those of a tenant and an app, also revoked and expired ones, the oldest first."""
        _validate_names(tenant_id, app_id)
        return await self._store.list_keys(tenant_id=tenant_id, app_id=app_id)

    async def get(self, id: str) -> ApiKey | None:
        """The key of that id, or None."""
        stored = await self._store.get(id) if checks.is_valid_id(id) else None
        return None if stored is None else stored.key

    async def revoke(self, id: str, *, tenant_id: str | None = None, app_id: str | None = None) -> ApiKey:
        """End a key for good: at once in this process, and within some seconds in others.

        With a tenant and an app, a key of another one raises `NotFoundError`. Revoking twice is harmless.
        """
        id = checks.validate_id("API key", id)
        _validate_names(tenant_id, app_id)
        try:
            return await self._store.revoke(id, tenant_id=tenant_id, app_id=app_id, now=self._clock())
        finally:
            self._cache.invalidate(id)  # also if it failed: it may have been done all the same

    async def check(self, secret: str) -> ApiKey:
        """The key whose secret this is; raises `NotAuthenticatedError` if it is unknown, expired or revoked."""
        parsed = parse_secret(secret)
        if parsed is None:
            raise NotAuthenticatedError(
                "This is not an API key: one begins with rk_, and is used whole as it was shown."
            )
        id, digest = parsed
        stored = await self._cache.get(id)
        # An id that does not exist takes as long as a wrong secret, and is answered the same.
        is_match = hmac.compare_digest(digest, _UNKNOWN_DIGEST if stored is None else stored.digest)
        if stored is None or not is_match:
            raise NotAuthenticatedError("The API key is unknown: use one that was made for this server.")
        key = stored.key
        if key.revoked_at is not None:
            raise NotAuthenticatedError(f"The API key {key.id} was revoked: use another one.")
        if key.is_expired(self._clock()):
            raise NotAuthenticatedError(f"The API key {key.id} has expired: use another one.")
        return key


def _validate_user(role: ApiKeyRole, user_id: str | None) -> str | None:
    if role == "user":
        if user_id is None:
            raise InvalidArgumentError("A key of the role 'user' is fixed to one user: pass user_id=... .")
        return checks.validate_scope_id("user_id", user_id)
    if user_id is not None:
        raise InvalidArgumentError(f"A key of the role {role!r} acts for any user: only one of 'user' takes a user_id.")
    return None


def _parse_expiry(value: datetime | str | timedelta, now: datetime) -> datetime:
    if isinstance(value, timedelta):
        try:
            expires_at = now + checks.parse_duration("expires_at", value)
        except OverflowError:
            raise InvalidArgumentError(f"expires_at is too far away: {value!r}.") from None
    else:
        expires_at = checks.parse_datetime("expires_at", value)
    if expires_at <= now:
        raise InvalidArgumentError(f"expires_at must lie ahead, but {expires_at.isoformat()} has passed.")
    return expires_at


def _validate_names(tenant_id: str | None, app_id: str | None) -> None:
    checks.validate_optional_text("tenant_id", tenant_id, checks.NAME_LENGTH)
    checks.validate_optional_text("app_id", app_id, checks.NAME_LENGTH)
