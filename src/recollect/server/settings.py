"""How a server is set up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from recollect.errors import ConfigurationError

LOCAL_USER = "local"
"""Whose data it is where there are no credentials and no user is named."""


@dataclass(frozen=True, slots=True)
class JwtSettings:
    """Whose tokens are taken, and how they say whose scope they are for.

    The keys come from `jwks_url`, or from `jwks` (a JWKS as a mapping). Tokens must be signed by one of `algorithms`,
    which are asymmetric, and be of `issuer` for `audience`. `tenant_claim` and the like name the claims; a token that
    has no tenant, app or role is for `tenant_id`, `app_id`, `role`, and one without a tenant is refused if `tenant_id`
    is None.
    """

    issuer: str
    audience: str
    jwks_url: str | None = None
    jwks: Mapping[str, object] | None = field(default=None, repr=False)
    algorithms: tuple[str, ...] = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA")
    tenant_claim: str = "tenant_id"
    app_claim: str = "app_id"
    role_claim: str = "role"
    user_claim: str = "sub"
    tenant_id: str | None = None
    app_id: str = "default"
    role: str = "user"
    leeway_seconds: float = 30.0

    def __post_init__(self) -> None:
        if (self.jwks_url is None) == (self.jwks is None):
            raise ConfigurationError("JwtSettings takes jwks_url or jwks, and exactly one of them.")
        if not self.issuer or not self.audience:
            raise ConfigurationError("JwtSettings needs an issuer and an audience: tokens for others must not be taken.")
        weak = [name for name in self.algorithms if name.upper().startswith("HS") or name.lower() == "none"]
        if weak or not self.algorithms:
            raise ConfigurationError(f"JwtSettings takes asymmetric algorithms, not {', '.join(weak) or 'none at all'}.")


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What a server allows.

    `open` lets everyone in, as an admin of the default tenant and app: for one's own machine, and refused for requests
    that are not for a loopback address. `models` may be named by callers besides the Recollect's own model. `rate_limit`
    is in requests a minute for each credential that has none of its own; None is no limit. Sizes are in bytes,
    `text_length` in characters. Streams are kept alive by a comment every `heartbeat_seconds`; a client that takes
    nothing for `stalled_seconds`, or whose body does not come within `body_seconds`, is left. On shutdown, turns have
    `shutdown_seconds` to end. `metrics_token` lets Prometheus read `/metrics` from another machine.
    """

    open: bool = False
    jwt: JwtSettings | None = None
    models: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    rate_limit: int | None = 600
    body_bytes: int = 4_000_000
    text_length: int = 200_000
    page_size: int = 50
    largest_page: int = 200
    heartbeat_seconds: float = 15.0
    stalled_seconds: float = 60.0
    body_seconds: float = 30.0
    shutdown_seconds: float = 30.0
    metrics_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if "*" in self.cors_origins:
            raise ConfigurationError("cors_origins names origins one by one: '*' would let every page in.")
        for name in ("body_bytes", "text_length", "page_size", "largest_page", "heartbeat_seconds", "stalled_seconds"):
            if getattr(self, name) <= 0:
                raise ConfigurationError(f"{name} is more than 0, not {getattr(self, name)!r}.")
        if self.rate_limit is not None and self.rate_limit < 1:
            raise ConfigurationError(f"rate_limit is at least 1 a minute, or None for no limit, not {self.rate_limit!r}.")
