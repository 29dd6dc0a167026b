"""`RedisAdapter`: sessions in Redis, and the keys they are stored under."""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import unquote

from redis.asyncio import Redis, RedisCluster

from tellback.errors import ConfigurationError, NotFoundError, SessionConflictError
from tellback.sessions import records
from tellback.sessions.records import format_time, message_from_record, session_from_record
from tellback.sessions.redis import scripts
from tellback.sessions.redis.connection import RedisConnection
from tellback.sessions.redis.scripts import FIELDS, SAVED_FIELDS, Script
from tellback.sessions.storage import StorageAdapter, Ttl, resolve_ttls
from tellback.types.conversations import MessageData, SessionData, SessionStatus
from tellback.types.jsontext import is_storable

MAX_PREFIX_LENGTH = 200

_GLOB_CHARACTERS = frozenset("*?[]\\^")
_ESCAPES = str.maketrans({mark: f"%{ord(mark):02X}" for mark in "%:{}"})

PAGE_SIZE = 100
"""How many messages or sessions one request reads: Redis handles no other request in the meantime."""

_TIME_LENGTH = 32


@dataclass(frozen=True, slots=True)
class RedisKeys:
    """The keys of one prefix.

    Colons in ids are escaped, so an id cannot produce a key of another kind or prefix. Braces are escaped, too, because
    the text between them determines a key's slot in a cluster.

    >>> RedisKeys("chat:").session("a:b")
    b'chat:session:a%3Ab'
    """

    prefix: str

    def session(self, id: str) -> bytes:
        """Return the key of a session's fields: a hash."""
        return self._key("session", id)

    def messages(self, session_id: str) -> bytes:
        """Return the key of its messages: a stream whose ids begin with the positions."""
        return self._key("messages", session_id)

    def user(self, user_id: str) -> bytes:
        """Return the key of a user's sessions: a sorted set, ordered by creation."""
        return self._key("user", user_id)

    def active(self, user_id: str) -> bytes:
        """Return the key of a user's active sessions."""
        return self._key("active", user_id)

    def new_reply(self) -> bytes:
        """Return a key for a change's reply. It is stored briefly, so a repeated request does not repeat the change."""
        return self._key("done", uuid.uuid4().hex)

    def messages_pattern(self) -> bytes:
        """Return the pattern of messages' keys."""
        return self._key("messages", "") + b"*"

    def users_pattern(self) -> bytes:
        """Return the pattern of users' keys."""
        return self._key("user", "") + b"*"

    def parse_user_id(self, key: bytes) -> str:
        """Return the user id in a key."""
        return unquote(key.rpartition(b":")[2].decode())

    def _key(self, kind: str, id: str) -> bytes:
        return f"{self.prefix}{kind}:{id.translate(_ESCAPES)}".encode()


def validate_key_prefix(value: Any) -> str:
    """Check a key prefix: a string without control characters and without glob characters."""
    if type(value) is not str or not 0 < len(value) <= MAX_PREFIX_LENGTH or not is_storable(value):
        raise ConfigurationError(
            f"key_prefix must be a string of 1 to {MAX_PREFIX_LENGTH} characters, got {value!r:.80}."
        )
    if not value.isprintable() or _GLOB_CHARACTERS & set(value):
        raise ConfigurationError(f"key_prefix must not contain control characters or *?[]\\^, got {value!r}.")
    return value


class _RedisStorage:
    """The sessions of one prefix, and their times to live."""

    def __init__(
        self, connection: RedisConnection, keys: RedisKeys, session_ttl: float | None, message_ttl: float | None
    ) -> None:
        self.connection = connection
        self.keys = keys
        self._ttls_ms = (_format_ttl(session_ttl), _format_ttl(message_ttl))

    async def initialize(self) -> None:
        """Check that scripts and keys work. There is nothing to create."""
        keys = self.keys
        async with self.connection.initialization():
            probed = [keys.session("a"), keys.messages("b"), keys.user("c"), keys.new_reply()]
            await self.connection.run(scripts.PROBE, probed, ())

    async def disconnect(self) -> None:
        await self.connection.close()

    async def create(self, session: SessionData) -> SessionData:
        record = records.encode_valid_session(session)
        outcome, *rest = await self._change(scripts.CREATE, session.id, session.user_id, *_session_values(record))
        if outcome == "conflict":
            raise SessionConflictError(session.id, 0, int(rest[0]))
        return session_from_record(record)

    async def get(self, session_id: str) -> SessionData | None:
        row = await self.connection.read("HMGET", self.keys.session(session_id), *FIELDS)
        return _decode_session(session_id, row)

    async def find_active(self, user_id: str, agent_name: str | None) -> SessionData | None:
        async with aclosing(self._listed_sessions(user_id, self.keys.active(user_id), "+", 10)) as listed:
            async for each in listed:
                if each.status == "active" and agent_name in (None, each.agent_name):
                    return each
        return None

    async def list_by_user(self, user_id: str, limit: int, before: SessionData | None) -> list[SessionData]:
        key, end = self.keys.user(user_id), "+" if before is None else f"({_list_member(before)}"
        found: list[SessionData] = []
        async with aclosing(self._listed_sessions(user_id, key, end, min(PAGE_SIZE, limit))) as listed:
            async for each in listed:
                found.append(each)
                if len(found) == limit:
                    break
        return found

    async def update_status(
        self, session_id: str, status: SessionStatus, at: datetime, completed_at: datetime | None
    ) -> SessionData | None:
        completed = "" if completed_at is None else format_time(completed_at)
        outcome, *rest = await self._change(scripts.UPDATE_STATUS, session_id, None, status, format_time(at), completed)
        if outcome == "missing":
            return None
        # A repeated request returns only that the change was made.
        return _decode_session(session_id, rest[0]) if rest else await self.get(session_id)

    async def delete(self, session_id: str) -> bool:
        _, was_there = await self._change(scripts.DELETE, session_id, None)
        return bool(was_there)

    async def save(self, session: SessionData, messages: Sequence[MessageData]) -> SessionData:
        record = records.encode_valid_session(session)
        message_records = [records.encode_message(each) for each in messages]
        outcome, *rest = await self._change(
            scripts.SAVE,
            session.id,
            session.user_id,
            session.version - 1,
            message_records[-1]["created_at"] if message_records else "",
            *_session_values(record),
            *map(_dump_message, message_records),
        )
        if outcome == "conflict":
            raise SessionConflictError(session.id, session.version - 1, int(rest[0]))
        return session_from_record({**record, **_decode_row(SAVED_FIELDS, rest[0])})

    async def add(self, messages: Sequence[MessageData], at: datetime) -> list[MessageData]:
        message_records = [records.encode_message(each) for each in messages]
        session_id, newest = messages[0].session_id, message_records[-1]["created_at"]
        outcome, *rest = await self._change(
            scripts.ADD_MESSAGES,
            session_id,
            messages[0].user_id,
            format_time(at),
            newest,
            *map(_dump_message, message_records),
        )
        if outcome == "missing":
            raise NotFoundError("session", session_id)
        return records.positioned_messages(message_records, int(rest[0]))

    async def list_by_session(
        self, session_id: str, limit: int, before: int | None, after: int | None
    ) -> list[MessageData]:
        low, high, forward = (after or 0) + 1, None if before is None else before - 1, after is not None
        found: list[MessageData] = []
        while len(found) < limit and (high is None or low <= high):
            size = min(PAGE_SIZE, limit - len(found))
            scanned, last, page = await self._message_page(session_id, low, high, size, forward=forward)
            found.extend(page)
            if scanned < size:
                break
            low, high = (last + 1, high) if forward else (low, last - 1)
        return found if forward else found[::-1]

    async def purge_expired(self) -> int:
        """Delete expired messages, and remove expired sessions from lists; Redis deletes the sessions themselves."""
        keys, purged = self.keys, 0
        for pattern, purge in (
            (keys.messages_pattern(), self._purge_messages),
            (keys.users_pattern(), self._remove_stale_members),
        ):
            async for key in self.connection.scan(pattern):
                if b":" not in key[len(pattern) - 1 :]:  # otherwise the key has a longer prefix
                    purged += await purge(key)
        return purged

    async def _change(self, script: Script, id: str, expected_user: str | None, *values: Any) -> list[Any]:
        """Run a script that changes a session, and return its reply. Retry if the session belongs to another user."""
        user, reply_key = expected_user or "", self.keys.new_reply()
        while True:
            keys = (
                self.keys.session(id),
                self.keys.messages(id),
                self.keys.user(user),
                self.keys.active(user),
                reply_key,
            )
            reply: list[Any] = await self.connection.run(
                script, keys, (user, id, *self._ttls_ms, *values), changes=True
            )
            outcome = reply[0].decode()
            if outcome == "wrong_user":
                user = reply[1].decode()
                continue
            return [outcome, *reply[1:]]

    async def _listed_sessions(
        self, user_id: str, key: bytes, before: str, page_size: int
    ) -> AsyncGenerator[SessionData, None]:
        """Yield the existing sessions of a user's list, newest first."""
        while found := await self.connection.read("ZREVRANGEBYLEX", key, before, "-", "LIMIT", 0, page_size):
            members = [member.decode() for member in found]
            rows = await self._read_listed_sessions(user_id, members, wants_fields=True)
            for member, row in zip(members, rows, strict=True):
                session = _decode_session(_session_id_of(member), row) if row else None
                if session is not None:
                    yield session
            before = f"({members[-1]}"

    async def _read_listed_sessions(self, user_id: str, members: list[str], *, wants_fields: bool) -> list[Any]:
        """Return the rows for members of a user's list, and remove members whose sessions are gone."""
        keys = [self.keys.user(user_id), self.keys.active(user_id)]
        keys += [self.keys.session(_session_id_of(member)) for member in members]
        values = [user_id, int(wants_fields), *members]
        rows: list[Any] = await self.connection.run(scripts.READ_SESSIONS, keys, values)
        return rows

    async def _message_page(
        self, session_id: str, low: int, high: int | None, size: int, *, forward: bool
    ) -> tuple[int, int, list[MessageData]]:
        """Return how many messages were read, the last position, and those that have not expired."""
        ends = [str(low), "+" if high is None else str(high)]
        command = "XRANGE" if forward else "XREVRANGE"
        scanned, last, *rest = await self.connection.run(
            scripts.READ_MESSAGES,
            [self.keys.messages(session_id)],
            [command, *ends[:: 1 if forward else -1], size],
        )
        pairs = zip(rest[::2], rest[1::2], strict=True)
        return scanned, _parse_position(last), [_decode_message(id, text) for id, text in pairs]

    async def _purge_messages(self, key: bytes) -> int:
        purged, start = 0, b"-"
        while True:
            deleted, start = await self.connection.run(scripts.PURGE_MESSAGES, [key], [start, PAGE_SIZE])
            purged += int(deleted)
            if not start:
                return purged

    async def _remove_stale_members(self, key: bytes) -> int:
        user_id, after = self.keys.parse_user_id(key), "-"
        while found := await self.connection.read("ZRANGEBYLEX", key, after, "+", "LIMIT", 0, PAGE_SIZE):
            members = [member.decode() for member in found]
            await self._read_listed_sessions(user_id, members, wants_fields=False)
            after = f"({members[-1]}"
        return 0


class RedisAdapter(StorageAdapter):
    """Sessions in Redis, for many conversations at once.

    `redis` is a client of `redis.asyncio`, which its owner closes, or a URL. Keys begin with `key_prefix`. Sessions
    expire `session_ttl` after their last change and messages `message_ttl` after they were stored (seconds or a
    timedelta; None means never). In a cluster all keys must be in one slot: give `key_prefix` a hash tag, such as
    `"{agent}:"`.

    A turn is one script, so it is stored completely or not at all, also on disk. Acknowledged changes are on disk with
    `appendonly yes` and `appendfsync always`. With `appendfsync everysec`, the default, a power loss may lose the
    changes of the last second; without `appendonly`, all changes since the last snapshot. A failover loses changes that
    the replica has not received. A server that evicts keys (`maxmemory-policy`) may evict sessions: use `noeviction`.
    Redis 5 or later is required.

    >>> adapter = RedisAdapter("redis://localhost:6379/0", key_prefix="chat:", session_ttl=24 * 60 * 60)
    >>> adapter
    RedisAdapter(Redis at localhost:6379, key_prefix='chat:')
    """

    def __init__(
        self,
        redis: Redis | RedisCluster | str,
        *,
        key_prefix: str = "agent:",
        session_ttl: Ttl = timedelta(days=7),
        message_ttl: Ttl = timedelta(days=30),
    ) -> None:
        keys = RedisKeys(validate_key_prefix(key_prefix))
        storage = _RedisStorage(RedisConnection(redis), keys, *resolve_ttls(session_ttl, message_ttl))
        self._description = f"{storage.connection.place}, key_prefix={key_prefix!r}"
        super().__init__(storage)

    def __repr__(self) -> str:
        return f"RedisAdapter({self._description})"


def _format_ttl(seconds: float | None) -> str:
    return "" if seconds is None else str(max(1, math.ceil(seconds * 1000)))


def _session_values(record: dict[str, Any]) -> list[str]:
    """Return a session's fields for a script. None becomes the empty string, which no field accepts as a value."""
    return ["" if record[name] is None else str(record[name]) for name in FIELDS]


def _dump_message(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False)


def _decode_row(names: tuple[str, ...], row: list[bytes | None]) -> dict[str, Any]:
    return {name: value and value.decode() for name, value in zip(names, row, strict=True)}


def _decode_session(id: str, row: list[bytes | None]) -> SessionData | None:
    record = _decode_row(FIELDS, row)
    return None if record["version"] is None else session_from_record({**record, "id": id})


def _decode_message(stream_id: bytes, text: bytes) -> MessageData:
    return replace(message_from_record(json.loads(text)), position=_parse_position(stream_id))


def _parse_position(stream_id: bytes) -> int:
    return int(stream_id.partition(b"-")[0] or 0)


def _list_member(session: SessionData) -> str:
    return f"{format_time(session.created_at)} {session.id}"


def _session_id_of(member: str) -> str:
    return member[_TIME_LENGTH + 1 :]
