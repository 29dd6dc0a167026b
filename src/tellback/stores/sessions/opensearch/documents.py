"""Sessions and messages as documents, and what becomes of them when something is stored."""

from __future__ import annotations

import hashlib
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tellback.stores.sessions import given
from tellback.stores.sessions.records import (
    EXPIRES,
    Fields,
    message_of,
    session_of,
)
from tellback.types.sessions import MessageData, SessionData

OURS = "tellback"
"""The field that holds what is nobody's but ours."""
FOREVER = 2**53
KEPT_WRITES = 32

_PLAIN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,199}")

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Held:
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

    def living(self, now: int) -> SessionData | None:
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
    if _PLAIN_ID.fullmatch(session_id):
        return session_id
    return "~" + hashlib.sha256(session_id.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Layout:
    """How documents are written: the names of indices and fields, and the times to live, in milliseconds."""

    sessions_index: str
    messages_index: str
    sessions: Fields
    messages: Fields
    session_ttl: int | None
    message_ttl: int | None

    def stored(self, held: Held | None, id: str, session: SessionData, new: Sequence[MessageData], now: int) -> Held:
        """What is held after a session is stored and messages are appended to it."""
        base = Held(id) if held is None or held.deleted else held
        first, until = (base.first, base.until) if base.until > now else (base.last + 1, 0)
        added = FOREVER if self.message_ttl is None else now + self.message_ttl
        placed = [replace(each, position=base.last + n) for n, each in enumerate(new, start=1)]
        return replace(
            base,
            session=session,
            expires=None if self.session_ttl is None else now + self.session_ttl,
            first=first,
            last=base.last + len(new),
            until=max(until, added) if new else until,
            pending=tuple(self.message_document(each, added, session.user_id) for each in placed),
        )

    def session_document(self, held: Held, now: int) -> dict[str, Any]:
        """A session's document."""
        theirs = self.sessions
        own: dict[str, Any] = {theirs["id"]: held.id}
        if held.session is not None:
            own = theirs.to_theirs(given.session(held.session))
        if held.expires is not None:
            own[theirs[EXPIRES]] = held.expires
        ours: dict[str, Any] = {
            "record": "deleted" if held.deleted else "husk" if held.session is None else "session",
            **{name: getattr(held, name) for name in ("life", "first", "last", "until", "writes", "pending")},
            "pending_count": len(held.pending),
            "written_at": now,
        }
        times = [each[self.messages[EXPIRES]] for each in held.pending if self.messages[EXPIRES] in each]
        if times:
            ours["pending_until"] = max(times)
        return {**own, OURS: ours}

    def held_of(self, source: Document) -> Held:
        """What a session's document says. What was left out of it is as if it were nothing."""
        record = self.sessions.to_ours(source)
        ours = source.get(OURS) or {}
        return Held(
            id=record["id"],
            session=session_of(record) if ours.get("record") == "session" else None,
            expires=record.get(EXPIRES),
            deleted=ours.get("record") == "deleted",
            life=ours.get("life", ""),
            first=ours.get("first", 1),
            last=ours.get("last", 0),
            until=ours.get("until", 0),
            pending=tuple(ours.get("pending") or ()),
            writes=tuple(ours.get("writes") or ()),
        )

    def given_back(self, held: Held | None) -> SessionData:
        """The session that was stored, as it is read."""
        assert held is not None
        session = self.held_of(self.session_document(held, 0)).session
        assert session is not None
        return session

    def message_document(self, message: MessageData, until: int, owner: str | None) -> dict[str, Any]:
        """A message's document. It is found among those of its user, or else of its session's."""
        found = self.messages.to_theirs(given.message(message))
        if until != FOREVER:
            found[self.messages[EXPIRES]] = until
        return {**found, OURS: {"owner": message.user_id if message.user_id is not None else owner}}

    def message_of(self, document: Document) -> MessageData:
        """The other way."""
        return message_of(self.messages.to_ours(document))

    def position_of(self, document: Document) -> int:
        """The position that a message's document says."""
        position: int = document[self.messages["position"]]
        return position

    def has_time(self, document: Document, now: int) -> bool:
        """Whether a message is not past its time."""
        until = document.get(self.messages[EXPIRES])
        return until is None or until > now
