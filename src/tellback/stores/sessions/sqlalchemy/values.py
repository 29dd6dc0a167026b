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
from tellback.stores.sessions.records import EXPIRES, iso_time
from tellback.types.times import as_utc

TIMES = frozenset({"last_message_at", "completed_at", "created_at", "updated_at", EXPIRES})
JSONS = frozenset({"collected_data", "tool_calls", "event"})
NUMBERS = frozenset({"message_count", "version", "position"})


class Moment(types.TypeDecorator[datetime]):
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
        return _moment(value)


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


def type_of(field: str) -> TypeEngine[Any]:
    """The type of a field's column in tables that we make."""
    if field in TIMES:
        return Moment()
    if field in NUMBERS:
        return BigInteger()
    return text_type() if field in JSONS or field == "content" else id_type()


@dataclass(frozen=True, slots=True)
class Codec:
    """How a field's values become what a column takes, and come back."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


def codec(field: str, type_: TypeEngine[Any]) -> Codec | None:
    """The codec for a field in a column of that type; None if such a column cannot hold it."""
    if field in TIMES:
        return _moments(type_)
    if field in JSONS:
        return _json(type_)
    if field in NUMBERS:
        return Codec(_same, _number) if isinstance(type_, Integer | types.Numeric | types.TypeDecorator) else None
    return Codec(_same, _text if field == "content" else _same)


def _moments(type_: TypeEngine[Any]) -> Codec | None:
    if isinstance(type_, DateTime):
        return Codec(_aware if type_.timezone else _naive, _moment)
    if isinstance(type_, types.TypeDecorator):
        return Codec(_aware, _moment)
    return Codec(_iso, _moment) if isinstance(type_, String) else None


def _json(type_: TypeEngine[Any]) -> Codec | None:
    if isinstance(type_, JSON | types.TypeDecorator):
        return Codec(_plain, _same)
    return Codec(_dumped, _loaded) if isinstance(type_, String) else None


def _same(value: Any) -> Any:
    return value


def _text(value: Any) -> str:
    return value or ""  # to Oracle an empty text is NULL


def _number(value: Any) -> int:
    return int(value or 0)


def _aware(value: Any) -> datetime | None:
    try:
        return None if value is None else as_utc(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"{error}.") from error


def _naive(value: Any) -> datetime | None:
    moment = _aware(value)
    return None if moment is None else moment.replace(tzinfo=None)


def _iso(value: Any) -> str | None:
    moment = _aware(value)
    return None if moment is None else iso_time(moment)


def _moment(value: Any) -> datetime | None:
    if value is None:
        return None
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _dumped(value: Any) -> str | None:
    """JSON text in ASCII: no database may stumble over what it holds."""
    if value is None:
        return None
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"What is stored must be JSON: {error}.") from error


def _loaded(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _plain(value: Any) -> Any:
    _dumped(value)  # refuses here what the driver would stumble over later
    return value
