"""The two tables: ours, made from names, or the user's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from sqlalchemy import Column, ColumnElement, Index, Integer, MetaData, Row, Table, text
from sqlalchemy.types import TypeEngine

from tellback.errors import ConfigurationError
from tellback.stores.sessions.records import EXPIRES_AT, MESSAGE_FIELDS, SESSION_FIELDS
from tellback.stores.sessions.sqlalchemy.values import FieldCodec, UtcDateTime, column_type, find_codec
from tellback.types.jsontext import is_storable

TableOptions: TypeAlias = Mapping[str, str] | Mapping[str, Table]
FieldMappings: TypeAlias = Mapping[str, Mapping[str, str]]

DEFAULT_TABLE_NAMES = {"sessions": "agent_sessions", "messages": "agent_messages"}
TABLE_FIELDS = {"sessions": (*SESSION_FIELDS, EXPIRES_AT), "messages": (*MESSAGE_FIELDS, EXPIRES_AT)}
VERSION_2_FIELDS = frozenset({"version", "position", EXPIRES_AT})
"""The fields that the second migration adds."""
MAX_TABLE_NAME, MAX_COLUMN_NAME = 48, 63

# Not content: to Oracle an empty text is NULL.
_REQUIRED_FIELDS = frozenset({"status", "message_count", "created_at", "updated_at", "session_id", "role"})


@dataclass(frozen=True, slots=True)
class MappedTable:
    """One table, and which of its columns holds which field."""

    role: str
    table: Table
    columns: Mapping[str, Column[Any]]
    codecs: Mapping[str, FieldCodec]

    def __getitem__(self, field: str) -> Column[Any]:
        return self.columns[field]

    def encode(self, field: str, value: Any) -> Any:
        """A field's value as its column takes it."""
        return self.codecs[field].encode(value)

    def to_row(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """A record by the keys of its columns. A field without a column is left out."""
        columns = self.columns
        return {columns[field].key: self.encode(field, value) for field, value in record.items() if field in columns}

    def to_record(self, row: Row[Any]) -> dict[str, Any]:
        """The fields of a row that was read by `all_columns`, without when it is past its time."""
        fields = (field for field in self.columns if field != EXPIRES_AT)
        return {field: self.codecs[field].decode(value) for field, value in zip(fields, row, strict=True)}

    def selected_columns(self) -> list[Column[Any]]:
        """What to read of a row."""
        return [column for field, column in self.columns.items() if field != EXPIRES_AT]

    def is_live(self, now: Any) -> ColumnElement[bool] | None:
        """That a row is not past its time; None where nothing ever is."""
        expires = self.columns.get(EXPIRES_AT)
        return None if expires is None else expires.is_(None) | (expires > self.encode(EXPIRES_AT, now))


@dataclass(frozen=True, slots=True)
class TableLayout:
    """Where sessions and messages are."""

    sessions: MappedTable
    messages: MappedTable
    metadata: MetaData
    migrations: Table
    is_generated: bool
    """Whether the tables are made from names, not given by the user."""
    has_foreign_key: bool = False
    """Whether the database refuses messages without their session."""

    def tables(self) -> tuple[MappedTable, MappedTable]:
        return self.sessions, self.messages


def resolve_layout(tables: TableOptions | None, mappings: FieldMappings | None, *, migrates: bool) -> TableLayout:
    """The layout that the arguments of an adapter describe."""
    table_options = _validate_mapping("tables", tables, DEFAULT_TABLE_NAMES)
    fields = _validate_mapping("field_mappings", mappings, DEFAULT_TABLE_NAMES)
    names = {
        role: _resolve_column_names(role, field_names, fields.get(role)) for role, field_names in TABLE_FIELDS.items()
    }
    user_tables = [each for each in table_options.values() if isinstance(each, Table)]
    if not user_tables:
        return _create_layout({**DEFAULT_TABLE_NAMES, **table_options}, names, migrates=migrates)
    if len(user_tables) < len(DEFAULT_TABLE_NAMES):
        raise ConfigurationError("tables gives names, or a Table for both 'sessions' and 'messages'.")
    mapped = {role: _map_user_table(role, table_options[role], names[role]) for role in DEFAULT_TABLE_NAMES}
    name = f"{table_options['sessions'].name[:MAX_TABLE_NAME]}_migrations"
    migrations = _migrations_table(MetaData(), name, table_options["sessions"].schema)
    return TableLayout(
        mapped["sessions"], mapped["messages"], table_options["sessions"].metadata, migrations, is_generated=False
    )


def adapt_to_reflected(mapped: MappedTable, reflected: Mapping[str, TypeEngine[Any]]) -> tuple[MappedTable, list[str]]:
    """A table of ours with the types that its columns have in the database; also, those that cannot hold their field.

    A table that was there before may have others than we would make: a timestamp without timezone, a JSON column.
    """
    columns = [Column(column.name, reflected[field], key=field) for field, column in mapped.columns.items()]
    problems = [
        f"{mapped.table.name}.{column.name} is {column.type!r}, which cannot hold {column.key}"
        for column in columns
        if find_codec(column.key, column.type) is None
    ]
    return (
        mapped if problems else _map_table(mapped.role, Table(mapped.table.name, MetaData(), *columns), _columns_by_key)
    ), problems


def create_column(field: str, name: str) -> Column[Any]:
    """A column as we make it."""
    if field == "id":
        return Column(name, column_type(field), key=field, primary_key=True)
    if field in ("version", "position"):
        return Column(name, column_type(field), key=field, nullable=False, server_default=text("0"))
    return Column(name, column_type(field), key=field, nullable=field not in _REQUIRED_FIELDS)


def _create_layout(names: Mapping[str, Any], fields: Mapping[str, Mapping[str, str]], *, migrates: bool) -> TableLayout:
    for role, name in names.items():
        _validate_name(f"tables[{role!r}]", name, MAX_TABLE_NAME)
    _validate_distinct("tables", [*names.values(), f"{names['sessions']}_migrations"])
    metadata = MetaData()
    mapped = {}
    for role, name in names.items():
        columns = [create_column(field, column) for field, column in fields[role].items()]
        mapped[role] = _map_table(role, Table(name, metadata, *columns), _columns_by_key)
    sessions, messages = mapped["sessions"], mapped["messages"]
    Index(f"ix_{names['sessions']}_user", sessions["user_id"], sessions["created_at"], sessions["id"])
    Index(f"ix_{names['messages']}_place", messages["session_id"], messages["position"], unique=True)
    for mapped_table in (sessions, messages):
        has_expiry = mapped_table[EXPIRES_AT].is_not(None)
        Index(
            f"ix_{mapped_table.table.name}_expires",
            mapped_table[EXPIRES_AT],
            postgresql_where=has_expiry,
            sqlite_where=has_expiry,
        )
    migrations = _migrations_table(metadata if migrates else MetaData(), f"{names['sessions']}_migrations", None)
    return TableLayout(sessions, messages, metadata, migrations, is_generated=True)


def _migrations_table(metadata: MetaData, name: str, schema: str | None) -> Table:
    return Table(
        name,
        metadata,
        Column("version", Integer, primary_key=True, autoincrement=False),
        Column("applied_at", UtcDateTime, nullable=False),
        schema=schema,
    )


def _map_table(role: str, table: Table, select_columns: Any) -> MappedTable:
    by_field: dict[str, Column[Any]] = select_columns(table)
    codecs = {field: find_codec(field, column.type) for field, column in by_field.items()}
    problems = [
        f"column {by_field[field].name!r} of table {table.name!r} is {by_field[field].type!r}, which cannot hold {field}"
        for field, codec in codecs.items()
        if codec is None
    ]
    if problems:
        raise ConfigurationError(f"{'; '.join(problems)}.")
    return MappedTable(role, table, by_field, {field: codec for field, codec in codecs.items() if codec is not None})


def _columns_by_key(table: Table) -> dict[str, Column[Any]]:
    return {column.key: column for column in table.columns}


def _map_user_table(role: str, table: Table, names: Mapping[str, str]) -> MappedTable:
    """A table of the user's. It needs no column for the time to live if there is none."""
    columns = {
        field: column
        for field, name in names.items()
        if (column := table.columns.get(name, _find_column(table, name))) is not None
    }
    missing = [name for field, name in names.items() if field not in columns and field != EXPIRES_AT]
    if missing:
        raise ConfigurationError(
            f"Table {table.name!r} has no column {', '.join(map(repr, missing))}: add it, or say by"
            f" field_mappings[{role!r}] which column it is."
        )
    return _map_table(role, table, lambda _: columns)


def _find_column(table: Table, name: str) -> Column[Any] | None:
    return next((column for column in table.columns if column.name == name), None)


def _validate_mapping(option: str, value: Any, allowed: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(value, Mapping | None):
        raise ConfigurationError(f"{option} is a mapping with {' and '.join(allowed)}, not {value!r:.80}.")
    unknown = (value or {}).keys() - allowed.keys()
    if unknown:
        raise ConfigurationError(f"{option} has {', '.join(allowed)}, but not {', '.join(map(str, unknown))}.")
    return dict(value or {})


def _resolve_column_names(role: str, fields: tuple[str, ...], overrides: Any) -> dict[str, str]:
    option = f"field_mappings[{role!r}]"
    names = {**{field: field for field in fields}, **_validate_mapping(option, overrides, dict.fromkeys(fields))}
    for field, name in names.items():
        _validate_name(f"{option}[{field!r}]", name, MAX_COLUMN_NAME)
    _validate_distinct(option, names.values())
    return names


def _validate_name(option: str, name: Any, max_bytes: int) -> None:
    if not isinstance(name, str) or not name.strip() or not is_storable(name) or not name.isprintable():
        raise ConfigurationError(f"{option} is a name that a database can have, not {name!r:.80}.")
    if len(name.encode()) > max_bytes:
        raise ConfigurationError(f"{option} is longer than {max_bytes} bytes: {name!r:.80}.")


def _validate_distinct(option: str, names: Iterable[str]) -> None:
    """Names must differ in more than case: not every database tells those apart."""
    found = list(names)
    if len({name.casefold() for name in found}) < len(found):
        raise ConfigurationError(f"{option} gives two things one name: {', '.join(found)}.")
