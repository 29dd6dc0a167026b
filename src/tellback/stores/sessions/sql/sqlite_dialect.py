"""SQLite's words for sessions in tables of their own."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from tellback.errors import StoreError
from tellback.stores.sessions.records import iso_time
from tellback.stores.sessions.sql.columns import Column, Kind, Table
from tellback.stores.sessions.sql.dialect import Operation, Step


class SqliteDialect:
    """SQLite's words. Moments are texts that sort: they stay what they are, whatever type a column was given."""

    types: Mapping[Kind, str] = {
        "text": "TEXT",
        "count": "INTEGER",
        "moment": "TEXT",
        "json": "TEXT",
        "expiry": "INTEGER",
    }
    now = "(SELECT tellback_now())"
    moment_now = "tellback_moment(tellback_now())"
    until = "(SELECT tellback_now()) + CAST(:ttl * 1000000 AS INTEGER)"
    by_bytes = "COLLATE BINARY"
    lock = ""
    existing = "SELECT name, type FROM pragma_table_info(:table)"
    is_unique = (
        'SELECT 1 FROM pragma_index_list(:table) AS list WHERE list."unique" AND NOT list.partial AND :columns ='
        " (SELECT group_concat(lower(name)) FROM (SELECT name FROM pragma_index_info(list.name) ORDER BY seqno))"
    )
    row_id = "rowid"

    def named(self, name: str) -> str:
        return f'"{name}"'

    def place(self, table: str) -> str:
        return f'"{table}"'

    def folded(self, name: str) -> str:
        return name.lower()

    def write(self, column: Column, type: str) -> str:
        return f":{column.name}"

    def read(self, column: Column, type: str, name: str) -> str:
        return name

    def to_moment(self, moment: datetime) -> str:
        return iso_time(moment)

    def begin_migrating(self) -> Operation[None]:
        """The transaction alone keeps others away."""
        yield from ()

    def normalize(self, table: Table) -> Operation[None]:
        """Dates that another tool wrote become texts like ours."""
        for name in (column.name for column in table.columns if column.kind == "moment"):
            column = f'"{table.fields[name]}"'
            other = f"typeof({column}) <> 'text' OR length({column}) <> 32 OR {column} NOT LIKE '%+00:00'"
            mine = f"{column} IS NOT NULL AND ({other})"
            unread = f'SELECT {column} FROM "{table.name}" WHERE {mine} AND tellback_moment({column}) IS NULL LIMIT 1'
            rows = yield Step(unread, {})
            if rows:
                raise StoreError(
                    f"{table.name} holds {rows[0][0]!r:.80} in {column}, which is no moment that can be read:"
                    " correct it, or name another column with field_mappings."
                )
            yield Step(f'UPDATE "{table.name}" SET {column} = tellback_moment({column}) WHERE {mine}', {})
