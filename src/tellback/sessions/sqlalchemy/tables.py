"""The two tables, created from names or given by the user, and the codecs between fields and columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.dialects import mssql, mysql, oracle, postgresql
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeEngine

from tellback.errors import ConfigurationError
from tellback.sessions import records, validation
from tellback.sessions.records import EXPIRES_AT
from tellback.types.ids import as_utc
from tellback.types.jsontext import is_storable

TableOptions: TypeAlias = Mapping[str, str] | Mapping[str, sa.Table]
FieldMappings: TypeAlias = Mapping[str, Mapping[str, str]]

TABLE_FIELDS = {role: (*fields, EXPIRES_AT) for role, fields in records.RECORD_FIELDS.items()}
MAX_TABLE_NAME, MAX_COLUMN_NAME = 48, 63

# `content` is not among them, because Oracle stores an empty string as NULL.
_REQUIRED_FIELDS = frozenset({"status", "message_count", "created_at", "updated_at", "session_id", "role"})


class UtcDateTime(sa.types.TypeDecorator[datetime]):
    """A time to the microsecond: with its timezone if the database supports it, otherwise in UTC without one."""

    impl = sa.DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        match dialect.name:
            case "mysql" | "mariadb":
                return dialect.type_descriptor(mysql.DATETIME(fsp=6))
            case "oracle":  # DATE has no fractions, and the drivers ignore timezones
                return dialect.type_descriptor(oracle.TIMESTAMP())
            case "postgresql" | "mssql":
                return dialect.type_descriptor(sa.DateTime(timezone=True))
        return dialect.type_descriptor(sa.DateTime())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return _encode_aware(value) if dialect.name in ("postgresql", "mssql") else _encode_naive(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        return _decode_time(value)


def id_type() -> TypeEngine[Any]:
    """Return the type of ids and names: compared case-sensitively in every database."""
    return (
        sa.Unicode(200)
        .with_variant(postgresql.VARCHAR(200, collation="C"), "postgresql")
        .with_variant(mysql.VARCHAR(200, charset="utf8mb4", collation="utf8mb4_0900_bin"), "mysql")
        .with_variant(mysql.VARCHAR(200, charset="utf8mb4", collation="utf8mb4_nopad_bin"), "mariadb")
        .with_variant(mssql.NVARCHAR(400, collation="Latin1_General_100_BIN2"), "mssql")
        .with_variant(oracle.NVARCHAR2(400), "oracle")
    )


def text_type() -> TypeEngine[Any]:
    """Return the type of texts of any length."""
    return (
        sa.Text()
        .with_variant(mysql.LONGTEXT(charset="utf8mb4"), "mysql", "mariadb")
        .with_variant(mssql.NVARCHAR(None), "mssql")
        .with_variant(oracle.NCLOB(), "oracle")
    )


def column_type(field: str) -> TypeEngine[Any]:
    """Return the type of a field's column in generated tables."""
    if field in records.TIME_FIELDS or field == EXPIRES_AT:
        return UtcDateTime()
    if field in records.NUMBER_FIELDS:
        return sa.BigInteger()
    return text_type() if field in records.JSON_FIELDS or field == "content" else id_type()


@dataclass(frozen=True, slots=True)
class FieldCodec:
    """Converts a field's values (JSON as text) to a column's values and back."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


def find_codec(field: str, type_: TypeEngine[Any]) -> FieldCodec | None:
    """Return the codec for a field in a column of that type; None if the column cannot store it."""
    is_decorated = isinstance(type_, sa.types.TypeDecorator)
    if field in records.TIME_FIELDS or field == EXPIRES_AT:
        if isinstance(type_, sa.DateTime):
            return FieldCodec(_encode_aware if type_.timezone else _encode_naive, _decode_time)
        if is_decorated:
            return FieldCodec(_encode_aware, _decode_time)
        return FieldCodec(_encode_iso, _decode_time) if isinstance(type_, sa.String) else None
    if field in records.JSON_FIELDS:
        if is_decorated or isinstance(type_, sa.JSON):
            return FieldCodec(_load_json, _identity)
        return FieldCodec(_identity, _load_json) if isinstance(type_, sa.String) else None
    if field in records.NUMBER_FIELDS:
        is_number = is_decorated or isinstance(type_, sa.Integer | sa.types.Numeric)
        return FieldCodec(_identity, _decode_number) if is_number else None
    return FieldCodec(_identity, _decode_text if field == "content" else _identity)


def _identity(value: Any) -> Any:
    return value


def _decode_text(value: Any) -> str:
    return value or ""  # Oracle stores an empty string as NULL


def _decode_number(value: Any) -> int:
    return int(value or 0)


def _encode_aware(value: datetime | None) -> datetime | None:
    return None if value is None else as_utc(value)


def _encode_naive(value: datetime | None) -> datetime | None:
    return None if value is None else as_utc(value).replace(tzinfo=None)


def _encode_iso(value: datetime | None) -> str | None:
    return None if value is None else records.format_time(value)


def _decode_time(value: Any) -> datetime | None:
    if value is None:
        return None
    time = datetime.fromisoformat(value) if isinstance(value, str) else value
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _load_json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


@dataclass(frozen=True, slots=True)
class MappedTable:
    """A table, and the column of each field."""

    role: str
    table: sa.Table
    columns: Mapping[str, sa.Column[Any]]
    codecs: Mapping[str, FieldCodec]

    def __getitem__(self, field: str) -> sa.Column[Any]:
        return self.columns[field]

    def encode(self, field: str, value: Any) -> Any:
        """Encode a field's value for its column."""
        return self.codecs[field].encode(value)

    def to_row(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return a record by column keys, without fields that have no column."""
        columns = self.columns
        return {columns[field].key: self.encode(field, value) for field, value in record.items() if field in columns}

    def to_record(self, row: sa.Row[Any]) -> dict[str, Any]:
        """Return the fields of a row read with `selected_columns`, without the expiry time."""
        fields = (field for field in self.columns if field != EXPIRES_AT)
        return {field: self.codecs[field].decode(value) for field, value in zip(fields, row, strict=True)}

    def selected_columns(self) -> list[sa.Column[Any]]:
        """Return the columns to read."""
        return [column for field, column in self.columns.items() if field != EXPIRES_AT]

    def is_live(self, now: Any) -> sa.ColumnElement[bool] | None:
        """Return the condition that a row has not expired; None if rows never expire."""
        expires = self.columns.get(EXPIRES_AT)
        return None if expires is None else expires.is_(None) | (expires > self.encode(EXPIRES_AT, now))


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The tables of sessions and messages."""

    sessions: MappedTable
    messages: MappedTable
    metadata: sa.MetaData
    migrations: sa.Table
    is_generated: bool
    """Whether the tables are generated from names, not passed by the user."""
    has_foreign_key: bool = False
    """Whether the database rejects messages without a session."""

    def tables(self) -> tuple[MappedTable, MappedTable]:
        return self.sessions, self.messages


def resolve_layout(tables: TableOptions | None, mappings: FieldMappings | None, *, migrates: bool) -> TableLayout:
    """Return the layout for the arguments of an adapter."""
    overrides = records.validate_field_mappings(mappings)
    names = {
        role: _resolve_names(
            f"field_mappings[{role!r}]", overrides.get(role), {field: field for field in fields}, MAX_COLUMN_NAME
        )
        for role, fields in TABLE_FIELDS.items()
    }
    table_options: Mapping[str, Any] = tables if isinstance(tables, Mapping) else {}
    if not any(isinstance(each, sa.Table) for each in table_options.values()):
        return _create_layout(
            _resolve_names("tables", tables, records.DEFAULT_NAMES, MAX_TABLE_NAME), names, migrates=migrates
        )
    if (
        not all(isinstance(table_options.get(role), sa.Table) for role in records.DEFAULT_NAMES)
        or len(table_options) > 2
    ):
        raise ConfigurationError("tables must contain only names, or a Table for each of 'sessions' and 'messages'.")
    mapped = {role: _map_user_table(role, table_options[role], names[role]) for role in records.DEFAULT_NAMES}
    name = f"{table_options['sessions'].name[:MAX_TABLE_NAME]}_migrations"
    migrations = _migrations_table(sa.MetaData(), name, table_options["sessions"].schema)
    return TableLayout(
        mapped["sessions"], mapped["messages"], table_options["sessions"].metadata, migrations, is_generated=False
    )


def with_reflected_types(mapped: MappedTable, reflected: Mapping[str, TypeEngine[Any]]) -> sa.Table:
    """Return a generated table with the types that its columns have in the database.

    An existing table may have other types than a new one: a timestamp without timezone, a JSON column.
    """
    columns = [sa.Column(column.name, reflected[field], key=field) for field, column in mapped.columns.items()]
    return sa.Table(mapped.table.name, sa.MetaData(), *columns)


def find_unfit_columns(table: sa.Table, by_field: Mapping[str, sa.Column[Any]] | None = None) -> list[str]:
    """Return the columns that cannot store their fields. By default, a column's key is its field."""
    return [
        f"{table.name}.{column.name} is {column.type!r}, which cannot store {field}"
        for field, column in (by_field or table.columns).items()
        if find_codec(field, column.type) is None
    ]


def map_table(role: str, table: sa.Table, by_field: Mapping[str, sa.Column[Any]] | None = None) -> MappedTable:
    """Map fields to a table's columns: those in `by_field`, or by default the column whose key is the field."""
    if problems := find_unfit_columns(table, by_field):
        raise ConfigurationError(f"{'; '.join(problems)}.")
    columns = by_field or {column.key: column for column in table.columns}
    codecs = {field: find_codec(field, column.type) for field, column in columns.items()}
    return MappedTable(role, table, columns, {field: codec for field, codec in codecs.items() if codec is not None})


def _create_column(field: str, name: str) -> sa.Column[Any]:
    """Create a column of a generated table."""
    if field == "id":
        return sa.Column(name, column_type(field), key=field, primary_key=True)
    if field in ("version", "position"):
        return sa.Column(name, column_type(field), key=field, nullable=False, server_default=sa.text("0"))
    return sa.Column(name, column_type(field), key=field, nullable=field not in _REQUIRED_FIELDS)


def _create_layout(names: Mapping[str, Any], fields: Mapping[str, Mapping[str, str]], *, migrates: bool) -> TableLayout:
    validation.validate_distinct("tables", [*names.values(), f"{names['sessions']}_migrations"])
    metadata = sa.MetaData()
    mapped = {}
    for role, name in names.items():
        columns = [_create_column(field, column) for field, column in fields[role].items()]
        mapped[role] = map_table(role, sa.Table(name, metadata, *columns))
    sessions, messages = mapped["sessions"], mapped["messages"]
    sa.Index(f"ix_{names['sessions']}_user", sessions["user_id"], sessions["created_at"], sessions["id"])
    sa.Index(f"ix_{names['messages']}_place", messages["session_id"], messages["position"], unique=True)
    for mapped_table in (sessions, messages):
        has_expiry = mapped_table[EXPIRES_AT].is_not(None)
        sa.Index(
            f"ix_{mapped_table.table.name}_expires",
            mapped_table[EXPIRES_AT],
            postgresql_where=has_expiry,
            sqlite_where=has_expiry,
        )
    migrations = _migrations_table(metadata if migrates else sa.MetaData(), f"{names['sessions']}_migrations", None)
    return TableLayout(sessions, messages, metadata, migrations, is_generated=True)


def _migrations_table(metadata: sa.MetaData, name: str, schema: str | None) -> sa.Table:
    return sa.Table(
        name,
        metadata,
        sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("applied_at", UtcDateTime, nullable=False),
        schema=schema,
    )


def _map_user_table(role: str, table: sa.Table, names: Mapping[str, str]) -> MappedTable:
    """Map a user's table. It needs a column for the expiry time only if there is a time to live."""
    by_name = {column.name: column for column in table.columns}
    columns = {
        field: column
        for field, name in names.items()
        if (column := table.columns.get(name, by_name.get(name))) is not None
    }
    missing = [name for field, name in names.items() if field not in columns and field != EXPIRES_AT]
    if missing:
        raise ConfigurationError(
            f"Table {table.name!r} has no column {', '.join(map(repr, missing))}: add it, or map it to a column"
            f" with field_mappings[{role!r}]."
        )
    return map_table(role, table, columns)


def _resolve_names(option: str, overrides: Any, defaults: Mapping[str, str], max_bytes: int) -> dict[str, str]:
    def is_name(name: str) -> bool:
        return bool(name.strip()) and name.isprintable() and is_storable(name) and len(name.encode()) <= max_bytes

    form = f"at most {max_bytes} bytes of printable characters"
    names = validation.resolve_names(option, overrides, defaults, is_name=is_name, form=form)
    validation.validate_distinct(option, list(names.values()))
    return names
