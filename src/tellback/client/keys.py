"""API keys of a server, for admins."""

from __future__ import annotations

import builtins
from datetime import datetime, timedelta

from tellback.client.handle import RemoteHandle
from tellback.client.ids import require_server_id
from tellback.client.pages import list_all
from tellback.client.transport import build_path
from tellback.client.values import encode_arguments
from tellback.conversations import checks
from tellback.types.access import ApiKey, ApiKeyRole, NewApiKey
from tellback.types.times import utc_now
from tellback.wire.access import ApiKeyWire, NewApiKeyWire

KEYS_PATH = ("ai-admin", "keys")


class RemoteKeys(RemoteHandle):
    """API keys of the credential's tenant and app."""

    async def create(
        self,
        role: ApiKeyRole = "app",
        *,
        name: str = "",
        user_id: str | None = None,
        expires_at: datetime | str | timedelta | None = None,
        rate_limit: int | None = None,
    ) -> NewApiKey:
        """Make a key. Its secret is shown this once."""
        end = utc_now() + expires_at if isinstance(expires_at, timedelta) else expires_at
        body = encode_arguments(
            role=role,
            name=name,
            user_id=user_id,
            expires_at=None if end is None else checks.parse_datetime("expires_at", end),
            rate_limit=rate_limit,
        )
        # Sent once: the secret of a key that was made twice would be lost, and the key would not.
        payload = await self._post(build_path(*KEYS_PATH), body, has_own_key=True)
        created: NewApiKey = NewApiKeyWire.model_validate(payload).value()
        return created

    async def list(self) -> builtins.list[ApiKey]:
        """All keys, also revoked and expired ones, the oldest first."""
        return await list_all(self._transport, build_path(*KEYS_PATH), ApiKeyWire, None, user=self._user, query={})

    async def get(self, id: str) -> ApiKey | None:
        """The key of that id, or None."""
        found = await self._get_by_id(*KEYS_PATH, id)
        if found is None:
            return None
        key: ApiKey = ApiKeyWire.model_validate(found).value()
        return key

    async def revoke(self, id: str) -> ApiKey:
        """End a key for good."""
        payload = await self._delete(build_path(*KEYS_PATH, require_server_id("API key", id)))
        key: ApiKey = ApiKeyWire.model_validate(payload).value()
        return key
