"""The named SQL of this folder, read once per engine: shared files first, then the engine's own.

What several statements have in common stands in `sql/parts`, and in them as its name in braces.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

HERE = Path(__file__).parent
Dialect = Literal["sqlite", "postgres"]
_NUMBERED = re.compile(r"\$(\d+)")
_PART = re.compile(r"\{(\w+)\}")


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
            queries = aiosql.from_str(_PART.sub(_part, _text(path)), "asyncpg", mandatory_parameters=False)
            order = queries.driver_adapter.var_sorted
            for name in queries.available_queries:
                if name.endswith("_cursor"):
                    continue  # aiosql's second door to a SELECT
                sql, parameters = getattr(queries, name).sql, tuple(order[name])
                if dialect == "sqlite":
                    sql, parameters = _by_place(sql, parameters)
                found[name] = Statement(name, sql, parameters)
    return found


def _part(name: re.Match[str]) -> str:
    return _PART.sub(_part, _text(HERE / "sql" / "parts" / f"{name[1]}.sql").rstrip())


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _by_place(sql: str, parameters: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Numbered parameters as plain ones, each as often as it occurs.

    Looking up names would cost more than a short statement, and some Pythons take a numbered one for a name.

    >>> _by_place("SELECT $2, $1, $2", ("a", "b"))
    ('SELECT ?, ?, ?', ('b', 'a', 'b'))
    """
    places = [int(number) - 1 for number in _NUMBERED.findall(sql)]
    return _NUMBERED.sub("?", sql), tuple(parameters[place] for place in places)


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
        found.append(Migration(int(number), name, _text(path)))
    return tuple(found)
