"""`tb.keys`: create, list, check and revoke API keys, with a cache."""

from __future__ import annotations

import asyncio
import builtins
import hashlib
import hmac
import re
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import cast
from weakref import WeakSet

from tellback import validation
from tellback.errors import InvalidArgumentError, NotAuthenticatedError
from tellback.portal import Handle
from tellback.stores import ApiKeys, StoredKey
from tellback.types.access import API_KEY_ROLES, ApiKey, ApiKeyRole, NewApiKey
from tellback.types.ids import new_id, register_cache

__all__ = ["Keys"]

API_KEY_PREFIX = "tb_"
"""The prefix of API keys, which distinguishes them from JWTs."""

_ID_PREFIX = "key"
_SECRET_BYTES = 32
_SECRET_PATTERN = re.compile(API_KEY_PREFIX + r"([0-9a-f]{28})_([A-Za-z0-9_-]{43})")

MAX_CACHED_KEYS = 10_000
MAX_CACHED_MISSES = 1_000
"""Limits of the caches of keys and of unknown ids. The caches are separate, so that unknown ids do not evict keys."""

KeyLoader = Callable[[str], Awaitable[StoredKey | None]]

CACHE_SECONDS = 5.0
"""How long a checked key is cached."""

_UNKNOWN_DIGEST = "0" * 64


def generate_secret() -> tuple[str, str, str]:
    """Return a new key's id, its secret, and the digest to store."""
    id, token = new_id(_ID_PREFIX), secrets.token_urlsafe(_SECRET_BYTES)
    return id, f"{API_KEY_PREFIX}{id.removeprefix(f'{_ID_PREFIX}_')}_{token}", digest_token(token)


def parse_secret(text: object) -> tuple[str, str] | None:
    """Parse a secret to the key's id and the digest of its secret part; None if it is malformed.

    >>> id, secret, digest = generate_secret()
    >>> parse_secret(secret) == (id, digest)
    True
    >>> parse_secret("letmein") is None
    True
    """
    match = _SECRET_PATTERN.fullmatch(text) if isinstance(text, str) else None
    return None if match is None else (f"{_ID_PREFIX}_{match[1]}", digest_token(match[2]))


def digest_token(token: str) -> str:
    """Return the digest to store. A fast hash is enough, because the token has 256 random bits."""
    return hashlib.sha256(token.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class _CachedKey:
    stored: StoredKey | None
    expires: float


class ApiKeyCache:
    """A cache of keys by id, with a time limit and LRU eviction.

    Concurrent lookups of a key share one query. Results read before `invalidate` or `clear` are neither cached after it
    nor returned to later callers.
    """

    def __init__(self, load: KeyLoader, cache_seconds: float, timer: Callable[[], float] = time.monotonic) -> None:
        self._load = load
        self._cache_seconds = cache_seconds
        self._timer = timer
        self._found: OrderedDict[str, _CachedKey] = OrderedDict()
        self._missing: OrderedDict[str, _CachedKey] = OrderedDict()
        self._loading: dict[tuple[asyncio.AbstractEventLoop, str, int], asyncio.Task[StoredKey | None]] = {}
        self._generation = 0
        with _caches_lock:
            _caches.add(self)

    def __len__(self) -> int:
        return len(self._found) + len(self._missing)

    async def get(self, id: str) -> StoredKey | None:
        """Return the key of that id, at most `cache_seconds` old."""
        for entries in (self._found, self._missing):
            entry = entries.get(id)
            if entry is not None and self._timer() < entry.expires:
                entries.move_to_end(id)
                return entry.stored
        request_key = (asyncio.get_running_loop(), id, self._generation)
        task = self._loading.get(request_key)
        if task is None:
            task = self._loading[request_key] = asyncio.create_task(self._load_key(id))
            task.add_done_callback(lambda ended: self._on_loaded(request_key, ended))
        return await asyncio.shield(task)  # a cancelled caller must not cancel the others' lookup

    def invalidate(self, id: str) -> None:
        """Remove one key from the cache."""
        self._generation += 1
        self._found.pop(id, None)
        self._missing.pop(id, None)

    def clear(self) -> None:
        """Remove all keys from the cache."""
        self._generation += 1
        # Replace the dicts, because another thread may be reading them.
        self._found, self._missing = OrderedDict(), OrderedDict()

    async def _load_key(self, id: str) -> StoredKey | None:
        generation, expires = self._generation, self._timer() + self._cache_seconds
        stored = await self._load(id)
        if generation == self._generation:
            self._add(id, _CachedKey(stored, expires))
        return stored

    def _add(self, id: str, entry: _CachedKey) -> None:
        self._found.pop(id, None)
        self._missing.pop(id, None)
        entries, max_entries = (
            (self._missing, MAX_CACHED_MISSES) if entry.stored is None else (self._found, MAX_CACHED_KEYS)
        )
        entries[id] = entry
        if len(entries) > max_entries:
            entries.popitem(last=False)

    def _on_loaded(
        self, request_key: tuple[asyncio.AbstractEventLoop, str, int], task: asyncio.Task[StoredKey | None]
    ) -> None:
        self._loading.pop(request_key, None)
        if not task.cancelled():
            task.exception()  # mark the exception as retrieved even if nobody waits


_caches: WeakSet[ApiKeyCache] = WeakSet()
_caches_lock = threading.Lock()


def _clear_all_caches() -> None:
    with _caches_lock:
        caches = list(_caches)
    for cache in caches:
        cache.clear()


register_cache(_clear_all_caches)  # erasing a user deletes the keys as well


class Keys(Handle):
    """API keys of all tenants and apps. Secrets are returned once, on creation, and never stored.

    >>> import asyncio
    >>> from tellback import Tellback
    >>> async def main():
    ...     async with Tellback(":memory:", worker=False) as tb:
    ...         new = await tb.keys.create("user", name="Maya's phone", user_id="maya")
    ...         key = await tb.keys.check(new.secret)
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
        """Create a key. `expires_at` is a date or a duration from now; `rate_limit` is in requests per minute.

        A key of the role "user" belongs to `user_id`. A key of the role "app" may act for any user of its tenant and
        app. A key of the role "admin" may also use operations on all users of the app.

        >>> from datetime import timedelta
        >>> from tellback import Tellback
        >>> with Tellback(":memory:") as tb:
        ...     new = tb.keys.create("user", user_id="maya", expires_at=timedelta(days=90), rate_limit=60)
        >>> new.secret.startswith("tb_"), new.key.user_id, new.key.rate_limit
        (True, 'maya', 60)
        """
        now = self._clock()
        id, secret, digest = generate_secret()
        key = ApiKey(
            id=id,
            name=validation.validate_optional_text("name", name, validation.NAME_LENGTH) or "",
            tenant_id=validation.validate_scope_id("tenant_id", tenant_id),
            app_id=validation.validate_scope_id("app_id", app_id),
            role=cast("ApiKeyRole", validation.validate_choice("role", role, API_KEY_ROLES)),
            created_at=now,
            user_id=_validate_user(role, user_id),
            expires_at=None if expires_at is None else _parse_expiry(expires_at, now),
            rate_limit=None if rate_limit is None else validation.validate_count("rate_limit", rate_limit, 1),
        )
        return NewApiKey(await self._store.create(key, digest), secret)

    async def list(self, tenant_id: str | None = None, app_id: str | None = None) -> builtins.list[ApiKey]:
        """List all keys, or those of a tenant and app, including revoked and expired ones, oldest first.

        >>> from tellback import Tellback
        >>> with Tellback(":memory:") as tb:
        ...     new = tb.keys.create("app", name="Website", tenant_id="acme", app_id="support")
        ...     names = [key.name for key in tb.keys.list("acme", "support")]
        >>> names
        ['Website']
        """
        _validate_names(tenant_id, app_id)
        return await self._store.list_keys(tenant_id=tenant_id, app_id=app_id)

    async def get(self, id: str) -> ApiKey | None:
        """Return the key of that id, or None.

        >>> from tellback import Tellback
        >>> with Tellback(":memory:") as tb:
        ...     new = tb.keys.create("app", name="Website")
        ...     key = tb.keys.get(new.key.id)
        >>> key == new.key
        True
        """
        stored = await self._store.get(id) if validation.is_valid_id(id) else None
        return None if stored is None else stored.key

    async def revoke(self, id: str, *, tenant_id: str | None = None, app_id: str | None = None) -> ApiKey:
        """Revoke a key permanently: immediately in this process, and within seconds in others.

        With a tenant and app, a key of another one raises `NotFoundError`. Revoking a key again is harmless.

        >>> from tellback import Tellback
        >>> with Tellback(":memory:") as tb:
        ...     new = tb.keys.create("app", name="Website")
        ...     key = tb.keys.revoke(new.key.id)
        >>> key.revoked_at is not None
        True
        """
        id = validation.validate_id("API key", id)
        _validate_names(tenant_id, app_id)
        try:
            return await self._store.revoke(id, tenant_id=tenant_id, app_id=app_id, now=self._clock())
        finally:
            self._cache.invalidate(id)  # even after an error, because the key may have been revoked

    async def check(self, secret: str) -> ApiKey:
        """Return the key of a secret. Raises `NotAuthenticatedError` if it is unknown, expired or revoked.

        >>> from tellback import Tellback
        >>> from tellback.errors import NotAuthenticatedError
        >>> with Tellback(":memory:") as tb:
        ...     name = tb.keys.check(tb.keys.create("app", name="Website").secret).name
        ...     try:
        ...         tb.keys.check("letmein")
        ...     except NotAuthenticatedError as error:
        ...         problem = str(error)
        >>> name, problem
        ('Website', 'Invalid API key: a key begins with tb_ and must be passed completely.')
        """
        parsed = parse_secret(secret)
        if parsed is None:
            raise NotAuthenticatedError(
                f"Invalid API key: a key begins with {API_KEY_PREFIX} and must be passed completely."
            )
        id, digest = parsed
        stored = await self._cache.get(id)
        # Unknown ids take the same time and raise the same error as wrong secrets.
        is_match = hmac.compare_digest(digest, _UNKNOWN_DIGEST if stored is None else stored.digest)
        if stored is None or not is_match:
            raise NotAuthenticatedError("The API key is unknown: use one that was created on this server.")
        key = stored.key
        if key.revoked_at is not None:
            raise NotAuthenticatedError(f"The API key {key.id} was revoked: use another one.")
        if key.is_expired(self._clock()):
            raise NotAuthenticatedError(f"The API key {key.id} has expired: use another one.")
        return key


class AppKeys:
    """The API keys of one tenant and app. Keys of other apps are not found."""

    def __init__(self, keys: Keys, tenant_id: str, app_id: str) -> None:
        self._keys = keys
        self._tenant_id = tenant_id
        self._app_id = app_id

    async def create(
        self,
        role: ApiKeyRole = "app",
        *,
        name: str = "",
        user_id: str | None = None,
        expires_at: datetime | str | timedelta | None = None,
        rate_limit: int | None = None,
    ) -> NewApiKey:
        """Create a key. Its secret is only returned here."""
        return await self._keys.create(
            role,
            name=name,
            tenant_id=self._tenant_id,
            app_id=self._app_id,
            user_id=user_id,
            expires_at=expires_at,
            rate_limit=rate_limit,
        )

    async def list(self) -> builtins.list[ApiKey]:
        """List the keys of the app, including revoked and expired ones, oldest first."""
        return await self._keys.list(self._tenant_id, self._app_id)

    async def get(self, id: str) -> ApiKey | None:
        """Return the key of that id, or None."""
        key = await self._keys.get(id)
        return key if key is not None and (key.tenant_id, key.app_id) == (self._tenant_id, self._app_id) else None

    async def revoke(self, id: str) -> ApiKey:
        """Revoke a key permanently. It stays in the list with `revoked_at`."""
        return await self._keys.revoke(id, tenant_id=self._tenant_id, app_id=self._app_id)


def _validate_user(role: ApiKeyRole, user_id: str | None) -> str | None:
    if role == "user":
        if user_id is None:
            raise InvalidArgumentError("A key of the role 'user' belongs to one user: pass user_id=....")
        return validation.validate_scope_id("user_id", user_id)
    if user_id is not None:
        raise InvalidArgumentError(f"Only keys of the role 'user' accept a user_id, not those of the role {role!r}.")
    return None


def _parse_expiry(value: datetime | str | timedelta, now: datetime) -> datetime:
    if isinstance(value, timedelta):
        try:
            expires_at = now + validation.parse_duration("expires_at", value)
        except OverflowError:
            raise InvalidArgumentError(f"expires_at is too far in the future: {value!r}.") from None
    else:
        expires_at = validation.parse_datetime("expires_at", value)
    if expires_at <= now:
        raise InvalidArgumentError(f"expires_at must be in the future, got {expires_at.isoformat()}.")
    return expires_at


def _validate_names(tenant_id: str | None, app_id: str | None) -> None:
    validation.validate_optional_text("tenant_id", tenant_id, validation.NAME_LENGTH)
    validation.validate_optional_text("app_id", app_id, validation.NAME_LENGTH)
