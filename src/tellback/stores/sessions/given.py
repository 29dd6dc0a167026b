"""What was given to an adapter as records of plain values, for databases that take anything."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from tellback.errors import InvalidArgumentError
from tellback.stores.sessions import checks
from tellback.stores.sessions.records import as_json_texts, iso_time, message_record, session_record, with_iso_times
from tellback.types.sessions import MessageData, SessionData


def session(given: SessionData) -> dict[str, Any]:
    """A session to store, checked: moments are texts that sort, JSON parts are JSON texts."""
    return _plain(f"session {checks.session(given).id!r}", lambda: session_record(given))


def message(given: MessageData) -> dict[str, Any]:
    """A message to store, which was checked, in the same form."""
    return _plain(f"message {given.id!r}", lambda: message_record(given))


def moment(what: str, given: datetime) -> str:
    """A moment as text that sorts."""
    return iso_time(checks.moment(what, given))


def _plain(what: str, record: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return as_json_texts(with_iso_times(record()))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{what} holds what is not JSON: {error}.") from error
