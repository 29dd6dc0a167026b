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
from tellback.types.access import ROLES, Role

LONGEST = 16_384
HOLD_SECONDS = 30.0
"""For so long, and not past its end, a token that was checked is good for more requests: a check costs as much as
many a request, and a key that the issuer takes back is noticed late anyway."""
MOST_HELD = 10_000
LATEST = 10**12
"""No moment is later, in seconds: larger numbers cannot be reckoned with."""

# The first that matches decides: subclasses stand before their bases.
_REASONS: tuple[tuple[type[jwt.PyJWTError], str], ...] = (
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


class Tokens:
    """Checks tokens."""

    def __init__(
        self,
        settings: JwtSettings,
        keys: IssuerKeys | None = None,
        timer: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._keys = keys or IssuerKeys.of(settings)
        self._timer = timer
        self._held: OrderedDict[bytes, tuple[Principal, float]] = OrderedDict()

    async def principal(self, token: str) -> Principal:
        """Whom a token stands for. Raises `NotAuthenticatedError`, which names the reason and never the token."""
        if len(token) > LONGEST:
            raise NotAuthenticatedError(f"The token has {len(token)} characters; {LONGEST} is the limit here.")
        digest = hashlib.sha256(token.encode()).digest()
        held = self._held.get(digest)
        if held is not None and self._timer() < held[1]:
            self._held.move_to_end(digest)
            return held[0]
        claims = await self._claims(token)
        principal = self._read(claims)
        self._held[digest] = principal, min(self._timer() + HOLD_SECONDS, claims["exp"] + self._settings.leeway_seconds)
        if len(self._held) > MOST_HELD:
            self._held.popitem(last=False)
        return principal

    async def _claims(self, token: str) -> Mapping[str, Any]:
        settings = self._settings
        try:
            header = jwt.get_unverified_header(token)
            algorithm, kid = header.get("alg"), header.get("kid")
            if not isinstance(algorithm, str) or algorithm not in settings.algorithms:
                raise jwt.InvalidAlgorithmError
            key = await self._keys.find(kid, algorithm)
            if key is None:
                raise NotAuthenticatedError(_no_key(kid))
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
            raise NotAuthenticatedError(_reason(error)) from None
        for name in ("exp", "nbf", "iat"):
            if not _is_moment(claims.get(name, 0)):
                raise NotAuthenticatedError(f"The token's {name} is no number.")
        return claims

    def _read(self, claims: Mapping[str, Any]) -> Principal:
        """The principal of claims that were checked."""
        settings = self._settings
        role = claims.get(settings.role_claim, settings.role)
        if role not in ROLES:
            raise NotAuthenticatedError(
                f"The token's {settings.role_claim} is none of the roles there are: {', '.join(ROLES)}."
            )
        tenant_id = _name(settings.tenant_claim, claims.get(settings.tenant_claim, settings.tenant_id))
        app_id = _name(settings.app_claim, claims.get(settings.app_claim, settings.app_id))
        whose = settings.user_claim if role == "user" else "sub"
        subject = _name(whose, claims.get(whose))
        user_id = subject if role == "user" else None
        return Principal(
            _id(settings.issuer, tenant_id, app_id, role, subject),
            tenant_id,
            app_id,
            cast("Role", role),
            user_id,
            expires_at=_moment(claims["exp"] + settings.leeway_seconds),
        )


def _id(*parts: str) -> str:
    """A name for a credential that is kept in counts and logs, where no user's id may stand."""
    told = "\0".join(parts).encode("utf-8", "surrogatepass")
    return f"jwt_{hashlib.sha256(told).hexdigest()[:28]}"


def _name(claim: str, value: object) -> str:
    if value is None:
        raise NotAuthenticatedError(f"The token has no {claim}, which is needed here.")
    try:
        return checks.scope_name(claim, value)
    except InvalidArgumentError:
        raise NotAuthenticatedError(f"The token's {claim} is not a text that can be a name here.") from None


def _moment(seconds: float) -> datetime:
    """A moment; what is later than can be written is the last one that can."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.max.replace(tzinfo=UTC)


def _is_moment(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -LATEST < value < LATEST


def _no_key(kid: object) -> str:
    if kid is None:
        return "The token does not say which key it is signed with (kid), and its issuer has several, or none for it."
    return "The token is signed with a key (kid) that its issuer does not have, or not for that algorithm."


def _reason(error: jwt.PyJWTError) -> str:
    return next((told for kind, told in _REASONS if isinstance(error, kind)), "The token cannot be read.")
