"""`RedisAdapter`: sessions in Redis."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from redis.asyncio import Redis, RedisCluster

from tellback.errors import NotFoundError, SessionConflictError
from tellback.stores.sessions import checks, given
from tellback.stores.sessions.records import iso_time, message_of, session_of
from tellback.stores.sessions.redis import scripts
from tellback.stores.sessions.redis.keys import Keys, prefix
from tellback.stores.sessions.redis.link import Link
from tellback.stores.sessions.redis.scripts import FIELDS, KEPT, Script
from tellback.types.sessions import MessageData, SessionData, SessionStatus

PAGE = 100
"""How many messages or sessions are read at once: Redis does nothing else meanwhile."""

_ISO_LENGTH = 32


class _Storage:
    """Sessions of one prefix, and how long they live."""

    def __init__(self, link: Link, keys: Keys, session_ttl: float | None, message_ttl: float | None) -> None:
        self.link = link
        self.keys = keys
        self._times = (_milliseconds(session_ttl), _milliseconds(message_ttl))

    async def change(self, script: Script, id: str, owner: str | None, *values: Any) -> list[Any]:
        """What a change of a session gave. `owner` is whose it is thought to be; Redis knows better."""
        user, done = owner or "", self.keys.done()
        while True:
            keys = (self.keys.session(id), self.keys.messages(id), self.keys.user(user), self.keys.active(user), done)
            found: list[Any] = await self.link.run(script, keys, (user, id, *self._times, *values), changes=True)
            outcome = found[0].decode()
            if outcome == "owner":
                user = found[1].decode()
                continue
            return [outcome, *found[1:]]


class _Sessions:
    def __init__(self, storage: _Storage) -> None:
        self._storage = storage

    async def create(self, session: SessionData) -> SessionData:
        record = given.session(session)
        outcome, *rest = await self._storage.change(scripts.CREATE, session.id, session.user_id, *_values(record))
        if outcome == "conflict":
            raise SessionConflictError(session.id, 0, int(rest[0]))
        return session_of(record)

    async def get(self, session_id: str) -> SessionData | None:
        checks.id_of("session_id", session_id)
        row = await self._storage.link.ask("HMGET", self._storage.keys.session(session_id), *FIELDS)
        return _session(session_id, row)

    async def find_active(self, user_id: str, agent_name: str | None = None) -> SessionData | None:
        checks.id_of("user_id", user_id)
        checks.optional_id("agent_name", agent_name)
        key, before = self._storage.keys.active(user_id), "+"
        while True:
            members, found = await self._page(user_id, key, before, 10)
            for each in found:
                if each.status == "active" and agent_name in (None, each.agent_name):
                    return each
            if not members:
                return None
            before = f"({members[-1]}"

    async def of_user(
        self, user_id: str, *, limit: int | None = None, before: SessionData | None = None
    ) -> list[SessionData]:
        checks.id_of("user_id", user_id)
        most = checks.limit_of(limit)
        key, edge = self._storage.keys.user(user_id), "+"
        if before is not None:
            edge = f"({_member(checks.session(before))}"
        found: list[SessionData] = []
        while len(found) < most:
            members, page = await self._page(user_id, key, edge, min(PAGE, most - len(found)))
            found.extend(page)
            if not members:
                break
            edge = f"({members[-1]}"
        return found

    async def update_status(
        self, session_id: str, status: SessionStatus, *, at: datetime, completed_at: datetime | None
    ) -> SessionData | None:
        checks.id_of("session_id", session_id)
        checks.status(status)
        completed = "" if completed_at is None else given.moment("completed_at", completed_at)
        outcome, *rest = await self._storage.change(
            scripts.UPDATE_STATUS, session_id, None, status, given.moment("at", at), completed
        )
        if outcome == "missing":
            return None
        # A change that was sent twice tells only that it was made.
        return _session(session_id, rest[0]) if rest else await self.get(session_id)

    async def delete(self, session_id: str) -> bool:
        checks.id_of("session_id", session_id)
        _, was_there = await self._storage.change(scripts.DELETE, session_id, None)
        return bool(was_there)

    async def _page(self, user_id: str, key: bytes, before: str, size: int) -> tuple[list[str], list[SessionData]]:
        """Members of a user's list, and those of them that are there."""
        found = await self._storage.link.ask("ZREVRANGEBYLEX", key, before, "-", "LIMIT", 0, size)
        members = [member.decode() for member in found]
        rows = await _listed(self._storage, user_id, members, wants_fields=True)
        sessions = (_session(_id_of(member), row) for member, row in zip(members, rows, strict=True) if row)
        return members, [each for each in sessions if each is not None]


class _Messages:
    def __init__(self, storage: _Storage) -> None:
        self._storage = storage

    async def add(self, messages: Sequence[MessageData], *, at: datetime) -> list[MessageData]:
        new = checks.messages(messages)
        if not new:
            return []
        records = [given.message(each) for each in new]
        session_id, newest = new[0].session_id, records[-1]["created_at"]
        outcome, *rest = await self._storage.change(
            scripts.ADD, session_id, new[0].user_id, given.moment("at", at), newest, *map(_text, records)
        )
        if outcome == "missing":
            raise NotFoundError("session", session_id)
        first = int(rest[0])
        return [replace(message_of(record), position=first + n) for n, record in enumerate(records)]

    async def of_session(
        self, session_id: str, *, limit: int | None = None, before: int | None = None, after: int | None = None
    ) -> list[MessageData]:
        checks.id_of("session_id", session_id)
        most = checks.limit_of(limit)
        until, since = checks.position_of("before", before), checks.position_of("after", after)
        low, high = (since or 0) + 1, None if until is None else until - 1
        forward = since is not None
        found: list[MessageData] = []
        while len(found) < most and (high is None or low <= high):
            size = min(PAGE, most - len(found))
            seen, last, page = await self._page(session_id, low, high, size, forward=forward)
            found.extend(page)
            if seen < size:
                break
            low, high = (last + 1, high) if forward else (low, last - 1)
        return found if forward else found[::-1]

    async def _page(
        self, session_id: str, low: int, high: int | None, size: int, *, forward: bool
    ) -> tuple[int, int, list[MessageData]]:
        """How many were looked at, the last one's position, and those that have time left."""
        ends = [str(low), "+" if high is None else str(high)]
        command = "XRANGE" if forward else "XREVRANGE"
        seen, last, *rest = await self._storage.link.run(
            scripts.MESSAGES, [self._storage.keys.messages(session_id)], [command, *ends[:: 1 if forward else -1], size]
        )
        pairs = zip(rest[::2], rest[1::2], strict=True)
        return seen, _position(last), [_message(id, text) for id, text in pairs]


class RedisAdapter:
    """Sessions in Redis, for many conversations at once.

    `redis` is a client of `redis.asyncio`, which stays its owner's to close, or a URL. Keys begin with `key_prefix`. A
    session lives for `session_ttl` after its last change, and a message for `message_ttl` (seconds or a timedelta;
    None is for ever). In a cluster the keys must be in one slot: give `key_prefix` a hash tag, as in `"{agent}:"`.

    A turn is one script, so it is stored whole or not at all, also on the disk that a server comes back from. What was
    acknowledged is on that disk if Redis has `appendonly yes` and `appendfsync always`. With `appendfsync everysec`,
    which is usual, a power cut takes up to a second of it; without `appendonly`, all since the last snapshot. What
    replicas have not received is lost when one of them takes over. A server that evicts keys (`maxmemory-policy`) may
    evict sessions: use `noeviction`. It needs Redis 5 or later.

    >>> adapter = RedisAdapter("redis://localhost:6379/0", key_prefix="chat:", session_ttl=24 * 60 * 60)
    >>> adapter
    RedisAdapter(Redis at localhost:6379, key_prefix='chat:')
    """

    def __init__(
        self,
        redis: Redis | RedisCluster | str,
        *,
        key_prefix: str = "agent:",
        session_ttl: timedelta | float | None = timedelta(days=7),
        message_ttl: timedelta | float | None = timedelta(days=30),
    ) -> None:
        self._link = Link(redis)
        self._storage = _Storage(
            self._link,
            Keys(prefix(key_prefix)),
            checks.ttl("session_ttl", session_ttl),
            checks.ttl("message_ttl", message_ttl),
        )
        self.session_repository = _Sessions(self._storage)
        self.message_repository = _Messages(self._storage)

    def __repr__(self) -> str:
        return f"RedisAdapter({self._link.place}, key_prefix={self._storage.keys.prefix!r})"

    async def initialize(self) -> None:
        """Connect, and see whether scripts and keys can be used. There is nothing to make."""
        keys = self._storage.keys
        await self._link.open(scripts.PROBE, [keys.session("a"), keys.messages("b"), keys.user("c"), keys.done()])

    async def disconnect(self) -> None:
        """Give up the connections; a client that was passed in stays open."""
        await self._link.close()

    async def save(self, session: SessionData, messages: Sequence[MessageData]) -> SessionData:
        """Store a session after a turn, and the messages of that turn."""
        record = given.session(session)
        records = [given.message(each) for each in checks.messages(messages, session.id)]
        newest = records[-1]["created_at"] if records else ""
        outcome, *rest = await self._storage.change(
            scripts.SAVE,
            session.id,
            session.user_id,
            session.version - 1,
            newest,
            *_values(record),
            *map(_text, records),
        )
        if outcome == "conflict":
            raise SessionConflictError(session.id, session.version - 1, int(rest[0]))
        return session_of({**record, **_decoded(KEPT, rest[0])})

    async def purge_expired(self) -> int:
        """Delete messages that are past their time; Redis deletes sessions by itself, and here they leave the lists."""
        keys, gone = self._storage.keys, 0
        for pattern, tidy in ((keys.all_messages(), self._purge), (keys.all_users(), self._tidy)):
            async for key in self._link.scan(pattern):
                if b":" not in key[len(pattern) - 1 :]:  # otherwise it is of a longer prefix
                    gone += await tidy(key)
        return gone

    async def _purge(self, key: bytes) -> int:
        gone, start = 0, b"-"
        while True:
            taken, start = await self._link.run(scripts.PURGE, [key], [start, PAGE])
            gone += int(taken)
            if not start:
                return gone

    async def _tidy(self, key: bytes) -> int:
        user_id, after = self._storage.keys.user_of(key), "-"
        while found := await self._link.ask("ZRANGEBYLEX", key, after, "+", "LIMIT", 0, PAGE):
            members = [member.decode() for member in found]
            await _listed(self._storage, user_id, members, wants_fields=False)
            after = f"({members[-1]}"
        return 0


async def _listed(storage: _Storage, user_id: str, members: list[str], *, wants_fields: bool) -> list[Any]:
    """The rows of members of a user's list; those that are gone are taken off it."""
    if not members:
        return []
    keys = [storage.keys.user(user_id), storage.keys.active(user_id)]
    keys += [storage.keys.session(_id_of(member)) for member in members]
    rows: list[Any] = await storage.link.run(scripts.SESSIONS, keys, [user_id, int(wants_fields), *members])
    return rows


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else str(max(1, math.ceil(seconds * 1000)))


def _values(record: dict[str, Any]) -> list[str]:
    """A session's fields for a script: nothing is the empty text, which no field can be."""
    return ["" if record[name] is None else str(record[name]) for name in FIELDS]


def _text(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False)


def _decoded(names: tuple[str, ...], row: list[bytes | None]) -> dict[str, Any]:
    return {name: value and value.decode() for name, value in zip(names, row, strict=True)}


def _session(id: str, row: list[bytes | None]) -> SessionData | None:
    record = _decoded(FIELDS, row)
    return None if record["version"] is None else session_of({**record, "id": id})


def _message(stream_id: bytes, text: bytes) -> MessageData:
    return replace(message_of(json.loads(text)), position=_position(stream_id))


def _position(stream_id: bytes) -> int:
    return int(stream_id.partition(b"-")[0] or 0)


def _member(session: SessionData) -> str:
    return f"{iso_time(session.created_at)} {session.id}"


def _id_of(member: str) -> str:
    return member[_ISO_LENGTH + 1 :]
