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

FAILURES = (errors.PyMongoError, BSONError, OSError, RuntimeError)
"""What the driver raises. A RuntimeError is that of another event loop."""

DUPLICATE = 11000
_TOO_LARGE = (10334, 17419, 17420, 17280)
_REFUSED = (13, 18, 8000)
_BUSY = (24, 46, 112, 251, 290)
_OUT_OF_DISK = (14031,)
_OTHER_INDEX = (85, 86)
_NOT_WRITABLE = (10107, 13435, 13436, 11602, 189, 91)
_LATE = (50, 64, 100)
_WORDS = 300


def code_of(error: BaseException) -> int | None:
    """The server's number for it, if the server said it."""
    if isinstance(error, errors.BulkWriteError):
        details: Any = error.details
        found = [each.get("code") for each in details.get("writeErrors", [])]
        return found[0] if found else error.code
    return error.code if isinstance(error, errors.OperationFailure) else None


def may_try_again(error: BaseException) -> bool:
    """Whether the transaction was undone for others' sake, and may be run again."""
    # The driver says so of a client that was closed too.
    if not isinstance(error, errors.PyMongoError) or isinstance(error, errors.InvalidOperation):
        return False
    return error.has_error_label("TransientTransactionError")


def is_unknown(error: BaseException) -> bool:
    """Whether the transaction may have been committed."""
    return isinstance(error, errors.PyMongoError) and error.has_error_label("UnknownTransactionCommitResult")


def is_unanswered(error: BaseException) -> bool:
    """Whether a change without a transaction may have been made."""
    if isinstance(error, errors.ServerSelectionTimeoutError | errors.WaitQueueTimeoutError):
        return False
    return isinstance(error, errors.ConnectionFailure | errors.WriteConcernError) or code_of(error) in _LATE


def store_error(error: BaseException, place: str, *, in_doubt: bool = False) -> TellbackError:
    """What went wrong, and what to do about it."""
    if isinstance(error, errors.InvalidOperation):
        return StoreClosedError(f"The client of {place} was closed: make an adapter with one that is open.")
    if isinstance(error, RuntimeError):
        return ConfigurationError(f"The client of {place} cannot be used in this event loop: {error}.")
    if isinstance(error, errors.DocumentTooLarge) or code_of(error) in _TOO_LARGE:
        return InvalidArgumentError("A session or a message is larger than the 16 MB that MongoDB keeps as one.")
    if isinstance(error, BSONError):
        return InvalidArgumentError(f"MongoDB cannot hold what was passed: {_words(error)}.")
    if isinstance(error, errors.WaitQueueTimeoutError):
        return StoreBusyError(f"All connections to {place} are in use: raise the client's maxPoolSize.")
    if isinstance(error, errors.OperationFailure):
        return _of_server(error, code_of(error), place, in_doubt)
    return _unavailable(error, place, in_doubt)


def _of_server(error: errors.OperationFailure, code: int | None, place: str, in_doubt: bool) -> TellbackError:
    words = _words(error)
    if code in _REFUSED:
        return StoreUnavailableError(f"{place} refused: {words}. Check the user, the password and the user's rights.")
    if code == DUPLICATE:
        return InvalidArgumentError(f"A message of that id is stored already: {words}.")
    if may_try_again(error) or code in _BUSY:
        return StoreBusyError(f"{place} is too busy: {words}. Try again.")
    if code in _OUT_OF_DISK:
        return StoreFullError(f"The disk of {place} is full: {words}. Free some space and try again.")
    if code in _OTHER_INDEX:
        return ConfigurationError(f"{place} has an index that is in the way: {words}. Drop it, and try again.")
    if code in _NOT_WRITABLE:
        return StoreReadOnlyError(f"{place} takes no changes: {words}. Is this a secondary?")
    if in_doubt or error.timeout or code in _LATE:
        return _unavailable(error, place, in_doubt)
    return StoreError(f"{place}: {words}")


def _unavailable(error: BaseException, place: str, in_doubt: bool) -> StoreUnavailableError:
    doubt = " The change may have been stored: load the session again, and look." if in_doubt else ""
    is_late = isinstance(error, errors.NetworkTimeout | errors.ExecutionTimeout | TimeoutError)
    found = "did not answer in time" if is_late else f"cannot be reached: {_words(error)}"
    return StoreUnavailableError(f"{place} {found}.{doubt}", in_doubt=in_doubt)


def _words(error: BaseException) -> str:
    details: Any = error.details if isinstance(error, errors.OperationFailure) else None
    first = ((details or {}).get("writeErrors") or [{}])[0]
    said = (details or {}).get("errmsg") or first.get("errmsg") or str(error)
    return str(said)[:_WORDS].rstrip(".")
