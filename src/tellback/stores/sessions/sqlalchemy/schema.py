"""What is in the database: looked at, and made or migrated where that is wanted.

Version 1 has what the adapter keeps of a session and a message. Version 2 adds the version of a session, the position
of a message, times to live, and indexes. Each step looks before it makes, so that one that was cut short goes on.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Index,
    Inspector,
    MetaData,
    Table,
    bindparam,
    func,
    insert,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy.schema import CreateColumn
from sqlalchemy.types import NullType, TypeEngine

from tellback.errors import SchemaVersionError
from tellback.stores.sessions.sqlalchemy.tables import LONGEST_TABLE, OURS, Layout, Shelf, column_of, refitted
from tellback.types.times import utc_now

LATEST = 2
_BATCH = 1000
_KEYS = frozenset({"id", "session_id"})


@dataclass(frozen=True, slots=True)
class Found:
    """What the database has of a table: the types of its columns by field, or None if there is no such table."""

    types: Mapping[str, TypeEngine[Any]] | None
    has_key: bool = False
    linked: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """What the database has, and what it lacks."""

    found: Mapping[str, Found]
    version: int
    missing: tuple[str, ...]


def look(connection: Connection, layout: Layout) -> Look:
    """See what is there. Raises `SchemaVersionError` if a later release has been there before."""
    inspector = inspect(connection)
    version = _version(connection, inspector, layout.migrations)
    found = {shelf.what: _found(inspector, shelf) for shelf in layout.shelves()}
    missing = [part for shelf in layout.shelves() for part in _missing(shelf, found[shelf.what])]
    return Look(found, version, tuple(missing))


def fitted(layout: Layout, seen: Look) -> Layout:
    """The layout as the database has it. Raises `SchemaVersionError` if anything is missing."""
    if seen.missing:
        raise SchemaVersionError(
            f"The database lacks {', '.join(seen.missing)}. Pass auto_migrate=True to have it made, or make it by"
            " migrations of your own: adapter.metadata has the tables as they must be."
        )
    linked = seen.found["messages"].linked
    if not layout.ours:
        return replace(layout, linked=linked)
    sessions, wrong = refitted(layout.sessions, seen.found["sessions"].types or {})
    messages, also_wrong = refitted(layout.messages, seen.found["messages"].types or {})
    if wrong or also_wrong:
        raise SchemaVersionError(f"The tables cannot be used: {'; '.join(wrong + also_wrong)}. Change their types.")
    return replace(layout, sessions=sessions, messages=messages, linked=linked)


def migrate(connection: Connection, layout: Layout) -> None:
    """Bring the tables to the latest version, from nothing or from whatever is there."""
    locked = _lock(connection, layout)
    try:
        seen = look(connection, layout)
        layout.migrations.create(connection, checkfirst=True)
        for number in range(1, LATEST + 1):
            for shelf in layout.shelves():
                _complete(connection, shelf, seen.found[shelf.what], number, layout)
            if number == LATEST:
                _place_messages(connection, layout)
                _index(connection, layout)
            if number > seen.version:
                connection.execute(insert(layout.migrations).values(version=number, applied_at=utc_now()))
    finally:
        if locked:
            connection.execute(text("SELECT RELEASE_LOCK(:name)"), {"name": locked})


def _lock(connection: Connection, layout: Layout) -> str | None:
    """Keep others out who do the same. SQLite's transaction has done so already."""
    number = zlib.crc32(layout.migrations.fullname.encode()) & 0x7FFFFFFF
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(1919247215, :number)"), {"number": number})
    if connection.dialect.name in ("mysql", "mariadb"):
        name = f"tellback_{number}"
        connection.execute(text("SELECT GET_LOCK(:name, 60)"), {"name": name})
        return name
    return None


def _version(connection: Connection, inspector: Inspector, migrations: Table) -> int:
    if not inspector.has_table(migrations.name, schema=migrations.schema):
        return 0
    version = int(connection.scalar(select(func.max(migrations.c.version))) or 0)
    if version > LATEST:
        raise SchemaVersionError(
            f"The tables are of version {version}, as {migrations.name!r} says; this release knows versions up to"
            f" {LATEST}. Use a release of Tellback that is at least as new as the one that migrated them."
        )
    return version


def _found(inspector: Inspector, shelf: Shelf) -> Found:
    table = shelf.table
    if not inspector.has_table(table.name, schema=table.schema):
        return Found(None)
    exact = inspector.dialect.name == "postgresql"
    there = {_as(column["name"], exact): column["type"] for column in inspector.get_columns(table.name, table.schema)}
    types = {
        field: column.type if isinstance(there[name], NullType) else there[name]
        for field, column in shelf.columns.items()
        if (name := _as(column.name, exact)) in there
    }
    return Found(types, _has_key(inspector, shelf, exact), _is_linked(inspector, shelf, exact))


def _has_key(inspector: Inspector, shelf: Shelf, exact: bool) -> bool:
    """Whether there cannot be two rows of one id: what creators at once must be refused by."""
    table, wanted = shelf.table, [_as(shelf["id"].name, exact)]
    keys: list[Sequence[str | None]] = [inspector.get_pk_constraint(table.name, table.schema)["constrained_columns"]]
    keys += [each["column_names"] for each in inspector.get_indexes(table.name, table.schema) if each["unique"]]
    keys += [each["column_names"] for each in inspector.get_unique_constraints(table.name, table.schema)]
    return any([_as(name, exact) for name in key if name is not None] == wanted for key in keys)


def _is_linked(inspector: Inspector, shelf: Shelf, exact: bool) -> bool:
    if "session_id" not in shelf.columns:
        return False
    name = _as(shelf["session_id"].name, exact)
    links = inspector.get_foreign_keys(shelf.table.name, shelf.table.schema)
    return any(name in [_as(each, exact) for each in link["constrained_columns"]] for link in links)


def _as(name: str, exact: bool) -> str:
    return name if exact else name.casefold()


def _missing(shelf: Shelf, found: Found) -> list[str]:
    name = shelf.table.name
    if found.types is None:
        return [f"table {name!r}"]
    columns = [column.name for field, column in shelf.columns.items() if field not in found.types]
    missing = [f"column {column!r} of table {name!r}" for column in columns]
    if shelf.what == "sessions" and not found.has_key and not columns:
        missing.append(f"a primary key or unique index on {shelf['id'].name!r} of table {name!r}")
    return missing


def _complete(connection: Connection, shelf: Shelf, found: Found, number: int, layout: Layout) -> None:
    """Make the table, or the columns of this version that it lacks."""
    wanted = {field: column for field, column in shelf.columns.items() if (field in OURS) == (number == LATEST)}
    if found.types is None:
        if number == 1:
            _create(connection, shelf, wanted, layout)
            return
        if not layout.ours:
            return  # it was made whole
    lacking = {field: column for field, column in wanted.items() if field not in (found.types or {})}
    if keys := lacking.keys() & _KEYS:
        raise SchemaVersionError(
            f"Table {shelf.table.name!r} is there, but has no column {', '.join(sorted(keys))}: it is another table."
            " Say by tables or field_mappings what yours are called."
        )
    for column in lacking.values():
        _add(connection, shelf.table, column)
    if found.types is not None:
        _fill(connection, shelf, lacking, layout)


def _create(connection: Connection, shelf: Shelf, wanted: Mapping[str, Column[Any]], layout: Layout) -> None:
    if layout.ours:
        columns = [column_of(field, column.name) for field, column in wanted.items()]
        Table(shelf.table.name, MetaData(), *columns).create(connection)
    else:
        shelf.table.create(connection)


def _add(connection: Connection, table: Table, column: Column[Any]) -> None:
    dialect = connection.dialect
    added = table.to_metadata(MetaData()).columns[column.key]
    added.nullable = column.nullable or column.server_default is None  # there may be rows already
    keyword = "ADD" if dialect.name in ("mssql", "oracle") else "ADD COLUMN"
    name = dialect.identifier_preparer.format_table(table)
    connection.exec_driver_sql(f"ALTER TABLE {name} {keyword} {CreateColumn(added).compile(dialect=dialect)}")


def _fill(connection: Connection, shelf: Shelf, added: Mapping[str, Column[Any]], layout: Layout) -> None:
    """Give rows that were there what a session or a message cannot be without."""
    messages = layout.messages
    count = select(func.count()).where(messages["session_id"] == shelf["id"]).scalar_subquery()
    now = utc_now()
    values = {"status": "active", "role": "user", "content": "", "created_at": now, "updated_at": now}
    for field, column in added.items():
        if field == "message_count":
            connection.execute(update(shelf.table).values({column: count}))
        elif field in values:
            connection.execute(update(shelf.table).values({column: shelf.encode(field, values[field])}))


def _place_messages(connection: Connection, layout: Layout) -> None:
    """Give messages without a position the next ones of their session, in the order they were made."""
    messages = layout.messages
    session_id, position, id = messages["session_id"], messages["position"], messages["id"]
    unplaced = position.is_(None) | (position == 0)
    order = (session_id, messages["created_at"], id)
    rows = connection.execute(select(id, session_id).where(unplaced).order_by(*order)).all()
    if not rows:
        return
    last: dict[str, int] = {
        session: int(most or 0)
        for session, most in connection.execute(select(session_id, func.max(position)).group_by(session_id))
    }
    placed = []
    for message, session in rows:
        last[session] += 1
        placed.append({"which": message, "place": last[session]})
    change = (
        update(messages.table).where(id == bindparam("which", type_=id.type)).values({position: bindparam("place")})
    )
    for start in range(0, len(placed), _BATCH):
        connection.execute(change, placed[start : start + _BATCH])


def _index(connection: Connection, layout: Layout) -> None:
    """Make the indexes of tables that are ours, and what keeps an id from being there twice."""
    inspector = inspect(connection)
    for shelf in layout.shelves():
        if layout.ours:
            for index in shelf.table.indexes:
                index.create(connection, checkfirst=True)
        if shelf.what == "sessions" and not _has_key(inspector, shelf, connection.dialect.name == "postgresql"):
            id = shelf.table.to_metadata(MetaData()).columns[shelf["id"].key]
            Index(f"ix_{shelf.table.name[:LONGEST_TABLE]}_id", id, unique=True).create(connection, checkfirst=True)
