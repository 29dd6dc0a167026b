"""Sessions in MongoDB."""

from __future__ import annotations

from recollect.errors import MissingExtraError

try:
    from recollect.stores.sessions.mongo.adapter import MongoAdapter
except ModuleNotFoundError as error:
    raise MissingExtraError("pymongo", "mongo", "The MongoDB adapter") from error

__all__ = ["MongoAdapter"]
