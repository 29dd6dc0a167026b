"""SQLite's words for sessions in tables of their own."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from tellback.errors import StoreError
from tellback.stores.sessions.records import format_time
from tellback.stores.sessions.sql.columns import ColumnKind, ColumnSpec, TableSpec
from tellback.stores.sessions.sql.dialect import BoundStatement, SqlOperation


class SqliteDialect:
    """SQLite's words. Moments are texts that sort: they stay what they are, whatever type a column was given."""

    types: Mapping[ColumnKind, str] = {
        "text": "TEXT",
        "count": "INTEGER",
        "moment": "TEXT",
        "json": "TEXT",
        "expiry": "INTEGER",
    }
    now = "(SELECT tellback_now())"
    now_as_time = "tellback_moment(tellback_now())"
    expires_at = "(SELECT tellback_now()) + CAST(:ttl * 1000000 AS INTEGER)"
    byte_collation = "COLLATE BINARY"
    row_lock = ""
    select_columns = "SELECT name, type FROM pragma_table_info(:table)"
    select_unique_index = (
        'SELECT 1 FROM pragma_index_list(:table) AS list WHERE list."unique" AND NOT list.partial AND :columns ='
        " (SELECT group_concat(lower(name)) FROM (SELECT name FROM pragma_index_info(list.name) ORDER BY seqno))"
    )
    row_id = "rowid"

    def quote(self, name: str) -> str:
        return f'"{name}"'

    def qualified_name(self, table: str) -> str:
        return f'"{table}"'

    def fold_name(self, name: str) -> str:
        return name.lower()

    def value_sql(self, column: ColumnSpec, type: str) -> str:
        return f":{column.name}"

    def column_sql(self, column: ColumnSpec, type: str, name: str) -> str:
        return name

    def encode_time(self, value: datetime) -> str:
        return format_time(value)

    def prepare_migration(self) -> SqlOperation[None]:
        """The transaction alone keeps others away."""
        yield from ()

    def normalize_times(self, table: TableSpec) -> SqlOperation[None]:
        """Dates that another tool wrote become texts like ours."""
        for name in (column.name for column in table.columns if column.kind == "moment"):
            column = f'"{table.column_names[name]}"'
            is_foreign_format = f"typeof({column}) <> 'text' OR length({column}) <> 32 OR {column} NOT LIKE '%+00:00'"
            needs_conversion = f"{column} IS NOT NULL AND ({is_foreign_format})"
            select_unreadable = f'SELECT {column} FROM "{table.name}" WHERE {needs_conversion} AND tellback_moment({column}) IS NULL LIMIT 1'
            rows = yield BoundStatement(select_unreadable, {})
            if rows:
                raise StoreError(
                    f"{table.name} holds {rows[0][0]!r:.80} in {column}, which is no moment that can be read:"
                    " correct it, or name another column with field_mappings."
                )
            yield BoundStatement(
                f'UPDATE "{table.name}" SET {column} = tellback_moment({column}) WHERE {needs_conversion}', {}
            )
