"""API keys in SQL: `ApiKeys` on any engine."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

from tellback.errors import NotFoundError
from tellback.stores import access_rows
from tellback.stores.atoms import event_statement
from tellback.stores.engine import Operation, SqlEngine, run_in_scope
from tellback.stores.ports.access import StoredKey
from tellback.types.access import ApiKey
from tellback.types.scope import Scope
from tellback.types.times import to_micros


class SqlApiKeys:
    """`ApiKeys` on an engine."""

    def __init__(self, engine: SqlEngine) -> None:
        self._engine = engine

    async def create(self, key: ApiKey, digest: str) -> ApiKey:
        return await self._engine.write(None, partial(_create_key, key, access_rows.api_key_values(key, digest)))

    async def get(self, id: str) -> StoredKey | None:
        return await self._engine.read(None, partial(_get_key, id), brief=True)

    async def list_keys(self, *, tenant_id: str | None = None, app_id: str | None = None) -> list[ApiKey]:
        return await self._engine.read(None, partial(_list_keys, {"tenant": tenant_id, "app": app_id}))

    async def revoke(
        self, id: str, *, tenant_id: str | None = None, app_id: str | None = None, now: datetime
    ) -> ApiKey:
        values = {"id": id, "tenant": tenant_id, "app": app_id, "now": to_micros(now)}
        return await self._engine.write(None, partial(_revoke_key, values))


def _create_key(key: ApiKey, values: dict[str, Any]) -> Operation[ApiKey]:
    yield "platform_api_key_create", values
    yield from _write_key_event("key.created", key, values["created_at"])
    return key


def _get_key(id: str) -> Operation[StoredKey | None]:
    found = yield "platform_api_key_get", {"id": id}
    return StoredKey(access_rows.api_key_from_row(found[0]), found[0][access_rows.API_KEY_DIGEST]) if found else None


def _list_keys(values: dict[str, Any]) -> Operation[list[ApiKey]]:
    found = yield "platform_api_keys", values
    return [access_rows.api_key_from_row(row) for row in found]


def _revoke_key(values: dict[str, Any]) -> Operation[ApiKey]:
    found = yield "platform_api_key_revoke", values
    if found:
        key = access_rows.api_key_from_row(found[0])
        yield from _write_key_event("key.revoked", key, values["now"])
        return key
    revoked_before = yield "platform_api_key_of", values
    if not revoked_before:
        raise NotFoundError("API key", values["id"])
    return access_rows.api_key_from_row(revoked_before[0])


def _write_key_event(event_type: str, key: ApiKey, now: int) -> Operation[None]:
    """The event belongs to the key's user; that of a key for all users to nobody."""
    yield from run_in_scope(Scope(key.tenant_id, key.app_id, key.user_id or ""), _key_event(event_type, key, now))


def _key_event(event_type: str, key: ApiKey, now: int) -> Operation[None]:
    yield event_statement(event_type, key.id, {"role": key.role}, now)
