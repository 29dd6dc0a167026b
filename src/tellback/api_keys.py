"""`tb.keys`: create, list, verify and revoke the API keys of a server, with a cache for busy servers."""

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

API_KEY_PREFIX = "tb_"
"""The beginning of every API key, by which it is told from a JWT."""

_ID_PREFIX = "key"
_SECRET_BYTES = 32
_SECRET_PATTERN = re.compile(API_KEY_PREFIX + r"([0-9a-f]{28})_([A-Za-z0-9_-]{43})")

MAX_CACHED_KEYS = 10_000
MAX_CACHED_MISSES = 1_000
"""How many are held at most: keys, and ids that no key has, which must not drive out keys."""

KeyLoader = Callable[[str], Awaitable[StoredKey | None]]

CACHE_SECONDS = 5.0
"""For how long a key that was checked is good for more requests without asking the store."""

_UNKNOWN_DIGEST = "0" * 64


def generate_secret() -> tuple[str, str, str]:
    """A new key's id, its secret text, and the digest to keep of it."""
    id, token = new_id(_ID_PREFIX), secrets.token_urlsafe(_SECRET_BYTES)
    return id, f"{API_KEY_PREFIX}{id.removeprefix(f'{_ID_PREFIX}_')}_{token}", digest_token(token)


def parse_secret(text: object) -> tuple[str, str] | None:
    """The id of the key that a text claims to be, and the digest of its secret part; None if it is no such text.

    >>> id, secret, digest = generate_secret()
    >>> parse_secret(secret) == (id, digest)
    True
    >>> parse_secret("letmein") is None
    True
    """
    match = _SECRET_PATTERN.fullmatch(text) if isinstance(text, str) else None
    return None if match is None else (f"{_ID_PREFIX}_{match[1]}", digest_token(match[2]))


def digest_token(token: str) -> str:
    """What is kept of a secret. It has 256 bits of chance, so nothing slower is needed to hide it."""
    return hashlib.sha256(token.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class _CachedKey:
    stored: StoredKey | None
    expires: float


class ApiKeyCache:
    """Keys by id, each held for some seconds; the least recently used are forgotten first.

    Those who ask for one key at the same time wait for one look-up. What was read before `invalidate` or `clear` is
    not held after it, nor given to anyone who asks later.
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
        """The key of that id as it was some seconds ago at most."""
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
        return await asyncio.shield(task)  # whoever gives up does so alone

    def invalidate(self, id: str) -> None:
        """Look this one up again."""
        self._generation += 1
        self._found.pop(id, None)
        self._missing.pop(id, None)

    def clear(self) -> None:
        """Look all of them up again."""
        self._generation += 1
        # New ones: another thread may erase a user while this one looks.
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
            task.exception()  # heard, also if everyone who waited has gone


_caches: WeakSet[ApiKeyCache] = WeakSet()
_caches_lock = threading.Lock()


def _clear_all_caches() -> None:
    with _caches_lock:
        caches = list(_caches)
    for cache in caches:
        cache.clear()


register_cache(_clear_all_caches)  # a user who is erased takes their keys along, at once


class Keys(Handle):
    """API keys of all tenants and apps. Their secrets are shown once, when they are made, and never stored.

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
        """Make a key. `expires_at` is a moment, or how long from now; `rate_limit` is in requests a minute.

        A key of the role "user" is fixed to `user_id`, one of "app" acts for any user of its tenant and app, and one of
        "admin" may also do what concerns all of them.
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
        """All keys, or those of a tenant and an app, also revoked and expired ones, the oldest first."""
        _validate_names(tenant_id, app_id)
        return await self._store.list_keys(tenant_id=tenant_id, app_id=app_id)

    async def get(self, id: str) -> ApiKey | None:
        """The key of that id, or None."""
        stored = await self._store.get(id) if validation.is_valid_id(id) else None
        return None if stored is None else stored.key

    async def revoke(self, id: str, *, tenant_id: str | None = None, app_id: str | None = None) -> ApiKey:
        """End a key for good: at once in this process, and within some seconds in others.

        With a tenant and an app, a key of another one raises `NotFoundError`. Revoking twice is harmless.
        """
        id = validation.validate_id("API key", id)
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
                f"This is not an API key: a key begins with {API_KEY_PREFIX} and must be passed whole, as it was shown."
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


class AppKeys:
    """The API keys of one tenant and app: those of others are unknown."""

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
        """Make a key. Its secret is shown this once."""
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
        """The keys of the app, also revoked and expired ones, the oldest first."""
        return await self._keys.list(self._tenant_id, self._app_id)

    async def get(self, id: str) -> ApiKey | None:
        """The key of that id, or None."""
        key = await self._keys.get(id)
        return key if key is not None and (key.tenant_id, key.app_id) == (self._tenant_id, self._app_id) else None

    async def revoke(self, id: str) -> ApiKey:
        """End a key for good. It stays in the list, with the moment it was revoked."""
        return await self._keys.revoke(id, tenant_id=self._tenant_id, app_id=self._app_id)


def _validate_user(role: ApiKeyRole, user_id: str | None) -> str | None:
    if role == "user":
        if user_id is None:
            raise InvalidArgumentError("A key of the role 'user' is fixed to one user: pass user_id=... .")
        return validation.validate_scope_id("user_id", user_id)
    if user_id is not None:
        raise InvalidArgumentError(f"A key of the role {role!r} acts for any user: only one of 'user' takes a user_id.")
    return None


def _parse_expiry(value: datetime | str | timedelta, now: datetime) -> datetime:
    if isinstance(value, timedelta):
        try:
            expires_at = now + validation.parse_duration("expires_at", value)
        except OverflowError:
            raise InvalidArgumentError(f"expires_at is too far away: {value!r}.") from None
    else:
        expires_at = validation.parse_datetime("expires_at", value)
    if expires_at <= now:
        raise InvalidArgumentError(f"expires_at must lie ahead, but {expires_at.isoformat()} has passed.")
    return expires_at


def _validate_names(tenant_id: str | None, app_id: str | None) -> None:
    validation.validate_optional_text("tenant_id", tenant_id, validation.NAME_LENGTH)
    validation.validate_optional_text("app_id", app_id, validation.NAME_LENGTH)
