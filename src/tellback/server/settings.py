"""Server settings, and the check of the Host header.

A field made by `_setting` is also an option of `tellback serve` and a `TELLBACK_*` environment variable, with its help
and bounds: `cli/serve.py` derives them. pydantic-settings is not used: the command line is Typer's, lists in the
environment are separated by spaces, and `tellback --help` must not import pydantic.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from tellback.errors import ConfigurationError, NotAllowedError
from tellback.types.access import API_KEY_ROLES

if TYPE_CHECKING:
    from tellback.server.middleware.browser_auth import WebUI

_PROXY_HEADERS = (b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip")

LogFormat = Literal["auto", "json", "text"]

LOCAL_USER = "local"
"""The user of requests to an open server that name no user."""

ASYMMETRIC_ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "ES256K", "EdDSA"),
)
"""Accepted JWT algorithms. All are asymmetric, so a server that verifies tokens cannot create them."""

_POSITIVE_FIELDS = (
    *("body_bytes", "text_length", "page_size", "largest_page", "heartbeat_seconds", "stalled_seconds", "body_seconds"),
)


def _setting(default: Any, help: str, option: str | None = None, *, repr: bool = True, **bounds: float) -> Any:
    """Declare a field that `tellback serve` sets, by an option with its own name unless `option` is given."""
    return field(default=default, repr=repr, metadata={"help": help, "option": option, "bounds": bounds})


@lru_cache(maxsize=1_000)
def host_name(host: str) -> str:
    """Return the name in a `Host` header, without the port.

    >>> host_name("Example.com.:8765"), host_name("[::1]:8765")
    ('example.com', '::1')
    """
    name = host.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0].rstrip(".")


@lru_cache(maxsize=1_000)
def is_loopback(name: str) -> bool:
    """Whether a host name or an address is a loopback one, which means this machine.

    >>> is_loopback("localhost"), is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("127.0.0.1.example.com")
    (True, True, True, False)
    """
    if name == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


class HostPolicy:
    """Checks the `Host` header of requests.

    An open server only accepts requests for a loopback name, from this machine and not through a proxy. It rejects
    pages of other origins, because an attacker's domain may resolve to 127.0.0.1.
    """

    def __init__(self, allowed: Iterable[str], *, is_open: bool, origins: Iterable[str] = ()) -> None:
        self._names = frozenset(host_name(name) for name in allowed if not name.startswith("*."))
        self._suffixes = tuple(name[1:].lower() for name in allowed if name.startswith("*."))
        self._is_open = is_open
        self._origins = frozenset(origins)
        self.is_disabled = not (self._names or self._suffixes or is_open)

    def check(self, headers: Mapping[bytes, bytes], client: tuple[str, int] | None) -> None:
        """Raise `NotAllowedError` if the host, the client address or the origin is not allowed."""
        if self.is_disabled:
            return
        host = headers.get(b"host", b"").decode("latin-1")
        name = host_name(host)
        if self._is_open:
            self._check_open(headers, host, name, client)
        if (self._names or self._suffixes) and name not in self._names and not name.endswith(self._suffixes or ("\0",)):
            raise NotAllowedError("This host name is not allowed: see allowed_hosts of the server's settings.")

    def _check_open(self, headers: Mapping[bytes, bytes], host: str, name: str, client: tuple[str, int] | None) -> None:
        if not is_loopback(name) or any(each in headers for each in _PROXY_HEADERS):
            raise NotAllowedError(
                "This server has no credentials and accepts only requests from its own machine, as http://localhost or"
                " http://127.0.0.1. Create credentials with `tellback keys create` to allow other requests."
            )
        # Clients of a Unix socket have no address; they are on this machine.
        if client is not None and not is_loopback(client[0]):
            raise NotAllowedError("This server has no credentials and only accepts requests from its own machine.")
        origin = headers.get(b"origin")
        if origin is not None and not self._is_allowed_origin(origin.decode("latin-1"), host):
            raise NotAllowedError("This origin is not allowed: see cors_origins of the server's settings.")

    def _is_allowed_origin(self, origin: str, host: str) -> bool:
        if origin in self._origins:
            return True
        try:
            return urlsplit(origin).netloc == host and bool(host)
        except ValueError:
            return False


@dataclass(frozen=True, slots=True)
class JwtSettings:
    """Which JWTs are accepted, and which claims contain their scope.

    The keys come from `jwks_url`, or from `jwks` (a JWKS as a mapping). Tokens must be signed with one of `algorithms`,
    which are asymmetric, and must have this `issuer` and `audience`. `tenant_claim`, `app_claim`, `role_claim` and
    `user_claim` are the names of claims. A token without tenant, app or role gets `tenant_id`, `app_id` or `role`; if
    `tenant_id` is None, a token without a tenant is rejected. `leeway_seconds` is the clock difference to tolerate.

    >>> keys = "https://login.example.com/.well-known/jwks.json"
    >>> jwt = JwtSettings("https://login.example.com/", "tellback", jwks_url=keys, tenant_id="acme")
    >>> ServerSettings(jwt=jwt).jwt.user_claim
    'sub'
    """

    issuer: str = _setting(MISSING, "Accept JWTs of this issuer.")
    audience: str = _setting(MISSING, "The audience that JWTs must have.")
    jwks_url: str | None = _setting(None, "The URL of the issuer's keys (JWKS).", "jwks-url")
    jwks: Mapping[str, object] | None = field(default=None, repr=False)
    algorithms: tuple[str, ...] = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA")
    tenant_claim: str = _setting("tenant_id", "The claim that contains the tenant id.")
    app_claim: str = _setting("app_id", "The claim that contains the app id.")
    role_claim: str = _setting("role", "The claim that contains the role.")
    user_claim: str = _setting("sub", "The claim that contains the user id.")
    tenant_id: str | None = _setting(None, "The tenant of tokens without a tenant claim.", "jwt-tenant")
    app_id: str = _setting("default", "The app of tokens without an app claim.", "jwt-app")
    role: str = _setting("user", "The role of tokens without a role claim.")
    leeway_seconds: float = 30.0

    def __post_init__(self) -> None:
        if (self.jwks_url is None) == (self.jwks is None):
            raise ConfigurationError("JwtSettings needs exactly one of jwks_url and jwks.")
        if not self.issuer or not self.audience:
            raise ConfigurationError("JwtSettings needs a non-empty issuer and audience.")
        weak = [name for name in self.algorithms if name not in ASYMMETRIC_ALGORITHMS]
        if weak or not self.algorithms:
            raise ConfigurationError(
                f"algorithms must be asymmetric ({', '.join(ASYMMETRIC_ALGORITHMS)}), got"
                f" {', '.join(map(repr, weak)) or 'no algorithms'}."
            )
        if self.role not in API_KEY_ROLES:
            raise ConfigurationError(f"role must be one of {', '.join(API_KEY_ROLES)}, got {self.role!r:.80}.")
        if not 0 <= self.leeway_seconds <= 300:
            raise ConfigurationError(f"leeway_seconds must be between 0 and 300, got {self.leeway_seconds!r}.")
        if self.jwks_url is not None:
            _validate_jwks_url(self.jwks_url)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Limits, access and timeouts of a server.

    `open` accepts every request as an admin of the default tenant and app: for use on your own machine only, so
    requests that are not for a loopback address are rejected. Callers may request any of `models`, in addition to the
    default model. `rate_limit` is in requests per minute for each credential without its own limit. `failure_limit` is
    in failed authentication attempts per minute, per client address and process. `concurrency` is the number of
    simultaneous requests and streams per credential and process. None means no limit. `allowed_hosts` are the accepted
    host names (`"*.example.com"` allows all subdomains); empty allows any. Sizes are in bytes, `text_length` in
    characters. Streams send a comment every `heartbeat_seconds`, which keeps the connection open. Clients that read
    nothing for `stalled_seconds`, or whose body does not arrive within `body_seconds`, are disconnected. On shutdown,
    turns have `shutdown_seconds` to finish. `metrics_token` lets Prometheus read `/metrics` from another machine.

    >>> settings = ServerSettings(models=("claude-sonnet-5",), rate_limit=120, allowed_hosts=("*.example.com",))
    >>> settings.rate_limit, settings.page_size, settings.open
    (120, 50, False)
    """

    open: bool = False
    jwt: JwtSettings | None = None
    models: tuple[str, ...] = _setting((), "An additional model that callers may request.", "allow-model")
    cors_origins: tuple[str, ...] = _setting((), "An origin whose web pages may call the API.", "cors-origin")
    allowed_hosts: tuple[str, ...] = _setting((), "A host name that requests may use.", "allowed-host")
    rate_limit: int | None = _setting(600, "Requests per minute for each key or token; 0 means no limit.", min=0)
    failure_limit: int | None = _setting(
        60, "Failed authentication attempts per minute for each address; 0 means no limit.", min=0
    )
    concurrency: int | None = _setting(
        100, "Simultaneous requests and streams of each key or token in a process; 0 means no limit.", min=0
    )
    body_bytes: int = _setting(4_000_000, "The maximum size of a request body, in bytes.", min=1)
    text_length: int = _setting(200_000, "The maximum length of a text, in characters.", min=1)
    page_size: int = _setting(50, "The default number of items per page.", min=1)
    largest_page: int = _setting(200, "The maximum number of items per page.", min=1)
    heartbeat_seconds: float = _setting(
        15.0, "After this many seconds without data, a stream sends an empty comment.", min=0.1, max=3_600
    )
    stalled_seconds: float = 60.0
    body_seconds: float = 30.0
    shutdown_seconds: float = _setting(
        30.0, "On shutdown, running turns get this many seconds to finish.", min=0, max=3_600
    )
    metrics_token: str | None = _setting(
        None,
        "The token for /metrics. Set it as an environment variable: then other accounts of the machine cannot see it.",
        repr=False,
    )

    def __post_init__(self) -> None:
        for origin in self.cors_origins:
            _validate_origin(origin)
        for host in self.allowed_hosts:
            if not host.removeprefix("*.") or "*" in host.removeprefix("*.") or "/" in host:
                raise ConfigurationError(f"allowed_hosts: use 'example.com' or '*.example.com', not {host!r:.80}.")
        for name in _POSITIVE_FIELDS:
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise ConfigurationError(f"{name} must be greater than 0, got {value!r}.")
        for name in ("rate_limit", "failure_limit"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigurationError(f"{name} must be at least 1 per minute, or None for no limit, got {value!r}.")
        if self.concurrency is not None and self.concurrency < 1:
            raise ConfigurationError(f"concurrency must be at least 1, or None for no limit, got {self.concurrency!r}.")


def _validate_origin(origin: str) -> None:
    if "*" in origin:
        raise ConfigurationError("cors_origins must list each origin: '*' would allow every page.")
    parts = urlsplit(origin)
    if origin != f"{parts.scheme}://{parts.netloc}" or parts.scheme not in ("http", "https") or "@" in parts.netloc:
        raise ConfigurationError(
            f"cors_origins must be like 'https://app.example.com', without a path, got {origin!r:.80}."
        )


def _validate_jwks_url(url: str) -> None:
    """Raise for URLs that are not https (or loopback): if keys are replaced in transit, anyone could sign tokens."""
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return
    if parts.scheme != "http" or not is_loopback(parts.hostname or ""):
        raise ConfigurationError(f"jwks_url must be an https URL or a loopback address, got {url!r:.120}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions(ServerSettings):
    """Options of `tellback serve`: the settings of the app and of its processes.

    `agents` are files, folders, or `module:attribute`. `trust_proxy` are addresses of proxies whose forwarding headers
    are trusted. `web_uis` are functions that create the web UIs. `check_options` sets `open`; do not pass it.
    """

    url: str = _setting("tellback.db", "The store: a file, or postgresql://…", repr=False)
    host: str = _setting("127.0.0.1", "The address to listen on.")
    port: int = _setting(8765, "The port to listen on.", min=0, max=65_535)
    workers: int = _setting(1, "Server processes; more than one needs PostgreSQL.", min=1, max=64)
    model: str | None = _setting(
        None, "Model name, path of a .gguf file, or the word offline. Default: the first available model."
    )
    agents: tuple[str, ...] = _setting(
        (), "Agents: a JSON or YAML file, a folder with such files, or module:attribute for an agent with routes."
    )
    extractor: Literal["llm", "verbatim"] | None = _setting(
        None,
        "llm: the model extracts memories; verbatim: every message becomes a memory. Default: llm, if there"
        " is a model.",
    )
    prompts: str | None = _setting(None, "A folder with custom prompts.")
    runs_jobs: bool = _setting(True, "Also run background jobs in this process.", "worker")
    trust_proxy: tuple[str, ...] = _setting((), "The address of a proxy whose forwarding headers are trusted.")
    log_format: LogFormat = _setting("auto", "The log format; auto is text on a terminal and JSON elsewhere.")
    verbose: bool = False
    web_uis: tuple[Callable[[], WebUI], ...] = ()

    def __post_init__(self) -> None:
        ServerSettings.__post_init__(self)  # dataclass(slots=True) creates the class twice, which breaks super()
        if self.workers < 1:
            raise ConfigurationError(f"workers must be at least 1, got {self.workers}.")
        if self.workers > 1 and not self.is_on_postgres:
            raise ConfigurationError(
                "Several workers need PostgreSQL (--url postgresql://…): a SQLite file needs a single process."
            )
        if self.workers > 1 and self.web_uis:
            raise ConfigurationError("The console needs a single process: remove --workers.")
        if "*" in self.trust_proxy:
            raise ConfigurationError(
                "trust_proxy must be a proxy's address: with '*' any client could fake its address."
            )
        if self.shutdown_seconds < 0:
            raise ConfigurationError(f"shutdown_seconds must be at least 0, got {self.shutdown_seconds}.")

    @property
    def is_on_postgres(self) -> bool:
        """Whether several processes can use the store."""
        return self.url.startswith(("postgresql://", "postgres://"))
