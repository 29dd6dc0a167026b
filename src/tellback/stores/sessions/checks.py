"""What may be passed to an adapter. Ids go into queries, so they are texts and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from tellback.errors import ConfigurationError, InvalidArgumentError
from tellback.types.jsontext import is_storable
from tellback.types.sessions import MESSAGE_ROLES, SESSION_STATUSES, MessageData, SessionData
from tellback.types.times import as_utc

ID_LENGTH = 200
MOST = 2**31 - 1
MOST_COUNTED = 2**53
"""The greatest number that every database counts exactly."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


def id_of(what: str, value: Any) -> str:
    """A text that is not empty, not too long, and that every database can hold."""
    if type(value) is not str or not value.strip():
        raise InvalidArgumentError(f"{what} is a text that is not empty, not {value!r:.80}.")
    return _storable(what, value, ID_LENGTH)


def optional_id(what: str, value: Any) -> str | None:
    """The same, or None."""
    return None if value is None else id_of(what, value)


def limit_of(value: Any) -> int:
    """How many to give at most; None is all."""
    if value is None:
        return MOST
    if type(value) is not int or not 1 <= value <= MOST:
        raise InvalidArgumentError(f"limit is a whole number from 1, not {value!r:.80}.")
    return value


def position_of(what: str, value: Any) -> int | None:
    """The position of a message, or None."""
    if value is not None and (type(value) is not int or not 0 <= value <= 2**62):
        raise InvalidArgumentError(f"{what} is a message's position, not {value!r:.80}.")
    return value


def session(given: Any) -> SessionData:
    """A session to store."""
    if not isinstance(given, SessionData):
        raise InvalidArgumentError(f"a session is a SessionData, not {given!r:.80}.")
    id_of("a session's id", given.id)
    optional_id("a session's user_id", given.user_id)
    for name in ("agent_name", "current_route", "current_state"):
        optional_id(f"a session's {name}", getattr(given, name))
    status(given.status)
    for name in ("version", "message_count"):
        count = getattr(given, name)
        if type(count) is not int or not 0 <= count <= MOST_COUNTED:
            raise InvalidArgumentError(f"a session's {name} is a whole number from 0 to 2**53, not {count!r:.80}.")
    for name in ("created_at", "updated_at"):
        moment(f"a session's {name}", getattr(given, name))
    for name in ("last_message_at", "completed_at"):
        if getattr(given, name) is not None:
            moment(f"a session's {name}", getattr(given, name))
    return given


def moment(what: str, given: Any) -> datetime:
    """A datetime that says its timezone."""
    try:
        if isinstance(given, datetime) and given.tzinfo is not None:
            return as_utc(given)
    except OverflowError:
        pass  # at the end of the calendar, in another timezone
    raise InvalidArgumentError(f"{what} is a datetime with a timezone, not {given!r:.80}.")


def moments(*, at: Any, completed_at: Any = None) -> None:
    """When something changes, and when it was completed, if it was."""
    moment("at", at)
    if completed_at is not None:
        moment("completed_at", completed_at)


def messages(given: Sequence[MessageData], session_id: str | None = None) -> list[MessageData]:
    """Messages of one session to store."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidArgumentError(f"messages are a list of MessageData, not {given!r:.80}.")
    found = list(given)
    for each in found:
        if not isinstance(each, MessageData):
            raise InvalidArgumentError(f"a message is a MessageData, not {each!r:.80}.")
        id_of("a message's id", each.id)
        id_of("a message's session_id", each.session_id)
        for name in ("user_id", "route", "state"):
            optional_id(f"a message's {name}", getattr(each, name))
        if each.role not in MESSAGE_ROLES:
            raise InvalidArgumentError(f"a message's role is {' or '.join(MESSAGE_ROLES)}, not {each.role!r:.80}.")
        if not isinstance(each.content, str) or not is_storable(each.content):
            raise InvalidArgumentError(f"a message's content is a text without NUL, not {each.content!r:.80}.")
        moment("a message's created_at", each.created_at)
        session_id = session_id or each.session_id
        if each.session_id != session_id:
            raise InvalidArgumentError(f"the messages are of one session: {each.session_id!r} is not {session_id!r}.")
    return found


def status(given: Any) -> Any:
    """One of the three."""
    if given not in SESSION_STATUSES:
        raise InvalidArgumentError(f"a session's status is {' or '.join(SESSION_STATUSES)}, not {given!r:.80}.")
    return given


def ttl(what: str, given: Any) -> float | None:
    """A time to live in seconds, from a number or a timedelta; None is for ever."""
    if isinstance(given, timedelta):
        given = given.total_seconds()
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given <= 1e10:
        raise ConfigurationError(f"{what} is a time in seconds or a timedelta, not {given!r:.80}.")
    return float(given)


def has_stray_password(url: str) -> bool:
    """Whether a password with unescaped signs ends the part of a URL that it stands in, and is taken for a host.

    >>> has_stray_password("redis://app:4711/x@host"), has_stray_password("redis://app:4711%2Fx@host/0")
    (True, False)
    """
    parts = urlsplit(url)
    return "@" not in parts.netloc and "@" in f"{parts.path}{parts.query}{parts.fragment}"


def names(what: str, given: Mapping[str, str] | None, known: Mapping[str, str]) -> dict[str, str]:
    """Names of tables, collections, indices or fields: the known ones, with those that were given instead.

    >>> names("tables", {"sessions": "chats"}, {"sessions": "agent_sessions", "messages": "agent_messages"})
    {'sessions': 'chats', 'messages': 'agent_messages'}
    """
    if not isinstance(given, Mapping | None):
        raise ConfigurationError(f"{what} is a mapping of names, not {given!r:.80}.")
    unknown = (given or {}).keys() - known.keys()
    if unknown:
        raise ConfigurationError(f"{what} has {', '.join(known)}, but not {', '.join(map(str, unknown))}.")
    found = {**known, **(given or {})}
    for name, value in found.items():
        if not isinstance(value, str) or not _NAME.fullmatch(value):
            raise ConfigurationError(
                f"{what}[{name!r}] is a name of letters, digits and underscores, not {value!r:.80}."
            )
    if len(set(found.values())) < len(found):
        raise ConfigurationError(f"{what} gives two things one name: {', '.join(found.values())}.")
    return found


def _storable(what: str, value: str, limit: int) -> str:
    if len(value) > limit:
        raise InvalidArgumentError(f"{what} has {len(value)} characters; {limit} is the limit.")
    if not is_storable(value):
        raise InvalidArgumentError(f"{what} holds characters that cannot be stored: {value!r:.80}.")
    return value
