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

DOUBT = " The change may have been stored: look before you try again."
_NOT_DONE = ("unavailable_shards_exception", "cluster_block_exception", "master_not_discovered_exception")
"""What is said before anything is done."""


def is_lost(error: BaseException | None) -> bool:
    """Whether the connection ended, so that another one may work."""
    return isinstance(error, LostError) and not isinstance(error, ConnectionTimeout)


def store_error(error: TransportError, place: str, *, changing: bool = False) -> TellbackError:
    """What went wrong, and what to do about it. `changing` is for what must not be done twice."""
    doubt = DOUBT if changing else ""
    if isinstance(error, ConnectionTimeout):
        return StoreUnavailableError(f"{place} did not answer in time.{doubt}", in_doubt=changing)
    if isinstance(error, LostError):
        return StoreUnavailableError(f"{place} cannot be reached: {error.error}.{doubt}", in_doubt=changing)
    status = error.status_code if isinstance(error.status_code, int) else 0
    info = error.info.get("error") if isinstance(error.info, dict) else None
    return refusal(status, info or str(error.error), place, changing=changing)


def refusal(status: int, said: Any, place: str, *, changing: bool = False) -> TellbackError:
    """An answer that says no, of a request or of one of the many things that were asked at once."""
    kind, words = _read(said)
    if kind == "index_not_found_exception":
        return StoreError(f"{place}: {words}. Call initialize() to create what is missing.")
    if "flood-stage" in words or "read-only-allow-delete" in words or "read-only / allow delete" in words:
        return StoreFullError(f"The disk of {place} is full: {words}. Free some space and try again.")
    if kind == "cluster_block_exception" and status == 403:
        return StoreReadOnlyError(f"{place} takes no changes: {words}. Take the block away and try again.")
    if status in (401, 403):
        return ConfigurationError(f"{place} refused: {words}. Check the user's name, its password and its rights.")
    if status == 429:
        return StoreBusyError(f"{place} is too busy: {words}. Try again.")
    if status in (500, 502, 503, 504):
        in_doubt = changing and kind not in _NOT_DONE
        return StoreUnavailableError(f"{place} failed: {words}.{DOUBT if in_doubt else ''}", in_doubt=in_doubt)
    return StoreError(f"{place}: {words or status}")


def kind_of(error: TransportError) -> str:
    """The name that the server has for it."""
    said = error.info.get("error") if isinstance(error.info, dict) else None
    return _read(said)[0]


def _read(said: Any) -> tuple[str, str]:
    if not isinstance(said, dict):
        return "", f"{said or ''}"[:500]
    cause = (said.get("root_cause") or [{}])[0]
    words = cause.get("reason") or said.get("reason") or ""
    return str(cause.get("type") or said.get("type") or ""), str(words).strip(" ;")[:500]
