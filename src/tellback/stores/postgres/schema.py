"""The schema on PostgreSQL: quoting, migrations, and the role that reads and writes the tables without owning them."""

from __future__ import annotations

import contextlib

import asyncpg

from tellback.errors import SchemaVersionError, StoreUnavailableError
from tellback.stores.catalogue import baseline_tables, foreign_tables_error, migrations, newer_schema_error
from tellback.types.ids import now_micros

APP_ROLE = "tellback_app"
"""Statements run as this role. It owns no table, so row-level security applies to it."""


def quote_identifier(name: str) -> str:
    """Quote a name.

    >>> quote_identifier('my "own" schema')
    '"my ""own"" schema"'
    """
    return '"' + name.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    """Quote a text. A backslash needs the E'' form, whose escapes do not depend on server settings.

    >>> quote_literal("O'Hara")
    "'O''Hara'"
    """
    quoted = "'" + text.replace("'", "''") + "'"
    return quoted if "\\" not in text else " E" + quoted.replace("\\", "\\\\")


async def migrate(connection: asyncpg.Connection, schema: str, display_url: str) -> None:
    """Migrate the schema to this release's version, one process at a time."""
    steps = migrations("postgres")
    if await schema_version(connection, schema, display_url) == steps[-1].version:
        return
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(hashtext('tellback.migrations'), hashtext($1))", schema)
        present = await schema_version(connection, schema, display_url)  # another process may have migrated it
        if present > steps[-1].version:
            raise newer_schema_error(display_url, present, steps[-1].version)
        if present == 0:
            await _check_no_foreign_tables(connection, schema, display_url)
        try:
            await _prepare_schema(connection, schema)
            for step in steps:
                if step.version > present:
                    await connection.execute(step.sql)
                    await connection.execute(
                        "INSERT INTO tellback_migrations (version, name, applied_at) VALUES ($1, $2, $3)",
                        step.version,
                        step.name,
                        now_micros(),
                    )
            await _grant_privileges(connection, schema)
        except asyncpg.InsufficientPrivilegeError as error:
            raise SchemaVersionError(
                f"{display_url} has schema version {present}, this release needs {steps[-1].version}, and the database"
                f" user may not change it: {error}. Open it once as a user who may create schemas and roles, or create"
                f" both first: the schema owned by this user, and the role {APP_ROLE} granted to it."
            ) from error


async def schema_version(connection: asyncpg.Connection, schema: str, display_url: str) -> int:
    """Return the version of the tables in the connection's schema, 0 if there are no tables."""
    # Query the catalogue: `to_regclass` may answer from a cache that is older than the lock we waited for.
    exists = "SELECT 1 FROM pg_tables WHERE schemaname = $1 AND tablename = 'tellback_migrations'"
    if not await connection.fetchval(exists, schema):
        return 0
    await set_role(connection, display_url)  # the user itself may lack the privilege to read the table
    found = int(await connection.fetchval("SELECT COALESCE(MAX(version), 0) FROM tellback_migrations"))
    await connection.execute("RESET ROLE")
    return found


async def _check_no_foreign_tables(connection: asyncpg.Connection, schema: str, display_url: str) -> None:
    relations = "SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = $1"
    foreign = {row[0] for row in await connection.fetch(relations, schema)} & baseline_tables("postgres")
    if foreign:
        raise foreign_tables_error(f"{display_url}, schema {schema}", foreign)


async def _prepare_schema(connection: asyncpg.Connection, schema: str) -> None:
    """Create the schema, the table of versions and the role if they are missing. Existing ones need no privileges."""
    if not await connection.fetchval("SELECT 1 FROM pg_namespace WHERE nspname = $1", schema):
        await connection.execute(f"CREATE SCHEMA {quote_identifier(schema)}")
    await connection.execute(
        "CREATE TABLE IF NOT EXISTS tellback_migrations"
        " (version BIGINT PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL)"
    )
    if not await connection.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", APP_ROLE):
        # Roles belong to the server, our lock to one database: opening another database may create the role now, too.
        with contextlib.suppress(asyncpg.UniqueViolationError, asyncpg.DuplicateObjectError):
            async with connection.transaction():
                await connection.execute(f"CREATE ROLE {APP_ROLE} NOLOGIN NOSUPERUSER NOBYPASSRLS")
    # Since PostgreSQL 16, acting as a role is a separate privilege; before, membership was enough.
    privilege = "SET" if connection.get_server_version().major >= 16 else "MEMBER"
    if not await connection.fetchval(f"SELECT pg_has_role(current_user, $1, '{privilege}')", APP_ROLE):
        await connection.execute(f"GRANT {APP_ROLE} TO CURRENT_USER")


async def vector_schema(connection: asyncpg.Connection) -> str | None:
    """Return the schema of pgvector, or None. Install it if possible: large spaces are searched with it."""
    found = "SELECT nspname FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace WHERE extname = 'vector'"
    schema: str | None = await connection.fetchval(found)
    offered = "SELECT 1 FROM pg_available_extensions WHERE name = 'vector'"
    if schema is None and await connection.fetchval(offered):
        with contextlib.suppress(asyncpg.PostgresError):
            await connection.execute("CREATE EXTENSION vector WITH SCHEMA public")
        schema = await connection.fetchval(found)
    allowed = "SELECT has_schema_privilege($1, $2, 'USAGE')"
    return schema if schema is not None and await connection.fetchval(allowed, APP_ROLE, schema) else None


async def _grant_privileges(connection: asyncpg.Connection, schema: str) -> None:
    name = quote_identifier(schema)
    await connection.execute(f"GRANT USAGE ON SCHEMA {name} TO {APP_ROLE}")
    await connection.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {name} TO {APP_ROLE}")
    await connection.execute(f"REVOKE INSERT, UPDATE, DELETE ON tellback_migrations FROM {APP_ROLE}")
    await connection.execute(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {name} TO {APP_ROLE}")


async def set_role(connection: asyncpg.Connection, display_url: str) -> None:
    """Switch the connection to the role."""
    try:
        await connection.execute(f"SET ROLE {APP_ROLE}")
    except asyncpg.PostgresError as error:
        raise StoreUnavailableError(
            f"{display_url}: the database user cannot act as the role {APP_ROLE}: {error}."
            f" An administrator can grant it: GRANT {APP_ROLE} TO that_user."
        ) from error
