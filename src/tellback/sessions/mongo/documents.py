"""Sessions and messages as MongoDB documents, and the queries and updates on them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from bson.int64 import Int64
from pymongo import ASCENDING, IndexModel

from tellback.errors import ConfigurationError
from tellback.sessions.records import (
    EXPIRES_AT,
    MESSAGE_FIELDS,
    SESSION_FIELDS,
    FieldNames,
    message_from_record,
    session_from_record,
)
from tellback.types.conversations import MessageData, SessionData
from tellback.types.jsontext import is_storable

Document = dict[str, Any]

LAST_POSITION = "last_position"
"""The position of a session's last message: a field of the database alone."""

SERVER_TIME = "server-now"
"""The server's time, as a field of what it answers: no other field can have this name."""

MAX_DEPTH = 50
"""How deep JSON may be nested to be kept as a document; the rest is kept as text."""

_SET_ONCE_FIELDS = ("user_id", "agent_name")
_TURN_FIELDS = ("current_route", "current_state", "collected_data", "updated_at", "version")


class Documents:
    """What both collections have in common: the names of their fields, and whether a document still has time."""

    def __init__(self, role: str, fields: tuple[str, ...], overrides: Any) -> None:
        overrides = {"id": "_id", **overrides} if isinstance(overrides, Mapping) else overrides or {"id": "_id"}
        self.fields = FieldNames(role, fields, overrides)
        self._field_names = fields
        taken = [name for name in (*fields, EXPIRES_AT) if self.fields[name] == "_id" and name != "id"]
        if taken:
            raise ConfigurationError(f"field_mappings[{role!r}]: only id can be _id, not {taken[0]}.")

    @property
    def projection(self) -> Document:
        """The fields to answer with, and the server's time."""
        return {**{self.fields[name]: 1 for name in self._field_names}, SERVER_TIME: "$$NOW"}

    def is_live(self) -> Document:
        """A condition: it is not past its time, by the server's clock."""
        expires = self.fields[EXPIRES_AT]
        return {"$or": [{expires: None}, {"$expr": {"$gt": [f"${expires}", "$$NOW"]}}]}

    def indexes(self, *fields: tuple[str, ...]) -> list[IndexModel]:
        """Indexes over these fields, one to expire by, and one for the id if it is not `_id`."""
        models = [IndexModel([(self.fields[name], ASCENDING) for name in names]) for names in fields]
        models.append(IndexModel([(self.fields[EXPIRES_AT], ASCENDING)], expireAfterSeconds=0))
        if self.fields["id"] != "_id":
            models.append(IndexModel([(self.fields["id"], ASCENDING)], unique=True))
        return models


class SessionDocuments(Documents):
    """The documents of sessions."""

    def __init__(self, overrides: Any, ttl: float | None) -> None:
        super().__init__("sessions", (*SESSION_FIELDS, LAST_POSITION), overrides)
        self._ttl = ttl

    def create_update(self, record: Mapping[str, Any], position: int) -> list[Document]:
        """An update that makes a session as it is in a record, whatever was there."""
        values = {**record, "collected_data": to_native_json(record["collected_data"]), LAST_POSITION: position}
        del values["id"]
        return self._build_update({name: {"$literal": value} for name, value in values.items()})

    def turn_update(self, record: Mapping[str, Any], count: int, newest: str | None) -> list[Document]:
        """An update that stores a turn with so many messages."""
        values = {**record, "collected_data": to_native_json(record["collected_data"])}
        changes: Document = {name: {"$literal": values[name]} for name in _TURN_FIELDS}
        for name in _SET_ONCE_FIELDS:
            changes[name] = {"$ifNull": [self._field_path(name), {"$literal": values[name]}]}
        return self._build_update({**changes, **self._count_changes(count, newest)})

    def add_messages_update(self, count: int, newest: str, at: str) -> list[Document]:
        """An update that counts more messages."""
        return self._build_update({"updated_at": {"$literal": at}, **self._count_changes(count, newest)})

    def status_update(self, status: str, at: str, completed_at: str | None) -> list[Document]:
        """An update that changes the status."""
        values = {"status": status, "updated_at": at, "completed_at": completed_at}
        return self._build_update({name: {"$literal": value} for name, value in values.items()})

    def is_older_than(self, session: SessionData, created_at: str) -> Document:
        """A condition: it comes behind a session among its user's."""
        created, id = self.fields["created_at"], self.fields["id"]
        alternatives = [{created: {"$lt": created_at}}, {created: created_at, id: {"$lt": session.id}}]
        return {created: {"$lte": created_at}, "$and": [{"$or": alternatives}]}

    def from_document(self, document: Mapping[str, Any]) -> SessionData:
        """A session from its document."""
        return session_from_record(to_plain_json(self.fields.from_database(document)))

    def last_position(self, document: Mapping[str, Any]) -> int:
        """The position of its last message."""
        return int(document.get(self.fields[LAST_POSITION]) or 0)

    def _count_changes(self, count: int, newest: str | None) -> Document:
        changes = {
            name: {"$add": [{"$ifNull": [self._field_path(name), 0]}, count]}
            for name in ("message_count", LAST_POSITION)
        }
        return changes if newest is None else {**changes, "last_message_at": {"$literal": newest}}

    def _build_update(self, changes: Mapping[str, Any]) -> list[Document]:
        # Each change gives it its time again, from now on by the server's clock.
        expires = {"$literal": None} if self._ttl is None else {"$add": ["$$NOW", _to_milliseconds(self._ttl)]}
        return [{"$set": self.fields.to_database({**changes, EXPIRES_AT: expires})}]

    def _field_path(self, name: str) -> str:
        return f"${self.fields[name]}"


class MessageDocuments(Documents):
    """The documents of messages."""

    def __init__(self, overrides: Any, ttl: float | None) -> None:
        super().__init__("messages", MESSAGE_FIELDS, overrides)
        self._ttl = ttl

    def to_documents(self, records: Sequence[Mapping[str, Any]], position: int, now: datetime) -> list[Document]:
        """The documents of messages whose first one has that position."""
        return [self._to_document(record, position + n, now) for n, record in enumerate(records)]

    def from_document(self, document: Mapping[str, Any]) -> MessageData:
        """A message from its document."""
        return message_from_record(to_plain_json(self.fields.from_database(document)))

    def _to_document(self, record: Mapping[str, Any], position: int, now: datetime) -> Document:
        values = {**record, "position": position}
        for name in ("tool_calls", "event"):
            values[name] = to_native_json(values[name])
        if self._ttl is not None:
            values[EXPIRES_AT] = now + timedelta(milliseconds=_to_milliseconds(self._ttl))
        return self.fields.to_database(values)


def to_native_json(text: str | None) -> Any:
    """JSON as MongoDB's own values, so that it can be queried, or as it is if they would not be the same.

    >>> to_native_json('{"to": "Rome"}'), to_native_json('{"$to": "Rome"}')
    ({'to': 'Rome'}, '{"$to": "Rome"}')
    """
    value = None if text is None else json.loads(text)
    return text if isinstance(value, str) or not _is_lossless(value, MAX_DEPTH) else value


def to_plain_json(value: Any) -> Any:
    """A value as JSON has it: the driver has a kind of its own for large numbers."""
    if isinstance(value, dict):
        return {name: to_plain_json(each) for name, each in value.items()}
    if isinstance(value, list):
        return [to_plain_json(each) for each in value]
    return int(value) if isinstance(value, Int64) else value


def _is_lossless(value: Any, max_depth: int) -> bool:
    """Whether MongoDB gives it back exactly."""
    if isinstance(value, dict):
        return max_depth > 0 and all(
            _is_valid_key(name) and _is_lossless(each, max_depth - 1) for name, each in value.items()
        )
    if isinstance(value, list):
        return max_depth > 0 and all(_is_lossless(each, max_depth - 1) for each in value)
    if isinstance(value, str):
        return is_storable(value.replace("\x00", ""))
    return not isinstance(value, int) or -(2**63) <= value < 2**63


def _is_valid_key(name: str) -> bool:
    return bool(name) and not name.startswith("$") and "." not in name and is_storable(name)


def _to_milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
