"""The named SQL of this folder, read once per engine: shared files first, then the engine's own."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

HERE = Path(__file__).parent
Dialect = Literal["sqlite", "postgres"]


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement in an engine's words, and the order in which it takes its values."""

    name: str
    sql: str
    parameters: tuple[str, ...]


@functools.cache
def statements(dialect: Dialect) -> Mapping[str, Statement]:
    """Every named statement for a dialect."""
    import aiosql

    found: dict[str, Statement] = {}
    for folder in (HERE / "sql", HERE / "sql" / dialect):
        for path in sorted(folder.glob("*.sql")):
            queries = aiosql.from_path(path, "asyncpg", mandatory_parameters=False)
            order = queries.driver_adapter.var_sorted
            for name in queries.available_queries:
                if name.endswith("_cursor"):
                    continue  # aiosql's second door to a SELECT
                sql = getattr(queries, name).sql
                if dialect == "sqlite":  # bound by place there too: looking up names costs more than a short statement
                    sql = sql.replace("$", "?")
                found[name] = Statement(name, sql, tuple(order[name]))
    return found


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered step of the schema."""

    version: int
    name: str
    sql: str


@functools.cache
def migrations(dialect: Dialect) -> tuple[Migration, ...]:
    """All steps, in order."""
    found = []
    for path in sorted((HERE / "migrations").glob(f"*.{dialect}.sql")):
        number, _, name = path.name.removesuffix(f".{dialect}.sql").partition("_")
        found.append(Migration(int(number), name, path.read_text(encoding="utf-8")))
    return tuple(found)
