"""API keys of a server, for admins."""

from __future__ import annotations

import builtins
from datetime import datetime, timedelta

from tellback.client.handle import RemoteHandle
from tellback.client.ids import made_id
from tellback.client.pages import listed
from tellback.client.transport import path_of
from tellback.client.values import given
from tellback.conversations import checks
from tellback.types.access import ApiKey, NewApiKey, Role
from tellback.types.times import utc_now
from tellback.wire.access import ApiKeyWire, NewApiKeyWire

HERE = ("ai-admin", "keys")


class RemoteKeys(RemoteHandle):
    """API keys of the credential's tenant and app."""

    async def create(
        self,
        role: Role = "app",
        *,
        name: str = "",
        user_id: str | None = None,
        expires_at: datetime | str | timedelta | None = None,
        rate_limit: int | None = None,
    ) -> NewApiKey:
        """Make a key. Its secret is shown this once."""
        end = utc_now() + expires_at if isinstance(expires_at, timedelta) else expires_at
        body = given(
            role=role,
            name=name,
            user_id=user_id,
            expires_at=None if end is None else checks.moment("expires_at", end),
            rate_limit=rate_limit,
        )
        # Sent once: the secret of a key that was made twice would be lost, and the key would not.
        told = await self._post(path_of(*HERE), body, native=True)
        made: NewApiKey = NewApiKeyWire.model_validate(told).value()
        return made

    async def list(self) -> builtins.list[ApiKey]:
        """All keys, also revoked and expired ones, the oldest first."""
        return await listed(self._transport, path_of(*HERE), ApiKeyWire, None, user=self._user, query={})

    async def get(self, id: str) -> ApiKey | None:
        """The key of that id, or None."""
        found = await self._found(*HERE, id)
        if found is None:
            return None
        key: ApiKey = ApiKeyWire.model_validate(found).value()
        return key

    async def revoke(self, id: str) -> ApiKey:
        """End a key for good."""
        told = await self._delete(path_of(*HERE, made_id("API key", id)))
        key: ApiKey = ApiKeyWire.model_validate(told).value()
        return key
