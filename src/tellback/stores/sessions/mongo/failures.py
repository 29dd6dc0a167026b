"""MongoDB's errors in our words."""

from __future__ import annotations

from typing import Any

from bson.errors import BSONError
from pymongo import errors

from tellback.errors import (
    ConfigurationError,
    InvalidArgumentError,
    StoreBusyError,
    StoreClosedError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
    TellbackError,
)

DRIVER_ERRORS = (errors.PyMongoError, BSONError, OSError, RuntimeError)
"""What the driver raises. A RuntimeError is that of another event loop."""

DUPLICATE_KEY = 11000
_TOO_LARGE = (10334, 17419, 17420, 17280)
_REFUSED = (13, 18, 8000)
_BUSY = (24, 46, 112, 251, 290)
_OUT_OF_DISK = (14031,)
_INDEX_CONFLICT = (85, 86)
_NOT_WRITABLE = (10107, 13435, 13436, 11602, 189, 91)
_TIMED_OUT = (50, 64, 100)
_MAX_MESSAGE_LENGTH = 300


def error_code(error: BaseException) -> int | None:
    """The server's number for it, if the server said it."""
    if isinstance(error, errors.BulkWriteError):
        details: Any = error.details
        codes = [each.get("code") for each in details.get("writeErrors", [])]
        return codes[0] if codes else error.code
    return error.code if isinstance(error, errors.OperationFailure) else None


def is_transient(error: BaseException) -> bool:
    """Whether the transaction was undone for others' sake, and may be run again."""
    # The driver says so of a client that was closed too.
    if not isinstance(error, errors.PyMongoError) or isinstance(error, errors.InvalidOperation):
        return False
    return error.has_error_label("TransientTransactionError")


def is_commit_unknown(error: BaseException) -> bool:
    """Whether the transaction may have been committed."""
    return isinstance(error, errors.PyMongoError) and error.has_error_label("UnknownTransactionCommitResult")


def is_write_unknown(error: BaseException) -> bool:
    """Whether a change without a transaction may have been made."""
    if isinstance(error, errors.ServerSelectionTimeoutError | errors.WaitQueueTimeoutError):
        return False
    return isinstance(error, errors.ConnectionFailure | errors.WriteConcernError) or error_code(error) in _TIMED_OUT


def translate_error(error: BaseException, place: str, *, in_doubt: bool = False) -> TellbackError:
    """What went wrong, and what to do about it."""
    if isinstance(error, errors.InvalidOperation):
        return StoreClosedError(f"The client of {place} was closed: make an adapter with one that is open.")
    if isinstance(error, RuntimeError):
        return ConfigurationError(f"The client of {place} cannot be used in this event loop: {error}.")
    if isinstance(error, errors.DocumentTooLarge) or error_code(error) in _TOO_LARGE:
        return InvalidArgumentError("A session or a message is larger than the 16 MB that MongoDB keeps as one.")
    if isinstance(error, BSONError):
        return InvalidArgumentError(f"MongoDB cannot hold what was passed: {_error_message(error)}.")
    if isinstance(error, errors.WaitQueueTimeoutError):
        return StoreBusyError(f"All connections to {place} are in use: raise the client's maxPoolSize.")
    if isinstance(error, errors.OperationFailure):
        return _translate_server_error(error, error_code(error), place, in_doubt)
    return _unavailable_error(error, place, in_doubt)


def _translate_server_error(
    error: errors.OperationFailure, code: int | None, place: str, in_doubt: bool
) -> TellbackError:
    message = _error_message(error)
    if code in _REFUSED:
        return StoreUnavailableError(f"{place} refused: {message}. Check the user, the password and the user's rights.")
    if code == DUPLICATE_KEY:
        return InvalidArgumentError(f"A message of that id is stored already: {message}.")
    if is_transient(error) or code in _BUSY:
        return StoreBusyError(f"{place} is too busy: {message}. Try again.")
    if code in _OUT_OF_DISK:
        return StoreFullError(f"The disk of {place} is full: {message}. Free some space and try again.")
    if code in _INDEX_CONFLICT:
        return ConfigurationError(f"{place} has an index that is in the way: {message}. Drop it, and try again.")
    if code in _NOT_WRITABLE:
        return StoreReadOnlyError(f"{place} takes no changes: {message}. Is this a secondary?")
    if in_doubt or error.timeout or code in _TIMED_OUT:
        return _unavailable_error(error, place, in_doubt)
    return StoreError(f"{place}: {message}")


def _unavailable_error(error: BaseException, place: str, in_doubt: bool) -> StoreUnavailableError:
    doubt = " The change may have been stored: load the session again, and look." if in_doubt else ""
    timed_out = isinstance(error, errors.NetworkTimeout | errors.ExecutionTimeout | TimeoutError)
    problem = "did not answer in time" if timed_out else f"cannot be reached: {_error_message(error)}"
    return StoreUnavailableError(f"{place} {problem}.{doubt}", in_doubt=in_doubt)


def _error_message(error: BaseException) -> str:
    details: Any = error.details if isinstance(error, errors.OperationFailure) else None
    first = ((details or {}).get("writeErrors") or [{}])[0]
    message = (details or {}).get("errmsg") or first.get("errmsg") or str(error)
    return str(message)[:_MAX_MESSAGE_LENGTH].rstrip(".")
