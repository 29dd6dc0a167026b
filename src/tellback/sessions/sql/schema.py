"""The two tables of an adapter and their columns, and the protocols of a SQL dialect and of a runner."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from tellback.errors import ConfigurationError
from tellback.sessions import validation
from tellback.sessions.records import EXPIRES_AT, MESSAGE_FIELDS, SESSION_FIELDS, FieldNames

T = TypeVar("T")

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
    """A column: `needed` is in every row, `fallback` is what a row without it has, as SQL."""

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
    mappings = _validate_field_mappings(field_mappings)
    specs = TableSpecs(
        TableSpec("sessions", names["sessions"], FieldNames("sessions", SESSION_FIELDS, mappings.get("sessions"))),
        TableSpec("messages", names["messages"], FieldNames("messages", MESSAGE_FIELDS, mappings.get("messages"))),
    )
    _validate_distinct("tables", [*names.values(), specs.migrations])
    for table in (specs.sessions, specs.messages):
        _validate_distinct(
            f"field_mappings[{table.role!r}]", [table.column_names[column.name] for column in table.columns]
        )
    return specs


def _validate_field_mappings(field_mappings: Any) -> Mapping[str, Mapping[str, str]]:
    if field_mappings is None:
        return {}
    if not isinstance(field_mappings, Mapping):
        raise ConfigurationError(f"field_mappings is a mapping of mappings, not {field_mappings!r:.80}.")
    unknown = [str(name) for name in field_mappings if name not in DEFAULT_TABLE_NAMES]
    if unknown:
        raise ConfigurationError(
            f"field_mappings has {' and '.join(DEFAULT_TABLE_NAMES)}, but not {', '.join(unknown)}."
        )
    return field_mappings


def _validate_distinct(option: str, names: list[str]) -> None:
    """SQLite takes names that differ only in case for one."""
    if len({name.lower() for name in names}) < len(names):
        raise ConfigurationError(f"{option} gives two things one name: {', '.join(names)}.")


@dataclass(frozen=True, slots=True)
class BoundStatement:
    """A statement with its values by name. With `many`, it is run once for each of them, and gives no rows."""

    sql: str
    values: Mapping[str, Any]
    batch: Sequence[Mapping[str, Any]] | None = None


SqlOperation: TypeAlias = Generator[BoundStatement, list[Any], T]
"""Work in one transaction, which knows no driver: it yields statements and is sent their rows."""
OperationFactory: TypeAlias = Callable[[], SqlOperation[T]]
"""Makes an operation, as often as it has to be tried."""


class SqlDialect(Protocol):
    """The words of one database, and the form that it has moments in.

    - `now` is the moment of a statement, `until` the one that is `:ttl` seconds later.
    - `by_bytes` is the order of texts that every database has alike, `lock` keeps a row that was read.
    - `write` and `read` are the forms of a value in statements, for the type that its column has.
    - `existing` gives the columns of a `:table` with their types, `is_unique` a row if an index keeps its `:columns`
      unique, and `row_id` is what every row of a table has.
    - `moment_now` is this moment in the form of a column of moments.
    - `begin_migrating` does what comes before tables are made, and `normalize` brings moments of another form to ours.
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

    def encode_time(self, value: Any) -> Any: ...

    def prepare_migration(self) -> SqlOperation[None]: ...

    def normalize_times(self, table: TableSpec) -> SqlOperation[None]: ...


class SqlRunner(Protocol):
    """Runs operations on a database, each in a transaction of its own.

    `open` and `close` begin and end its connections, and may be called twice. `place` names the database in errors.
    """

    place: str

    @property
    def dialect(self) -> SqlDialect: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def migrate(self, make_operation: OperationFactory[T]) -> T: ...

    async def read(self, make_operation: OperationFactory[T]) -> T: ...

    async def write(self, make_operation: OperationFactory[T]) -> T: ...
