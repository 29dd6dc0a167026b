"""Sessions and messages as documents of MongoDB, and what is asked of them there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from bson.int64 import Int64
from pymongo import ASCENDING, IndexModel

from tellback.errors import ConfigurationError
from tellback.stores.sessions.records import (
    EXPIRES,
    MESSAGE_FIELDS,
    SESSION_FIELDS,
    Fields,
    message_of,
    session_of,
)
from tellback.types.jsontext import is_storable
from tellback.types.sessions import MessageData, SessionData

Document = dict[str, Any]

LAST_POSITION = "last_position"
"""The position of a session's last message: a field of the database alone."""

NOW = "server-now"
"""The server's time, as a field of what it answers: no other field can have this name."""

DEEPEST = 50
"""How deep JSON may be nested to be kept as a document; the rest is kept as text."""

_KEPT_IF_SET = ("user_id", "agent_name")
_OF_A_TURN = ("current_route", "current_state", "collected_data", "updated_at", "version")


class Documents:
    """What both collections have in common: the names of their fields, and whether a document still has time."""

    def __init__(self, what: str, known: tuple[str, ...], given: Any) -> None:
        given = {"id": "_id", **given} if isinstance(given, Mapping) else given or {"id": "_id"}
        self.fields = Fields(what, known, given)
        self._known = known
        taken = [name for name in (*known, EXPIRES) if self.fields[name] == "_id" and name != "id"]
        if taken:
            raise ConfigurationError(f"field_mappings[{what!r}]: only id can be _id, not {taken[0]}.")

    @property
    def wanted(self) -> Document:
        """The fields to answer with, and the server's time."""
        return {**{self.fields[name]: 1 for name in self._known}, NOW: "$$NOW"}

    def living(self) -> Document:
        """A condition: it is not past its time, by the server's clock."""
        expires = self.fields[EXPIRES]
        return {"$or": [{expires: None}, {"$expr": {"$gt": [f"${expires}", "$$NOW"]}}]}

    def indexes(self, *fields: tuple[str, ...]) -> list[IndexModel]:
        """Indexes over these fields, one to expire by, and one for the id if it is not `_id`."""
        made = [IndexModel([(self.fields[name], ASCENDING) for name in names]) for names in fields]
        made.append(IndexModel([(self.fields[EXPIRES], ASCENDING)], expireAfterSeconds=0))
        if self.fields["id"] != "_id":
            made.append(IndexModel([(self.fields["id"], ASCENDING)], unique=True))
        return made


class Sessions(Documents):
    """The documents of sessions."""

    def __init__(self, given: Any, ttl: float | None) -> None:
        super().__init__("sessions", (*SESSION_FIELDS, LAST_POSITION), given)
        self._ttl = ttl

    def made_of(self, record: Mapping[str, Any], position: int) -> list[Document]:
        """An update that makes a session as it is in a record, whatever was there."""
        values = {**record, "collected_data": native(record["collected_data"]), LAST_POSITION: position}
        del values["id"]
        return self._set({name: {"$literal": value} for name, value in values.items()})

    def after_turn(self, record: Mapping[str, Any], count: int, newest: str | None) -> list[Document]:
        """An update that stores a turn with so many messages."""
        values = {**record, "collected_data": native(record["collected_data"])}
        changes: Document = {name: {"$literal": values[name]} for name in _OF_A_TURN}
        for name in _KEPT_IF_SET:
            changes[name] = {"$ifNull": [self._path(name), {"$literal": values[name]}]}
        return self._set({**changes, **self._counted(count, newest)})

    def after_adding(self, count: int, newest: str, at: str) -> list[Document]:
        """An update that counts more messages."""
        return self._set({"updated_at": {"$literal": at}, **self._counted(count, newest)})

    def with_status(self, status: str, at: str, completed_at: str | None) -> list[Document]:
        """An update that changes the status."""
        values = {"status": status, "updated_at": at, "completed_at": completed_at}
        return self._set({name: {"$literal": value} for name, value in values.items()})

    def behind(self, session: SessionData, created_at: str) -> Document:
        """A condition: it comes behind a session among its user's."""
        created, id = self.fields["created_at"], self.fields["id"]
        later = [{created: {"$lt": created_at}}, {created: created_at, id: {"$lt": session.id}}]
        return {created: {"$lte": created_at}, "$and": [{"$or": later}]}

    def read(self, document: Mapping[str, Any]) -> SessionData:
        """A session from its document."""
        return session_of(plain(self.fields.to_ours(document)))

    def last_position(self, document: Mapping[str, Any]) -> int:
        """The position of its last message."""
        return int(document.get(self.fields[LAST_POSITION]) or 0)

    def _counted(self, count: int, newest: str | None) -> Document:
        counted = {
            name: {"$add": [{"$ifNull": [self._path(name), 0]}, count]} for name in ("message_count", LAST_POSITION)
        }
        return counted if newest is None else {**counted, "last_message_at": {"$literal": newest}}

    def _set(self, changes: Mapping[str, Any]) -> list[Document]:
        # Each change gives it its time again, from now on by the server's clock.
        expires = {"$literal": None} if self._ttl is None else {"$add": ["$$NOW", _milliseconds(self._ttl)]}
        return [{"$set": self.fields.to_theirs({**changes, EXPIRES: expires})}]

    def _path(self, name: str) -> str:
        return f"${self.fields[name]}"


class Messages(Documents):
    """The documents of messages."""

    def __init__(self, given: Any, ttl: float | None) -> None:
        super().__init__("messages", MESSAGE_FIELDS, given)
        self._ttl = ttl

    def made_of(self, records: Sequence[Mapping[str, Any]], position: int, now: datetime) -> list[Document]:
        """The documents of messages whose first one has that position."""
        return [self._made_of(record, position + n, now) for n, record in enumerate(records)]

    def read(self, document: Mapping[str, Any]) -> MessageData:
        """A message from its document."""
        return message_of(plain(self.fields.to_ours(document)))

    def _made_of(self, record: Mapping[str, Any], position: int, now: datetime) -> Document:
        values = {**record, "position": position}
        for name in ("tool_calls", "event"):
            values[name] = native(values[name])
        if self._ttl is not None:
            values[EXPIRES] = now + timedelta(milliseconds=_milliseconds(self._ttl))
        return self.fields.to_theirs(values)


def native(text: str | None) -> Any:
    """JSON as MongoDB's own values, so that it can be queried, or as it is if they would not be the same.

    >>> native('{"to": "Rome"}'), native('{"$to": "Rome"}')
    ({'to': 'Rome'}, '{"$to": "Rome"}')
    """
    value = None if text is None else json.loads(text)
    return text if isinstance(value, str) or not _is_same(value, DEEPEST) else value


def plain(value: Any) -> Any:
    """A value as JSON has it: the driver has a kind of its own for large numbers."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return int(value) if isinstance(value, Int64) else value


def _is_same(value: Any, deepest: int) -> bool:
    """Whether MongoDB gives it back exactly."""
    if isinstance(value, dict):
        return deepest > 0 and all(_is_name(name) and _is_same(each, deepest - 1) for name, each in value.items())
    if isinstance(value, list):
        return deepest > 0 and all(_is_same(each, deepest - 1) for each in value)
    if isinstance(value, str):
        return is_storable(value.replace("\x00", ""))
    return not isinstance(value, int) or -(2**63) <= value < 2**63


def _is_name(name: str) -> bool:
    return bool(name) and not name.startswith("$") and "." not in name and is_storable(name)


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
