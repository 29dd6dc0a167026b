"""What was given to an adapter as records of plain values, for databases that take anything."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from recollect.errors import InvalidArgumentError
from recollect.stores.sessions import checks
from recollect.stores.sessions.records import as_json_texts, iso_time, message_record, session_record, with_iso_times
from recollect.types.sessions import MessageData, SessionData

MOST_COUNTED = 2**53
"""The greatest number that every database counts exactly."""


def session(given: SessionData) -> dict[str, Any]:
    """A session to store: moments are texts that sort, JSON parts are JSON texts."""
    checks.session(given)
    for name in ("message_count", "version"):
        _whole(f"a session's {name}", getattr(given, name))
    for name in ("last_message_at", "completed_at"):
        moment(f"a session's {name}", getattr(given, name) or given.created_at)
    for name in ("created_at", "updated_at"):
        moment(f"a session's {name}", getattr(given, name))
    return _plain(f"session {given.id!r}", session_record, given)


def message(given: MessageData) -> dict[str, Any]:
    """A message to store, which was checked, in the same form."""
    moment("a message's created_at", given.created_at)
    return _plain(f"message {given.id!r}", message_record, given)


def moment(what: str, given: Any) -> str:
    """A moment as text that sorts."""
    if not isinstance(given, datetime) or given.tzinfo is None:
        raise InvalidArgumentError(f"{what} is a datetime with a timezone, not {given!r:.80}.")
    return iso_time(given)


def _plain(what: str, record_of: Any, given: Any) -> dict[str, Any]:
    try:
        return as_json_texts(with_iso_times(record_of(given)))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{what} holds what is not JSON: {error}.") from error


def _whole(what: str, given: Any) -> None:
    if type(given) is not int or not 0 <= given <= MOST_COUNTED:
        raise InvalidArgumentError(f"{what} is a whole number from 0 to 2**53, not {given!r:.80}.")
