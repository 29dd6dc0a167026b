"""Adapters that store the sessions of agents: one protocol, and an implementation for each database.

`tellback.agent` and higher packages may import this one; it imports `tellback.stores` and lower packages. Only the
subpackages import drivers, so importing this package is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tellback.exports import lazy_exports

if TYPE_CHECKING:
    from tellback.sessions.adapter import PersistenceAdapter as PersistenceAdapter
    from tellback.sessions.adapter import RepositoryAdapter as RepositoryAdapter
    from tellback.sessions.in_memory import InMemoryAdapter as InMemoryAdapter
    from tellback.sessions.mongo import MongoAdapter as MongoAdapter
    from tellback.sessions.opensearch import OpenSearchAdapter as OpenSearchAdapter
    from tellback.sessions.redis import RedisAdapter as RedisAdapter
    from tellback.sessions.sql.postgres import PostgresAdapter as PostgresAdapter
    from tellback.sessions.sql.sqlite import SqliteAdapter as SqliteAdapter
    from tellback.sessions.sqlalchemy import SqlAlchemyAdapter as SqlAlchemyAdapter
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "tellback.sessions.adapter": "PersistenceAdapter RepositoryAdapter",
            "tellback.sessions.in_memory": "InMemoryAdapter",
            "tellback.sessions.mongo": "MongoAdapter",
            "tellback.sessions.opensearch": "OpenSearchAdapter",
            "tellback.sessions.redis": "RedisAdapter",
            "tellback.sessions.sql.postgres": "PostgresAdapter",
            "tellback.sessions.sql.sqlite": "SqliteAdapter",
            "tellback.sessions.sqlalchemy": "SqlAlchemyAdapter",
        },
    )
