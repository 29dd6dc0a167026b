"""From any earlier state of the tables to the latest: what is missing is added, and nothing is dropped.

Version 1 has the columns that the tables of other tools have as well. Version 2 adds those that turns, their order and
times to live need. Tables that somebody made otherwise are taken as they are, and completed.
"""

from __future__ import annotations

import time

from tellback.errors import ConfigurationError
from tellback.stores.migrating import newer_schema
from tellback.stores.sessions.records import EXPIRES
from tellback.stores.sessions.sql.columns import KEYS, LATEST, Column, Table, Tables
from tellback.stores.sessions.sql.dialect import Dialect, Operation, Step
from tellback.stores.sessions.sql.statements import Types

STEPS = {1: "sessions and messages", 2: "versions, positions and times to live"}

_Found = dict[str, str]
"""A table's columns and their types, under its own names; empty if there is no table."""


def migrate(tables: Tables, dialect: Dialect, place: str) -> Operation[Types]:
    """Bring the tables to the latest version, in one transaction; gives the types of their columns."""
    ready = yield from _types(tables, dialect, place)
    if ready is not None:
        return ready
    yield from dialect.begin_migrating()
    ready = yield from _types(tables, dialect, place)  # another process may have been faster
    if ready is not None:
        return ready
    yield from _make(tables, dialect)
    ready = yield from _types(tables, dialect, place)
    if ready is None:
        raise ConfigurationError(f"{place}: the tables could not be completed. Check `tables` and `field_mappings`.")
    return ready


def _types(tables: Tables, dialect: Dialect, place: str) -> Operation[Types | None]:
    """The types of all columns, if the tables have the latest version."""
    version = yield from _version(tables, dialect)
    if version > LATEST:
        raise newer_schema(place, version, LATEST)
    sessions = yield from _existing(tables.sessions.name, dialect)
    messages = yield from _existing(tables.messages.name, dialect)
    if version < LATEST or not sessions or not messages:
        return None
    return {
        "sessions": _typed(tables.sessions, sessions, dialect),
        "messages": _typed(tables.messages, messages, dialect),
    }


def _typed(table: Table, found: _Found, dialect: Dialect) -> dict[str, str]:
    theirs = {column.name: dialect.folded(table.fields[column.name]) for column in table.columns}
    for name, column in theirs.items():
        if column not in found:
            raise ConfigurationError(
                f"The table {table.name} has no column {column!r} for {name}, and was made with other names:"
                f" check field_mappings[{table.role!r}], or rename the column."
            )
    return {name: found[column] for name, column in theirs.items()}


def _version(tables: Tables, dialect: Dialect) -> Operation[int]:
    found = yield from _existing(tables.migrations, dialect)
    if not found:
        return 0
    rows = yield Step(f"SELECT COALESCE(MAX(version), 0) FROM {dialect.place(tables.migrations)}", {})
    return int(rows[0][0])


def _existing(table: str, dialect: Dialect) -> Operation[_Found]:
    rows = yield Step(dialect.existing, {"table": table})
    return {dialect.folded(name): str(type).lower() for name, type in rows}


def _make(tables: Tables, dialect: Dialect) -> Operation[None]:
    versions = dialect.place(tables.migrations)
    yield Step(
        f"CREATE TABLE IF NOT EXISTS {versions}"
        " (version BIGINT PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL)",
        {},
    )
    for table in (tables.sessions, tables.messages):
        yield from _table(table, dialect)
        yield from _fill(table, dialect)
        yield from dialect.normalize(table)
    yield from _index(tables, dialect)
    applied = [{"version": number, "name": name, "at": time.time_ns() // 1_000} for number, name in STEPS.items()]
    insert = f"INSERT INTO {versions} (version, name, applied_at) VALUES (:version, :name, :at) ON CONFLICT DO NOTHING"
    yield Step(insert, {}, applied)


def _table(table: Table, dialect: Dialect) -> Operation[None]:
    """Make the table, or add the columns that it lacks."""
    found = yield from _existing(table.name, dialect)
    place = dialect.place(table.name)
    if not found:
        columns = ", ".join(_declared(table, column, dialect) for column in table.columns)
        key = ", ".join(dialect.named(table.fields[name]) for name in KEYS[table.role])
        yield Step(f"CREATE TABLE {place} ({columns}, PRIMARY KEY ({key}))", {})
        return
    for column in table.columns:
        name = table.fields[column.name]
        if dialect.folded(name) in found:
            continue
        if column.needed:
            raise ConfigurationError(
                f"The table {table.name} is there, but has no column {name!r} for {column.name}:"
                f" say with field_mappings[{table.role!r}] what it is called, or name another table."
            )
        default = f" DEFAULT {column.fallback}" if column.fallback else ""
        yield Step(f"ALTER TABLE {place} ADD COLUMN {dialect.named(name)} {dialect.types[column.kind]}{default}", {})


def _declared(table: Table, column: Column, dialect: Dialect) -> str:
    words = [dialect.named(table.fields[column.name]), dialect.types[column.kind]]
    if column.needed or column.fallback or column.name in ("created_at", "updated_at"):
        words.append("NOT NULL")
    if column.fallback:
        words.append(f"DEFAULT {column.fallback}")
    return " ".join(words)


def _fill(table: Table, dialect: Dialect) -> Operation[None]:
    """Rows of another tool get what they lack."""
    fallbacks = {column.name: column.fallback for column in table.columns if column.fallback}
    moments = [column.name for column in table.columns if column.name in ("created_at", "updated_at")]
    fallbacks |= dict.fromkeys(moments, dialect.moment_now)
    for name, value in fallbacks.items():
        column = dialect.named(table.fields[name])
        yield Step(f"UPDATE {dialect.place(table.name)} SET {column} = {value} WHERE {column} IS NULL", {})


def _index(tables: Tables, dialect: Dialect) -> Operation[None]:
    sessions, messages = tables.sessions, tables.messages
    yield from _number(messages, dialect)
    yield from _unique(sessions, "by_id", dialect)
    yield from _unique(messages, "by_position", dialect)
    user, created, id = (dialect.named(sessions.fields[name]) for name in ("user_id", "created_at", "id"))
    yield _created("INDEX", sessions, "by_user", f"{user}, {created}, {id} {dialect.by_bytes}", dialect)
    for table in (sessions, messages):
        expires = dialect.named(table.fields[EXPIRES])
        yield _created("INDEX", table, "by_expiry", expires, dialect, f" WHERE {expires} IS NOT NULL")


def _number(messages: Table, dialect: Dialect) -> Operation[None]:
    """Messages of an earlier version get their positions: by time, then by id."""
    place = dialect.place(messages.name)
    session_id, created, id, position = (
        dialect.named(messages.fields[name]) for name in ("session_id", "created_at", "id", "position")
    )
    if not (yield Step(f"SELECT 1 FROM {place} WHERE {position} IS NULL LIMIT 1", {})):
        return
    order = f"PARTITION BY {session_id} ORDER BY {created}, {id} {dialect.by_bytes}"
    numbered = f"SELECT {dialect.row_id} AS which, ROW_NUMBER() OVER ({order}) AS number FROM {place}"
    yield Step(
        f"UPDATE {place} AS held SET {position} = numbered.number FROM ({numbered}) AS numbered"
        f" WHERE held.{dialect.row_id} = numbered.which",
        {},
    )


def _unique(table: Table, name: str, dialect: Dialect) -> Operation[None]:
    theirs = [table.fields[column] for column in KEYS[table.role]]
    folded = ",".join(map(dialect.folded, theirs))
    if not (yield Step(dialect.is_unique, {"table": table.name, "columns": folded})):
        yield _created("UNIQUE INDEX", table, name, ", ".join(map(dialect.named, theirs)), dialect)


def _created(what: str, table: Table, name: str, columns: str, dialect: Dialect, where: str = "") -> Step:
    index = dialect.named(f"{table.name}_{name}")
    return Step(f"CREATE {what} IF NOT EXISTS {index} ON {dialect.place(table.name)} ({columns}){where}", {})
