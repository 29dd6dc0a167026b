"""Sessions and messages as records of plain values, and the rules for merging a turn into a stored session.

Every adapter shares these, so that all databases store and return the same."""

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
"""When a record is past its time: a field of the database alone."""

TIME_FIELDS = frozenset({"last_message_at", "completed_at", "created_at", "updated_at"})
JSON_FIELDS = frozenset({"collected_data", "tool_calls", "event"})
NUMBER_FIELDS = frozenset({"message_count", "version", "position"})

DEFAULT_NAMES = {"sessions": "agent_sessions", "messages": "agent_messages"}
"""What tables, collections or indices are called unless other names are given."""


class FieldNames:
    """The names that records have in a database: `{"user_id": "customer"}` gives one another name.

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
        """A record under the database's names."""
        return {self._names[name]: value for name, value in record.items()}

    def from_database(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """A record under our names; what is not ours is left out."""
        return {self._fields_by_name[name]: value for name, value in record.items() if name in self._fields_by_name}


def validate_field_mappings(field_mappings: Any) -> Mapping[str, Any]:
    """The names that fields of sessions and of messages have in a database; each is checked by `FieldNames`."""
    if not isinstance(field_mappings, Mapping | None):
        raise ConfigurationError(f"field_mappings is a mapping of mappings, not {field_mappings!r:.80}.")
    unknown = (field_mappings or {}).keys() - {"sessions", "messages"}
    if unknown:
        raise ConfigurationError(f"field_mappings has sessions and messages, but not {', '.join(map(str, unknown))}.")
    return field_mappings or {}


def resolve_field_names(field_mappings: Any) -> dict[str, FieldNames]:
    """The names of the fields of both, by what they are of."""
    mappings = validate_field_mappings(field_mappings)
    return {role: FieldNames(role, fields, mappings.get(role)) for role, fields in RECORD_FIELDS.items()}


def format_time(moment: datetime) -> str:
    """A moment as text that sorts.

    >>> from tellback.types.ids import as_utc
    >>> format_time(as_utc("2026-03-01T12:00:00+02:00"))
    '2026-03-01T10:00:00.000000+00:00'
    """
    return as_utc(moment).isoformat(timespec="microseconds")


def session_from_record(record: Mapping[str, Any]) -> SessionData:
    """A session from a record with our names, whichever form its parts have."""
    values = {name: _decode_field(name, record[name]) for name in SESSION_FIELDS if name in record}
    values["collected_data"] = values.get("collected_data") or {}
    values["message_count"] = int(values.get("message_count") or 0)
    values["version"] = int(values.get("version") or 0)
    return SessionData(**values)


def message_from_record(record: Mapping[str, Any]) -> MessageData:
    """A message from a record with our names, whichever form its parts have."""
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
    """A session to store, validated: moments are texts that sort, JSON parts are JSON texts."""
    return encode_valid_session(validation.validate_session(session))


def encode_valid_session(session: SessionData, *, times: bool = True) -> dict[str, Any]:
    """A session to store, which was validated, in the same form; without `times`, moments stay as they are."""
    return _encode_record("session", session, SESSION_FIELDS, times=times)


def encode_message(message: MessageData, *, times: bool = True) -> dict[str, Any]:
    """A message to store, which was validated, in the same form."""
    return _encode_record("message", message, MESSAGE_FIELDS, times=times)


def positioned_messages(message_records: Sequence[Mapping[str, Any]], first_position: int) -> list[MessageData]:
    """Messages from their records, with the positions from that one on."""
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
                record[name] = json.dumps(record[name], allow_nan=False)  # in ASCII: no database stumbles over it
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{kind} {value.id!r} holds what is not JSON: {error}.") from error
    if times:
        for name in TIME_FIELDS & record.keys():
            if record[name] is not None:
                record[name] = format_time(record[name])
    return record


def merge_turn(stored: SessionData | None, session: SessionData, messages: Sequence[MessageData]) -> SessionData:
    """A session as it is stored after a turn, with what a turn does not change as it was.

    Raises `SessionConflictError` unless the turn began from what is stored.
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
    """A session with more messages."""
    return replace(
        session,
        message_count=session.message_count + len(messages),
        last_message_at=messages[-1].created_at if messages else session.last_message_at,
        updated_at=at or session.updated_at,
    )
