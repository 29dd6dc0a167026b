"""`PostgresAdapter`: sessions in a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Unpack
from urllib.parse import urlsplit

from tellback.errors import ConfigurationError, MissingExtraError
from tellback.sessions import validation
from tellback.sessions.sql.adapter import HasStore, SqlAdapter, StoreBackendOptions, TableBackend, resolve_store_backend
from tellback.sessions.sql.schema import resolve_tables

try:
    import asyncpg
except ModuleNotFoundError as error:
    raise MissingExtraError("asyncpg", "postgres", "The PostgreSQL adapter") from error

from tellback.sessions.sql.postgres_runner import PostgresRunner


class PostgresAdapter(SqlAdapter):
    """Sessions in a PostgreSQL database, for any number of processes on any number of machines.

    `database` is a URL, or an open pool of asyncpg's, which stays its owner's to close. The tables are in `schema`,
    which is made if it is missing; without it they are in the first of the search path. `tables` gives them other names
    than `agent_sessions` and `agent_messages`, and `field_mappings` their columns: `{"sessions": {"user_id":
    "customer"}}`. Tables that are there already are completed, and nothing in them is dropped; in a column of the type
    jsonb, what is kept is what jsonb keeps. What expires does so `session_ttl` after a session's last change and
    `message_ttl` after a message was stored, in seconds or as a timedelta, by the server's clock. `pool_size` is for a
    pool of its own.

    With a `Tellback` on PostgreSQL as `database` the sessions are in its own tables: what is said in them is also a
    conversation there, in one step with where the session stands, to be remembered, exported and erased with all that
    is the user's. It takes `tenant_id`, `app_id`, `namespace` and `close_after` instead of what names tables.

    What was acknowledged outlives a crash of the server, unless the server was set up with `synchronous_commit = off`.

    >>> adapter = PostgresAdapter("postgresql://app:secret@db/prod", session_ttl=timedelta(days=30))
    >>> adapter.session_repository is not None
    True
    """

    def __init__(
        self,
        database: str | asyncpg.Pool | HasStore,
        *,
        schema: str | None = None,
        tables: Mapping[str, str] | None = None,
        field_mappings: Mapping[str, Mapping[str, str]] | None = None,
        session_ttl: timedelta | float | None = None,
        message_ttl: timedelta | float | None = None,
        pool_size: int = 10,
        **store_options: Unpack[StoreBackendOptions],
    ) -> None:
        table_options: dict[str, Any] = {"schema": schema, "tables": tables, "field_mappings": field_mappings}
        table_options |= {"session_ttl": session_ttl, "message_ttl": message_ttl}
        store_backend = resolve_store_backend(database, "PostgresAdapter", "postgresql:", table_options, store_options)
        if store_backend is not None:
            super().__init__(store_backend)
            return
        if schema is not None:
            validation.resolve_names("schema", {"schema": schema}, {"schema": "public"})
        if type(pool_size) is not int or pool_size < 1:
            raise ConfigurationError(f"pool_size is a whole number from 1, not {pool_size!r:.80}.")
        runner = PostgresRunner(database, _describe_database(database), schema, pool_size)
        super().__init__(TableBackend(runner, resolve_tables(tables, field_mappings), session_ttl, message_ttl))


def _describe_database(database: Any) -> str:
    """What to call the database in errors: never with a user or a password."""
    if isinstance(database, asyncpg.Pool):
        return "the pool's PostgreSQL database"
    if not isinstance(database, str):
        raise ConfigurationError(
            f"PostgresAdapter takes a URL such as postgresql://user@host/database, or a pool of asyncpg's that is open,"
            f" not a {type(database).__name__}."
        )
    try:
        parts = urlsplit(database)
        _ = None if "," in parts.netloc else parts.port  # several hosts are for the driver to read
    except ValueError:
        parts = urlsplit("")
    after_netloc = f"{parts.path}{parts.query}{parts.fragment}"
    if (
        parts.scheme not in ("postgresql", "postgres")
        or parts.fragment
        or ("@" in after_netloc and "@" not in parts.netloc)
    ):
        raise ConfigurationError(
            "PostgresAdapter takes a URL such as postgresql://user:password@host:5432/database; signs such as @ : / # ?"
            " in a name or password are written as %40 %3A %2F %23 %3F."
        )
    return f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"
