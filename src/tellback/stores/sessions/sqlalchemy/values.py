"""Values on their way to columns and back: exact, whatever type a column has."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, DateTime, Integer, String, Text, Unicode, types
from sqlalchemy.dialects import mssql, mysql, oracle, postgresql
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeEngine

from tellback.errors import InvalidArgumentError
from tellback.stores.sessions.records import EXPIRES_AT, format_time
from tellback.types.times import as_utc

TIME_FIELDS = frozenset({"last_message_at", "completed_at", "created_at", "updated_at", EXPIRES_AT})
JSON_FIELDS = frozenset({"collected_data", "tool_calls", "event"})
NUMBER_FIELDS = frozenset({"message_count", "version", "position"})


class UtcDateTime(types.TypeDecorator[datetime]):
    """A moment to the microsecond: with its timezone where the database has one, in UTC without it elsewhere."""

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        match dialect.name:
            case "mysql" | "mariadb":
                return dialect.type_descriptor(mysql.DATETIME(fsp=6))
            case "oracle":  # its DATE has no fractions, and its drivers do not read timezones
                return dialect.type_descriptor(oracle.TIMESTAMP())
            case "postgresql" | "mssql":
                return dialect.type_descriptor(DateTime(timezone=True))
        return dialect.type_descriptor(DateTime())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return as_utc(value) if dialect.name in ("postgresql", "mssql") else as_utc(value).replace(tzinfo=None)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        return _decode_time(value)


def id_type() -> TypeEngine[Any]:
    """For ids and names: compared letter by letter, also where a database would take `a` for `A`."""
    return (
        Unicode(200)
        .with_variant(postgresql.VARCHAR(200, collation="C"), "postgresql")
        .with_variant(mysql.VARCHAR(200, charset="utf8mb4", collation="utf8mb4_0900_bin"), "mysql")
        .with_variant(mysql.VARCHAR(200, charset="utf8mb4", collation="utf8mb4_nopad_bin"), "mariadb")
        .with_variant(mssql.NVARCHAR(400, collation="Latin1_General_100_BIN2"), "mssql")
        .with_variant(oracle.NVARCHAR2(400), "oracle")
    )


def text_type() -> TypeEngine[Any]:
    """For texts of any length."""
    return (
        Text()
        .with_variant(mysql.LONGTEXT(charset="utf8mb4"), "mysql", "mariadb")
        .with_variant(mssql.NVARCHAR(None), "mssql")
        .with_variant(oracle.NCLOB(), "oracle")
    )


def column_type(field: str) -> TypeEngine[Any]:
    """The type of a field's column in tables that we make."""
    if field in TIME_FIELDS:
        return UtcDateTime()
    if field in NUMBER_FIELDS:
        return BigInteger()
    return text_type() if field in JSON_FIELDS or field == "content" else id_type()


@dataclass(frozen=True, slots=True)
class FieldCodec:
    """How a field's values become what a column takes, and come back."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


def find_codec(field: str, type_: TypeEngine[Any]) -> FieldCodec | None:
    """The codec for a field in a column of that type; None if such a column cannot hold it."""
    if field in TIME_FIELDS:
        return _time_codec(type_)
    if field in JSON_FIELDS:
        return _json_codec(type_)
    if field in NUMBER_FIELDS:
        return (
            FieldCodec(_identity, _decode_number)
            if isinstance(type_, Integer | types.Numeric | types.TypeDecorator)
            else None
        )
    return FieldCodec(_identity, _decode_text if field == "content" else _identity)


def _time_codec(type_: TypeEngine[Any]) -> FieldCodec | None:
    if isinstance(type_, DateTime):
        return FieldCodec(_encode_aware if type_.timezone else _encode_naive, _decode_time)
    if isinstance(type_, types.TypeDecorator):
        return FieldCodec(_encode_aware, _decode_time)
    return FieldCodec(_encode_iso, _decode_time) if isinstance(type_, String) else None


def _json_codec(type_: TypeEngine[Any]) -> FieldCodec | None:
    if isinstance(type_, JSON | types.TypeDecorator):
        return FieldCodec(_check_json, _identity)
    return FieldCodec(_dump_json, _load_json) if isinstance(type_, String) else None


def _identity(value: Any) -> Any:
    return value


def _decode_text(value: Any) -> str:
    return value or ""  # to Oracle an empty text is NULL


def _decode_number(value: Any) -> int:
    return int(value or 0)


def _encode_aware(value: Any) -> datetime | None:
    try:
        return None if value is None else as_utc(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"{error}.") from error


def _encode_naive(value: Any) -> datetime | None:
    time = _encode_aware(value)
    return None if time is None else time.replace(tzinfo=None)


def _encode_iso(value: Any) -> str | None:
    time = _encode_aware(value)
    return None if time is None else format_time(time)


def _decode_time(value: Any) -> datetime | None:
    if value is None:
        return None
    time = datetime.fromisoformat(value) if isinstance(value, str) else value
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _dump_json(value: Any) -> str | None:
    """JSON text in ASCII: no database may stumble over what it holds."""
    if value is None:
        return None
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"What is stored must be JSON: {error}.") from error


def _load_json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _check_json(value: Any) -> Any:
    _dump_json(value)  # refuses here what the driver would stumble over later
    return value
