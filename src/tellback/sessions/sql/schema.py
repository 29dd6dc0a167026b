"""The two tables of an adapter and their columns, and the protocol of a SQL dialect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from tellback.errors import ConfigurationError
from tellback.sessions import validation
from tellback.sessions.records import (
    DEFAULT_NAMES,
    EXPIRES_AT,
    JSON_FIELDS,
    MESSAGE_FIELDS,
    NUMBER_FIELDS,
    SESSION_FIELDS,
    TIME_FIELDS,
    FieldNames,
    validate_field_mappings,
)
from tellback.stores.engine import Operation

ColumnKind: TypeAlias = Literal["text", "count", "moment", "json", "expiry"]
TableRole: TypeAlias = Literal["sessions", "messages"]

LATEST_VERSION = 2
MAX_TABLE_NAME_LENGTH = 50
"""The names of indexes begin with the table's, and PostgreSQL cuts what is longer than 63 characters."""

UNIQUE_KEYS: Mapping[TableRole, tuple[str, ...]] = {"sessions": ("id",), "messages": ("session_id", "position")}
"""What no two rows of a table have in common."""

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
    """A column: a `required` one is in every row, `default` is what a row without it gets, as SQL."""

    name: str
    kind: ColumnKind
    required: bool = False
    default: str | None = None


def _column_spec(name: str) -> ColumnSpec:
    if name == EXPIRES_AT:
        return ColumnSpec(name, "expiry")
    kind: ColumnKind = "moment" if name in TIME_FIELDS else "json" if name in JSON_FIELDS else "text"
    return ColumnSpec(name, "count" if name in NUMBER_FIELDS else kind, name in _REQUIRED, _DEFAULTS.get(name))


COLUMNS: Mapping[TableRole, tuple[ColumnSpec, ...]] = {
    "sessions": tuple(map(_column_spec, (*SESSION_FIELDS, EXPIRES_AT))),
    "messages": tuple(map(_column_spec, (*MESSAGE_FIELDS, EXPIRES_AT))),
}


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table under its own name, and its columns under theirs."""

    role: TableRole
    name: str
    column_names: FieldNames

    @property
    def columns(self) -> tuple[ColumnSpec, ...]:
        """Its columns, in order."""
        return COLUMNS[self.role]


@dataclass(frozen=True, slots=True)
class TableSpecs:
    """The tables of one adapter."""

    sessions: TableSpec
    messages: TableSpec

    @property
    def migrations(self) -> str:
        """The name of the table that says which version the others have."""
        return f"{self.sessions.name}_migrations"


def resolve_tables(
    tables: Mapping[str, str] | None, field_mappings: Mapping[str, Mapping[str, str]] | None
) -> TableSpecs:
    """The tables that an adapter's options name.

    >>> resolve_tables({"sessions": "chats"}, {"sessions": {"user_id": "customer"}}).sessions.column_names["user_id"]
    'customer'
    """
    names = validation.resolve_names("tables", tables, DEFAULT_NAMES)
    for role, name in names.items():
        if len(name) > MAX_TABLE_NAME_LENGTH:
            raise ConfigurationError(
                f"tables[{role!r}] has at most {MAX_TABLE_NAME_LENGTH} characters, not {len(name)}."
            )
    mappings = validate_field_mappings(field_mappings)
    specs = TableSpecs(
        TableSpec("sessions", names["sessions"], FieldNames("sessions", SESSION_FIELDS, mappings.get("sessions"))),
        TableSpec("messages", names["messages"], FieldNames("messages", MESSAGE_FIELDS, mappings.get("messages"))),
    )
    validation.validate_distinct("tables", [*names.values(), specs.migrations])
    for table in (specs.sessions, specs.messages):
        validation.validate_distinct(
            f"field_mappings[{table.role!r}]", [table.column_names[column.name] for column in table.columns]
        )
    return specs


class SqlDialect(Protocol):
    """The words of one database, and the form that it has moments in.

    - `now` is the moment of a statement, `expires_at` the one that is `:ttl` seconds later, and `now_as_time` the same
      moment in the form of a column of moments.
    - `byte_collation` is the order of texts that every database has alike, `row_lock` keeps a row that was read.
    - `value_sql` and `column_sql` are the forms of a value in statements, for the type that its column has.
    - `select_columns` gives the columns of a `:table` with their types, `select_unique_index` a row if an index keeps
      its `:columns` unique, and `row_id` is what every row of a table has.
    - `prepare_migration` does what comes before tables are made, and `normalize_times` brings moments of another form
      to ours.
    """

    types: Mapping[ColumnKind, str]
    now: str
    now_as_time: str
    expires_at: str
    byte_collation: str
    row_lock: str
    select_columns: str
    select_unique_index: str
    row_id: str

    def quote(self, name: str) -> str: ...

    def qualified_name(self, table: str) -> str: ...

    def fold_name(self, name: str) -> str: ...

    def value_sql(self, column: ColumnSpec, type: str) -> str: ...

    def column_sql(self, column: ColumnSpec, type: str, name: str) -> str: ...

    def time_value(self, value: Any) -> Any: ...

    def prepare_migration(self) -> Operation[None]: ...

    def normalize_times(self, table: TableSpec) -> Operation[None]: ...
