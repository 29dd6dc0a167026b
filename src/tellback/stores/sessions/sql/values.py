"""Sessions and messages to values that are bound, and rows to sessions and messages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from tellback.errors import InvalidArgumentError
from tellback.stores.sessions.records import (
    MESSAGE_FIELDS,
    SESSION_FIELDS,
    message_from_record,
    message_to_record,
    session_from_record,
    session_to_record,
)
from tellback.stores.sessions.sql.columns import COLUMNS, ColumnKind, ColumnSpec, TableRole
from tellback.stores.sessions.sql.dialect import SqlDialect
from tellback.types.sessions import MessageData, SessionData
from tellback.types.times import as_utc

MAX_POSITION = 2**62

_KINDS: Mapping[TableRole, Mapping[str, ColumnKind]] = {
    role: {column.name: column.kind for column in columns} for role, columns in COLUMNS.items()
}


def session_values(session: SessionData, dialect: SqlDialect) -> dict[str, Any]:
    """A session's values by name, ready to be bound."""
    try:
        record = session_to_record(session)
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"collected_data is a mapping, not {session.collected_data!r:.80}.") from None
    return _bind_record("sessions", record, dialect)


def message_values(message: MessageData, dialect: SqlDialect) -> dict[str, Any]:
    """A message's values by name; its position is given when it is stored."""
    try:
        record = message_to_record(message)
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"tool_calls are mappings, not {message.tool_calls!r:.80}.") from None
    return _bind_record("messages", {**record, "position": 0}, dialect)


def optional_time_value(label: str, time: Any, dialect: SqlDialect) -> Any:
    """A moment as the database has it."""
    if time is None:
        return None
    if not isinstance(time, datetime):
        raise InvalidArgumentError(f"{label} is a datetime, not {time!r:.80}.")
    try:
        return dialect.encode_time(as_utc(time))
    except (ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"{label} cannot be stored: {error}.") from None


def time_value(label: str, time: Any, dialect: SqlDialect) -> Any:
    """The same, but never None."""
    if time is None:
        raise InvalidArgumentError(f"{label} is a datetime, not None.")
    return optional_time_value(label, time, dialect)


def session_from_row(row: Sequence[Any]) -> SessionData:
    """A session from a row of its fields."""
    return session_from_record(dict(zip(SESSION_FIELDS, row, strict=True)))


def message_from_row(row: Sequence[Any]) -> MessageData:
    """A message from a row of its fields."""
    return message_from_record(dict(zip(MESSAGE_FIELDS, row, strict=True)))


def stored_columns(role: TableRole) -> list[ColumnSpec]:
    """The columns that rows are read from, in the order of the fields."""
    names = SESSION_FIELDS if role == "sessions" else MESSAGE_FIELDS
    known = {column.name: column for column in COLUMNS[role]}
    return [known[name] for name in names]


def _bind_record(role: TableRole, record: Mapping[str, Any], dialect: SqlDialect) -> dict[str, Any]:
    kinds = _KINDS[role]
    return {name: _bind_value(name, kinds[name], value, dialect) for name, value in record.items()}


def _bind_value(name: str, kind: ColumnKind, value: Any, dialect: SqlDialect) -> Any:
    if kind == "moment":
        convert = time_value if name in ("created_at", "updated_at") else optional_time_value
        return convert(name, value, dialect)
    if kind == "json":
        return _dump_json(name, value)
    if kind == "count" and (type(value) is not int or not 0 <= value <= MAX_POSITION):
        raise InvalidArgumentError(f"{name} is a whole number from 0, not {value!r:.80}.")
    return value


def _dump_json(name: str, value: Any) -> str | None:
    """All of it is ASCII: no database may stumble over what it holds."""
    if value is None:
        return None
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{name} is not JSON: {error}.") from None
