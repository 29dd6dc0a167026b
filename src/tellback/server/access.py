"""Credentials: an API key or a JWT becomes a principal."""

from __future__ import annotations

from tellback.app import Tellback
from tellback.errors import NotAuthenticatedError
from tellback.server.callers import Principal
from tellback.server.jwt import JwtVerifier
from tellback.server.settings import ServerSettings

OPEN_PRINCIPAL = Principal("open", "default", "default", "admin")
"""Everyone, where there are no credentials."""

API_KEY_PREFIX = "rk_"
"""How our API keys begin. One of them is meant, also where none is needed."""


class Authenticator:
    """Reads credentials."""

    def __init__(self, rc: Tellback, settings: ServerSettings) -> None:
        self._rc = rc
        self._is_open = settings.open
        self._jwt_verifier = None if settings.jwt is None else JwtVerifier(settings.jwt)

    async def authenticate(self, authorization: str | None) -> Principal:
        """Whom the header `Authorization` stands for. Raises `NotAuthenticatedError`, which says why it is nobody."""
        if self._is_open and not (authorization or "").startswith(f"Bearer {API_KEY_PREFIX}"):
            return OPEN_PRINCIPAL  # clients of other vendors' APIs send keys of their own
        if authorization is None:
            raise NotAuthenticatedError("There is no credential: send `Authorization: Bearer <API key or token>`.")
        scheme, _, secret = authorization.partition(" ")
        secret = secret.strip()
        if scheme.lower() != "bearer" or not secret:
            raise NotAuthenticatedError("The header Authorization must be `Bearer <API key or token>`.")
        if self._jwt_verifier is not None and not secret.startswith(API_KEY_PREFIX):
            return await self._jwt_verifier.verify(secret)
        key = await self._rc.keys.check(secret)
        return Principal(key.id, key.tenant_id, key.app_id, key.role, key.user_id, key.rate_limit, key.expires_at)

    async def is_still_valid(self, authorization: str | None, principal: Principal) -> bool:
        """Whether a credential stands for the same one as before: long streams end when it does not."""
        try:
            return await self.authenticate(authorization) == principal
        except NotAuthenticatedError:
            return False
