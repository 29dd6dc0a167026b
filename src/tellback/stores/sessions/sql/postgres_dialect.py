"""PostgreSQL's words for sessions in tables of their own."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from tellback.stores.postgres.quoting import quote_identifier, quote_literal
from tellback.stores.sessions.sql.columns import ColumnKind, ColumnSpec, TableSpec
from tellback.stores.sessions.sql.dialect import BoundStatement, SqlOperation


class PostgresDialect:
    """PostgreSQL's words, for the tables of one schema. JSON goes in and out as text, whatever codecs a pool has."""

    types: Mapping[ColumnKind, str] = {
        "text": "TEXT",
        "count": "BIGINT",
        "moment": "TIMESTAMPTZ",
        "json": "JSON",
        "expiry": "TIMESTAMPTZ",
    }
    now = "statement_timestamp()"
    now_as_time = "statement_timestamp()"
    expires_at = "statement_timestamp() + make_interval(secs => :ttl)"
    byte_collation = 'COLLATE "C"'
    row_lock = " FOR UPDATE"
    row_id = "ctid"

    def __init__(self, schema: str) -> None:
        self._schema = schema
        # Asked of the catalogue's rows: `to_regclass` may answer from a cache that is older than a lock waited for.
        table = (
            f"c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = {quote_literal(schema)})"
            " AND c.relname = :table AND c.relkind IN ('r', 'p', 'f', 'v')"
        )
        self.select_columns = (
            "SELECT a.attname, format_type(a.atttypid, NULL) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
            f" WHERE {table} AND a.attnum > 0 AND NOT a.attisdropped"
        )
        self.select_unique_index = (
            "SELECT 1 FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid"
            f" WHERE {table} AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL"
            " AND i.indexprs IS NULL AND :columns = (SELECT string_agg(a.attname::text, ',' ORDER BY k.place)"
            " FROM unnest(i.indkey) WITH ORDINALITY AS k (number, place)"
            " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number)"
        )

    def quote(self, name: str) -> str:
        return quote_identifier(name)

    def qualified_name(self, table: str) -> str:
        return f"{quote_identifier(self._schema)}.{quote_identifier(table)}"

    def fold_name(self, name: str) -> str:
        return name

    def value_sql(self, column: ColumnSpec, type: str) -> str:
        if column.kind == "json":
            return f":{column.name}::text::json"
        if column.kind == "moment":
            expression = f":{column.name}::timestamptz"
            return f"({expression} AT TIME ZONE 'UTC')" if _is_naive_timestamp(type) else expression
        return f":{column.name}"

    def column_sql(self, column: ColumnSpec, type: str, name: str) -> str:
        if column.kind == "json":
            return f"{name}::text"
        return f"{name} AT TIME ZONE 'UTC'" if column.kind == "moment" and _is_naive_timestamp(type) else name

    def encode_time(self, value: datetime) -> datetime:
        return value

    def prepare_migration(self) -> SqlOperation[None]:
        """One process at a time, in a schema that is there."""
        lock = "SELECT pg_advisory_xact_lock(hashtext('tellback.sessions'), hashtext(:schema))"
        yield BoundStatement(lock, {"schema": self._schema})
        if not (yield BoundStatement("SELECT 1 FROM pg_namespace WHERE nspname = :schema", {"schema": self._schema})):
            yield BoundStatement(f"CREATE SCHEMA {quote_identifier(self._schema)}", {})

    def normalize_times(self, table: TableSpec) -> SqlOperation[None]:
        """Moments are moments by their type."""
        yield from ()


def _is_naive_timestamp(type: str) -> bool:
    return type.startswith("timestamp") and "without" in type
