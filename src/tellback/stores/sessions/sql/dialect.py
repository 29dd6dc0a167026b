"""How a database wants the same things said."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

from tellback.stores.sessions.sql.columns import ColumnKind, ColumnSpec, TableSpec

T = TypeVar("T")


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
