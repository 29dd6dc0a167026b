"""Redis's errors in our words."""

from __future__ import annotations

from redis import exceptions

from tellback.errors import (
    ConfigurationError,
    StoreBusyError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
    TellbackError,
)

DRIVER_ERRORS = (exceptions.RedisError, exceptions.RedisClusterException, OSError, RuntimeError)
"""What the driver raises. A RuntimeError is that of another event loop."""

_LOST_CONNECTION = (exceptions.ConnectionError, exceptions.TimeoutError, OSError)
_REFUSED = (exceptions.AuthenticationError, exceptions.AuthorizationError, exceptions.NoPermissionError)
_NOT_LOST = (exceptions.BusyLoadingError, exceptions.MaxConnectionsError)
_UNAVAILABLE = ("LOADING", "MASTERDOWN", "CLUSTERDOWN", "NOREPLICAS", "UNKILLABLE")
_BUSY = ("BUSY", "TRYAGAIN")


def is_connection_lost(error: BaseException) -> bool:
    """Whether the connection broke, so that another one may work."""
    return isinstance(error, exceptions.ConnectionError) and not isinstance(error, (*_REFUSED, *_NOT_LOST))


def translate_error(error: BaseException, place: str, *, in_doubt: bool = False) -> TellbackError:
    """What went wrong, and what to do about it. `in_doubt`: a change was sent."""
    if isinstance(error, RuntimeError):
        return ConfigurationError(f"The client of {place} cannot be used in this event loop: {error}.")
    if isinstance(error, _REFUSED) or _has_code(error, "NOAUTH", "WRONGPASS", "NOPERM"):
        return StoreUnavailableError(f"{place} refused: {error}. Check the user, the password and the user's rights.")
    if isinstance(error, exceptions.MaxConnectionsError):
        return StoreBusyError(f"All connections to {place} are in use: raise the client's max_connections.")
    if isinstance(error, exceptions.BusyLoadingError):
        return StoreUnavailableError(f"{place} cannot be used now: {error}.")
    if isinstance(error, _LOST_CONNECTION):
        doubt = " The change may have been stored: load the session again, and look." if in_doubt else ""
        problem = "did not answer in time" if _is_timeout(error) else f"cannot be reached: {error}"
        return StoreUnavailableError(f"{place} {problem}.{doubt}", in_doubt=in_doubt)
    return _translate_server_error(error, place)


def _translate_server_error(error: BaseException, place: str) -> TellbackError:
    if isinstance(error, exceptions.OutOfMemoryError) or _has_code(error, "OOM"):
        return StoreFullError(f"{place} is full: {error}. Raise its maxmemory, or delete what is not needed.")
    if _has_code(error, "READONLY") or isinstance(error, exceptions.ReadOnlyError):
        return StoreReadOnlyError(f"{place} takes no changes: {error}. Is this a replica?")
    if _has_code(error, "MISCONF"):
        return StoreReadOnlyError(f"{place} takes no changes: {error}. Look at its disk and its log.")
    if _has_code(error, "CROSSSLOT") or isinstance(error, exceptions.ClusterCrossSlotError):
        return ConfigurationError(
            f"{place} is a cluster, and the keys of a session are in several slots: give key_prefix a hash tag, such as"
            " '{agent}:'."
        )
    if _has_code(error, *_UNAVAILABLE) or isinstance(error, exceptions.RedisClusterException):
        return StoreUnavailableError(f"{place} cannot be used now: {error}.")
    if _has_code(error, *_BUSY):
        return StoreBusyError(f"{place} is too busy: {error}. Try again.")
    return StoreError(f"{place}: {error}")


def _has_code(error: BaseException, *codes: str) -> bool:
    """Whether the server's answer begins so. What a script ran into may stand behind the script's own words."""
    text = str(error)
    return text.startswith(codes) or any(f"-{code} " in text or f": {code} " in text for code in codes)


def _is_timeout(error: BaseException) -> bool:
    return isinstance(error, exceptions.TimeoutError | TimeoutError)
