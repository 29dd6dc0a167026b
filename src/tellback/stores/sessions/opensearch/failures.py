"""OpenSearch's errors in our words."""

from __future__ import annotations

from typing import Any

from opensearchpy import ConnectionError as LostError
from opensearchpy import ConnectionTimeout, TransportError

from tellback.errors import (
    ConfigurationError,
    StoreBusyError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
    TellbackError,
)

IN_DOUBT_HINT = " The change may have been stored: look before you try again."
_NOT_EXECUTED = ("unavailable_shards_exception", "cluster_block_exception", "master_not_discovered_exception")
"""What is said before anything is done."""


def is_connection_lost(error: BaseException | None) -> bool:
    """Whether the connection ended, so that another one may work."""
    return isinstance(error, LostError) and not isinstance(error, ConnectionTimeout)


def translate_error(error: TransportError, place: str, *, is_write: bool = False) -> TellbackError:
    """What went wrong, and what to do about it. `changing` is for what must not be done twice."""
    doubt = IN_DOUBT_HINT if is_write else ""
    if isinstance(error, ConnectionTimeout):
        return StoreUnavailableError(f"{place} did not answer in time.{doubt}", in_doubt=is_write)
    if isinstance(error, LostError):
        return StoreUnavailableError(f"{place} cannot be reached: {error.error}.{doubt}", in_doubt=is_write)
    status = error.status_code if isinstance(error.status_code, int) else 0
    info = error.info.get("error") if isinstance(error.info, dict) else None
    return response_error(status, info or str(error.error), place, is_write=is_write)


def response_error(status: int, error: Any, place: str, *, is_write: bool = False) -> TellbackError:
    """An answer that says no, of a request or of one of the many things that were asked at once."""
    kind, message = _parse_error(error)
    if kind == "index_not_found_exception":
        return StoreError(f"{place}: {message}. Call initialize() to create what is missing.")
    if "flood-stage" in message or "read-only-allow-delete" in message or "read-only / allow delete" in message:
        return StoreFullError(f"The disk of {place} is full: {message}. Free some space and try again.")
    if kind == "cluster_block_exception" and status == 403:
        return StoreReadOnlyError(f"{place} takes no changes: {message}. Take the block away and try again.")
    if status in (401, 403):
        return ConfigurationError(f"{place} refused: {message}. Check the user's name, its password and its rights.")
    if status == 429:
        return StoreBusyError(f"{place} is too busy: {message}. Try again.")
    if status in (500, 502, 503, 504):
        in_doubt = is_write and kind not in _NOT_EXECUTED
        return StoreUnavailableError(
            f"{place} failed: {message}.{IN_DOUBT_HINT if in_doubt else ''}", in_doubt=in_doubt
        )
    return StoreError(f"{place}: {message or status}")


def error_type(error: TransportError) -> str:
    """The name that the server has for it."""
    error_body = error.info.get("error") if isinstance(error.info, dict) else None
    return _parse_error(error_body)[0]


def _parse_error(error: Any) -> tuple[str, str]:
    if not isinstance(error, dict):
        return "", f"{error or ''}"[:500]
    cause = (error.get("root_cause") or [{}])[0]
    message = cause.get("reason") or error.get("reason") or ""
    return str(cause.get("type") or error.get("type") or ""), str(message).strip(" ;")[:500]
