"""How a database wants the same things said."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

from tellback.stores.sessions.sql.columns import Column, Kind, Table

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Step:
    """A statement with its values by name. With `many`, it is run once for each of them, and gives no rows."""

    sql: str
    values: Mapping[str, Any]
    many: Sequence[Mapping[str, Any]] | None = None


Operation: TypeAlias = Generator[Step, list[Any], T]
"""Work in one transaction, which knows no driver: it yields statements and is sent their rows."""
Make: TypeAlias = Callable[[], Operation[T]]
"""Makes an operation, as often as it has to be tried."""


class Dialect(Protocol):
    """The words of one database, and the form that it has moments in.

    - `now` is the moment of a statement, `until` the one that is `:ttl` seconds later.
    - `by_bytes` is the order of texts that every database has alike, `lock` keeps a row that was read.
    - `write` and `read` are the forms of a value in statements, for the type that its column has.
    - `existing` gives the columns of a `:table` with their types, `is_unique` a row if an index keeps its `:columns`
      unique, and `row_id` is what every row of a table has.
    - `moment_now` is this moment in the form of a column of moments.
    - `begin_migrating` does what comes before tables are made, and `normalize` brings moments of another form to ours.
    """

    types: Mapping[Kind, str]
    now: str
    moment_now: str
    until: str
    by_bytes: str
    lock: str
    existing: str
    is_unique: str
    row_id: str

    def named(self, name: str) -> str: ...

    def place(self, table: str) -> str: ...

    def folded(self, name: str) -> str: ...

    def write(self, column: Column, type: str) -> str: ...

    def read(self, column: Column, type: str, name: str) -> str: ...

    def to_moment(self, moment: Any) -> Any: ...

    def begin_migrating(self) -> Operation[None]: ...

    def normalize(self, table: Table) -> Operation[None]: ...


class Runner(Protocol):
    """Runs operations on a database, each in a transaction of its own.

    `open` and `close` begin and end its connections, and may be called twice. `place` names the database in errors.
    """

    place: str

    @property
    def dialect(self) -> Dialect: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def migrate(self, make: Make[T]) -> T: ...

    async def read(self, make: Make[T]) -> T: ...

    async def write(self, make: Make[T]) -> T: ...
