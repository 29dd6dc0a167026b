"""The SQL statements of one adapter, the values bound to them, and the conversion of rows.

Names of tables and columns are validated and quoted earlier; all other values are bound.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tellback.sessions.records import (
    EXPIRES_AT,
    MESSAGE_FIELDS,
    SESSION_FIELDS,
    message_from_record,
    session_from_record,
)
from tellback.sessions.sql.schema import ColumnTypes, SqlDialect, TableSpec, TableSpecs
from tellback.sessions.sql.tables import TableStatements
from tellback.stores.catalogue import StatementCache
from tellback.stores.engine import Operation
from tellback.types.conversations import MessageData, SessionData

INSERT_ROWS = 100
"""How many messages one statement inserts at most."""

_NAMED_VALUE = re.compile(r"(?<!:):([a-z_]+)")


class SqlStatements(TableStatements):
    """The statements of one adapter, and the conversion of their values and rows."""

    def __init__(self, tables: TableSpecs, dialect: SqlDialect, types: ColumnTypes, cache: StatementCache) -> None:
        self.times_as_text = dialect.types["moment"] == "TEXT"
        self._insert_message = _TableSql(tables["messages"], dialect, types["messages"]).insert()
        for name, sql in build_statements(tables, dialect, types).items():
            cache[name] = cache[sql]

    def session_from_row(self, row: Sequence[Any]) -> SessionData:
        return session_from_record(dict(zip(SESSION_FIELDS, row, strict=True)))

    def message_from_row(self, row: Sequence[Any]) -> MessageData:
        return message_from_record(dict(zip(MESSAGE_FIELDS, row, strict=True)))

    def insert_messages(self, rows: Sequence[Mapping[str, Any]]) -> Operation[None]:
        for start in range(0, len(rows), INSERT_ROWS):
            batch = rows[start : start + INSERT_ROWS]
            values = {f"{name}_{n}": value for n, row in enumerate(batch) for name, value in row.items()}
            yield _repeat_values(self._insert_message, len(batch)), values


@functools.lru_cache(512)
def _repeat_values(insert: str, count: int) -> str:
    """Repeat a one-row INSERT for several rows. Value names get the row's number as suffix.

    >>> _repeat_values("INSERT INTO t (a) VALUES (:a)", 2)
    'INSERT INTO t (a) VALUES (:a_0), (:a_1)'
    """
    columns, _, values = insert.partition(" VALUES ")
    rows = (_NAMED_VALUE.sub(rf":\1_{n}", values) for n in range(count))
    return f"{columns} VALUES {', '.join(rows)}"


class _TableSql:
    """The SQL for one table's name, columns and values."""

    def __init__(self, table: TableSpec, dialect: SqlDialect, types: Mapping[str, str]) -> None:
        self.table = table
        self.dialect = dialect
        self.types = types
        self.name = dialect.qualified_name(table.name)
        self.specs = {column.name: column for column in table.columns}
        self.columns = ", ".join(
            dialect.column_sql(each, types[name], self[name]) for name, each in self.specs.items() if name != EXPIRES_AT
        )
        self.is_live = f"({self[EXPIRES_AT]} IS NULL OR {self[EXPIRES_AT]} > {dialect.now})"
        self.is_expired = f"{self[EXPIRES_AT]} <= {dialect.now}"

    def __getitem__(self, name: str) -> str:
        return self.dialect.quote(self.table.column_names[name])

    def value(self, name: str) -> str:
        if name == EXPIRES_AT:
            return self.dialect.expires_at
        return self.dialect.value_sql(self.specs[name], self.types[name])

    def assignments(self, *names: str) -> str:
        return ", ".join(f"{self[name]} = {self.value(name)}" for name in names)

    def insert(self) -> str:
        column_list, values = ", ".join(map(self.__getitem__, self.specs)), ", ".join(map(self.value, self.specs))
        return f"INSERT INTO {self.name} AS held ({column_list}) VALUES ({values})"


def build_statements(tables: TableSpecs, dialect: SqlDialect, types: ColumnTypes) -> dict[str, str]:
    """Return the statements for these tables by name."""
    s = _TableSql(tables["sessions"], dialect, types["sessions"])
    m = _TableSql(tables["messages"], dialect, types["messages"])
    set_last_message_at = f"{s['last_message_at']} = COALESCE({s.value('last_message_at')}, {s['last_message_at']})"
    set_message_count = f"{s['message_count']} = COALESCE({s['message_count']}, 0) + :count, {set_last_message_at}"
    newest_first = f"ORDER BY {s['created_at']} DESC, {s['id']} {dialect.byte_collation} DESC LIMIT :limit"
    user_sessions = f"SELECT {s.columns} FROM {s.name} WHERE {s['user_id']} = :user_id AND {s.is_live}"
    active_sessions = f"{user_sessions} AND {s['status']} = 'active'"
    message_page = (
        f"SELECT {m.columns} FROM {m.name} WHERE {m['session_id']} = :session_id AND {m['position']} < :before"
        f" AND {m['position']} > :after AND {m.is_live} ORDER BY {m['position']}"
    )
    return {
        "insert_session": _insert_or_replace_expired(s),
        "update_turn": (
            f"UPDATE {s.name} SET {s['user_id']} = COALESCE({s['user_id']}, :user_id),"
            f" {s['agent_name']} = COALESCE({s['agent_name']}, :agent_name), {set_message_count},"
            f" {s.assignments('current_route', 'current_state', 'collected_data', 'updated_at', 'version', EXPIRES_AT)}"
            f" WHERE {s['id']} = :id AND {s['version']} = :expected AND {s.is_live} RETURNING {s.columns}"
        ),
        "update_message_count": (
            f"UPDATE {s.name} SET {set_message_count}, {s.assignments('updated_at', EXPIRES_AT)}"
            f" WHERE {s['id']} = :id AND {s.is_live} RETURNING {s['message_count']}"
        ),
        "update_status": (
            f"UPDATE {s.name} SET {s.assignments('status', 'completed_at', 'updated_at', EXPIRES_AT)}"
            f" WHERE {s['id']} = :id AND {s.is_live} RETURNING {s.columns}"
        ),
        "select_version": f"SELECT {s['version']} FROM {s.name} WHERE {s['id']} = :id AND {s.is_live}",
        "select_session": f"SELECT {s.columns} FROM {s.name} WHERE {s['id']} = :id AND {s.is_live}",
        "list_sessions": f"{user_sessions} {newest_first}",
        "list_sessions_before": (
            f"{user_sessions} AND ({s['created_at']}, {s['id']} {dialect.byte_collation})"
            f" < ({s.value('created_at')}, :id) {newest_first}"
        ),
        "select_active": f"{active_sessions} {newest_first}",
        "select_active_of_agent": f"{active_sessions} AND {s['agent_name']} = :agent_name {newest_first}",
        "lock_session": f"SELECT {s.is_live} FROM {s.name} WHERE {s['id']} = :id{dialect.row_lock}",
        "delete_session": f"DELETE FROM {s.name} WHERE {s['id']} = :id",
        "delete_messages": f"DELETE FROM {m.name} WHERE {m['session_id']} = :id",
        "delete_orphaned_messages": (
            f"DELETE FROM {m.name} WHERE {m['session_id']} = :id"
            f" AND NOT EXISTS (SELECT 1 FROM {s.name} WHERE {s['id']} = :id)"
        ),
        "select_last_position": (
            f"SELECT {m['position']} FROM {m.name} WHERE {m['session_id']} = :id AND {m['position']} IS NOT NULL"
            f" ORDER BY {m['position']} DESC LIMIT 1"
        ),
        "list_latest_messages": f"{message_page} DESC LIMIT :limit",
        "list_earliest_messages": f"{message_page} LIMIT :limit",
        "delete_expired_sessions": _delete_expired(s, "id"),
        "delete_expired_messages": _delete_expired(m, "session_id", "position"),
    }


def _insert_or_replace_expired(s: _TableSql) -> str:
    """Insert a session, or replace an expired one with the same id."""
    others = [name for name in s.specs if name != "id"]
    assignments = ", ".join(f"{s[name]} = excluded.{s[name]}" for name in others)
    is_expired = f"held.{s[EXPIRES_AT]} <= {s.dialect.now}"
    return f"{s.insert()} ON CONFLICT ({s['id']}) DO UPDATE SET {assignments} WHERE {is_expired} RETURNING {s.columns}"


def _delete_expired(table: _TableSql, *names: str) -> str:
    key = ", ".join(table[name] for name in names)
    oldest = f"SELECT {key} FROM {table.name} WHERE {table.is_expired} ORDER BY {table[EXPIRES_AT]} LIMIT :limit"
    # The condition is checked again for each locked row: a row that was renewed in the meantime is not deleted.
    return f"DELETE FROM {table.name} WHERE ({key}) IN ({oldest}) AND {table.is_expired} RETURNING {table[names[0]]}"
