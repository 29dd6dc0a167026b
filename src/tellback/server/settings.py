"""Server settings, and the hosts that are allowed.

A field made by `_setting` is also an option of `tellback serve` and a `TELLBACK_*` environment variable, with its help
and its bounds: `cli/serve.py` derives those. pydantic-settings is not used: the command line is Typer's, lists in the
environment are separated by spaces, and `tellback --help` imports no pydantic.
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
"""Whose data it is where there are no credentials and no user is named."""

ASYMMETRIC_ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "ES256K", "EdDSA"),
)
"""How tokens may be signed: so that who can check them cannot make them."""

_POSITIVE_FIELDS = (
    *("body_bytes", "text_length", "page_size", "largest_page", "heartbeat_seconds", "stalled_seconds", "body_seconds"),
)


def _setting(default: Any, help: str, option: str | None = None, *, repr: bool = True, **bounds: float) -> Any:
    """A field that `tellback serve` sets: by the option of its own name, unless another is given."""
    return field(default=default, repr=repr, metadata={"help": help, "option": option, "bounds": bounds})


@lru_cache(maxsize=1_000)
def host_name(host: str) -> str:
    """The name in a `Host` header, without its port.

    >>> host_name("Example.com.:8765"), host_name("[::1]:8765")
    ('example.com', '::1')
    """
    name = host.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0].rstrip(".")


@lru_cache(maxsize=1_000)
def is_loopback(name: str) -> bool:
    """Whether a name or an address is this machine's own, seen from itself.

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
    """Checks the `Host` of a request.

    Where everyone is let in, a request must be for a loopback name, from this machine and not through a proxy; and a
    page of another origin may not have sent it: a name of an attacker that leads to 127.0.0.1 is as good as a proxy.
    """

    def __init__(self, allowed: Iterable[str], *, is_open: bool, origins: Iterable[str] = ()) -> None:
        self._names = frozenset(host_name(name) for name in allowed if not name.startswith("*."))
        self._suffixes = tuple(name[1:].lower() for name in allowed if name.startswith("*."))
        self._is_open = is_open
        self._origins = frozenset(origins)
        self.is_disabled = not (self._names or self._suffixes or is_open)

    def check(self, headers: Mapping[bytes, bytes], client: tuple[str, int] | None) -> None:
        """Raise `NotAllowedError` unless the request may be answered here."""
        if self.is_disabled:
            return
        host = headers.get(b"host", b"").decode("latin-1")
        name = host_name(host)
        if self._is_open:
            self._check_open(headers, host, name, client)
        if (self._names or self._suffixes) and name not in self._names and not name.endswith(self._suffixes or ("\0",)):
            raise NotAllowedError("This server is not asked for under that name: see allowed_hosts of its settings.")

    def _check_open(self, headers: Mapping[bytes, bytes], host: str, name: str, client: tuple[str, int] | None) -> None:
        if not is_loopback(name) or any(each in headers for each in _PROXY_HEADERS):
            raise NotAllowedError(
                "This server is open to its own machine, as http://localhost or http://127.0.0.1: to be reached in"
                " another way it needs credentials, which `tellback keys create` makes."
            )
        # Who comes by a Unix socket has no address, and is on this machine.
        if client is not None and not is_loopback(client[0]):
            raise NotAllowedError("This server is open to its own machine: others need credentials, and it has none.")
        origin = headers.get(b"origin")
        if origin is not None and not self._is_allowed_origin(origin.decode("latin-1"), host):
            raise NotAllowedError("Pages of other origins are not let in: see cors_origins of the server's settings.")

    def _is_allowed_origin(self, origin: str, host: str) -> bool:
        if origin in self._origins:
            return True
        try:
            return urlsplit(origin).netloc == host and bool(host)
        except ValueError:
            return False


@dataclass(frozen=True, slots=True)
class JwtSettings:
    """Whose tokens are taken, and how they say whose scope they are for.

    The keys come from `jwks_url`, or from `jwks` (a JWKS as a mapping). Tokens must be signed by one of `algorithms`,
    which are asymmetric, and be of `issuer` for `audience`. `tenant_claim` and the like name the claims; a token that
    has no tenant, app or role is for `tenant_id`, `app_id`, `role`, and one without a tenant is refused if `tenant_id`
    is None. `leeway_seconds` is by how much the issuer's clock may differ.
    """

    issuer: str = _setting(MISSING, "Take tokens of this issuer.")
    audience: str = _setting(MISSING, "Whom tokens must be for.")
    jwks_url: str | None = _setting(None, "Where the issuer's keys are.", "jwks-url")
    jwks: Mapping[str, object] | None = field(default=None, repr=False)
    algorithms: tuple[str, ...] = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA")
    tenant_claim: str = _setting("tenant_id", "The claim with the tenant.")
    app_claim: str = _setting("app_id", "The claim with the app.")
    role_claim: str = _setting("role", "The claim with the role.")
    user_claim: str = _setting("sub", "The claim with the user.")
    tenant_id: str | None = _setting(None, "The tenant of tokens that name none.", "jwt-tenant")
    app_id: str = _setting("default", "The app of tokens that name none.", "jwt-app")
    role: str = _setting("user", "The role of tokens that name none.")
    leeway_seconds: float = 30.0

    def __post_init__(self) -> None:
        if (self.jwks_url is None) == (self.jwks is None):
            raise ConfigurationError("JwtSettings takes jwks_url or jwks, and exactly one of them.")
        if not self.issuer or not self.audience:
            raise ConfigurationError("JwtSettings needs an issuer and an audience: tokens for others are not taken.")
        weak = [name for name in self.algorithms if name not in ASYMMETRIC_ALGORITHMS]
        if weak or not self.algorithms:
            raise ConfigurationError(
                f"JwtSettings takes asymmetric algorithms ({', '.join(ASYMMETRIC_ALGORITHMS)}), not"
                f" {', '.join(map(repr, weak)) or 'none at all'}."
            )
        if self.role not in API_KEY_ROLES:
            raise ConfigurationError(f"role is {', '.join(map(repr, API_KEY_ROLES))}, not {self.role!r:.80}.")
        if not 0 <= self.leeway_seconds <= 300:
            raise ConfigurationError(f"leeway_seconds is from 0 to 300, not {self.leeway_seconds!r}.")
        if self.jwks_url is not None:
            _validate_jwks_url(self.jwks_url)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What a server allows.

    `open` lets everyone in, as an admin of the default tenant and app: for one's own machine, and refused for requests
    that are not for a loopback address. `models` may be named by callers besides its own model. `rate_limit`
    is in requests a minute for each credential that has none of its own, `failure_limit` in failed attempts a minute to
    authenticate, from one address to one process; `concurrency` is how many requests of a credential one process
    answers at once, streams among them. None is no limit. `allowed_hosts` are the names under which it may be
    asked for (`"*.example.com"` is any below that); with none, it is any. Sizes are in bytes, `text_length` in
    characters. Streams are kept alive by a comment every `heartbeat_seconds`; a client that takes nothing for
    `stalled_seconds`, or whose body does not come within `body_seconds`, is left. On shutdown, turns have
    `shutdown_seconds` to end. `metrics_token` lets Prometheus read `/metrics` from another machine.
    """

    open: bool = False
    jwt: JwtSettings | None = None
    models: tuple[str, ...] = _setting((), "Another that callers may name.", "allow-model")
    cors_origins: tuple[str, ...] = _setting((), "A web page's origin that may call.", "cors-origin")
    allowed_hosts: tuple[str, ...] = _setting((), "A name this server goes by.", "allowed-host")
    rate_limit: int | None = _setting(600, "Requests a minute for each credential; 0 is no limit.", min=0)
    failure_limit: int | None = _setting(
        60, "Failed attempts a minute to get in, from each address; 0 is no limit.", min=0
    )
    concurrency: int | None = _setting(
        100, "Requests and streams at once of each credential, in each process; 0: any.", min=0
    )
    body_bytes: int = _setting(4_000_000, "The bytes that a body may have.", min=1)
    text_length: int = _setting(200_000, "The characters that a text may have.", min=1)
    page_size: int = _setting(50, "How many a page has if nobody says.", min=1)
    largest_page: int = _setting(200, "How many a page has at most.", min=1)
    heartbeat_seconds: float = _setting(15.0, "How long a stream is silent at most.", min=0.1, max=3_600)
    stalled_seconds: float = 60.0
    body_seconds: float = 30.0
    shutdown_seconds: float = _setting(30.0, "How long turns may take to end on shutdown.", min=0, max=3_600)
    metrics_token: str | None = _setting(None, "What /metrics asks for; better given by the environment.", repr=False)

    def __post_init__(self) -> None:
        for origin in self.cors_origins:
            _validate_origin(origin)
        for host in self.allowed_hosts:
            if not host.removeprefix("*.") or "*" in host.removeprefix("*.") or "/" in host:
                raise ConfigurationError(f"allowed_hosts are like 'example.com' or '*.example.com', not {host!r:.80}.")
        for name in _POSITIVE_FIELDS:
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise ConfigurationError(f"{name} is more than 0, not {value!r}.")
        for name in ("rate_limit", "failure_limit"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigurationError(f"{name} is at least 1 a minute, or None for no limit, not {value!r}.")
        if self.concurrency is not None and self.concurrency < 1:
            raise ConfigurationError(f"concurrency is at least 1, or None for no limit, not {self.concurrency!r}.")


def _validate_origin(origin: str) -> None:
    if "*" in origin:
        raise ConfigurationError("cors_origins names origins one by one: '*' would let every page in.")
    parts = urlsplit(origin)
    if origin != f"{parts.scheme}://{parts.netloc}" or parts.scheme not in ("http", "https") or "@" in parts.netloc:
        raise ConfigurationError(
            f"cors_origins are like 'https://app.example.com', without a path, not {origin!r:.80}."
        )


def _validate_jwks_url(url: str) -> None:
    """Whoever can change the keys on their way can sign for anyone."""
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return
    if parts.scheme != "http" or not is_loopback(parts.hostname or ""):
        raise ConfigurationError(f"jwks_url is an https address, or one of this machine, not {url!r:.120}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions(ServerSettings):
    """How to serve: the settings of the app, and those of its processes. `agents` are files, folders, or
    `module:attribute`. `trust_proxy` are addresses of proxies whose word on who calls is taken. `web_uis` build pages
    for people. `open` is found out by `check_options`, not passed."""

    url: str = _setting("tellback.db", "The store: a file, or postgresql://…", repr=False)
    host: str = _setting("127.0.0.1", "The address to serve on.")
    port: int = _setting(8765, "The port to serve on.", min=0, max=65_535)
    workers: int = _setting(1, "Processes that serve; several need PostgreSQL.", min=1, max=64)
    model: str | None = _setting(None, "The model that answers where none is named: by default the best at hand.")
    agents: tuple[str, ...] = _setting((), "Agents: a file, a folder, or module:attribute for those with routes.")
    extractor: Literal["llm", "verbatim"] | None = _setting(
        None, "How conversations are read: by the model if there is one."
    )
    prompts: str | None = _setting(None, "A folder with prompts of your own.")
    runs_jobs: bool = _setting(True, "Run jobs in this process as well.", "worker")
    trust_proxy: tuple[str, ...] = _setting((), "The address of a proxy that says who calls.")
    log_format: LogFormat = _setting("auto", "JSON, or text for people.")
    verbose: bool = False
    web_uis: tuple[Callable[[], WebUI], ...] = ()

    def __post_init__(self) -> None:
        ServerSettings.__post_init__(self)  # a class with slots is made twice, and super() would mean the first
        if self.workers < 1:
            raise ConfigurationError(f"workers is at least 1, not {self.workers}.")
        if self.workers > 1 and not self.is_on_postgres:
            raise ConfigurationError(
                "Several workers need PostgreSQL (--url postgresql://…): one process serves a SQLite file."
            )
        if self.workers > 1 and self.web_uis:
            raise ConfigurationError("The console needs one process, as its pages live in it: leave out --workers.")
        if "*" in self.trust_proxy:
            raise ConfigurationError(
                "trust_proxy names a proxy's address: '*' would take everyone's word on who they are."
            )
        if self.shutdown_seconds < 0:
            raise ConfigurationError(f"shutdown_seconds is not below 0, as {self.shutdown_seconds} is.")

    @property
    def is_on_postgres(self) -> bool:
        """Whether the store is one that several processes can serve."""
        return self.url.startswith(("postgresql://", "postgres://"))
