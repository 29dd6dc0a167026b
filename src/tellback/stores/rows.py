"""Convert rows to values and back.

A row is read by column name (`row["created_at"]`), never by position. `RowReader` builds a dataclass from the columns
named like its fields: a field's type decides how its column is decoded (timestamps in microseconds, mappings and lists
as JSON). `row_values` returns the values that a statement binds. Where column and field names differ, the SQL says `AS
field`.
"""

from __future__ import annotations

import functools
import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, fields
from datetime import datetime, timedelta
from enum import Enum
from operator import attrgetter, itemgetter
from types import NoneType
from typing import Any, Generic, TypeVar, get_args, get_type_hints

from tellback.errors import InvalidArgumentError
from tellback.stores.values import Row as Row
from tellback.stores.values import StoredResponse
from tellback.types.access import ApiKey, Scope
from tellback.types.blocks import ContentBlock, TextBlock, chat_messages, load_blocks
from tellback.types.conversations import (
    Conversation,
    Event,
    MessageData,
    MessageDraft,
    MessageRole,
    SessionData,
    StoredMessage,
)
from tellback.types.ids import from_micros, register_cache, to_micros
from tellback.types.jobs import ANY, Binding, ConversationScope, ExtractionPolicy, Job, UsageRecord, UsageTotal
from tellback.types.jsontext import dump_stored_json, is_storable, validate_depth
from tellback.types.memory import Atom, Category, CategoryKind, Citation, Entity, MemorySpace
from tellback.types.messages import ChatUsage, Message

T = TypeVar("T")
_decode_json = json.JSONDecoder().raw_decode

SESSION_NOTE = "tellback.session"
"""The metadata key of a log message for data that only session messages have."""

_POSITIONS_PER_CONVERSATION = 2**32
_SESSION_ROLES: dict[str, MessageRole] = {"user": "user", "assistant": "agent", "system": "system"}
_LOG_ROLES = {role: name for name, role in _SESSION_ROLES.items()}


def parse_ids(text: str) -> tuple[str, ...]:
    """Parse a JSON list of strings. Most lists are empty or contain one plain id, so these skip the JSON parser.

    >>> parse_ids("[]"), parse_ids('["msg_1"]'), parse_ids('["a","b"]')
    ((), ('msg_1',), ('a', 'b'))
    """
    if text == "[]":
        return ()
    inner = text[2:-2]
    return (inner,) if '"' not in inner and "\\" not in inner else tuple(json.loads(text))


def parse_citations(text: str) -> tuple[Citation, ...]:
    """Parse a JSON list of conversations with their messages.

    >>> parse_citations('[["conv_1",["msg_2"]]]')
    (Citation(conversation_id='conv_1', message_ids=('msg_2',)),)
    """
    return tuple(Citation(id, tuple(messages)) for id, messages in json.loads(text))


def dump_citations(sources: Sequence[Citation]) -> str | None:
    """Encode citations as JSON for storage. Return None if there are none, as for most atoms.

    >>> dump_citations([Citation("conv_1", ("msg_2",))])
    '[["conv_1",["msg_2"]]]'
    """
    return dump_stored_json([[each.conversation_id, each.message_ids] for each in sources]) if sources else None


def _decode_content(content: str) -> tuple[ContentBlock, ...]:
    return (TextBlock(content),) if content[:1] != "[" else load_blocks(json.loads(content))


def _encode_content(blocks: Sequence[ContentBlock]) -> str:
    """Encode a single text as it is, and any other content as a JSON list of blocks.

    Nearly all messages are plain text, and a turn reads dozens of them, so their encoding needs no parsing.
    """
    if len(blocks) == 1 and type(blocks[0]) is TextBlock and blocks[0].meta is None:
        text = blocks[0].text
        if text[:1] != "[" and is_storable(text):
            return text
    dicts = [dict(block) for block in blocks]
    validate_depth(dicts)
    return dump_stored_json(dicts)


def _encode_usage(usage: ChatUsage) -> str:
    values = ((name, getattr(usage, name)) for name in ChatUsage.__dataclass_fields__)
    return dump_stored_json({name: value for name, value in values if value is not None})


@functools.lru_cache(maxsize=1_024)
def _cached_category(name: str, kind: str) -> Category:
    return Category(name, CategoryKind(kind))


@functools.lru_cache(maxsize=1_024)
def _cached_scope(tenant_id: str, app_id: str, user_id: str) -> Scope:
    return Scope(tenant_id, app_id, user_id)


register_cache(_cached_category.cache_clear)
register_cache(_cached_scope.cache_clear)

_MICROSECOND = timedelta(microseconds=1)
_CODECS: dict[Any, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    datetime: (from_micros, to_micros),
    timedelta: (lambda micros: micros * _MICROSECOND, lambda length: length // _MICROSECOND),
    bool: (bool, int),
    Mapping[str, Any]: (json.loads, lambda value: dump_stored_json(dict(value))),
    Mapping[str, str]: (json.loads, lambda value: dump_stored_json(dict(value))),
    tuple[str, ...]: (parse_ids, dump_stored_json),
    tuple[Citation, ...]: (parse_citations, dump_citations),
    tuple[ContentBlock, ...]: (_decode_content, _encode_content),
    tuple[ConversationScope, ...]: (
        lambda text: tuple(ConversationScope(*each) for each in json.loads(text)),
        lambda scopes: dump_stored_json([[scope.namespace, scope.user_id] for scope in scopes]),
    ),
    ExtractionPolicy: (
        lambda text: ExtractionPolicy(**json.loads(text)),
        lambda policy: dump_stored_json(asdict(policy)),
    ),
    ChatUsage: (lambda text: ChatUsage(**json.loads(text)), _encode_usage),
}
"""How to decode a field of each type from its column, and how to encode it. Other types are stored unchanged."""

_SCOPE_COLUMNS = ("tenant_id", "app_id", "user_id")
_JOINED: dict[Any, tuple[tuple[str, ...], Callable[..., Any]]] = {
    Scope: (_SCOPE_COLUMNS, _cached_scope),
    Category: (("category", "kind"), _cached_category),
}
"""Types that are stored in several columns."""


def _codec(hint: Any) -> tuple[Any, Any]:
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {member.value: member for member in hint}.__getitem__, attrgetter("value")
    return _CODECS.get(hint, (None, None))


def _field_hints(type: Any) -> list[tuple[str, Any, Any, bool]]:
    """Return each field's name, its type without `None`, the value used for NULL, and whether NULL is allowed.

    NULL is read as None if the type allows None, and otherwise as the field's default.
    """
    hints = get_type_hints(type)
    found = []
    for field in fields(type):
        hint, has_default = hints[field.name], field.default is not MISSING
        is_optional = NoneType in get_args(hint)
        if is_optional:
            hint = next(each for each in get_args(hint) if each is not NoneType)
        missing = field.default if has_default and not is_optional else None
        found.append((field.name, hint, missing, is_optional or has_default))
    return found


Columns = tuple[str, ...]


class RowReader(Generic[T]):
    """Builds values of a dataclass from rows.

    The expression that builds a value is compiled once for each list of columns, as `dataclasses` compiles `__init__`:
    rows are read by the thousand, and SQLite finds a column by scanning all names.

    >>> RowReader(Citation).read({"conversation_id": "conv_1", "message_ids": '["msg_2"]'})
    Citation(conversation_id='conv_1', message_ids=('msg_2',))
    """

    def __init__(self, type: type[T], **decoders: Callable[[Any], Any]) -> None:
        self._type = type
        self._decoders = decoders
        self._readers: dict[Columns | None, Callable[[Row], T]] = {}

    def read(self, row: Row) -> T:
        """Build the value of a row."""
        return self._reader_for(row)(row)

    def read_all(self, rows: Sequence[Row]) -> list[T]:
        """Build the value of every row of one statement."""
        if not rows:
            return []
        read = self._reader_for(rows[0])
        return [read(row) for row in rows]

    def read_first(self, rows: Sequence[Row]) -> T | None:
        """Build the value of the first row, if there is one."""
        return self.read(rows[0]) if rows else None

    def _reader_for(self, row: Row) -> Callable[[Row], T]:
        columns = None if isinstance(row, dict) else tuple(row.keys())
        return self._readers.get(columns) or self._readers.setdefault(columns, self._compile(_key_finder(row)))

    def _compile(self, key_of: Callable[[str], Any]) -> Callable[[Row], T]:
        names: dict[str, Any] = {"build": self._type}
        values = []
        for name, hint, missing, is_nullable in _field_hints(self._type):
            parts, join = _JOINED.get(hint, ((name,), None))
            decode = join or self._decoders.get(name) or _codec(hint)[0]
            value = ", ".join(f"row[{key_of(part)!r}]" for part in parts)
            names[f"decode_{name}"], names[f"missing_{name}"] = decode, missing
            if decode is not None and is_nullable:
                value = f"missing_{name} if (value := {value}) is None else decode_{name}(value)"
            elif decode is not None:
                value = f"decode_{name}({value})"
            values.append(value)
        reader: Callable[[Row], T] = eval(f"lambda row: build({', '.join(values)})", names)
        return reader


def _key_finder(row: Row) -> Callable[[str], Any]:
    """Return a function from column name to key: the column's index, or the name itself for a dictionary."""
    return str if isinstance(row, dict) else {name: place for place, name in enumerate(row.keys())}.__getitem__


def read_columns(rows: Sequence[Row], *names: str) -> Iterator[tuple[Any, ...]]:
    """Return some columns of many rows, one tuple per row.

    >>> list(read_columns([{"id": "a", "seq": 1}, {"id": "b", "seq": 2}], "seq", "id"))
    [(1, 2), ('a', 'b')]
    """
    return zip(*map(itemgetter(*map(_key_finder(rows[0]), names)), rows), strict=True)


@functools.cache
def _writer(type: Any) -> Callable[[Any], dict[str, Any]]:
    names: dict[str, Any] = {}
    items = []
    for name, hint, _, is_nullable in _field_hints(type):
        if hint in _JOINED or name in _SCOPE_COLUMNS:
            continue
        item, names[f"encode_{name}"] = f"value.{name}", _codec(hint)[1]
        if names[f"encode_{name}"] is not None:
            item = f"encode_{name}({item})"
            if is_nullable:
                item = f"None if value.{name} is None else {item}"
        items.append(f"{name!r}: {item}")
    writer: Callable[[Any], dict[str, Any]] = eval(f"lambda value: {{{', '.join(items)}}}", names)
    return writer


def row_values(value: Any, **more: Any) -> dict[str, Any]:
    """Return the values a statement binds for a dataclass, by field name, together with the values in `more`.

    Categories (two columns) and the scope are left out: the engine binds the scope.

    >>> row_values(Citation("conv_1", ("msg_2",)), seq=3)
    {'conversation_id': 'conv_1', 'message_ids': '["msg_2"]', 'seq': 3}
    """
    values = _writer(value.__class__)(value)
    values.update(more)
    return values


@functools.cache
def _draft_reader(draft: Any, build: Any) -> Callable[..., Any]:
    shared = [field.name for field in fields(draft) if field.name in build.__dataclass_fields__]
    items = ", ".join(f"{name}=draft.{name}" for name in shared)
    reader: Callable[..., Any] = eval(f"lambda draft, given: build({items}, **given)", {"build": build})
    return reader


def value_from_draft(build: Callable[..., T], draft: Any, **given: Any) -> T:
    """Build a stored value from a draft: the fields both have, and the values in `given`."""
    value: T = _draft_reader(draft.__class__, build)(draft, given)
    return value


CONVERSATION = RowReader(Conversation)
MESSAGE = RowReader(StoredMessage)
SESSION = RowReader(SessionData)
BINDING = RowReader(Binding)
JOB = RowReader(Job)
USAGE = RowReader(UsageRecord)
USAGE_TOTAL = RowReader(UsageTotal, cost_usd=float)
API_KEY = RowReader(ApiKey)
RESPONSE = RowReader(StoredResponse, body=bytes)
SPACE = RowReader(MemorySpace)
ATOM = RowReader(Atom)
ENTITY = RowReader(Entity)
# `_decode_json` skips the whitespace check of `json.loads`, which costs more than parsing; feeds read many events.
EVENT = RowReader(Event, data=lambda text: _decode_json(text)[0])


def scope_from_row(row: Row) -> Scope:
    """Return the scope that owns a row."""
    return _cached_scope(row["tenant_id"], row["app_id"], row["user_id"])


def scoped_ids(rows: Sequence[Row]) -> list[tuple[Scope, str]]:
    """Return each row's id with the scope that owns it."""
    return [(scope_from_row(row), row["id"]) for row in rows]


def history_from_rows(rows: Sequence[Row]) -> tuple[Message, ...]:
    """Convert rows of `history_before` to chat messages, oldest first."""
    if not rows:
        return ()
    oldest_first = read_columns(rows[::-1], "role", "content", "meta")
    return tuple([message for messages in map(_chat_messages, *oldest_first) for message in messages])


def _chat_messages(role: str, content: str, meta: str | None) -> list[Message]:
    provider_state = None if meta is None else json.loads(meta)
    if content[:1] != "[":
        return [Message(role, content, meta=provider_state)]
    return chat_messages(role, load_blocks(json.loads(content)), provider_state)


def draft_values(draft: MessageDraft) -> dict[str, Any]:
    """Return the values to bind for a draft. Raise `InvalidArgumentError` if it cannot be stored."""
    try:
        validate_depth(draft.meta)
        return row_values(draft)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidArgumentError(f"the message cannot be stored: {error}.") from error


def session_values(session: SessionData) -> dict[str, Any]:
    """Return the values to bind for a session. Raise `InvalidArgumentError` if its data is not JSON."""
    try:
        collected = json.dumps(dict(session.collected_data), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"session {session.id!r} contains data that is not JSON: {error}.") from error
    return row_values(session, collected_data=collected)


def draft_from_session_message(message: MessageData, agent_name: str | None) -> MessageDraft:
    """Convert a session's message to a log draft. Empty messages and status messages are hidden from users."""
    labels = {"agent": agent_name, "route": message.route, "state": message.state}
    note = {"tool_calls": list(message.tool_calls), "event": message.event}
    is_visible = message.content.strip() and (message.event or {}).get("kind") != "status"
    return MessageDraft(
        id=message.id,
        role=_LOG_ROLES[message.role],
        content=(TextBlock(message.content),),
        created_at=message.created_at,
        visibility="user" if is_visible else "hidden",
        metadata={**{name: value for name, value in labels.items() if value is not None}, SESSION_NOTE: note},
    )


def session_message_from_stored(
    stored: StoredMessage, session_id: str, user_id: str, conversation_number: int
) -> MessageData | None:
    """Convert a log message to its session's message. Return None if users do not see it.

    `conversation_number` is the conversation's number in the session.
    """
    metadata = stored.metadata or {}
    note = metadata.get(SESSION_NOTE) if isinstance(metadata.get(SESSION_NOTE), Mapping) else None
    if stored.role not in _SESSION_ROLES or (note is None and (stored.visibility != "user" or not stored.text.strip())):
        return None
    note = note or {}
    return MessageData(
        id=stored.id,
        session_id=session_id,
        role=_SESSION_ROLES[stored.role],
        content=stored.text,
        user_id=user_id,
        route=metadata.get("route"),
        state=metadata.get("state"),
        tool_calls=tuple(note.get("tool_calls") or ()),
        event=note.get("event"),
        created_at=stored.created_at,
        position=conversation_number * _POSITIONS_PER_CONVERSATION + stored.seq,
    )


def split_position(position: int | None, default: tuple[int, int]) -> tuple[int, int]:
    """Split a position into the conversation's number and the seq in it."""
    return default if position is None else divmod(position, _POSITIONS_PER_CONVERSATION)


def binding_values(binding: Binding, since: int | None) -> dict[str, Any]:
    """Return the values to bind for a binding. It applies to events after the position `since`."""
    users = {scope.user_id for scope in binding.conversation_scope}
    single_user_id = None if len(users) != 1 or ANY in users else users.pop()
    windowed = int(binding.extraction_policy.windowed)
    return row_values(binding, windowed=windowed, single_user_id=single_user_id, since=since)


def vector_to_floats(vector: bytes) -> tuple[float, ...]:
    """Convert half-precision bytes to floats.

    >>> vector_to_floats(bytes.fromhex("003c00c0"))
    (1.0, -2.0)
    """
    return struct.unpack(f"<{len(vector) // 2}e", vector)
