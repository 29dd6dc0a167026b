"""The statements of one adapter, with its own names in them.

Names of tables and columns are checked and quoted before they come here; everything else is bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tellback.stores.sessions.records import EXPIRES
from tellback.stores.sessions.sql.columns import Column, Role, Table, Tables
from tellback.stores.sessions.sql.dialect import Dialect
from tellback.stores.sessions.sql.values import stored_columns

Types = Mapping[Role, Mapping[str, str]]
"""The types that columns have in the database, by our names for them."""


@dataclass(frozen=True, slots=True)
class Statements:
    """Every statement, by what it does."""

    begin_session: str
    go_on: str
    count_on: str
    set_status: str
    version: str
    get: str
    of_user: str
    of_user_before: str
    active: str
    active_of_agent: str
    hold: str
    delete_session: str
    delete_messages: str
    delete_left: str
    last_position: str
    add_message: str
    latest: str
    earliest: str
    purge_sessions: str
    purge_messages: str


class _Words:
    """A table's own words."""

    def __init__(self, table: Table, dialect: Dialect, types: Mapping[str, str]) -> None:
        self.table = table
        self.dialect = dialect
        self.types = types
        self.place = dialect.place(table.name)
        stored = stored_columns(table.role)
        self.stored = [column.name for column in stored]
        self.read = ", ".join(dialect.read(each, types[each.name], self[each.name]) for each in stored)
        self.is_live = f"({self[EXPIRES]} IS NULL OR {self[EXPIRES]} > {dialect.now})"
        self.is_past = f"{self[EXPIRES]} <= {dialect.now}"

    def __getitem__(self, name: str) -> str:
        return self.dialect.named(self.table.fields[name])

    def write(self, name: str) -> str:
        if name == EXPIRES:
            return self.dialect.until
        return self.dialect.write(self._column(name), self.types[name])

    def set(self, *names: str) -> str:
        return ", ".join(f"{self[name]} = {self.write(name)}" for name in names)

    def insert(self) -> str:
        names = [*self.stored, EXPIRES]
        columns, values = ", ".join(self[name] for name in names), ", ".join(self.write(name) for name in names)
        return f"INSERT INTO {self.place} AS held ({columns}) VALUES ({values})"

    def _column(self, name: str) -> Column:
        return next(column for column in self.table.columns if column.name == name)


def statements_of(tables: Tables, dialect: Dialect, types: Types) -> Statements:
    """The statements for these tables."""
    s = _Words(tables.sessions, dialect, types["sessions"])
    m = _Words(tables.messages, dialect, types["messages"])
    last = f"{s['last_message_at']} = COALESCE({s.write('last_message_at')}, {s['last_message_at']})"
    counted = f"{s['message_count']} = COALESCE({s['message_count']}, 0) + :count, {last}"
    newest = f"ORDER BY {s['created_at']} DESC, {s['id']} {dialect.by_bytes} DESC LIMIT :limit"
    of_user = f"SELECT {s.read} FROM {s.place} WHERE {s['user_id']} = :user_id AND {s.is_live}"
    active = f"{of_user} AND {s['status']} = 'active'"
    pages = (
        f"SELECT {m.read} FROM {m.place} WHERE {m['session_id']} = :session_id AND {m['position']} < :before"
        f" AND {m['position']} > :after AND {m.is_live} ORDER BY {m['position']}"
    )
    return Statements(
        begin_session=_begin_session(s),
        go_on=(
            f"UPDATE {s.place} SET {s['user_id']} = COALESCE({s['user_id']}, :user_id),"
            f" {s['agent_name']} = COALESCE({s['agent_name']}, :agent_name), {counted},"
            f" {s.set('current_route', 'current_state', 'collected_data', 'updated_at', 'version', EXPIRES)}"
            f" WHERE {s['id']} = :id AND {s['version']} = :expected AND {s.is_live} RETURNING {s.read}"
        ),
        count_on=(
            f"UPDATE {s.place} SET {counted}, {s.set('updated_at', EXPIRES)}"
            f" WHERE {s['id']} = :id AND {s.is_live} RETURNING {s['message_count']}"
        ),
        set_status=(
            f"UPDATE {s.place} SET {s.set('status', 'completed_at', 'updated_at', EXPIRES)}"
            f" WHERE {s['id']} = :id AND {s.is_live} RETURNING {s.read}"
        ),
        version=f"SELECT {s['version']} FROM {s.place} WHERE {s['id']} = :id AND {s.is_live}",
        get=f"SELECT {s.read} FROM {s.place} WHERE {s['id']} = :id AND {s.is_live}",
        of_user=f"{of_user} {newest}",
        of_user_before=(
            f"{of_user} AND ({s['created_at']}, {s['id']} {dialect.by_bytes}) < ({s.write('created_at')}, :id) {newest}"
        ),
        active=f"{active} {newest}",
        active_of_agent=f"{active} AND {s['agent_name']} = :agent_name {newest}",
        hold=f"SELECT {s.is_live} FROM {s.place} WHERE {s['id']} = :id{dialect.lock}",
        delete_session=f"DELETE FROM {s.place} WHERE {s['id']} = :id",
        delete_messages=f"DELETE FROM {m.place} WHERE {m['session_id']} = :id",
        delete_left=(
            f"DELETE FROM {m.place} WHERE {m['session_id']} = :id"
            f" AND NOT EXISTS (SELECT 1 FROM {s.place} WHERE {s['id']} = :id)"
        ),
        last_position=(
            f"SELECT {m['position']} FROM {m.place} WHERE {m['session_id']} = :id AND {m['position']} IS NOT NULL"
            f" ORDER BY {m['position']} DESC LIMIT 1"
        ),
        add_message=m.insert(),
        latest=f"{pages} DESC LIMIT :limit",
        earliest=f"{pages} LIMIT :limit",
        purge_sessions=_purge(s, "id"),
        purge_messages=_purge(m, "session_id", "position"),
    )


def _begin_session(s: _Words) -> str:
    """A session that is past its time gives its row to the one that begins anew."""
    others = [name for name in (*s.stored, EXPIRES) if name != "id"]
    anew = ", ".join(f"{s[name]} = excluded.{s[name]}" for name in others)
    past = f"held.{s[EXPIRES]} <= {s.dialect.now}"
    return f"{s.insert()} ON CONFLICT ({s['id']}) DO UPDATE SET {anew} WHERE {past} RETURNING {s.read}"


def _purge(words: _Words, *names: str) -> str:
    key = ", ".join(words[name] for name in names)
    oldest = f"SELECT {key} FROM {words.place} WHERE {words.is_past} ORDER BY {words[EXPIRES]} LIMIT :limit"
    # Looked at twice: a row that gets its time again while this waits for it is left.
    return f"DELETE FROM {words.place} WHERE ({key}) IN ({oldest}) AND {words.is_past} RETURNING {words[names[0]]}"
