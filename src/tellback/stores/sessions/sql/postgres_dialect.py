"""PostgreSQL's words for sessions in tables of their own."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from tellback.stores.postgres.quoting import identifier, literal
from tellback.stores.sessions.sql.columns import Column, Kind, Table
from tellback.stores.sessions.sql.dialect import Operation, Step


class PostgresDialect:
    """PostgreSQL's words, for the tables of one schema. JSON goes in and out as text, whatever codecs a pool has."""

    types: Mapping[Kind, str] = {
        "text": "TEXT",
        "count": "BIGINT",
        "moment": "TIMESTAMPTZ",
        "json": "JSON",
        "expiry": "TIMESTAMPTZ",
    }
    now = "statement_timestamp()"
    moment_now = "statement_timestamp()"
    until = "statement_timestamp() + make_interval(secs => :ttl)"
    by_bytes = 'COLLATE "C"'
    lock = " FOR UPDATE"
    row_id = "ctid"

    def __init__(self, schema: str) -> None:
        self._schema = schema
        # Asked of the catalogue's rows: `to_regclass` may answer from a cache that is older than a lock waited for.
        table = (
            f"c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = {literal(schema)})"
            " AND c.relname = :table AND c.relkind IN ('r', 'p', 'f', 'v')"
        )
        self.existing = (
            "SELECT a.attname, format_type(a.atttypid, NULL) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
            f" WHERE {table} AND a.attnum > 0 AND NOT a.attisdropped"
        )
        self.is_unique = (
            "SELECT 1 FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid"
            f" WHERE {table} AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL"
            " AND i.indexprs IS NULL AND :columns = (SELECT string_agg(a.attname::text, ',' ORDER BY k.place)"
            " FROM unnest(i.indkey) WITH ORDINALITY AS k (number, place)"
            " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number)"
        )

    def named(self, name: str) -> str:
        return identifier(name)

    def place(self, table: str) -> str:
        return f"{identifier(self._schema)}.{identifier(table)}"

    def folded(self, name: str) -> str:
        return name

    def write(self, column: Column, type: str) -> str:
        if column.kind == "json":
            return f":{column.name}::text::json"
        if column.kind == "moment":
            moment = f":{column.name}::timestamptz"
            return f"({moment} AT TIME ZONE 'UTC')" if _is_naive(type) else moment
        return f":{column.name}"

    def read(self, column: Column, type: str, name: str) -> str:
        if column.kind == "json":
            return f"{name}::text"
        return f"{name} AT TIME ZONE 'UTC'" if column.kind == "moment" and _is_naive(type) else name

    def to_moment(self, moment: datetime) -> datetime:
        return moment

    def begin_migrating(self) -> Operation[None]:
        """One process at a time, in a schema that is there."""
        lock = "SELECT pg_advisory_xact_lock(hashtext('tellback.sessions'), hashtext(:schema))"
        yield Step(lock, {"schema": self._schema})
        if not (yield Step("SELECT 1 FROM pg_namespace WHERE nspname = :schema", {"schema": self._schema})):
            yield Step(f"CREATE SCHEMA {identifier(self._schema)}", {})

    def normalize(self, table: Table) -> Operation[None]:
        """Moments are moments by their type."""
        yield from ()


def _is_naive(type: str) -> bool:
    return type.startswith("timestamp") and "without" in type
