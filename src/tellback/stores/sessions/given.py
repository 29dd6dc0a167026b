"""What was given to an adapter as records of plain values, for databases that take anything."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from tellback.errors import InvalidArgumentError
from tellback.stores.sessions import checks
from tellback.stores.sessions.records import (
    encode_json_fields,
    encode_time_fields,
    format_time,
    message_to_record,
    session_to_record,
)
from tellback.types.sessions import MessageData, SessionData


def encode_session(session: SessionData) -> dict[str, Any]:
    """A session to store, checked: moments are texts that sort, JSON parts are JSON texts."""
    return _encode_record(f"session {checks.validate_session(session).id!r}", lambda: session_to_record(session))


def encode_message(message: MessageData) -> dict[str, Any]:
    """A message to store, which was checked, in the same form."""
    return _encode_record(f"message {message.id!r}", lambda: message_to_record(message))


def encode_time(label: str, value: datetime) -> str:
    """A moment as text that sorts."""
    return format_time(checks.validate_time(label, value))


def _encode_record(label: str, build_record: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return encode_json_fields(encode_time_fields(build_record()))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{label} holds what is not JSON: {error}.") from error
