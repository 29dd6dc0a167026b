"""Authenticate API keys and JWTs: a `Principal` per credential, and a `Caller` per request with the data it may use."""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import json
import logging
import time
import urllib.request
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, Any, cast

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from fastapi import Depends, Request

from tellback import validation
from tellback.api_keys import API_KEY_PREFIX
from tellback.app import Tellback
from tellback.errors import (
    ConfigurationError,
    InvalidArgumentError,
    NotAllowedError,
    NotAuthenticatedError,
    RemoteUnavailableError,
)
from tellback.server.settings import JwtSettings, ServerSettings
from tellback.types.access import API_KEY_ROLES, ApiKeyRole
from tellback.user import User

if TYPE_CHECKING:
    from tellback.agent import Agent

log = logging.getLogger("tellback.server")

FRESH_SECONDS = 300.0
"""Age in seconds after which keys are fetched again in the background; requests still use the old ones."""
STALE_SECONDS = 900.0
"""Age in seconds after which requests wait for a fetch. If it fails, the old keys remain in use."""
MIN_FETCH_INTERVAL = 30.0
"""Minimum seconds between two fetches, so that tokens with unknown key ids cannot flood the issuer."""
FIRST_FETCH_INTERVAL = 5.0
"""Minimum seconds between two fetches while there are no keys yet."""
FETCH_TIMEOUT = 5.0
MAX_JWKS_BYTES = 500_000
MAX_KEYS = 200
MIN_RSA_BITS = 2048

_ALGORITHM_BY_CURVE = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512", "secp256k1": "ES256K"}
_RSA_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")

JwksLoader = Callable[[], Awaitable[Mapping[str, Any]]]

MAX_TOKEN_LENGTH = 16_384
TOKEN_CACHE_SECONDS = 30.0
"""Seconds for which a checked token is accepted again without a check, at most until it expires."""
MAX_CACHED_TOKENS = 10_000
MAX_TIMESTAMP = 10**12
"""Largest timestamp accepted, in seconds; larger ones overflow date arithmetic."""

# The first match wins, so subclasses come before their base classes.
_JWT_ERROR_MESSAGES: tuple[tuple[type[jwt.PyJWTError], str], ...] = (
    (jwt.ExpiredSignatureError, "The token has expired: get a new one."),
    (jwt.ImmatureSignatureError, "The token is not valid yet (nbf or iat): check the issuer's clock."),
    (jwt.InvalidAudienceError, "The token is for another audience (aud)."),
    (jwt.InvalidIssuerError, "The token was issued by another issuer (iss)."),
    (jwt.InvalidIssuedAtError, "The token's iat must be a number."),
    (jwt.InvalidAlgorithmError, "The token is signed with an algorithm that this server does not accept."),
    (jwt.InvalidSignatureError, "The token's signature is invalid."),
)
_UNREADABLE_TOKEN = "The token cannot be parsed."
_UNNAMED_KEY = "The token has no key id (kid), and its issuer does not have exactly one key for its algorithm."
_UNKNOWN_KEY = "The issuer has no key with the token's key id (kid) and algorithm."


@dataclass(frozen=True, slots=True)
class Principal:
    """The tenant, app, role and user of a credential. `id` identifies it in logs and rate limits.

    Two tokens of the same user have equal principals, even if they expire at different times.
    """

    id: str
    tenant_id: str
    app_id: str
    role: ApiKeyRole
    user_id: str | None = None
    rate_limit: int | None = None
    expires_at: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ServerContext:
    """State shared by all requests of a server."""

    tb: Tellback
    settings: ServerSettings
    agents: Mapping[str, Agent] = field(default_factory=dict)


class Caller:
    """A request's principal, and the user it acts for: the credential's own, or the one in `X-Tellback-User`."""

    def __init__(self, server: ServerContext, principal: Principal, user_id: str | None) -> None:
        self.server = server
        self.principal = principal
        self.user_id = user_id

    @cached_property
    def user(self) -> User:
        """The handle of the user that the request acts for."""
        if self.user_id is None:
            raise InvalidArgumentError(
                "This credential is valid for any user of its app: send the user's id in the header X-Tellback-User."
            )
        return self.user_handle(self.user_id)

    def user_handle(self, user_id: str) -> User:
        """Return the handle of a user of the credential's tenant and app, if the credential may act for that user."""
        if self.principal.user_id not in (None, user_id):
            raise NotAllowedError(f"This credential may only act for user {self.principal.user_id!r}.")
        return self.server.tb.user(user_id, self.principal.tenant_id, self.principal.app_id)

    @property
    def app(self) -> tuple[str, str]:
        """The credential's tenant and app ids."""
        return self.principal.tenant_id, self.principal.app_id

    @property
    def is_admin(self) -> bool:
        return self.principal.role == "admin"

    def require_admin(self) -> None:
        """Raise `NotAllowedError` unless the credential has the role `admin`."""
        if not self.is_admin:
            raise NotAllowedError("This operation needs a credential with the role 'admin'.")

    def resolve_model(self, name: str | None) -> Any:
        """Return the model to use: the default model, or another that the settings allow."""
        default_model = self.server.tb.model
        if name is None or name == default_model:
            return default_model
        if name not in self.server.settings.models:
            known = [default_model] if isinstance(default_model, str) else []
            allowed = ", ".join([*known, *self.server.settings.models]) or "the server's default (omit the model)"
            raise NotAllowedError(f"Model {name!r:.120} is not served here. Allowed models: {allowed}.")
        return name


async def get_caller(request: Request) -> Caller:
    """Return the caller that `AuthMiddleware` has authenticated."""
    caller: Caller = request.scope["state"]["caller"]
    return caller


async def get_admin(request: Request) -> Caller:
    """Return the caller, or raise `NotAllowedError` unless it is an admin."""
    caller: Caller = request.scope["state"]["caller"]
    caller.require_admin()
    return caller


CallerDep = Annotated[Caller, Depends(get_caller)]


@dataclass(frozen=True, slots=True)
class VerifyingKey:
    """A public key and the algorithms it may verify."""

    kid: str | None
    algorithms: frozenset[str]
    key: Any = field(repr=False)


class IssuerKeys:
    """The public keys of a JWT issuer. Requests that need new keys at the same time share one fetch."""

    def __init__(
        self, load: JwksLoader | None, keys: tuple[VerifyingKey, ...] = (), timer: Callable[[], float] = time.monotonic
    ) -> None:
        self._load = load
        self._keys = keys
        self._timer = timer
        self._fetched_at = self._attempted_at = -float("inf")
        self._fetch_task: asyncio.Task[None] | None = None

    @classmethod
    def from_settings(cls, settings: JwtSettings) -> IssuerKeys:
        if settings.jwks_url is not None:
            return cls(partial(asyncio.to_thread, fetch_jwks, settings.jwks_url))
        try:
            return cls(None, parse_jwks(settings.jwks))
        except ValueError as error:
            raise ConfigurationError(f"JwtSettings.jwks is invalid: {error}.") from error

    async def find(self, kid: str | None, algorithm: str) -> VerifyingKey | None:
        """Return the key with that id and algorithm; without an id, the only key for that algorithm.

        Raises `RemoteUnavailableError` while there are no keys, since the token may be valid.
        """
        found = self._select(kid, algorithm)
        if self._load is None:
            return found
        age = self._timer() - self._fetched_at
        if found is not None and age < STALE_SECONDS:
            if age >= FRESH_SECONDS:
                self._start_fetch()
            return found
        fetching = self._start_fetch()
        if fetching is not None:
            await asyncio.shield(fetching)  # a cancelled request must not cancel the others' fetch
        if not self._keys:
            raise RemoteUnavailableError("The JWT issuer's keys cannot be fetched: try again in a moment.")
        return self._select(kid, algorithm)

    def _select(self, kid: str | None, algorithm: str) -> VerifyingKey | None:
        candidates = [key for key in self._keys if algorithm in key.algorithms and kid in (None, key.kid)]
        return candidates[0] if len(candidates) == 1 or (candidates and kid is not None) else None

    def _start_fetch(self) -> asyncio.Task[None] | None:
        """Return the running fetch, or start one; None if the last one was too recent."""
        if self._fetch_task is None:
            pause = MIN_FETCH_INTERVAL if self._keys else FIRST_FETCH_INTERVAL
            if self._timer() - self._attempted_at < pause:
                return None
            self._attempted_at = self._timer()
            self._fetch_task = asyncio.create_task(self._fetch())
        return self._fetch_task

    async def _fetch(self) -> None:
        assert self._load is not None
        started = self._timer()
        try:
            async with asyncio.timeout(2 * FETCH_TIMEOUT):
                loaded = await self._load()
            self._keys, self._fetched_at = parse_jwks(loaded), started
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:  # TimeoutError is an OSError
            fallback = "keeping the old ones" if self._keys else "so no token can be verified"
            log.warning("Could not fetch the JWT issuer's keys, %s: %r", fallback, error)
        finally:
            self._fetch_task = None


def parse_jwks(jwks: object) -> tuple[VerifyingKey, ...]:
    """Parse the signature keys of a JWKS. Keys of other kinds or for other uses are skipped."""
    entries = jwks.get("keys") if isinstance(jwks, Mapping) else None
    if not isinstance(entries, list):
        raise ValueError("a JWKS must be an object with a list named keys")
    keys = [key for entry in entries[:MAX_KEYS] if (key := _parse_key(entry)) is not None]
    if not keys:
        raise ValueError("it contains no public key that can verify tokens")
    return tuple(keys)


def _parse_key(jwk: object) -> VerifyingKey | None:
    if not isinstance(jwk, Mapping):
        return None
    algorithms, kid, operations = _key_algorithms(jwk), jwk.get("kid"), jwk.get("key_ops")
    if not algorithms or jwk.get("use", "sig") != "sig" or not isinstance(kid, str | None):
        return None
    if operations is not None and not (isinstance(operations, list) and "verify" in operations):
        return None
    if "d" in jwk:  # a private key: anyone who has read it can sign tokens
        return None
    try:
        key = jwt.PyJWK(dict(jwk), algorithms[0]).key
    except (
        jwt.PyJWTError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
    ):  # AttributeError: a value is not a string
        return None
    if isinstance(key, RSAPublicKey) and key.key_size < MIN_RSA_BITS:
        return None
    return VerifyingKey(kid, frozenset(algorithms), key)


def _key_algorithms(jwk: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the algorithms a key may verify: those of its type, or only the declared one; none for symmetric keys."""
    kind, curve, declared = jwk.get("kty"), jwk.get("crv"), jwk.get("alg")
    candidates: tuple[str, ...] = ()
    if kind == "RSA":
        candidates = _RSA_ALGORITHMS
    elif kind == "EC" and isinstance(curve, str) and curve in _ALGORITHM_BY_CURVE:
        candidates = (_ALGORITHM_BY_CURVE[curve],)
    elif kind == "OKP" and curve in ("Ed25519", "Ed448"):
        candidates = ("EdDSA",)
    return candidates if declared is None else tuple(name for name in candidates if name == declared)


def fetch_jwks(url: str, seconds: float = FETCH_TIMEOUT, max_bytes: int = MAX_JWKS_BYTES) -> Mapping[str, Any]:
    """Fetch a JSON object within limits of time and size, following no redirects. This call blocks."""
    deadline = time.monotonic() + seconds
    request = urllib.request.Request(url, headers={"Accept": "application/json", "User-Agent": "tellback"})
    chunks, size = [], 0
    with _opener.open(request, timeout=seconds) as response:
        while chunk := response.read1(65_536):
            chunks.append(chunk)
            size += len(chunk)
            if size > max_bytes:
                raise ValueError(f"the response has more than {max_bytes} bytes")
            if time.monotonic() > deadline:
                raise TimeoutError(f"the response took more than {seconds:g} seconds")
    document = json.loads(b"".join(chunks))
    if not isinstance(document, dict):
        raise ValueError("the response is not a JSON object")
    return document


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **more: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirects)


class JwtVerifier:
    """Verifies JWTs and caches the results."""

    def __init__(
        self, settings: JwtSettings, keys: IssuerKeys | None = None, timer: Callable[[], float] = time.time
    ) -> None:
        self._settings = settings
        self._keys = keys or IssuerKeys.from_settings(settings)
        self._timer = timer
        self._cache: OrderedDict[bytes, tuple[Principal, float]] = OrderedDict()

    async def verify(self, token: str) -> Principal:
        """Return a token's principal. Raises `NotAuthenticatedError` with the reason, never with the token."""
        if len(token) > MAX_TOKEN_LENGTH:
            raise NotAuthenticatedError(f"The token has {len(token)} characters; the limit is {MAX_TOKEN_LENGTH}.")
        digest = hashlib.sha256(token.encode()).digest()
        cached = self._cache.get(digest)
        if cached is not None and self._timer() < cached[1]:
            self._cache.move_to_end(digest)
            return cached[0]
        claims = await self._verify_claims(token)
        principal = self._to_principal(claims)
        self._cache[digest] = (
            principal,
            min(self._timer() + TOKEN_CACHE_SECONDS, claims["exp"] + self._settings.leeway_seconds),
        )
        if len(self._cache) > MAX_CACHED_TOKENS:
            self._cache.popitem(last=False)
        return principal

    async def _verify_claims(self, token: str) -> Mapping[str, Any]:
        settings = self._settings
        try:
            header = jwt.get_unverified_header(token)
            algorithm, kid = header.get("alg"), header.get("kid")
            if not isinstance(algorithm, str) or algorithm not in settings.algorithms:
                raise jwt.InvalidAlgorithmError
            key = await self._keys.find(kid, algorithm)
            if key is None:
                raise NotAuthenticatedError(_UNNAMED_KEY if kid is None else _UNKNOWN_KEY)
            claims = jwt.decode(
                token,
                key.key,
                [algorithm],  # an allowed algorithm that fits the key: a token cannot choose another
                options={"require": ["exp", "iss", "aud"]},
                audience=settings.audience,
                issuer=settings.issuer,
                leeway=settings.leeway_seconds,
            )
        except jwt.MissingRequiredClaimError as error:
            raise NotAuthenticatedError(f"The token has no {error.claim}, which this server requires.") from None
        except jwt.PyJWTError as error:
            message = next((text for kind, text in _JWT_ERROR_MESSAGES if isinstance(error, kind)), _UNREADABLE_TOKEN)
            raise NotAuthenticatedError(message) from None
        for name in ("exp", "nbf", "iat"):
            value = claims.get(name, 0)
            if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < MAX_TIMESTAMP:
                raise NotAuthenticatedError(f"The token's {name} must be a number.")
        return claims

    def _to_principal(self, claims: Mapping[str, Any]) -> Principal:
        """Build the principal from verified claims."""
        settings = self._settings
        role = claims.get(settings.role_claim, settings.role)
        if role not in API_KEY_ROLES:
            raise NotAuthenticatedError(
                f"The token's {settings.role_claim} must be one of these roles: {', '.join(API_KEY_ROLES)}."
            )
        tenant_id = _claim_name(settings.tenant_claim, claims.get(settings.tenant_claim, settings.tenant_id))
        app_id = _claim_name(settings.app_claim, claims.get(settings.app_claim, settings.app_id))
        subject_claim = settings.user_claim if role == "user" else "sub"
        subject = _claim_name(subject_claim, claims.get(subject_claim))
        user_id = subject if role == "user" else None
        return Principal(
            _credential_id(settings.issuer, tenant_id, app_id, role, subject),
            tenant_id,
            app_id,
            cast("ApiKeyRole", role),
            user_id,
            expires_at=_to_datetime(claims["exp"] + settings.leeway_seconds),
        )


def _credential_id(*parts: str) -> str:
    """Return a stable id for a credential. It is a digest because ids appear in logs, where user ids must not."""
    identity = "\0".join(parts).encode("utf-8", "surrogatepass")
    return f"jwt_{hashlib.sha256(identity).hexdigest()[:28]}"


def _claim_name(claim: str, value: object) -> str:
    if value is None:
        raise NotAuthenticatedError(f"The token has no {claim}, which this server requires.")
    try:
        return validation.validate_scope_id(claim, value)
    except InvalidArgumentError:
        raise NotAuthenticatedError(f"The token's {claim} is not a valid id.") from None


def _to_datetime(seconds: float) -> datetime:
    """Convert a timestamp; values too large for `datetime` become the latest one."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.max.replace(tzinfo=UTC)


OPEN_PRINCIPAL = Principal("open", "default", "default", "admin")
"""The principal of every request to an open server."""


class Authenticator:
    """Turns the `Authorization` header into a principal."""

    def __init__(self, tb: Tellback, settings: ServerSettings) -> None:
        self._tb = tb
        self._is_open = settings.open
        self._jwt_verifier = None if settings.jwt is None else JwtVerifier(settings.jwt)

    async def authenticate(self, authorization: str | None) -> Principal:
        """Return the principal of an `Authorization` header. Raises `NotAuthenticatedError` with the reason."""
        if self._is_open and not (authorization or "").startswith(f"Bearer {API_KEY_PREFIX}"):
            return OPEN_PRINCIPAL  # OpenAI clients always send some API key
        if authorization is None:
            raise NotAuthenticatedError("The request has no credential: send `Authorization: Bearer <API key or JWT>`.")
        scheme, _, secret = authorization.partition(" ")
        secret = secret.strip()
        if scheme.lower() != "bearer" or not secret:
            raise NotAuthenticatedError("The header Authorization must be `Bearer <API key or token>`.")
        if self._jwt_verifier is not None and not secret.startswith(API_KEY_PREFIX):
            return await self._jwt_verifier.verify(secret)
        key = await self._tb.keys.check(secret)
        return Principal(key.id, key.tenant_id, key.app_id, key.role, key.user_id, key.rate_limit, key.expires_at)

    async def is_still_valid(self, authorization: str | None, principal: Principal) -> bool:
        """Whether a credential still has the same principal; if not, long streams end."""
        try:
            return await self.authenticate(authorization) == principal
        except NotAuthenticatedError:
            return False
