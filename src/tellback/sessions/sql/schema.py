"""The two tables of an adapter and their columns, and the protocol of a SQL dialect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from tellback.errors import ConfigurationError
from tellback.sessions import validation
from tellback.sessions.records import (
    EXPIRES_AT,
    MESSAGE_FIELDS,
    SESSION_FIELDS,
    FieldNames,
    validate_field_mappings,
)
from tellback.stores.engine import Operation

ColumnKind: TypeAlias = Literal["text", "count", "moment", "json", "expiry"]
TableRole: TypeAlias = Literal["sessions", "messages"]

LATEST_VERSION = 2
DEFAULT_TABLE_NAMES = {"sessions": "agent_sessions", "messages": "agent_messages"}
MAX_TABLE_NAME_LENGTH = 50
"""The names of indexes begin with the table's, and PostgreSQL cuts what is longer than 63 characters."""

UNIQUE_KEYS: Mapping[TableRole, tuple[str, ...]] = {"sessions": ("id",), "messages": ("session_id", "position")}
"""What no two rows of a table have in common."""


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """A column: a `required` one is in every row, `default` is what a row without it gets, as SQL."""

    name: str
    kind: ColumnKind
    required: bool = False
    default: str | None = None


COLUMNS: Mapping[TableRole, tuple[ColumnSpec, ...]] = {
    "sessions": (
        ColumnSpec("id", "text", required=True),
        ColumnSpec("user_id", "text"),
        ColumnSpec("agent_name", "text"),
        ColumnSpec("status", "text", default="'active'"),
        ColumnSpec("current_route", "text"),
        ColumnSpec("current_state", "text"),
        ColumnSpec("collected_data", "json", default="'{}'"),
        ColumnSpec("message_count", "count", default="0"),
        ColumnSpec("last_message_at", "moment"),
        ColumnSpec("completed_at", "moment"),
        ColumnSpec("created_at", "moment"),
        ColumnSpec("updated_at", "moment"),
        ColumnSpec("version", "count", default="0"),
        ColumnSpec(EXPIRES_AT, "expiry"),
    ),
    "messages": (
        ColumnSpec("id", "text", required=True),
        ColumnSpec("session_id", "text", required=True),
        ColumnSpec("user_id", "text"),
        ColumnSpec("role", "text", required=True),
        ColumnSpec("content", "text", required=True),
        ColumnSpec("route", "text"),
        ColumnSpec("state", "text"),
        ColumnSpec("tool_calls", "json", default="'[]'"),
        ColumnSpec("event", "json"),
        ColumnSpec("created_at", "moment"),
        ColumnSpec("position", "count"),
        ColumnSpec(EXPIRES_AT, "expiry"),
    ),
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
    names = validation.resolve_names("tables", tables, DEFAULT_TABLE_NAMES)
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
