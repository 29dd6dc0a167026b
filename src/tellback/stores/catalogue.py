"""The catalogue of named SQL statements and numbered migrations, loaded once per dialect.

Shared files are read first, then the engine's own. `{name}` in a statement is replaced by the file of that name in
`sql/parts`, or by the dialect's text for it (`DIALECT_PARTS`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tellback.errors import SchemaVersionError

SQL_FOLDER = Path(__file__).parent / "sql"
MIGRATIONS_FOLDER = Path(__file__).parent / "migrations"
Dialect = Literal["sqlite", "postgres"]
_NAMED_PARAMETER = re.compile(r"(?<!:):([a-z][a-z_0-9]*)")
DIALECT_PARTS: dict[Dialect, dict[str, str]] = {
    # SQLite needs no row locks: it has only one writer at a time.
    "sqlite": {
        **dict.fromkeys(("for_update", "for_update_skip_locked", "for_no_key_update", "for_key_share"), ""),
        "listed_ids": "SELECT value FROM json_each(:ids)",
    },
    "postgres": {
        "for_update": "FOR UPDATE",
        "for_update_skip_locked": "FOR UPDATE SKIP LOCKED",
        "for_no_key_update": "FOR NO KEY UPDATE",
        "for_key_share": "FOR KEY SHARE",
        "listed_ids": "SELECT jsonb_array_elements_text(CAST(CAST(:ids AS TEXT) AS JSONB))",
    },
}
_NUMBERED_PARAMETER = re.compile(r"\$(\d+)")
_PART_REFERENCE = re.compile(r"\{(\w+)\}")
_CREATE_TABLE = re.compile(r"^CREATE TABLE (\w+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement in an engine's SQL, and the order of its parameters."""

    name: str
    sql: str
    parameters: tuple[str, ...]


@functools.cache
def statements(dialect: Dialect) -> Mapping[str, Statement]:
    """Return every named statement for a dialect."""
    import aiosql

    loaded: dict[str, Statement] = {}
    for folder in (SQL_FOLDER, SQL_FOLDER / dialect):
        for path in sorted(folder.glob("*.sql")):
            text = _replace_parts(_read_sql(path), dialect)
            queries = aiosql.from_str(text, "asyncpg", mandatory_parameters=False)
            order = queries.driver_adapter.var_sorted
            for name in queries.available_queries:
                if name.endswith("_cursor"):
                    continue  # aiosql also adds a cursor function for each SELECT
                sql, parameters = getattr(queries, name).sql, tuple(order[name])
                if dialect == "sqlite":
                    sql, parameters = _to_positional(sql, parameters)
                loaded[name] = Statement(name, sql, parameters)
    return loaded


class StatementCache(dict[str, Statement]):
    """Statements by name or by SQL text with `:name` parameters. A text is compiled when first looked up.

    >>> StatementCache("postgres")["SELECT :a::text, :b, :a"].sql
    'SELECT $1::text, $2, $1'
    """

    def __init__(self, dialect: Dialect) -> None:
        super().__init__()
        self._dialect = dialect

    def __missing__(self, text: str) -> Statement:
        parameters = tuple(dict.fromkeys(_NAMED_PARAMETER.findall(text)))
        sql = _NAMED_PARAMETER.sub(lambda found: f"${parameters.index(found[1]) + 1}", text)
        if self._dialect == "sqlite":
            sql, parameters = _to_positional(sql, parameters)
        statement = self[text] = Statement(text, sql, parameters)
        return statement


def _replace_parts(text: str, dialect: Dialect) -> str:
    def load(reference: re.Match[str]) -> str:
        part = DIALECT_PARTS[dialect].get(reference[1])
        if part is None:
            part = _read_sql(SQL_FOLDER / "parts" / f"{reference[1]}.sql").rstrip()
        return _replace_parts(part, dialect)

    return _PART_REFERENCE.sub(load, text)


def _read_sql(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _to_positional(sql: str, parameters: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Convert numbered parameters to plain `?` ones, repeating a value as often as it occurs.

    Looking up names would cost more than a short statement, and some Python versions treat a numbered parameter as a
    named one.

    >>> _to_positional("SELECT $2, $1, $2", ("a", "b"))
    ('SELECT ?, ?, ?', ('b', 'a', 'b'))
    """
    indexes = [int(number) - 1 for number in _NUMBERED_PARAMETER.findall(sql)]
    return _NUMBERED_PARAMETER.sub("?", sql), tuple(parameters[index] for index in indexes)


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered step of the schema."""

    version: int
    name: str
    sql: str


def migrations(dialect: Dialect) -> tuple[Migration, ...]:
    """Return all migrations in order: the baseline, which creates every table, and later changes."""
    return _load_migrations(MIGRATIONS_FOLDER, dialect)


@functools.cache
def _load_migrations(folder: Path, dialect: Dialect) -> tuple[Migration, ...]:
    loaded = []
    for path in sorted(folder.glob(f"*.{dialect}.sql")):
        number, _, name = path.name.removesuffix(f".{dialect}.sql").partition("_")
        loaded.append(Migration(int(number), name, _read_sql(path)))
    return tuple(loaded)


def baseline_tables(dialect: Dialect) -> frozenset[str]:
    """Return the names of the tables that the baseline creates.

    >>> "conversations" in baseline_tables("sqlite")
    True
    """
    return frozenset(_CREATE_TABLE.findall(migrations(dialect)[0].sql))


def foreign_tables_error(location: str, tables: Collection[str]) -> SchemaVersionError:
    """Return the error for tables with our names but without a record of Tellback's migrations."""
    names = ", ".join(sorted(tables))
    return SchemaVersionError(
        f"{location} already has tables that this release would create ({names}), but no record of Tellback's"
        " migrations: another program or a pre-release version of Tellback made them. Nothing was changed."
        " Open another file, database or schema."
    )


def newer_schema_error(location: str, found: int, supported: int) -> SchemaVersionError:
    """Return the error for tables that a later release has migrated."""
    return SchemaVersionError(
        f"{location} has schema version {found}, but this release knows versions up to {supported}:"
        " a newer Tellback has migrated it. Upgrade this one, or open another database."
    )
