"""Rows of API keys and kept answers to values and back. Columns come in the order the SQL files list them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from tellback.stores.ports.answers import StoredResponse
from tellback.stores.rows import dump_stored_json
from tellback.types.access import ApiKey
from tellback.types.times import from_micros, to_micros

API_KEY_DIGEST = 10
"""Where the digest stands behind the columns of a key."""


def api_key_from_row(row: Sequence[Any]) -> ApiKey:
    """A row of `api_keys`."""
    return ApiKey(
        id=row[0],
        tenant_id=row[1],
        app_id=row[2],
        user_id=row[3],
        role=row[4],
        name=row[5],
        rate_limit=row[6],
        created_at=from_micros(row[7]),
        expires_at=_optional_datetime(row[8]),
        revoked_at=_optional_datetime(row[9]),
    )


def api_key_values(key: ApiKey, digest: str) -> dict[str, Any]:
    """A key to be stored."""
    return {
        "id": key.id,
        "tenant": key.tenant_id,
        "app": key.app_id,
        "user": key.user_id,
        "role": key.role,
        "name": key.name,
        "digest": digest,
        "rate_limit": key.rate_limit,
        "created_at": to_micros(key.created_at),
        "expires_at": _optional_micros(key.expires_at),
        "revoked_at": _optional_micros(key.revoked_at),
    }


def stored_response_from_columns(status: int, content_type: str, headers: str, body: bytes) -> StoredResponse:
    """What a request was answered."""
    return StoredResponse(status, content_type, bytes(body), json.loads(headers))


def stored_response_values(response: StoredResponse) -> dict[str, Any]:
    """An answer to be stored."""
    return {
        "status": response.status,
        "content_type": response.content_type,
        "headers": dump_stored_json(dict(response.headers)),
        "body": response.body,
    }


def _optional_datetime(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


def _optional_micros(moment: datetime | None) -> int | None:
    return None if moment is None else to_micros(moment)
