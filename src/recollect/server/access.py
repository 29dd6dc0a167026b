"""Credentials: an API key or a JWT becomes a principal."""

from __future__ import annotations

from recollect.app import Recollect
from recollect.errors import NotAuthenticatedError
from recollect.server.callers import Principal
from recollect.server.settings import ServerSettings

OPEN = Principal("open", "default", "default", "admin")
"""Everyone, where there are no credentials."""


class Access:
    """Reads credentials."""

    def __init__(self, rc: Recollect, settings: ServerSettings) -> None:
        self._rc = rc
        self._settings = settings

    async def principal(self, authorization: str | None) -> Principal:
        """Whom the header `Authorization` stands for. Raises `NotAuthenticatedError`, which says why it is nobody."""
        if self._settings.open:
            return OPEN
        if authorization is None:
            raise NotAuthenticatedError("There is no credential: send `Authorization: Bearer <API key or token>`.")
        scheme, _, secret = authorization.partition(" ")
        if scheme.lower() != "bearer" or not secret.strip():
            raise NotAuthenticatedError("The header Authorization must be `Bearer <API key or token>`.")
        key = await self._rc.keys.check(secret.strip())
        return Principal(key.id, key.tenant_id, key.app_id, key.role, key.user_id, key.rate_limit)
