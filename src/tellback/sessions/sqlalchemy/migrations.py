"""Inspection and migration of the tables in the database.

Version 1 has the fields of sessions and messages. Version 2 adds the version of a session, the position of a message,
times to live, and indexes. Each step checks what exists first, so an interrupted migration continues."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.schema import CreateColumn
from sqlalchemy.types import NullType, TypeEngine

from tellback.errors import SchemaVersionError
from tellback.sessions.sqlalchemy.tables import (
    MAX_TABLE_NAME,
    MappedTable,
    TableLayout,
    find_unfit_columns,
    map_table,
    with_reflected_types,
)
from tellback.types.ids import utc_now

LATEST_VERSION = 2
_BATCH = 1000
_KEY_FIELDS = frozenset({"id", "session_id"})


@dataclass(frozen=True, slots=True)
class ReflectedTable:
    """An existing table: the types of its columns by field, or None if there is no such table."""

    types: Mapping[str, TypeEngine[Any]] | None
    has_key: bool = False
    has_foreign_key: bool = False


@dataclass(frozen=True, slots=True)
class SchemaInspection:
    """The contents of the database, and what is missing."""

    tables: Mapping[str, ReflectedTable]
    version: int
    missing: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        """Whether no migration is needed."""
        return not self.missing and self.version == LATEST_VERSION


def inspect_schema(connection: sa.Connection, layout: TableLayout) -> SchemaInspection:
    """Inspect the database. Raise `SchemaVersionError` if a later release has migrated it."""
    inspector = sa.inspect(connection)
    version = _read_version(connection, inspector, layout.migrations)
    reflected = {table.role: _reflect_table(inspector, table) for table in layout.tables()}
    missing = [part for table in layout.tables() for part in _find_missing(table, reflected[table.role])]
    return SchemaInspection(reflected, version, tuple(missing))


def fit_layout(layout: TableLayout, inspection: SchemaInspection) -> TableLayout:
    """Return the layout with the database's types. Raise `SchemaVersionError` if anything is missing."""
    if inspection.missing:
        raise SchemaVersionError(
            f"The database lacks {', '.join(inspection.missing)}. Pass auto_migrate=True to create it, or use"
            " your own migrations: adapter.metadata has the required tables."
        )
    has_foreign_key = inspection.tables["messages"].has_foreign_key
    if not layout.is_generated:
        return replace(layout, has_foreign_key=has_foreign_key)
    sessions, messages = (
        with_reflected_types(table, inspection.tables[table.role].types or {}) for table in layout.tables()
    )
    if problems := [*find_unfit_columns(sessions), *find_unfit_columns(messages)]:
        raise SchemaVersionError(f"The tables have unsuitable columns: {'; '.join(problems)}. Change their types.")
    return replace(
        layout,
        sessions=map_table("sessions", sessions),
        messages=map_table("messages", messages),
        has_foreign_key=has_foreign_key,
    )


def migrate(connection: sa.Connection, layout: TableLayout) -> None:
    """Create the tables or migrate them to the latest version."""
    lock_name = _acquire_lock(connection, layout)
    try:
        inspection = inspect_schema(connection, layout)
        layout.migrations.create(connection, checkfirst=True)
        added = {
            table.role: _complete_table(connection, table, inspection.tables[table.role]) for table in layout.tables()
        }
        for table in layout.tables():
            _fill_defaults(connection, table, added[table.role], layout)
        _number_messages(connection, layout)
        _create_indexes(connection, layout)
        for number in range(inspection.version + 1, LATEST_VERSION + 1):
            connection.execute(sa.insert(layout.migrations).values(version=number, applied_at=utc_now()))
    finally:
        if lock_name:
            connection.execute(sa.text("SELECT RELEASE_LOCK(:name)"), {"name": lock_name})


def _acquire_lock(connection: sa.Connection, layout: TableLayout) -> str | None:
    """Lock out concurrent migrations. SQLite's transaction already does so."""
    number = zlib.crc32(layout.migrations.fullname.encode()) & 0x7FFFFFFF
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(1919247215, :number)"), {"number": number})
    if connection.dialect.name in ("mysql", "mariadb"):
        name = f"tellback_{number}"
        connection.execute(sa.text("SELECT GET_LOCK(:name, 60)"), {"name": name})
        return name
    return None


def _read_version(connection: sa.Connection, inspector: sa.Inspector, migrations: sa.Table) -> int:
    if not inspector.has_table(migrations.name, schema=migrations.schema):
        return 0
    version = int(connection.scalar(sa.select(sa.func.max(migrations.c.version))) or 0)
    if version > LATEST_VERSION:
        raise SchemaVersionError(
            f"The tables have version {version}, according to {migrations.name!r}; this release knows versions up to"
            f" {LATEST_VERSION}. Upgrade Tellback to the release that migrated them, or a later one."
        )
    return version


def _reflect_table(inspector: sa.Inspector, mapped: MappedTable) -> ReflectedTable:
    table = mapped.table
    if not inspector.has_table(table.name, schema=table.schema):
        return ReflectedTable(None)
    exact = inspector.dialect.name == "postgresql"
    existing = {
        _normalize_name(column["name"], exact): column["type"]
        for column in inspector.get_columns(table.name, table.schema)
    }
    types = {
        field: column.type if isinstance(existing[name], NullType) else existing[name]
        for field, column in mapped.columns.items()
        if (name := _normalize_name(column.name, exact)) in existing
    }
    return ReflectedTable(types, _has_unique_id(inspector, mapped, exact), _has_foreign_key(inspector, mapped, exact))


def _has_unique_id(inspector: sa.Inspector, mapped: MappedTable, exact: bool) -> bool:
    """Whether ids are unique, so that concurrent creations conflict."""
    table, id_columns = mapped.table, [_normalize_name(mapped["id"].name, exact)]
    keys: list[Sequence[str | None]] = [inspector.get_pk_constraint(table.name, table.schema)["constrained_columns"]]
    keys += [each["column_names"] for each in inspector.get_indexes(table.name, table.schema) if each["unique"]]
    keys += [each["column_names"] for each in inspector.get_unique_constraints(table.name, table.schema)]
    return any([_normalize_name(name, exact) for name in key if name is not None] == id_columns for key in keys)


def _has_foreign_key(inspector: sa.Inspector, mapped: MappedTable, exact: bool) -> bool:
    if "session_id" not in mapped.columns:
        return False
    name = _normalize_name(mapped["session_id"].name, exact)
    foreign_keys = inspector.get_foreign_keys(mapped.table.name, mapped.table.schema)
    return any(
        name in [_normalize_name(each, exact) for each in foreign_key["constrained_columns"]]
        for foreign_key in foreign_keys
    )


def _normalize_name(name: str, exact: bool) -> str:
    return name if exact else name.casefold()


def _find_missing(mapped: MappedTable, reflected: ReflectedTable) -> list[str]:
    name = mapped.table.name
    if reflected.types is None:
        return [f"table {name!r}"]
    columns = [column.name for field, column in mapped.columns.items() if field not in reflected.types]
    missing = [f"column {column!r} of table {name!r}" for column in columns]
    if mapped.role == "sessions" and not reflected.has_key and not columns:
        missing.append(f"a primary key or unique index on {mapped['id'].name!r} of table {name!r}")
    return missing


def _complete_table(
    connection: sa.Connection, mapped: MappedTable, reflected: ReflectedTable
) -> Mapping[str, sa.Column[Any]]:
    """Create the table, or add missing columns. Return the columns added to existing rows."""
    if reflected.types is None:
        mapped.table.create(connection)
        return {}
    missing = {field: column for field, column in mapped.columns.items() if field not in reflected.types}
    if keys := missing.keys() & _KEY_FIELDS:
        raise SchemaVersionError(
            f"The existing table {mapped.table.name!r} has no column for {', '.join(sorted(keys))}. If it belongs to"
            " another program, choose another name with tables; otherwise name the columns with field_mappings."
        )
    for column in missing.values():
        _add_column(connection, mapped.table, column)
    return missing


def _add_column(connection: sa.Connection, table: sa.Table, column: sa.Column[Any]) -> None:
    dialect = connection.dialect
    added = table.to_metadata(sa.MetaData()).columns[column.key]
    added.nullable = column.nullable or column.server_default is None  # existing rows have no value for it
    keyword = "ADD" if dialect.name in ("mssql", "oracle") else "ADD COLUMN"
    name = dialect.identifier_preparer.format_table(table)
    connection.exec_driver_sql(f"ALTER TABLE {name} {keyword} {CreateColumn(added).compile(dialect=dialect)}")


def _fill_defaults(
    connection: sa.Connection, mapped: MappedTable, added: Mapping[str, sa.Column[Any]], layout: TableLayout
) -> None:
    """Fill missing required values of existing rows."""
    messages = layout.messages
    count = sa.select(sa.func.count()).where(messages["session_id"] == mapped["id"]).scalar_subquery()
    now = utc_now()
    values = {"status": "active", "role": "user", "content": "", "created_at": now, "updated_at": now}
    for field, column in added.items():
        if field == "message_count":
            connection.execute(sa.update(mapped.table).values({column: count}))
        elif field in values:
            connection.execute(sa.update(mapped.table).values({column: mapped.encode(field, values[field])}))


def _number_messages(connection: sa.Connection, layout: TableLayout) -> None:
    """Number messages without a position, per session in the order of creation."""
    messages = layout.messages
    session_id, position, id = messages["session_id"], messages["position"], messages["id"]
    unnumbered = position.is_(None) | (position == 0)
    order = (session_id, messages["created_at"], id)
    rows = connection.execute(sa.select(id, session_id).where(unnumbered).order_by(*order)).all()
    if not rows:
        return
    last: dict[str, int] = {
        session: int(max_position or 0)
        for session, max_position in connection.execute(
            sa.select(session_id, sa.func.max(position)).group_by(session_id)
        )
    }
    numbered = []
    for message, session in rows:
        last[session] += 1
        numbered.append({"which": message, "place": last[session]})
    change = (
        sa.update(messages.table)
        .where(id == sa.bindparam("which", type_=id.type))
        .values({position: sa.bindparam("place")})
    )
    for start in range(0, len(numbered), _BATCH):
        connection.execute(change, numbered[start : start + _BATCH])


def _create_indexes(connection: sa.Connection, layout: TableLayout) -> None:
    """Create the indexes of generated tables, and make ids unique."""
    inspector = sa.inspect(connection)
    for mapped in layout.tables():
        if layout.is_generated:
            for index in mapped.table.indexes:
                index.create(connection, checkfirst=True)
        if mapped.role == "sessions" and not _has_unique_id(inspector, mapped, connection.dialect.name == "postgresql"):
            id = mapped.table.to_metadata(sa.MetaData()).columns[mapped["id"].key]
            sa.Index(f"ix_{mapped.table.name[:MAX_TABLE_NAME]}_id", id, unique=True).create(connection, checkfirst=True)
