"""The two tables of an adapter: their columns, the dialect of a database, and migration to the latest version.

Version 1 has the columns that the tables of other tools also have. Version 2 adds those for turns, message order and
times to live. Existing tables get what is missing; nothing is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tellback.errors import ConfigurationError
from tellback.sessions import records, validation
from tellback.sessions.records import EXPIRES_AT, FieldNames
from tellback.stores.catalogue import newer_schema_error
from tellback.stores.engine import Operation
from tellback.types.ids import now_micros

ColumnKind: TypeAlias = Literal["text", "count", "moment", "json", "expiry"]
ColumnTypes = Mapping[str, Mapping[str, str]]
"""The types of columns in the database, by table and by our field names."""


LATEST_VERSION = 2
VERSION_NAMES = {1: "sessions and messages", 2: "versions, positions and times to live"}
MAX_TABLE_NAME_LENGTH = 50
"""Index names begin with the table's name, and PostgreSQL truncates names after 63 characters."""

UNIQUE_KEYS: Mapping[str, tuple[str, ...]] = {"sessions": ("id",), "messages": ("session_id", "position")}
"""The unique keys of each table."""

_REQUIRED = frozenset({"id", "session_id", "role", "content"})
_DEFAULTS = {
    "status": "'active'",
    "collected_data": "'{}'",
    "message_count": "0",
    "version": "0",
    "tool_calls": "'[]'",
}


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """A column. A `required` one is never NULL; `default` is the SQL default for existing rows."""

    name: str
    kind: ColumnKind
    required: bool = False
    default: str | None = None


def _column_spec(name: str) -> ColumnSpec:
    if name == EXPIRES_AT:
        return ColumnSpec(name, "expiry")
    kind: ColumnKind = "moment" if name in records.TIME_FIELDS else "json" if name in records.JSON_FIELDS else "text"
    return ColumnSpec(name, "count" if name in records.NUMBER_FIELDS else kind, name in _REQUIRED, _DEFAULTS.get(name))


COLUMNS: Mapping[str, tuple[ColumnSpec, ...]] = {
    role: tuple(map(_column_spec, (*fields, EXPIRES_AT))) for role, fields in records.RECORD_FIELDS.items()
}


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table and its columns, by the names they have in the database."""

    role: str
    name: str
    column_names: FieldNames

    @property
    def columns(self) -> tuple[ColumnSpec, ...]:
        return COLUMNS[self.role]


TableSpecs = Mapping[str, TableSpec]
"""The tables of one adapter: `sessions` and `messages`."""


def resolve_tables(
    tables: Mapping[str, str] | None, field_mappings: Mapping[str, Mapping[str, str]] | None
) -> TableSpecs:
    """Return the tables for an adapter's options.

    >>> resolve_tables({"sessions": "chats"}, {"sessions": {"user_id": "customer"}})["sessions"].column_names["user_id"]
    'customer'
    """
    names = validation.resolve_names("tables", tables, records.DEFAULT_NAMES)
    for role, name in names.items():
        if len(name) > MAX_TABLE_NAME_LENGTH:
            raise ConfigurationError(
                f"tables[{role!r}] must have at most {MAX_TABLE_NAME_LENGTH} characters, got {len(name)}."
            )
    column_names = records.resolve_field_names(field_mappings)
    specs = {role: TableSpec(role, name, column_names[role]) for role, name in names.items()}
    validation.validate_distinct("tables", [*names.values(), migrations_table(specs)])
    for role, table in specs.items():
        validation.validate_distinct(
            f"field_mappings[{role!r}]", [table.column_names[column.name] for column in table.columns]
        )
    return specs


def migrations_table(tables: TableSpecs) -> str:
    """Return the name of the table that contains the schema version."""
    return f"{tables['sessions'].name}_migrations"


class SqlDialect:
    """The SQL of one database, with defaults that most databases share.

    - `types` are the column types. If that of `moment` is "TEXT", times are bound as ISO strings.
    - `now` is the time of a statement, `expires_at` the time `:ttl` seconds later, and `now_as_time` the same time in
      the form of time columns.
    - `byte_collation` sorts strings by bytes, so that every database has the same order. `row_lock` locks a row that
      was read.
    - `value_sql` converts a bound value to its column's type, and `column_sql` converts a column that is read.
    - `select_columns` returns the columns of `:table` with their types, `select_unique_index` returns a row if an index
      makes `:columns` unique, and `row_id` identifies each row of a table.
    - `prepare_migration` runs before tables are created. `normalize_times` converts times in other formats.
    """

    types: Mapping[ColumnKind, str]
    now: str
    now_as_time: str
    expires_at: str
    byte_collation: str
    row_lock = ""
    select_columns: str
    select_unique_index: str
    row_id: str

    def quote(self, name: str) -> str:
        return f'"{name}"'

    def qualified_name(self, table: str) -> str:
        return self.quote(table)

    def fold_name(self, name: str) -> str:
        return name

    def value_sql(self, column: ColumnSpec, type: str) -> str:
        return f":{column.name}"

    def column_sql(self, column: ColumnSpec, type: str, name: str) -> str:
        return name

    def prepare_migration(self) -> Operation[None]:
        yield from ()

    def normalize_times(self, table: TableSpec) -> Operation[None]:
        yield from ()


def migrate(tables: TableSpecs, dialect: SqlDialect, place: str) -> Operation[ColumnTypes]:
    """Migrate the tables to the latest version, in one transaction. Return the types of their columns."""
    types = yield from _read_types(tables, dialect, place)
    if types is not None:
        return types
    yield from dialect.prepare_migration()
    types = yield from _read_types(tables, dialect, place)  # another process may have migrated it
    if types is not None:
        return types
    yield from _apply(tables, dialect)
    types = yield from _read_types(tables, dialect, place)
    if types is None:
        raise ConfigurationError(f"{place}: the migrated tables lack columns. Check `tables` and `field_mappings`.")
    return types


def _read_types(tables: TableSpecs, dialect: SqlDialect, place: str) -> Operation[ColumnTypes | None]:
    """Return the types of all columns, or None if the tables do not have the latest version."""
    version = yield from _read_version(tables, dialect)
    if version > LATEST_VERSION:
        raise newer_schema_error(place, version, LATEST_VERSION)
    existing = {}
    for role, table in tables.items():
        existing[role] = yield from _read_columns(table.name, dialect)
    if version < LATEST_VERSION or not all(existing.values()):
        return None
    return {role: _resolve_types(table, existing[role], dialect) for role, table in tables.items()}


def _resolve_types(table: TableSpec, existing: dict[str, str], dialect: SqlDialect) -> dict[str, str]:
    columns = {column.name: dialect.fold_name(table.column_names[column.name]) for column in table.columns}
    for name, column in columns.items():
        if column not in existing:
            raise ConfigurationError(
                f"The table {table.name} has no column {column!r} for {name}; it was created with other names:"
                f" check field_mappings[{table.role!r}], or rename the column."
            )
    return {name: existing[column] for name, column in columns.items()}


def _read_version(tables: TableSpecs, dialect: SqlDialect) -> Operation[int]:
    versions = migrations_table(tables)
    if not (yield from _read_columns(versions, dialect)):
        return 0
    rows = yield (f"SELECT COALESCE(MAX(version), 0) FROM {dialect.qualified_name(versions)}", {})
    return int(rows[0][0])


def _read_columns(table: str, dialect: SqlDialect) -> Operation[dict[str, str]]:
    """Return the types of a table's columns by their database names; empty if there is no table."""
    rows = yield (dialect.select_columns, {"table": table})
    return {dialect.fold_name(name): str(type).lower() for name, type in rows}


def _apply(tables: TableSpecs, dialect: SqlDialect) -> Operation[None]:
    versions = dialect.qualified_name(migrations_table(tables))
    yield (
        f"CREATE TABLE IF NOT EXISTS {versions}"
        " (version BIGINT PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL)",
        {},
    )
    for table in tables.values():
        yield from _create_or_extend_table(table, dialect)
        yield from _fill_defaults(table, dialect)
        yield from dialect.normalize_times(table)
    yield from _create_indexes(tables, dialect)
    insert = f"INSERT INTO {versions} (version, name, applied_at) VALUES (:version, :name, :at) ON CONFLICT DO NOTHING"
    for number, name in VERSION_NAMES.items():
        yield insert, {"version": number, "name": name, "at": now_micros()}


def _create_or_extend_table(table: TableSpec, dialect: SqlDialect) -> Operation[None]:
    """Create the table, or add missing columns."""
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
                f"The existing table {table.name} has no column {name!r} for {column.name}: map it with"
                f" field_mappings[{table.role!r}], or use another table."
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
    """Fill missing values in rows that another tool wrote."""
    defaults = {column.name: column.default for column in table.columns if column.default}
    time_fields = [column.name for column in table.columns if column.name in ("created_at", "updated_at")]
    defaults |= dict.fromkeys(time_fields, dialect.now_as_time)
    for name, value in defaults.items():
        column = dialect.quote(table.column_names[name])
        yield (f"UPDATE {dialect.qualified_name(table.name)} SET {column} = {value} WHERE {column} IS NULL", {})


def _create_indexes(tables: TableSpecs, dialect: SqlDialect) -> Operation[None]:
    sessions, messages = tables["sessions"], tables["messages"]
    yield from _number_messages(messages, dialect)
    yield from _ensure_unique_index(sessions, "by_id", dialect)
    yield from _ensure_unique_index(messages, "by_position", dialect)
    user, created, id = (dialect.quote(sessions.column_names[name]) for name in ("user_id", "created_at", "id"))
    yield _create_index("INDEX", sessions, "by_user", f"{user}, {created}, {id} {dialect.byte_collation}", dialect)
    for table in tables.values():
        expires = dialect.quote(table.column_names[EXPIRES_AT])
        yield _create_index("INDEX", table, "by_expiry", expires, dialect, f" WHERE {expires} IS NOT NULL")


def _number_messages(messages: TableSpec, dialect: SqlDialect) -> Operation[None]:
    """Number messages of an earlier version: by time, then by id."""
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
