"""`RedisAdapter`: sessions in Redis."""

from __future__ import annotations

from tellback.errors import MissingExtraError

try:
    from tellback.sessions.redis.adapter import RedisAdapter
except ModuleNotFoundError as error:
    raise MissingExtraError("redis", "redis", "The Redis adapter") from error

__all__ = ["RedisAdapter"]
