"""Tokens (JWT) of an identity provider: checked, and read as principals."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, cast

import jwt

from tellback.conversations import checks
from tellback.errors import InvalidArgumentError, NotAuthenticatedError
from tellback.server.callers import Principal
from tellback.server.jwks import IssuerKeys
from tellback.server.settings import JwtSettings
from tellback.types.access import API_KEY_ROLES, ApiKeyRole

MAX_TOKEN_LENGTH = 16_384
TOKEN_CACHE_SECONDS = 30.0
"""For so long, and not past its end, a token that was checked is good for more requests: a check costs as much as
many a request, and a key that the issuer takes back is noticed late anyway."""
MAX_CACHED_TOKENS = 10_000
MAX_TIMESTAMP = 10**12
"""No moment is later, in seconds: larger numbers cannot be reckoned with."""

# The first that matches decides: subclasses stand before their bases.
_JWT_ERROR_MESSAGES: tuple[tuple[type[jwt.PyJWTError], str], ...] = (
    (jwt.ExpiredSignatureError, "The token has expired: get a new one."),
    (jwt.ImmatureSignatureError, "The token is not valid yet (nbf or iat): is the issuer's clock right?"),
    (jwt.InvalidAudienceError, "The token is for another audience (aud)."),
    (jwt.InvalidIssuerError, "The token is of another issuer (iss)."),
    (jwt.InvalidIssuedAtError, "The token's iat is no number."),
    (
        jwt.InvalidAlgorithmError,
        "The token is signed with an algorithm that is not taken here.",
    ),
    (jwt.InvalidSignatureError, "The token's signature is wrong."),
)


class JwtVerifier:
    """Checks tokens."""

    def __init__(
        self,
        settings: JwtSettings,
        keys: IssuerKeys | None = None,
        timer: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._keys = keys or IssuerKeys.from_settings(settings)
        self._timer = timer
        self._cache: OrderedDict[bytes, tuple[Principal, float]] = OrderedDict()

    async def verify(self, token: str) -> Principal:
        """Whom a token stands for. Raises `NotAuthenticatedError`, which names the reason and never the token."""
        if len(token) > MAX_TOKEN_LENGTH:
            raise NotAuthenticatedError(f"The token has {len(token)} characters; {MAX_TOKEN_LENGTH} is the limit here.")
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
                raise NotAuthenticatedError(_unknown_key_message(kid))
            claims = jwt.decode(
                token,
                key.key,
                [algorithm],  # it is one of the settings' and fits the key's type: a token cannot choose another
                options={"require": ["exp", "iss", "aud"]},
                audience=settings.audience,
                issuer=settings.issuer,
                leeway=settings.leeway_seconds,
            )
        except jwt.MissingRequiredClaimError as error:
            raise NotAuthenticatedError(f"The token has no {error.claim}, which is needed here.") from None
        except jwt.PyJWTError as error:
            raise NotAuthenticatedError(_jwt_error_message(error)) from None
        for name in ("exp", "nbf", "iat"):
            if not _is_timestamp(claims.get(name, 0)):
                raise NotAuthenticatedError(f"The token's {name} is no number.")
        return claims

    def _to_principal(self, claims: Mapping[str, Any]) -> Principal:
        """The principal of claims that were checked."""
        settings = self._settings
        role = claims.get(settings.role_claim, settings.role)
        if role not in API_KEY_ROLES:
            raise NotAuthenticatedError(
                f"The token's {settings.role_claim} is none of the roles there are: {', '.join(API_KEY_ROLES)}."
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
    """A name for a credential that is kept in counts and logs, where no user's id may stand."""
    identity = "\0".join(parts).encode("utf-8", "surrogatepass")
    return f"jwt_{hashlib.sha256(identity).hexdigest()[:28]}"


def _claim_name(claim: str, value: object) -> str:
    if value is None:
        raise NotAuthenticatedError(f"The token has no {claim}, which is needed here.")
    try:
        return checks.validate_scope_id(claim, value)
    except InvalidArgumentError:
        raise NotAuthenticatedError(f"The token's {claim} is not a text that can be a name here.") from None


def _to_datetime(seconds: float) -> datetime:
    """A moment; what is later than can be written is the last one that can."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.max.replace(tzinfo=UTC)


def _is_timestamp(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -MAX_TIMESTAMP < value < MAX_TIMESTAMP


def _unknown_key_message(kid: object) -> str:
    if kid is None:
        return "The token does not say which key it is signed with (kid), and its issuer has several, or none for it."
    return "The token is signed with a key (kid) that its issuer does not have, or not for that algorithm."


def _jwt_error_message(error: jwt.PyJWTError) -> str:
    return next(
        (message for kind, message in _JWT_ERROR_MESSAGES if isinstance(error, kind)), "The token cannot be read."
    )
