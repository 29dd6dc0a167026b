"""Browsers that are logged in: a random cookie stands for a credential, which stays in this process."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

IDLE_SECONDS = 12 * 3_600.0
MOST_HELD = 10_000


@dataclass(frozen=True, slots=True)
class _Sitting:
    authorization: str
    seen: float


class Sittings:
    """Credentials by cookie. A restart ends them all, and a revoked credential ends those that hold it.

    >>> sittings = Sittings()
    >>> cookie = sittings.begin("Bearer rk_secret")
    >>> sittings.authorization(cookie), sittings.end(cookie), sittings.authorization(cookie)
    ('Bearer rk_secret', None, None)
    """

    def __init__(self, timer: Callable[[], float] = time.monotonic) -> None:
        self._timer = timer
        self._held: OrderedDict[bytes, _Sitting] = OrderedDict()

    def begin(self, authorization: str) -> str:
        """Hold a credential that was checked; gives the cookie."""
        cookie = secrets.token_urlsafe(32)
        self._held[_digest(cookie)] = _Sitting(authorization, self._timer())
        if len(self._held) > MOST_HELD:
            self._held.popitem(last=False)
        return cookie

    def holds(self, cookie: str, *, is_used: bool = True) -> bool:
        """Whether a cookie stands for a credential; to ask counts as its use unless `is_used` is False."""
        found = self._held.get(_digest(cookie))
        if found is None or self._timer() - found.seen > IDLE_SECONDS:
            return False
        return not is_used or self.authorization(cookie) is not None

    def authorization(self, cookie: str | None) -> str | None:
        """The credential that a cookie stands for, if it was used in the last hours."""
        key = _digest(cookie or "")
        found = self._held.get(key)
        if found is None:
            return None
        now = self._timer()
        if now - found.seen > IDLE_SECONDS:
            del self._held[key]
            return None
        self._held[key] = _Sitting(found.authorization, now)
        self._held.move_to_end(key)
        return found.authorization

    def end(self, cookie: str | None) -> None:
        """Hold it no longer."""
        self._held.pop(_digest(cookie or ""), None)


def _digest(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode("utf-8", "surrogateescape")).digest()
