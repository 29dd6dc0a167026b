"""procrastinate's tables, beside ours."""

from __future__ import annotations

from pathlib import Path

import psycopg
from procrastinate.schema import SchemaManager
from psycopg import sql

from tellback.errors import SchemaVersionError
from tellback.stores.postgres.store import QueueSettings

CONNECT_SECONDS = 10

INDEXES = (
    "CREATE INDEX tellback_deliveries_of_space ON procrastinate_jobs (lock) WHERE status IN ('todo', 'doing')",
    "CREATE INDEX tellback_deliveries_at_work ON procrastinate_jobs (queueing_lock) WHERE status = 'doing'",
)
"""Without them, fetching one of a thousand deliveries takes a hundred times as long."""


async def prepare_schema(settings: QueueSettings) -> None:
    """Make the tables if they are missing, and bring them to this procrastinate's version; one process at a time."""
    steps = _steps()
    connection = await psycopg.AsyncConnection.connect(
        settings.dsn, connect_timeout=CONNECT_SECONDS, application_name="tellback"
    )
    async with connection:
        await _use_schema(connection, settings.schema)
        await connection.execute(
            "SELECT pg_advisory_xact_lock(hashtext('tellback.queue.schema'), hashtext(%s))", [settings.schema]
        )
        present = await _present(connection, settings.schema)
        missing = [name for name in steps if present is None or name > present]
        if not missing:
            return
        try:
            for text in [SchemaManager.get_schema(), *INDEXES] if present is None else _texts(steps, missing):
                await connection.execute(text.encode())
            await _remember(connection, max(steps))
            await _grant(connection, settings)
        except psycopg.errors.InsufficientPrivilege as error:
            raise SchemaVersionError(
                f"{settings.place} has no tables for the queue of jobs, or old ones, and the database user may not make"
                f" them: {error}. Open it once with a worker as a user who owns the schema {settings.schema!r}."
            ) from error


def _steps() -> dict[str, Path]:
    """procrastinate's own migrations, in their order."""
    return {path.name: path for path in sorted(Path(SchemaManager.get_migrations_path()).glob("*.sql"))}


def _texts(steps: dict[str, Path], names: list[str]) -> list[str]:
    return [steps[name].read_text() for name in names]


async def _use_schema(connection: psycopg.AsyncConnection, schema: str) -> None:
    await connection.execute(sql.SQL("SET LOCAL search_path TO {}").format(sql.Identifier(schema)))


async def _present(connection: psycopg.AsyncConnection, schema: str) -> str | None:
    """The last step that was taken, which stands in the table's comment; None if there is no table."""
    found = await connection.execute(
        "SELECT obj_description(c.oid, 'pg_class') FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace"
        " WHERE nspname = %s AND relname = 'procrastinate_jobs'",
        [schema],
    )
    row = await found.fetchone()
    return None if row is None else str(row[0] or "")


async def _remember(connection: psycopg.AsyncConnection, step: str) -> None:
    await connection.execute(sql.SQL("COMMENT ON TABLE procrastinate_jobs IS {}").format(sql.Literal(step)))


async def _grant(connection: psycopg.AsyncConnection, settings: QueueSettings) -> None:
    role = sql.Identifier(settings.role)
    for table in ("jobs", "events", "periodic_defers", "workers"):
        name = sql.Identifier(f"procrastinate_{table}")
        await connection.execute(sql.SQL("GRANT SELECT, INSERT, UPDATE, DELETE ON {} TO {}").format(name, role))
        await connection.execute(
            sql.SQL("GRANT USAGE ON SEQUENCE {} TO {}").format(sql.Identifier(f"procrastinate_{table}_id_seq"), role)
        )
