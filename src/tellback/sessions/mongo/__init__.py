"""`MongoAdapter`: sessions in MongoDB."""

from __future__ import annotations

from tellback.errors import MissingExtraError

try:
    from tellback.sessions.mongo.adapter import MongoAdapter
except ModuleNotFoundError as error:
    raise MissingExtraError("pymongo", "mongo", "The MongoDB adapter") from error

__all__ = ["MongoAdapter"]
