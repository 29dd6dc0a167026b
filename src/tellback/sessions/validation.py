"""Validation of what is passed to a session adapter: ids, sessions, messages, and an adapter's options."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from tellback.errors import ConfigurationError, InvalidArgumentError
from tellback.types.conversations import MESSAGE_ROLES, SESSION_STATUSES, MessageData, SessionData
from tellback.types.ids import as_utc
from tellback.types.jsontext import is_storable
from tellback.validation import validate_choice, validate_list, validate_name

MAX_LIMIT = 2**31 - 1
MAX_COUNT = 2**53
"""The largest number that every database counts exactly."""

_NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


def validate_id(label: str, value: Any) -> str:
    """Check an id or a name. Reject subclasses of `str`: they may be formatted differently in keys and queries."""
    if type(value) is not str and isinstance(value, str):
        raise InvalidArgumentError(f"{label} must be a str, got {value!r:.80} of type {type(value).__name__}.")
    return validate_name(label, value)


def validate_optional_id(label: str, value: Any) -> str | None:
    """Check an id or None."""
    return None if value is None else validate_id(label, value)


def validate_limit(value: Any) -> int:
    """Return the limit as a number; None means all."""
    if value is None:
        return MAX_LIMIT
    if type(value) is not int or not 1 <= value <= MAX_LIMIT:
        raise InvalidArgumentError(f"limit must be an integer of at least 1, got {value!r:.80}.")
    return value


def validate_position(label: str, value: Any) -> int | None:
    """Check the position of a message, or None."""
    if value is not None and (type(value) is not int or not 0 <= value <= 2**62):
        raise InvalidArgumentError(
            f"{label} must be the position of a message, an integer of at least 0, got {value!r:.80}."
        )
    return value


def validate_session(session: Any) -> SessionData:
    """Check a session to store."""
    if not isinstance(session, SessionData):
        raise InvalidArgumentError(f"a session must be a SessionData, got {session!r:.80}.")
    validate_id("a session's id", session.id)
    for name in ("user_id", "agent_name", "current_route", "current_state"):
        validate_optional_id(f"a session's {name}", getattr(session, name))
    validate_status(session.status)
    for name in ("version", "message_count"):
        count = getattr(session, name)
        if type(count) is not int or not 0 <= count <= MAX_COUNT:
            raise InvalidArgumentError(f"a session's {name} must be an integer from 0 to 2**53, got {count!r:.80}.")
    for name in ("created_at", "updated_at", "last_message_at", "completed_at"):
        time = getattr(session, name)
        if time is not None or name in ("created_at", "updated_at"):
            validate_time(f"a session's {name}", time)
    return session


def validate_time(label: str, value: Any) -> datetime:
    """Check a datetime with a timezone."""
    try:
        if isinstance(value, datetime) and value.tzinfo is not None:
            return as_utc(value)
    except OverflowError:
        pass  # out of range after conversion to UTC
    raise InvalidArgumentError(f"{label} must be a datetime with a timezone, got {value!r:.80}.")


def validate_times(*, at: Any, completed_at: Any = None) -> None:
    """Check the time of a change, and the completion time, if any."""
    validate_time("at", at)
    if completed_at is not None:
        validate_time("completed_at", completed_at)


def validate_messages(messages: Sequence[MessageData], session_id: str | None = None) -> list[MessageData]:
    """Check messages of one session to store."""
    validated = list(validate_list("messages", messages))
    for message in validated:
        if not isinstance(message, MessageData):
            raise InvalidArgumentError(f"a message must be a MessageData, got {message!r:.80}.")
        validate_id("a message's id", message.id)
        validate_id("a message's session_id", message.session_id)
        for name in ("user_id", "route", "state"):
            validate_optional_id(f"a message's {name}", getattr(message, name))
        validate_choice("a message's role", message.role, MESSAGE_ROLES)
        if not isinstance(message.content, str) or not is_storable(message.content):
            raise InvalidArgumentError(f"a message's content must be a str without NUL, got {message.content!r:.80}.")
        validate_time("a message's created_at", message.created_at)
        session_id = session_id or message.session_id
        if message.session_id != session_id:
            raise InvalidArgumentError(
                f"all messages must belong to session {session_id!r}, got one of {message.session_id!r}."
            )
    return validated


def validate_status(value: Any) -> None:
    """Check a session's status."""
    validate_choice("a session's status", value, SESSION_STATUSES)


def to_ttl_seconds(label: str, value: Any) -> float | None:
    """Convert a time to live to seconds; None means forever."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1e10:
        raise ConfigurationError(
            f"{label} must be a positive number of seconds, a timedelta or None, got {value!r:.80}."
        )
    return float(value)


def has_unescaped_password(url: str) -> bool:
    """Whether a URL's password has unescaped characters, so that a part of it is parsed as the host.

    >>> has_unescaped_password("redis://app:4711/x@host"), has_unescaped_password("redis://app:4711%2Fx@host/0")
    (True, False)
    """
    parts = urlsplit(url)
    return "@" not in parts.netloc and "@" in f"{parts.path}{parts.query}{parts.fragment}"


def resolve_names(
    option: str,
    overrides: Mapping[str, str] | None,
    defaults: Mapping[str, str],
    *,
    is_name: Callable[[str], object] = _NAME_PATTERN.fullmatch,
    form: str = "up to 63 letters, digits and underscores, not beginning with a digit",
) -> dict[str, str]:
    """Return the names of tables, collections, indices or fields: the defaults, with the overrides.

    >>> resolve_names("tables", {"sessions": "chats"}, {"sessions": "agent_sessions", "messages": "agent_messages"})
    {'sessions': 'chats', 'messages': 'agent_messages'}
    """
    if not isinstance(overrides, Mapping | None):
        raise ConfigurationError(f"{option} must be a mapping of names, got {overrides!r:.80}.")
    unknown = (overrides or {}).keys() - defaults.keys()
    if unknown:
        raise ConfigurationError(
            f"{option} has unknown keys {', '.join(map(str, unknown))}: the valid keys are {', '.join(defaults)}."
        )
    resolved = {**defaults, **(overrides or {})}
    for name, value in resolved.items():
        if not isinstance(value, str) or not is_name(value):
            raise ConfigurationError(f"{option}[{name!r}] must be a name of {form}, got {value!r:.80}.")
    if len(set(resolved.values())) < len(resolved):
        raise ConfigurationError(f"{option} has duplicate names: {', '.join(resolved.values())}.")
    return resolved


def validate_distinct(option: str, names: Sequence[str]) -> None:
    """Reject names that differ only in case: not every database distinguishes them."""
    if len({name.casefold() for name in names}) < len(names):
        raise ConfigurationError(f"{option} has duplicate names: {', '.join(names)}.")
