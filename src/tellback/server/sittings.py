"""Browsers that are logged in: a random cookie stands for a credential, which stays in this process."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

IDLE_TIMEOUT_SECONDS = 12 * 3_600.0
MAX_SESSIONS = 10_000


@dataclass(frozen=True, slots=True)
class _LoginSession:
    authorization: str
    last_used: float


class LoginSessions:
    """Credentials by cookie. A restart ends them all, and a revoked credential ends those that hold it.

    >>> sittings = LoginSessions()
    >>> cookie = sittings.create("Bearer rk_secret")
    >>> sittings.authorization(cookie), sittings.delete(cookie), sittings.authorization(cookie)
    ('Bearer rk_secret', None, None)
    """

    def __init__(self, timer: Callable[[], float] = time.monotonic) -> None:
        self._timer = timer
        self._sessions: OrderedDict[bytes, _LoginSession] = OrderedDict()

    def create(self, authorization: str) -> str:
        """Hold a credential that was checked; gives the cookie."""
        cookie = secrets.token_urlsafe(32)
        self._sessions[_hash_cookie(cookie)] = _LoginSession(authorization, self._timer())
        if len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return cookie

    def is_active(self, cookie: str, *, is_used: bool = True) -> bool:
        """Whether a cookie stands for a credential; to ask counts as its use unless `is_used` is False."""
        session = self._sessions.get(_hash_cookie(cookie))
        if session is None or self._timer() - session.last_used > IDLE_TIMEOUT_SECONDS:
            return False
        return not is_used or self.authorization(cookie) is not None

    def authorization(self, cookie: str | None) -> str | None:
        """The credential that a cookie stands for, if it was used in the last hours."""
        key = _hash_cookie(cookie or "")
        session = self._sessions.get(key)
        if session is None:
            return None
        now = self._timer()
        if now - session.last_used > IDLE_TIMEOUT_SECONDS:
            del self._sessions[key]
            return None
        self._sessions[key] = _LoginSession(session.authorization, now)
        self._sessions.move_to_end(key)
        return session.authorization

    def delete(self, cookie: str | None) -> None:
        """Hold it no longer."""
        self._sessions.pop(_hash_cookie(cookie or ""), None)


def _hash_cookie(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode("utf-8", "surrogateescape")).digest()
