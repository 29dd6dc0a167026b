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
    message_of,
    message_record,
    session_of,
    session_record,
)
from tellback.stores.sessions.sql.columns import COLUMNS, Column, Kind, Role
from tellback.stores.sessions.sql.dialect import Dialect
from tellback.types.sessions import MessageData, SessionData
from tellback.types.times import as_utc

MOST = 2**62

_KINDS: Mapping[Role, Mapping[str, Kind]] = {
    role: {column.name: column.kind for column in columns} for role, columns in COLUMNS.items()
}


def session_values(session: SessionData, dialect: Dialect) -> dict[str, Any]:
    """A session's values by name, ready to be bound."""
    try:
        record = session_record(session)
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"collected_data is a mapping, not {session.collected_data!r:.80}.") from None
    return _bound("sessions", record, dialect)


def message_values(message: MessageData, dialect: Dialect) -> dict[str, Any]:
    """A message's values by name; its position is given when it is stored."""
    try:
        record = message_record(message)
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"tool_calls are mappings, not {message.tool_calls!r:.80}.") from None
    return _bound("messages", {**record, "position": 0}, dialect)


def moment_value(what: str, moment: Any, dialect: Dialect) -> Any:
    """A moment as the database has it."""
    if moment is None:
        return None
    if not isinstance(moment, datetime):
        raise InvalidArgumentError(f"{what} is a datetime, not {moment!r:.80}.")
    try:
        return dialect.to_moment(as_utc(moment))
    except (ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"{what} cannot be stored: {error}.") from None


def required_moment(what: str, moment: Any, dialect: Dialect) -> Any:
    """The same, but never None."""
    if moment is None:
        raise InvalidArgumentError(f"{what} is a datetime, not None.")
    return moment_value(what, moment, dialect)


def to_session(row: Sequence[Any]) -> SessionData:
    """A session from a row of its fields."""
    return session_of(dict(zip(SESSION_FIELDS, row, strict=True)))


def to_message(row: Sequence[Any]) -> MessageData:
    """A message from a row of its fields."""
    return message_of(dict(zip(MESSAGE_FIELDS, row, strict=True)))


def stored_columns(role: Role) -> list[Column]:
    """The columns that rows are read from, in the order of the fields."""
    names = SESSION_FIELDS if role == "sessions" else MESSAGE_FIELDS
    known = {column.name: column for column in COLUMNS[role]}
    return [known[name] for name in names]


def _bound(role: Role, record: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    kinds = _KINDS[role]
    return {name: _value(name, kinds[name], value, dialect) for name, value in record.items()}


def _value(name: str, kind: Kind, value: Any, dialect: Dialect) -> Any:
    if kind == "moment":
        needs = required_moment if name in ("created_at", "updated_at") else moment_value
        return needs(name, value, dialect)
    if kind == "json":
        return _json(name, value)
    if kind == "count" and (type(value) is not int or not 0 <= value <= MOST):
        raise InvalidArgumentError(f"{name} is a whole number from 0, not {value!r:.80}.")
    return value


def _json(name: str, value: Any) -> str | None:
    """All of it is ASCII: no database may stumble over what it holds."""
    if value is None:
        return None
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{name} is not JSON: {error}.") from None
