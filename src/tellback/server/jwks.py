"""The keys that tokens are signed with: read from a JWKS, fetched when need be, and never too often."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import time
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from tellback.errors import ConfigurationError, RemoteUnavailableError
from tellback.server.settings import JwtSettings

log = logging.getLogger("tellback.server")

FRESH_SECONDS = 300.0
"""For so long keys are used as they are. After it they are fetched again, while requests go on with those there are."""
STALE_SECONDS = 900.0
"""After so long requests wait for newer ones; what cannot be fetched leaves those there are in use."""
MIN_FETCH_INTERVAL = 30.0
"""So long between two fetches at least: tokens that name keys nobody has must not drive requests to the issuer."""
FIRST_FETCH_INTERVAL = 5.0
"""The same while there are no keys at all."""
FETCH_TIMEOUT = 5.0
MAX_JWKS_BYTES = 500_000
MAX_KEYS = 200
MIN_RSA_BITS = 2048

_ALGORITHM_BY_CURVE = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512", "secp256k1": "ES256K"}
_RSA_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")

JwksLoader = Callable[[], Awaitable[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class VerifyingKey:
    """A public key, and the algorithms it is for."""

    kid: str | None
    algorithms: frozenset[str]
    key: Any = field(repr=False)


class IssuerKeys:
    """The keys of an issuer. Those who need new ones at the same time wait for one fetch."""

    def __init__(
        self,
        load: JwksLoader | None,
        keys: tuple[VerifyingKey, ...] = (),
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._load = load
        self._keys = keys
        self._timer = timer
        self._fetched_at = self._attempted_at = -float("inf")
        self._fetch_task: asyncio.Task[None] | None = None

    @classmethod
    def from_settings(cls, settings: JwtSettings) -> IssuerKeys:
        """The keys that settings name."""
        if settings.jwks_url is not None:
            return cls(partial(asyncio.to_thread, fetch_jwks, settings.jwks_url))
        try:
            return cls(None, parse_jwks(settings.jwks))
        except ValueError as error:
            raise ConfigurationError(f"jwks of JwtSettings cannot be used: {error}.") from error

    async def find(self, kid: str | None, algorithm: str) -> VerifyingKey | None:
        """The key that a token names, if it is for that algorithm; without a name, the only one there is for it.

        Raises `RemoteUnavailableError` while there are no keys, since the token may be good.
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
            await asyncio.shield(fetching)  # whoever gives up does so alone
        if not self._keys:
            raise RemoteUnavailableError("The keys of the tokens' issuer cannot be fetched now: try again in a moment.")
        return self._select(kid, algorithm)

    def _select(self, kid: str | None, algorithm: str) -> VerifyingKey | None:
        candidates = [key for key in self._keys if algorithm in key.algorithms and kid in (None, key.kid)]
        return candidates[0] if len(candidates) == 1 or (candidates and kid is not None) else None

    def _start_fetch(self) -> asyncio.Task[None] | None:
        """The fetch that runs, or a new one; None if the last was just now."""
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
            fallback = "those there are stay in use" if self._keys else "there are none"
            log.warning("the keys of the tokens' issuer could not be fetched, %s: %r", fallback, error)
        finally:
            self._fetch_task = None


def parse_jwks(jwks: object) -> tuple[VerifyingKey, ...]:
    """The keys of a JWKS that tokens can be checked with; those of other kinds or for other uses are left out."""
    entries = jwks.get("keys") if isinstance(jwks, Mapping) else None
    if not isinstance(entries, list):
        raise ValueError("a JWKS is an object with a list of keys")
    keys = [key for entry in entries[:MAX_KEYS] if (key := _parse_key(entry)) is not None]
    if not keys:
        raise ValueError("it holds no public key that a token could be checked with")
    return tuple(keys)


def _parse_key(jwk: object) -> VerifyingKey | None:
    if not isinstance(jwk, Mapping):
        return None
    algorithms, kid, operations = _key_algorithms(jwk), jwk.get("kid"), jwk.get("key_ops")
    if not algorithms or jwk.get("use", "sig") != "sig" or not isinstance(kid, str | None):
        return None
    if operations is not None and not (isinstance(operations, list) and "verify" in operations):
        return None
    if "d" in jwk:  # a private key that was published is everyone's
        return None
    try:
        key = jwt.PyJWK(dict(jwk), algorithms[0]).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, AttributeError):  # AttributeError: a number for a text
        return None
    if isinstance(key, RSAPublicKey) and key.key_size < MIN_RSA_BITS:
        return None
    return VerifyingKey(kid, frozenset(algorithms), key)


def _key_algorithms(jwk: Mapping[str, Any]) -> tuple[str, ...]:
    """What a key is for: by its type, and only what it says itself if it says so. Shared secrets are for nothing."""
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
    """The JSON at an address, within bounds of time and size, and from nowhere else than there. It blocks."""
    deadline = time.monotonic() + seconds
    request = urllib.request.Request(url, headers={"Accept": "application/json", "User-Agent": "tellback"})
    chunks, size = [], 0
    with _opener.open(request, timeout=seconds) as response:
        while chunk := response.read1(65_536):
            chunks.append(chunk)
            size += len(chunk)
            if size > max_bytes:
                raise ValueError(f"the answer has more than {max_bytes} bytes")
            if time.monotonic() > deadline:
                raise TimeoutError(f"the answer took more than {seconds:g} seconds")
    document = json.loads(b"".join(chunks))
    if not isinstance(document, dict):
        raise ValueError("the answer is no JSON object")
    return document


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **more: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirects)
