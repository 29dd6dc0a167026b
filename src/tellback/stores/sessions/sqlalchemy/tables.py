"""The two tables: ours, made from names, or the user's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from sqlalchemy import Column, ColumnElement, Index, Integer, MetaData, Row, Table, text
from sqlalchemy.types import TypeEngine

from tellback.errors import ConfigurationError
from tellback.stores.sessions.records import EXPIRES, MESSAGE_FIELDS, SESSION_FIELDS
from tellback.stores.sessions.sqlalchemy.values import Codec, Moment, codec, type_of
from tellback.types.jsontext import is_storable

Tables: TypeAlias = Mapping[str, str] | Mapping[str, Table]
FieldMappings: TypeAlias = Mapping[str, Mapping[str, str]]

DEFAULTS = {"sessions": "agent_sessions", "messages": "agent_messages"}
FIELDS = {"sessions": (*SESSION_FIELDS, EXPIRES), "messages": (*MESSAGE_FIELDS, EXPIRES)}
OURS = frozenset({"version", "position", EXPIRES})
"""The fields that the second migration adds."""
LONGEST_TABLE, LONGEST_COLUMN = 48, 63

# Not content: to Oracle an empty text is NULL.
_FILLED = frozenset({"status", "message_count", "created_at", "updated_at", "session_id", "role"})


@dataclass(frozen=True, slots=True)
class Shelf:
    """One table, and which of its columns holds which field."""

    what: str
    table: Table
    columns: Mapping[str, Column[Any]]
    codecs: Mapping[str, Codec]

    def __getitem__(self, field: str) -> Column[Any]:
        return self.columns[field]

    def encode(self, field: str, value: Any) -> Any:
        """A field's value as its column takes it."""
        return self.codecs[field].encode(value)

    def row(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """A record by the keys of its columns. A field without a column is left out."""
        known = self.columns
        return {known[field].key: self.encode(field, value) for field, value in record.items() if field in known}

    def record(self, row: Row[Any]) -> dict[str, Any]:
        """The fields of a row that was read by `all_columns`, without when it is past its time."""
        fields = (field for field in self.columns if field != EXPIRES)
        return {field: self.codecs[field].decode(value) for field, value in zip(fields, row, strict=True)}

    def all_columns(self) -> list[Column[Any]]:
        """What to read of a row."""
        return [column for field, column in self.columns.items() if field != EXPIRES]

    def alive(self, now: Any) -> ColumnElement[bool] | None:
        """That a row is not past its time; None where nothing ever is."""
        expires = self.columns.get(EXPIRES)
        return None if expires is None else expires.is_(None) | (expires > self.encode(EXPIRES, now))


@dataclass(frozen=True, slots=True)
class Layout:
    """Where sessions and messages are."""

    sessions: Shelf
    messages: Shelf
    metadata: MetaData
    migrations: Table
    ours: bool
    """Whether the tables are made from names, not given by the user."""
    linked: bool = False
    """Whether the database refuses messages without their session."""

    def shelves(self) -> tuple[Shelf, Shelf]:
        return self.sessions, self.messages


def layout_of(tables: Tables | None, mappings: FieldMappings | None, *, migrates: bool) -> Layout:
    """The layout that the arguments of an adapter describe."""
    given = _mapping("tables", tables, DEFAULTS)
    fields = _mapping("field_mappings", mappings, DEFAULTS)
    names = {what: _names(what, known, fields.get(what)) for what, known in FIELDS.items()}
    own = [each for each in given.values() if isinstance(each, Table)]
    if not own:
        return _made({**DEFAULTS, **given}, names, migrates=migrates)
    if len(own) < len(DEFAULTS):
        raise ConfigurationError("tables gives names, or a Table for both 'sessions' and 'messages'.")
    shelves = {what: _found(what, given[what], names[what]) for what in DEFAULTS}
    name = f"{given['sessions'].name[:LONGEST_TABLE]}_migrations"
    migrations = _migrations(MetaData(), name, given["sessions"].schema)
    return Layout(shelves["sessions"], shelves["messages"], given["sessions"].metadata, migrations, ours=False)


def refitted(shelf: Shelf, reflected: Mapping[str, TypeEngine[Any]]) -> tuple[Shelf, list[str]]:
    """A table of ours with the types that its columns have in the database; also, those that cannot hold their field.

    A table that was there before may have others than we would make: a timestamp without timezone, a JSON column.
    """
    columns = [Column(column.name, reflected[field], key=field) for field, column in shelf.columns.items()]
    wrong = [
        f"{shelf.table.name}.{column.name} is {column.type!r}, which cannot hold {column.key}"
        for column in columns
        if codec(column.key, column.type) is None
    ]
    return (shelf if wrong else _shelf(shelf.what, Table(shelf.table.name, MetaData(), *columns), _by_key)), wrong


def column_of(field: str, name: str) -> Column[Any]:
    """A column as we make it."""
    if field == "id":
        return Column(name, type_of(field), key=field, primary_key=True)
    if field in ("version", "position"):
        return Column(name, type_of(field), key=field, nullable=False, server_default=text("0"))
    return Column(name, type_of(field), key=field, nullable=field not in _FILLED)


def _made(names: Mapping[str, Any], fields: Mapping[str, Mapping[str, str]], *, migrates: bool) -> Layout:
    for what, name in names.items():
        _check_name(f"tables[{what!r}]", name, LONGEST_TABLE)
    _check_apart("tables", [*names.values(), f"{names['sessions']}_migrations"])
    metadata = MetaData()
    shelves = {}
    for what, name in names.items():
        columns = [column_of(field, column) for field, column in fields[what].items()]
        shelves[what] = _shelf(what, Table(name, metadata, *columns), _by_key)
    sessions, messages = shelves["sessions"], shelves["messages"]
    Index(f"ix_{names['sessions']}_user", sessions["user_id"], sessions["created_at"], sessions["id"])
    Index(f"ix_{names['messages']}_place", messages["session_id"], messages["position"], unique=True)
    for shelf in (sessions, messages):
        dated = shelf[EXPIRES].is_not(None)
        Index(f"ix_{shelf.table.name}_expires", shelf[EXPIRES], postgresql_where=dated, sqlite_where=dated)
    migrations = _migrations(metadata if migrates else MetaData(), f"{names['sessions']}_migrations", None)
    return Layout(sessions, messages, metadata, migrations, ours=True)


def _migrations(metadata: MetaData, name: str, schema: str | None) -> Table:
    return Table(
        name,
        metadata,
        Column("version", Integer, primary_key=True, autoincrement=False),
        Column("applied_at", Moment, nullable=False),
        schema=schema,
    )


def _shelf(what: str, table: Table, columns: Any) -> Shelf:
    found: dict[str, Column[Any]] = columns(table)
    codecs = {field: codec(field, column.type) for field, column in found.items()}
    wrong = [
        f"column {found[field].name!r} of table {table.name!r} is {found[field].type!r}, which cannot hold {field}"
        for field, known in codecs.items()
        if known is None
    ]
    if wrong:
        raise ConfigurationError(f"{'; '.join(wrong)}.")
    return Shelf(what, table, found, {field: known for field, known in codecs.items() if known is not None})


def _by_key(table: Table) -> dict[str, Column[Any]]:
    return {column.key: column for column in table.columns}


def _found(what: str, table: Table, names: Mapping[str, str]) -> Shelf:
    """A table of the user's. It needs no column for the time to live if there is none."""
    columns = {
        field: column
        for field, name in names.items()
        if (column := table.columns.get(name, _named(table, name))) is not None
    }
    missing = [name for field, name in names.items() if field not in columns and field != EXPIRES]
    if missing:
        raise ConfigurationError(
            f"Table {table.name!r} has no column {', '.join(map(repr, missing))}: add it, or say by"
            f" field_mappings[{what!r}] which column it is."
        )
    return _shelf(what, table, lambda _: columns)


def _named(table: Table, name: str) -> Column[Any] | None:
    return next((column for column in table.columns if column.name == name), None)


def _mapping(what: str, given: Any, known: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(given, Mapping | None):
        raise ConfigurationError(f"{what} is a mapping with {' and '.join(known)}, not {given!r:.80}.")
    unknown = (given or {}).keys() - known.keys()
    if unknown:
        raise ConfigurationError(f"{what} has {', '.join(known)}, but not {', '.join(map(str, unknown))}.")
    return dict(given or {})


def _names(what: str, fields: tuple[str, ...], given: Any) -> dict[str, str]:
    place = f"field_mappings[{what!r}]"
    found = {**{field: field for field in fields}, **_mapping(place, given, dict.fromkeys(fields))}
    for field, name in found.items():
        _check_name(f"{place}[{field!r}]", name, LONGEST_COLUMN)
    _check_apart(place, found.values())
    return found


def _check_name(what: str, name: Any, longest: int) -> None:
    if not isinstance(name, str) or not name.strip() or not is_storable(name) or not name.isprintable():
        raise ConfigurationError(f"{what} is a name that a database can have, not {name!r:.80}.")
    if len(name.encode()) > longest:
        raise ConfigurationError(f"{what} is longer than {longest} bytes: {name!r:.80}.")


def _check_apart(what: str, names: Iterable[str]) -> None:
    """Names must differ in more than case: not every database tells those apart."""
    found = list(names)
    if len({name.casefold() for name in found}) < len(found):
        raise ConfigurationError(f"{what} gives two things one name: {', '.join(found)}.")
