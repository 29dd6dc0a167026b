"""Sessions and messages as records of plain values, and the rules for merging a turn into a stored session.

All adapters share these, so that all databases store and return the same values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from tellback.errors import ConfigurationError, InvalidArgumentError, SessionConflictError
from tellback.sessions import validation
from tellback.types.conversations import MessageData, SessionData
from tellback.types.ids import as_utc

SESSION_FIELDS = (
    *("id", "user_id", "agent_name", "status", "current_route", "current_state", "collected_data", "message_count"),
    *("last_message_at", "completed_at", "created_at", "updated_at", "version"),
)
MESSAGE_FIELDS = (
    *("id", "session_id", "user_id", "role", "content", "route", "state", "tool_calls", "event", "created_at"),
    "position",
)
RECORD_FIELDS = {"sessions": SESSION_FIELDS, "messages": MESSAGE_FIELDS}
EXPIRES_AT = "expires_at"
"""The expiry time of a record: a field that exists only in the database."""

TIME_FIELDS = frozenset({"last_message_at", "completed_at", "created_at", "updated_at"})
JSON_FIELDS = frozenset({"collected_data", "tool_calls", "event"})
NUMBER_FIELDS = frozenset({"message_count", "version", "position"})

DEFAULT_NAMES = {"sessions": "agent_sessions", "messages": "agent_messages"}
"""The default names of tables, collections or indices."""


class FieldNames:
    """The field names in a database: `{"user_id": "customer"}` renames one.

    >>> FieldNames("sessions", SESSION_FIELDS, {"user_id": "customer"})["user_id"]
    'customer'
    """

    def __init__(self, table: str, fields: tuple[str, ...], overrides: Mapping[str, str] | None = None) -> None:
        self._names = validation.resolve_names(
            f"field_mappings[{table!r}]", overrides, {name: name for name in (*fields, EXPIRES_AT)}
        )
        self._fields_by_name = {name: field for field, name in self._names.items()}

    def __getitem__(self, name: str) -> str:
        return self._names[name]

    def to_database(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return a record with the field names in the database."""
        return {self._names[name]: value for name, value in record.items()}

    def from_database(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return a record with Tellback's field names, without other fields."""
        return {self._fields_by_name[name]: value for name, value in record.items() if name in self._fields_by_name}


def validate_field_mappings(field_mappings: Any) -> Mapping[str, Any]:
    """Check the type of `field_mappings`. `FieldNames` checks the names of fields."""
    if not isinstance(field_mappings, Mapping | None):
        raise ConfigurationError(f"field_mappings must be a mapping of mappings, got {field_mappings!r:.80}.")
    unknown = (field_mappings or {}).keys() - {"sessions", "messages"}
    if unknown:
        raise ConfigurationError(
            f"field_mappings has unknown keys {', '.join(map(str, unknown))}: the valid keys are sessions and messages."
        )
    return field_mappings or {}


def resolve_field_names(field_mappings: Any) -> dict[str, FieldNames]:
    """Return the field names of sessions and of messages."""
    mappings = validate_field_mappings(field_mappings)
    return {role: FieldNames(role, fields, mappings.get(role)) for role, fields in RECORD_FIELDS.items()}


def format_time(moment: datetime) -> str:
    """Format a time as a string that sorts by time.

    >>> from tellback.types.ids import as_utc
    >>> format_time(as_utc("2026-03-01T12:00:00+02:00"))
    '2026-03-01T10:00:00.000000+00:00'
    """
    return as_utc(moment).isoformat(timespec="microseconds")


def session_from_record(record: Mapping[str, Any]) -> SessionData:
    """Build a session from a record with Tellback's field names, and values as any database returns them."""
    values = {name: _decode_field(name, record[name]) for name in SESSION_FIELDS if name in record}
    values["collected_data"] = values.get("collected_data") or {}
    values["message_count"] = int(values.get("message_count") or 0)
    values["version"] = int(values.get("version") or 0)
    return SessionData(**values)


def message_from_record(record: Mapping[str, Any]) -> MessageData:
    """Build a message from a record with Tellback's field names, and values as any database returns them."""
    values = {name: _decode_field(name, record[name]) for name in MESSAGE_FIELDS if name in record}
    values["tool_calls"] = tuple(values.get("tool_calls") or ())
    return MessageData(**values)


def _decode_field(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in JSON_FIELDS and isinstance(value, str):
        return json.loads(value)
    if name in TIME_FIELDS:
        return as_utc(value)
    return value


def encode_session(session: SessionData) -> dict[str, Any]:
    """Validate a session and convert it to a record: times and JSON values become strings."""
    return encode_valid_session(validation.validate_session(session))


def encode_valid_session(session: SessionData, *, times: bool = True) -> dict[str, Any]:
    """Convert a valid session to a record. Without `times`, times stay datetimes."""
    return _encode_record("session", session, SESSION_FIELDS, times=times)


def encode_message(message: MessageData, *, times: bool = True) -> dict[str, Any]:
    """Convert a valid message to a record. Without `times`, times stay datetimes."""
    return _encode_record("message", message, MESSAGE_FIELDS, times=times)


def positioned_messages(message_records: Sequence[Mapping[str, Any]], first_position: int) -> list[MessageData]:
    """Build messages from records, with consecutive positions from `first_position`."""
    messages = map(message_from_record, message_records)
    return [replace(each, position=position) for position, each in enumerate(messages, start=first_position)]


def _encode_record(
    kind: str, value: SessionData | MessageData, fields: tuple[str, ...], *, times: bool
) -> dict[str, Any]:
    record = {name: getattr(value, name) for name in fields}
    try:
        if isinstance(value, SessionData):
            record["collected_data"] = dict(value.collected_data)
        else:
            record["tool_calls"] = [dict(call) for call in value.tool_calls]
        for name in JSON_FIELDS & record.keys():
            if record[name] is not None:
                record[name] = json.dumps(record[name], allow_nan=False)  # ASCII is safe in every database
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{kind} {value.id!r} contains data that is not JSON: {error}.") from error
    if times:
        for name in TIME_FIELDS & record.keys():
            if record[name] is not None:
                record[name] = format_time(record[name])
    return record


def merge_turn(stored: SessionData | None, session: SessionData, messages: Sequence[MessageData]) -> SessionData:
    """Return the session to store after a turn. Fields that a turn must not change keep their stored values.

    Raises `SessionConflictError` unless the turn started from the stored version.
    """
    version = 0 if stored is None else stored.version
    if version != session.version - 1:
        raise SessionConflictError(session.id, session.version - 1, version)
    if stored is None:
        return count_messages(replace(session, message_count=0), messages)
    merged = replace(
        session,
        user_id=stored.user_id if stored.user_id is not None else session.user_id,
        agent_name=stored.agent_name if stored.agent_name is not None else session.agent_name,
        status=stored.status,
        completed_at=stored.completed_at,
        created_at=stored.created_at,
        message_count=stored.message_count,
        last_message_at=stored.last_message_at,
    )
    return count_messages(merged, messages)


def count_messages(session: SessionData, messages: Sequence[MessageData], at: datetime | None = None) -> SessionData:
    """Return a session with more messages counted."""
    return replace(
        session,
        message_count=session.message_count + len(messages),
        last_message_at=messages[-1].created_at if messages else session.last_message_at,
        updated_at=at or session.updated_at,
    )
