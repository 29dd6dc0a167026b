"""Sessions and messages as OpenSearch documents, and the two indices that hold them."""

from __future__ import annotations

import hashlib
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from opensearchpy import TransportError

from tellback.errors import ConfigurationError, StoreError
from tellback.sessions import records
from tellback.sessions.opensearch.connection import WORK_SECONDS, OpenSearchConnection, error_type
from tellback.sessions.records import (
    EXPIRES_AT,
    MESSAGE_FIELDS,
    SESSION_FIELDS,
    FieldNames,
    message_from_record,
    session_from_record,
)
from tellback.types.sessions import MessageData, SessionData

INTERNAL = "tellback"
"""The field that holds what is nobody's but ours."""
FOREVER = 2**53
MAX_WRITE_IDS = 32

_SAFE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,199}")

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SessionEntry:
    """All that is held under a session's id.

    `session` is None when it was purged while messages of it still have time. `life` is another one each time an id is
    created anew, so that what was deleted cannot come back. The messages have the positions from `first` to `last`, and
    none of them has time beyond `until`. Those in `pending` may not be in the index of messages yet. `writes` are the
    names of the last changes. Times are milliseconds since 1970.
    """

    id: str
    session: SessionData | None = None
    expires: int | None = None
    deleted: bool = False
    life: str = field(default_factory=lambda: uuid.uuid4().hex)
    first: int = 1
    last: int = 0
    until: int = 0
    pending: tuple[Document, ...] = ()
    writes: tuple[str, ...] = ()

    def live_session(self, now: int) -> SessionData | None:
        """The session, unless it is past its time."""
        return None if self.expires is not None and self.expires <= now else self.session

    def message_key(self, position: int) -> str:
        """The id of a message's document."""
        return f"{self.life}-{position}"


def now_millis() -> int:
    """This moment, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def document_id(session_id: str) -> str:
    """The id of a session's document: the session's own where it can be one.

    >>> document_id("web-42"), document_id("a/b")[:9]
    ('web-42', '~c14cddc0')
    """
    if _SAFE_ID.fullmatch(session_id):
        return session_id
    return "~" + hashlib.sha256(session_id.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class DocumentLayout:
    """How documents are written: the names of indices and fields, and the times to live, in milliseconds."""

    sessions_index: str
    messages_index: str
    sessions: FieldNames
    messages: FieldNames
    session_ttl: int | None
    message_ttl: int | None

    def store_turn(
        self, entry: SessionEntry | None, id: str, session: SessionData, messages: Sequence[MessageData], now: int
    ) -> SessionEntry:
        """What is held after a session is stored and messages are appended to it."""
        base = SessionEntry(id) if entry is None or entry.deleted else entry
        first, until = (base.first, base.until) if base.until > now else (base.last + 1, 0)
        message_expiry = FOREVER if self.message_ttl is None else now + self.message_ttl
        positioned = [replace(each, position=base.last + n) for n, each in enumerate(messages, start=1)]
        return replace(
            base,
            session=session,
            expires=None if self.session_ttl is None else now + self.session_ttl,
            first=first,
            last=base.last + len(messages),
            until=max(until, message_expiry) if messages else until,
            pending=tuple(self.message_document(each, message_expiry, session.user_id) for each in positioned),
        )

    def session_document(self, entry: SessionEntry, now: int) -> dict[str, Any]:
        """A session's document."""
        names = self.sessions
        fields: dict[str, Any] = {names["id"]: entry.id}
        if entry.session is not None:
            fields = names.to_database(records.encode_session(entry.session))
        if entry.expires is not None:
            fields[names[EXPIRES_AT]] = entry.expires
        internal: dict[str, Any] = {
            "record": "deleted" if entry.deleted else "husk" if entry.session is None else "session",
            **{name: getattr(entry, name) for name in ("life", "first", "last", "until", "writes", "pending")},
            "pending_count": len(entry.pending),
            "written_at": now,
        }
        expiries = [each[self.messages[EXPIRES_AT]] for each in entry.pending if self.messages[EXPIRES_AT] in each]
        if expiries:
            internal["pending_until"] = max(expiries)
        return {**fields, INTERNAL: internal}

    def entry_from_document(self, source: Document) -> SessionEntry:
        """What a session's document says. What was left out of it is as if it were nothing."""
        record = self.sessions.from_database(source)
        internal = source.get(INTERNAL) or {}
        return SessionEntry(
            id=record["id"],
            session=session_from_record(record) if internal.get("record") == "session" else None,
            expires=record.get(EXPIRES_AT),
            deleted=internal.get("record") == "deleted",
            life=internal.get("life", ""),
            first=internal.get("first", 1),
            last=internal.get("last", 0),
            until=internal.get("until", 0),
            pending=tuple(internal.get("pending") or ()),
            writes=tuple(internal.get("writes") or ()),
        )

    def read_back(self, entry: SessionEntry | None) -> SessionData:
        """The session that was stored, as it is read."""
        assert entry is not None
        session = self.entry_from_document(self.session_document(entry, 0)).session
        assert session is not None
        return session

    def message_document(self, message: MessageData, expires_at: int, owner: str | None) -> dict[str, Any]:
        """A message's document. It is found among those of its user, or else of its session's."""
        document = self.messages.to_database(records.encode_message(message))
        if expires_at != FOREVER:
            document[self.messages[EXPIRES_AT]] = expires_at
        return {**document, INTERNAL: {"owner": message.user_id if message.user_id is not None else owner}}

    def message_from_document(self, document: Document) -> MessageData:
        """The other way."""
        return message_from_record(self.messages.from_database(document))

    def position_of(self, document: Document) -> int:
        """The position that a message's document says."""
        position: int = document[self.messages["position"]]
        return position

    def is_live(self, document: Document, now: int) -> bool:
        """Whether a message is not past its time."""
        expires_at = document.get(self.messages[EXPIRES_AT])
        return expires_at is None or expires_at > now


DEFAULT_INDEX_NAMES = {"sessions": "agent_sessions", "messages": "agent_messages"}

_INDEX_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,199}")
_KEYWORD = {"type": "keyword"}
_NUMBER = {"type": "long", "ignore_malformed": True}
_MILLIS = {"type": "date", "format": "epoch_millis"}
_TIME = {"type": "keyword", "fields": {"date": {"type": "date", "ignore_malformed": True}}}
"""A text that sorts to the microsecond, and beside it a date for dashboards."""
_STORED_ONLY = {"type": "object", "enabled": False}
"""Stored as it is, and not searched."""

_FIELD_TYPES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("collected_data", "tool_calls", "event"), _STORED_ONLY),
    **dict.fromkeys(("last_message_at", "completed_at", "created_at", "updated_at"), _TIME),
    **dict.fromkeys(("message_count", "version", "position"), _NUMBER),
    "content": {"type": "text"},
    EXPIRES_AT: _MILLIS,
}
_INTERNAL_SESSION_FIELDS = {
    **dict.fromkeys(("record",), _KEYWORD),
    **dict.fromkeys(("until", "pending_until", "written_at"), _MILLIS),
    "pending_count": {"type": "integer"},
    "pending": _STORED_ONLY,
}


def resolve_index_names(overrides: Any) -> dict[str, str]:
    """The names of the indices, with those that were given instead of the known ones.

    >>> resolve_index_names({"sessions": "shop-sessions"})["sessions"]
    'shop-sessions'
    """
    if not isinstance(overrides, Mapping | None):
        raise ConfigurationError(f"indices is a mapping of names, not {overrides!r:.80}.")
    unknown = (overrides or {}).keys() - DEFAULT_INDEX_NAMES.keys()
    if unknown:
        raise ConfigurationError(
            f"indices has {', '.join(DEFAULT_INDEX_NAMES)}, but not {', '.join(map(str, unknown))}."
        )
    resolved = {**DEFAULT_INDEX_NAMES, **(overrides or {})}
    for name, value in resolved.items():
        if not isinstance(value, str) or not _INDEX_NAME.fullmatch(value):
            raise ConfigurationError(
                f"indices[{name!r}] is a name of small letters, digits, '_', '-' and '.', not {value!r:.80}."
            )
    if resolved["sessions"] == resolved["messages"]:
        raise ConfigurationError(f"indices gives two things one name: {resolved['sessions']}.")
    return resolved


def resolve_field_names(field_mappings: Any) -> tuple[FieldNames, FieldNames]:
    """The names of fields, of sessions and of messages."""
    if not isinstance(field_mappings, Mapping | None):
        raise ConfigurationError(f"field_mappings is a mapping of names, not {field_mappings!r:.80}.")
    unknown = (field_mappings or {}).keys() - DEFAULT_INDEX_NAMES.keys()
    if unknown:
        raise ConfigurationError(
            f"field_mappings has {', '.join(DEFAULT_INDEX_NAMES)}, but not {', '.join(map(str, unknown))}."
        )
    for role, mapping in (field_mappings or {}).items():
        for name in mapping.values() if isinstance(mapping, Mapping) else ():
            if name == INTERNAL or str(name).startswith("_"):
                raise ConfigurationError(f"field_mappings[{role!r}]: {name!r} is taken; choose another name.")
    field_names = {"sessions": SESSION_FIELDS, "messages": MESSAGE_FIELDS}
    sessions, messages = (
        FieldNames(role, field_names[role], (field_mappings or {}).get(role)) for role in DEFAULT_INDEX_NAMES
    )
    return sessions, messages


def session_definition(fields: FieldNames) -> dict[str, Any]:
    """What an index of sessions is created with."""
    return _build_definition(fields, SESSION_FIELDS, _INTERNAL_SESSION_FIELDS)


def message_definition(fields: FieldNames) -> dict[str, Any]:
    """What an index of messages is created with."""
    return _build_definition(fields, MESSAGE_FIELDS, {"owner": _KEYWORD})


async def prepare_index(
    connection: OpenSearchConnection, name: str, definition: Mapping[str, Any], *, create: bool
) -> None:
    """Create an index unless it is there, and check that what is searched in it is as it must be."""
    if not await connection.request("HEAD", f"/{name}"):
        if not create:
            raise ConfigurationError(
                f"{connection.place} has no index {name!r}, and auto_create_indices is False: create it with the mappings"
                " that index_definitions gives."
            )
        await _create_index(connection, name, definition)
    found = await connection.request("GET", f"/{name}/_mapping")
    for index, each in found.items():
        _check_mapping(index, definition["mappings"]["properties"], each.get("mappings", {}).get("properties", {}))


async def _create_index(connection: OpenSearchConnection, name: str, definition: Mapping[str, Any]) -> None:
    try:
        await connection.request("PUT", f"/{name}", body=definition, seconds=WORK_SECONDS)
    except StoreError as error:
        cause = error.__cause__
        if not isinstance(cause, TransportError) or error_type(cause) != "resource_already_exists_exception":
            raise


def _check_mapping(index: str, expected: Mapping[str, Any], found: Mapping[str, Any], path: str = "") -> None:
    for name, each in expected.items():
        existing = found.get(name, {})
        if "properties" in each:
            _check_mapping(index, each["properties"], existing.get("properties", {}), f"{path}{name}.")
        elif each["type"] in ("keyword", "text", "date") and existing.get("type") != each["type"]:
            raise ConfigurationError(
                f"Index {index!r} has {path}{name} as {existing.get('type', 'nothing')}, and it must be {each['type']}:"
                " use another index, or create it anew with the mappings that index_definitions gives."
            )


def _build_definition(fields: FieldNames, names: tuple[str, ...], internal: Mapping[str, Any]) -> dict[str, Any]:
    properties = {fields[name]: _FIELD_TYPES.get(name, _KEYWORD) for name in (*names, EXPIRES_AT)}
    return {"mappings": {"dynamic": False, "properties": {**properties, INTERNAL: {"properties": dict(internal)}}}}
