"""The scope that rows belong to (tenant, app, user), and API keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias, get_args


@dataclass(frozen=True, slots=True)
class Scope:
    """A tenant, app and user. Every row has a scope, and every statement filters by it.

    >>> Scope("acme", "support", "maya").user_id
    'maya'
    """

    tenant_id: str
    app_id: str
    user_id: str


class Scoped:
    """The base class of values with a scope.

    >>> from tellback import Tellback
    >>> with Tellback(":memory:") as tb:
    ...     space = tb.user("maya", "acme").memory.create_space("life")
    >>> isinstance(space, Scoped), space.tenant_id, space.app_id, space.user_id
    (True, 'acme', 'default', 'maya')
    """

    __slots__ = ()

    scope: Scope

    @property
    def tenant_id(self) -> str:
        """The id of the tenant."""
        return self.scope.tenant_id

    @property
    def app_id(self) -> str:
        """The id of the app."""
        return self.scope.app_id

    @property
    def user_id(self) -> str:
        """The id of the user."""
        return self.scope.user_id


ApiKeyRole: TypeAlias = Literal["user", "app", "admin"]
API_KEY_ROLES: tuple[ApiKeyRole, ...] = get_args(ApiKeyRole)
"""The roles of keys: a key acts as one user, as any user of an app, or as the app's administrator."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key, without its secret.

    A key with the role "user" acts as `user_id`; other keys act for any user of their tenant and app. `rate_limit` is
    the number of requests per minute; None means the server's default.

    >>> from tellback.types.ids import as_utc
    >>> key = ApiKey("key_1", "web", "acme", "support", "app", as_utc("2026-03-01T12:00:00Z"))
    >>> key.is_valid(as_utc("2027-01-01T00:00:00Z"))
    True
    """

    id: str
    name: str
    tenant_id: str
    app_id: str
    role: ApiKeyRole
    created_at: datetime
    user_id: str | None = None
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    rate_limit: int | None = None

    def is_valid(self, now: datetime) -> bool:
        """Whether the key is valid at that time: neither revoked nor expired."""
        return self.revoked_at is None and not self.is_expired(now)

    def is_expired(self, now: datetime) -> bool:
        """Whether the key has expired."""
        return self.expires_at is not None and now >= self.expires_at


@dataclass(frozen=True, slots=True)
class NewApiKey:
    """A new key with its secret, which cannot be shown again.

    >>> from tellback.types.ids import as_utc
    >>> new = NewApiKey(ApiKey("key_1", "web", "acme", "support", "app", as_utc("2026-03-01T12:00:00Z")), "tb_...")
    >>> new.key.role, "tb_" in repr(new)
    ('app', False)
    """

    key: ApiKey
    secret: str = field(repr=False)
