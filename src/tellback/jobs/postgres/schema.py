"""procrastinate's tables, beside ours."""

from __future__ import annotations

from pathlib import Path

import psycopg
from procrastinate.schema import SchemaManager
from psycopg import sql

from tellback.errors import SchemaVersionError
from tellback.stores.postgres.store import QueueSettings

SCHEMA_CONNECT_SECONDS = 10

DELIVERY_INDEXES = (
    "CREATE INDEX tellback_deliveries_of_space ON procrastinate_jobs (lock) WHERE status IN ('todo', 'doing')",
    "CREATE INDEX tellback_deliveries_at_work ON procrastinate_jobs (queueing_lock) WHERE status = 'doing'",
)
"""Without them, fetching one of a thousand deliveries takes a hundred times as long."""


async def prepare_schema(settings: QueueSettings) -> None:
    """Make the tables if they are missing, and bring them to this procrastinate's version; one process at a time."""
    migrations = _list_migrations()
    connection = await psycopg.AsyncConnection.connect(
        settings.dsn, connect_timeout=SCHEMA_CONNECT_SECONDS, application_name="tellback"
    )
    async with connection:
        await _use_schema(connection, settings.schema)
        await connection.execute(
            "SELECT pg_advisory_xact_lock(hashtext('tellback.queue.schema'), hashtext(%s))", [settings.schema]
        )
        current = await _current_version(connection, settings.schema)
        missing = [name for name in migrations if current is None or name > current]
        if not missing:
            return
        try:
            for statement in (
                [SchemaManager.get_schema(), *DELIVERY_INDEXES]
                if current is None
                else _read_migrations(migrations, missing)
            ):
                await connection.execute(statement.encode())
            await _record_version(connection, max(migrations))
            await _grant_access(connection, settings)
        except psycopg.errors.InsufficientPrivilege as error:
            raise SchemaVersionError(
                f"{settings.display_url} has no tables for the queue of jobs, or old ones, and the database user may not make"
                f" them: {error}. Open it once with a worker as a user who owns the schema {settings.schema!r}."
            ) from error


def _list_migrations() -> dict[str, Path]:
    """procrastinate's own migrations, in their order."""
    return {path.name: path for path in sorted(Path(SchemaManager.get_migrations_path()).glob("*.sql"))}


def _read_migrations(migrations: dict[str, Path], names: list[str]) -> list[str]:
    return [migrations[name].read_text() for name in names]


async def _use_schema(connection: psycopg.AsyncConnection, schema: str) -> None:
    await connection.execute(sql.SQL("SET LOCAL search_path TO {}").format(sql.Identifier(schema)))


async def _current_version(connection: psycopg.AsyncConnection, schema: str) -> str | None:
    """The last step that was taken, which stands in the table's comment; None if there is no table."""
    cursor = await connection.execute(
        "SELECT obj_description(c.oid, 'pg_class') FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace"
        " WHERE nspname = %s AND relname = 'procrastinate_jobs'",
        [schema],
    )
    row = await cursor.fetchone()
    return None if row is None else str(row[0] or "")


async def _record_version(connection: psycopg.AsyncConnection, version: str) -> None:
    await connection.execute(sql.SQL("COMMENT ON TABLE procrastinate_jobs IS {}").format(sql.Literal(version)))


async def _grant_access(connection: psycopg.AsyncConnection, settings: QueueSettings) -> None:
    role = sql.Identifier(settings.role)
    for table in ("jobs", "events", "periodic_defers", "workers"):
        name = sql.Identifier(f"procrastinate_{table}")
        await connection.execute(sql.SQL("GRANT SELECT, INSERT, UPDATE, DELETE ON {} TO {}").format(name, role))
        await connection.execute(
            sql.SQL("GRANT USAGE ON SEQUENCE {} TO {}").format(sql.Identifier(f"procrastinate_{table}_id_seq"), role)
        )
