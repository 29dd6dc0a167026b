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
OLD_SECONDS = 900.0
"""After so long requests wait for newer ones; what cannot be fetched leaves those there are in use."""
PAUSE_SECONDS = 30.0
"""So long between two fetches at least: tokens that name keys nobody has must not drive requests to the issuer."""
RETRY_SECONDS = 5.0
"""The same while there are no keys at all."""
FETCH_SECONDS = 5.0
MOST_BYTES = 500_000
MOST_KEYS = 200
SMALLEST_RSA = 2048

_BY_CURVE = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512", "secp256k1": "ES256K"}
_BY_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")

Load = Callable[[], Awaitable[Mapping[str, Any]]]


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
        load: Load | None,
        keys: tuple[VerifyingKey, ...] = (),
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._load = load
        self._keys = keys
        self._timer = timer
        self._read_at = self._tried_at = -float("inf")
        self._fetching: asyncio.Task[None] | None = None

    @classmethod
    def of(cls, settings: JwtSettings) -> IssuerKeys:
        """The keys that settings name."""
        if settings.jwks_url is not None:
            return cls(partial(asyncio.to_thread, fetch, settings.jwks_url))
        try:
            return cls(None, read_keys(settings.jwks))
        except ValueError as error:
            raise ConfigurationError(f"jwks of JwtSettings cannot be used: {error}.") from error

    async def find(self, kid: str | None, algorithm: str) -> VerifyingKey | None:
        """The key that a token names, if it is for that algorithm; without a name, the only one there is for it.

        Raises `RemoteUnavailableError` while there are no keys, since the token may be good.
        """
        found = self._pick(kid, algorithm)
        if self._load is None:
            return found
        age = self._timer() - self._read_at
        if found is not None and age < OLD_SECONDS:
            if age >= FRESH_SECONDS:
                self._fetch_soon()
            return found
        fetching = self._fetch_soon()
        if fetching is not None:
            await asyncio.shield(fetching)  # whoever gives up does so alone
        if not self._keys:
            raise RemoteUnavailableError("The keys of the tokens' issuer cannot be fetched now: try again in a moment.")
        return self._pick(kid, algorithm)

    def _pick(self, kid: str | None, algorithm: str) -> VerifyingKey | None:
        fitting = [each for each in self._keys if algorithm in each.algorithms and kid in (None, each.kid)]
        return fitting[0] if len(fitting) == 1 or (fitting and kid is not None) else None

    def _fetch_soon(self) -> asyncio.Task[None] | None:
        """The fetch that runs, or a new one; None if the last was just now."""
        if self._fetching is None:
            pause = PAUSE_SECONDS if self._keys else RETRY_SECONDS
            if self._timer() - self._tried_at < pause:
                return None
            self._tried_at = self._timer()
            self._fetching = asyncio.create_task(self._fetch())
        return self._fetching

    async def _fetch(self) -> None:
        assert self._load is not None
        begun = self._timer()
        try:
            async with asyncio.timeout(2 * FETCH_SECONDS):
                loaded = await self._load()
            self._keys, self._read_at = read_keys(loaded), begun
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:  # TimeoutError is an OSError
            kept = "those there are stay in use" if self._keys else "there are none"
            log.warning("the keys of the tokens' issuer could not be fetched, %s: %r", kept, error)
        finally:
            self._fetching = None


def read_keys(jwks: object) -> tuple[VerifyingKey, ...]:
    """The keys of a JWKS that tokens can be checked with; those of other kinds or for other uses are left out."""
    listed = jwks.get("keys") if isinstance(jwks, Mapping) else None
    if not isinstance(listed, list):
        raise ValueError("a JWKS is an object with a list of keys")
    found = [key for each in listed[:MOST_KEYS] if (key := _read_key(each)) is not None]
    if not found:
        raise ValueError("it holds no public key that a token could be checked with")
    return tuple(found)


def _read_key(given: object) -> VerifyingKey | None:
    if not isinstance(given, Mapping):
        return None
    algorithms, kid, operations = _algorithms(given), given.get("kid"), given.get("key_ops")
    if not algorithms or given.get("use", "sig") != "sig" or not isinstance(kid, str | None):
        return None
    if operations is not None and not (isinstance(operations, list) and "verify" in operations):
        return None
    if "d" in given:  # a private key that was published is everyone's
        return None
    try:
        key = jwt.PyJWK(dict(given), algorithms[0]).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, AttributeError):  # AttributeError: a number for a text
        return None
    if isinstance(key, RSAPublicKey) and key.key_size < SMALLEST_RSA:
        return None
    return VerifyingKey(kid, frozenset(algorithms), key)


def _algorithms(given: Mapping[str, Any]) -> tuple[str, ...]:
    """What a key is for: by its type, and only what it says itself if it says so. Shared secrets are for nothing."""
    kind, curve, own = given.get("kty"), given.get("crv"), given.get("alg")
    fitting: tuple[str, ...] = ()
    if kind == "RSA":
        fitting = _BY_RSA
    elif kind == "EC" and isinstance(curve, str) and curve in _BY_CURVE:
        fitting = (_BY_CURVE[curve],)
    elif kind == "OKP" and curve in ("Ed25519", "Ed448"):
        fitting = ("EdDSA",)
    return fitting if own is None else tuple(name for name in fitting if name == own)


def fetch(url: str, seconds: float = FETCH_SECONDS, most: int = MOST_BYTES) -> Mapping[str, Any]:
    """The JSON at an address, within bounds of time and size, and from nowhere else than there. It blocks."""
    deadline = time.monotonic() + seconds
    request = urllib.request.Request(url, headers={"Accept": "application/json", "User-Agent": "tellback"})
    parts, size = [], 0
    with _opener.open(request, timeout=seconds) as answer:
        while part := answer.read1(65_536):
            parts.append(part)
            size += len(part)
            if size > most:
                raise ValueError(f"the answer has more than {most} bytes")
            if time.monotonic() > deadline:
                raise TimeoutError(f"the answer took more than {seconds:g} seconds")
    read = json.loads(b"".join(parts))
    if not isinstance(read, dict):
        raise ValueError("the answer is no JSON object")
    return read


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **more: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirects)
