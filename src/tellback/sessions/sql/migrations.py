"""Migration of the two tables to the latest version: what is missing is added, and nothing is dropped.

Version 1 has the columns that the tables of other tools have as well. Version 2 adds those for turns, message order and
times to live. Existing tables are completed as they are."""

from __future__ import annotations

from typing import Any

from tellback.errors import ConfigurationError
from tellback.sessions.records import EXPIRES_AT
from tellback.sessions.sql.schema import (
    LATEST_VERSION,
    UNIQUE_KEYS,
    ColumnSpec,
    SqlDialect,
    TableSpec,
    TableSpecs,
)
from tellback.sessions.sql.statements import ColumnTypes
from tellback.stores.catalogue import newer_schema_error
from tellback.stores.engine import Operation
from tellback.types.ids import now_micros

VERSION_NAMES = {1: "sessions and messages", 2: "versions, positions and times to live"}

_ColumnTypes = dict[str, str]
"""A table's columns and their types, under its own names; empty if there is no table."""


def migrate(tables: TableSpecs, dialect: SqlDialect, place: str) -> Operation[ColumnTypes]:
    """Bring the tables to the latest version, in one transaction; gives the types of their columns."""
    types = yield from _read_types(tables, dialect, place)
    if types is not None:
        return types
    yield from dialect.prepare_migration()
    types = yield from _read_types(tables, dialect, place)  # another process may have been faster
    if types is not None:
        return types
    yield from _apply(tables, dialect)
    types = yield from _read_types(tables, dialect, place)
    if types is None:
        raise ConfigurationError(f"{place}: the tables could not be completed. Check `tables` and `field_mappings`.")
    return types


def _read_types(tables: TableSpecs, dialect: SqlDialect, place: str) -> Operation[ColumnTypes | None]:
    """The types of all columns, if the tables have the latest version."""
    version = yield from _read_version(tables, dialect)
    if version > LATEST_VERSION:
        raise newer_schema_error(place, version, LATEST_VERSION)
    sessions = yield from _read_columns(tables.sessions.name, dialect)
    messages = yield from _read_columns(tables.messages.name, dialect)
    if version < LATEST_VERSION or not sessions or not messages:
        return None
    return {
        "sessions": _resolve_types(tables.sessions, sessions, dialect),
        "messages": _resolve_types(tables.messages, messages, dialect),
    }


def _resolve_types(table: TableSpec, existing: _ColumnTypes, dialect: SqlDialect) -> dict[str, str]:
    columns = {column.name: dialect.fold_name(table.column_names[column.name]) for column in table.columns}
    for name, column in columns.items():
        if column not in existing:
            raise ConfigurationError(
                f"The table {table.name} has no column {column!r} for {name}, and was made with other names:"
                f" check field_mappings[{table.role!r}], or rename the column."
            )
    return {name: existing[column] for name, column in columns.items()}


def _read_version(tables: TableSpecs, dialect: SqlDialect) -> Operation[int]:
    found = yield from _read_columns(tables.migrations, dialect)
    if not found:
        return 0
    rows = yield (f"SELECT COALESCE(MAX(version), 0) FROM {dialect.qualified_name(tables.migrations)}", {})
    return int(rows[0][0])


def _read_columns(table: str, dialect: SqlDialect) -> Operation[_ColumnTypes]:
    rows = yield (dialect.select_columns, {"table": table})
    return {dialect.fold_name(name): str(type).lower() for name, type in rows}


def _apply(tables: TableSpecs, dialect: SqlDialect) -> Operation[None]:
    versions = dialect.qualified_name(tables.migrations)
    yield (
        f"CREATE TABLE IF NOT EXISTS {versions}"
        " (version BIGINT PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL)",
        {},
    )
    for table in (tables.sessions, tables.messages):
        yield from _create_or_extend_table(table, dialect)
        yield from _fill_defaults(table, dialect)
        yield from dialect.normalize_times(table)
    yield from _create_indexes(tables, dialect)
    insert = f"INSERT INTO {versions} (version, name, applied_at) VALUES (:version, :name, :at) ON CONFLICT DO NOTHING"
    for number, name in VERSION_NAMES.items():
        yield insert, {"version": number, "name": name, "at": now_micros()}


def _create_or_extend_table(table: TableSpec, dialect: SqlDialect) -> Operation[None]:
    """Make the table, or add the columns that it lacks."""
    found = yield from _read_columns(table.name, dialect)
    place = dialect.qualified_name(table.name)
    if not found:
        columns = ", ".join(_declare_column(table, column, dialect) for column in table.columns)
        key = ", ".join(dialect.quote(table.column_names[name]) for name in UNIQUE_KEYS[table.role])
        yield (f"CREATE TABLE {place} ({columns}, PRIMARY KEY ({key}))", {})
        return
    for column in table.columns:
        name = table.column_names[column.name]
        if dialect.fold_name(name) in found:
            continue
        if column.required:
            raise ConfigurationError(
                f"The table {table.name} is there, but has no column {name!r} for {column.name}:"
                f" say with field_mappings[{table.role!r}] what it is called, or name another table."
            )
        default = f" DEFAULT {column.default}" if column.default else ""
        yield (f"ALTER TABLE {place} ADD COLUMN {dialect.quote(name)} {dialect.types[column.kind]}{default}", {})


def _declare_column(table: TableSpec, column: ColumnSpec, dialect: SqlDialect) -> str:
    parts = [dialect.quote(table.column_names[column.name]), dialect.types[column.kind]]
    if column.required or column.default or column.name in ("created_at", "updated_at"):
        parts.append("NOT NULL")
    if column.default:
        parts.append(f"DEFAULT {column.default}")
    return " ".join(parts)


def _fill_defaults(table: TableSpec, dialect: SqlDialect) -> Operation[None]:
    """Rows of another tool get what they lack."""
    defaults = {column.name: column.default for column in table.columns if column.default}
    time_fields = [column.name for column in table.columns if column.name in ("created_at", "updated_at")]
    defaults |= dict.fromkeys(time_fields, dialect.now_as_time)
    for name, value in defaults.items():
        column = dialect.quote(table.column_names[name])
        yield (f"UPDATE {dialect.qualified_name(table.name)} SET {column} = {value} WHERE {column} IS NULL", {})


def _create_indexes(tables: TableSpecs, dialect: SqlDialect) -> Operation[None]:
    sessions, messages = tables.sessions, tables.messages
    yield from _number_messages(messages, dialect)
    yield from _ensure_unique_index(sessions, "by_id", dialect)
    yield from _ensure_unique_index(messages, "by_position", dialect)
    user, created, id = (dialect.quote(sessions.column_names[name]) for name in ("user_id", "created_at", "id"))
    yield _create_index("INDEX", sessions, "by_user", f"{user}, {created}, {id} {dialect.byte_collation}", dialect)
    for table in (sessions, messages):
        expires = dialect.quote(table.column_names[EXPIRES_AT])
        yield _create_index("INDEX", table, "by_expiry", expires, dialect, f" WHERE {expires} IS NOT NULL")


def _number_messages(messages: TableSpec, dialect: SqlDialect) -> Operation[None]:
    """Messages of an earlier version get their positions: by time, then by id."""
    place = dialect.qualified_name(messages.name)
    session_id, created, id, position = (
        dialect.quote(messages.column_names[name]) for name in ("session_id", "created_at", "id", "position")
    )
    if not (yield (f"SELECT 1 FROM {place} WHERE {position} IS NULL LIMIT 1", {})):
        return
    order = f"PARTITION BY {session_id} ORDER BY {created}, {id} {dialect.byte_collation}"
    numbered = f"SELECT {dialect.row_id} AS which, ROW_NUMBER() OVER ({order}) AS number FROM {place}"
    yield (
        f"UPDATE {place} AS held SET {position} = numbered.number FROM ({numbered}) AS numbered"
        f" WHERE held.{dialect.row_id} = numbered.which",
        {},
    )


def _ensure_unique_index(table: TableSpec, name: str, dialect: SqlDialect) -> Operation[None]:
    columns = [table.column_names[column] for column in UNIQUE_KEYS[table.role]]
    folded = ",".join(map(dialect.fold_name, columns))
    if not (yield (dialect.select_unique_index, {"table": table.name, "columns": folded})):
        yield _create_index("UNIQUE INDEX", table, name, ", ".join(map(dialect.quote, columns)), dialect)


def _create_index(
    kind: str, table: TableSpec, name: str, columns: str, dialect: SqlDialect, where: str = ""
) -> tuple[str, dict[str, Any]]:
    index = dialect.quote(f"{table.name}_{name}")
    return (f"CREATE {kind} IF NOT EXISTS {index} ON {dialect.qualified_name(table.name)} ({columns}){where}", {})
