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


class Documents:
    """What both collections have in common: the names of their fields, and how long a document lives."""

    def __init__(self, role: str, fields: tuple[str, ...], overrides: Any, ttl: float | None) -> None:
        overrides = {"id": "_id", **overrides} if isinstance(overrides, Mapping) else overrides or {"id": "_id"}
        self.fields = FieldNames(role, fields, overrides)
        self._field_names = fields
        self._ttl_ms = None if ttl is None else max(1, round(ttl * 1000))
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
        super().__init__("sessions", (*SESSION_FIELDS, LAST_POSITION), overrides, ttl)

    def build_update(
        self, values: Mapping[str, Any], *, set_once: Mapping[str, Any] | None = None, added: int = 0
    ) -> list[Document]:
        """An update that sets fields of a record, some only if they are not set, and counts so many more messages."""
        changes: Document = {name: {"$literal": value} for name, value in values.items()}
        if "collected_data" in values:
            changes["collected_data"] = {"$literal": to_native_json(values["collected_data"])}
        for name, value in (set_once or {}).items():
            changes[name] = {"$ifNull": [f"${self.fields[name]}", {"$literal": value}]}
        for name in ("message_count", LAST_POSITION) if added else ():
            changes[name] = {"$add": [{"$ifNull": [f"${self.fields[name]}", 0]}, added]}
        # Each change gives it its time again, from now on by the server's clock.
        changes[EXPIRES_AT] = {"$literal": None} if self._ttl_ms is None else {"$add": ["$$NOW", self._ttl_ms]}
        return [{"$set": self.fields.to_database(changes)}]

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


class MessageDocuments(Documents):
    """The documents of messages."""

    def __init__(self, overrides: Any, ttl: float | None) -> None:
        super().__init__("messages", MESSAGE_FIELDS, overrides, ttl)

    def to_documents(self, records: Sequence[Mapping[str, Any]], position: int, now: datetime) -> list[Document]:
        """The documents of messages whose first one has that position."""
        expiry = {} if self._ttl_ms is None else {EXPIRES_AT: now + timedelta(milliseconds=self._ttl_ms)}
        documents = []
        for place, record in enumerate(records, start=position):
            native = {name: to_native_json(record[name]) for name in ("tool_calls", "event")}
            documents.append(self.fields.to_database({**record, **native, **expiry, "position": place}))
        return documents

    def from_document(self, document: Mapping[str, Any]) -> MessageData:
        """A message from its document."""
        return message_from_record(to_plain_json(self.fields.from_database(document)))


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
