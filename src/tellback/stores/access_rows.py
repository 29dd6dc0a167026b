"""Rows of API keys and kept answers to values and back. Columns come in the order the SQL files list them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from tellback.stores.ports.answers import KeptAnswer
from tellback.stores.rows import to_json
from tellback.types.access import ApiKey
from tellback.types.times import from_micros, to_micros

DIGEST = 10
"""Where the digest stands behind the columns of a key."""


def api_key(row: Sequence[Any]) -> ApiKey:
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
        expires_at=_moment(row[8]),
        revoked_at=_moment(row[9]),
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
        "expires_at": _micros(key.expires_at),
        "revoked_at": _micros(key.revoked_at),
    }


def answer(status: int, content_type: str, headers: str, body: bytes) -> KeptAnswer:
    """What a request was answered."""
    return KeptAnswer(status, content_type, bytes(body), json.loads(headers))


def answer_values(given: KeptAnswer) -> dict[str, Any]:
    """An answer to be stored."""
    return {
        "status": given.status,
        "content_type": given.content_type,
        "headers": to_json(dict(given.headers)),
        "body": given.body,
    }


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


def _micros(moment: datetime | None) -> int | None:
    return None if moment is None else to_micros(moment)
