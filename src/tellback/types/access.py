"""The scope that rows belong to (tenant, app, user), and API keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias, get_args


@dataclass(frozen=True, slots=True)
class Scope:
    """The user whose rows may be seen and changed: every row carries it, every statement filters on it.

    >>> Scope("acme", "support", "maya").user_id
    'maya'
    """

    tenant_id: str
    app_id: str
    user_id: str


class Scoped:
    """Something that belongs to a user: its `scope` in parts."""

    __slots__ = ()

    scope: Scope

    @property
    def tenant_id(self) -> str:
        """The tenant it belongs to."""
        return self.scope.tenant_id

    @property
    def app_id(self) -> str:
        """The app it belongs to."""
        return self.scope.app_id

    @property
    def user_id(self) -> str:
        """The user it belongs to."""
        return self.scope.user_id


ApiKeyRole: TypeAlias = Literal["user", "app", "admin"]
API_KEY_ROLES: tuple[ApiKeyRole, ...] = get_args(ApiKeyRole)
"""What a key lets its holder be: one user, any user of an app, or who runs the app."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key, without its secret.

    One of the role "user" is fixed to `user_id`; others act for any user of their tenant and app. `rate_limit` is in
    requests a minute; None is what the server has for all.

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
        """Whether it opens anything at that moment."""
        return self.revoked_at is None and not self.is_expired(now)

    def is_expired(self, now: datetime) -> bool:
        """Whether its time is over."""
        return self.expires_at is not None and now >= self.expires_at


@dataclass(frozen=True, slots=True)
class NewApiKey:
    """A key that was just made, with its secret: nobody can show that again.

    >>> from tellback.types.ids import as_utc
    >>> made = NewApiKey(ApiKey("key_1", "web", "acme", "support", "app", as_utc("2026-03-01T12:00:00Z")), "tb_...")
    >>> made.key.role, "tb_" in repr(made)
    ('app', False)
    """

    key: ApiKey
    secret: str = field(repr=False)
