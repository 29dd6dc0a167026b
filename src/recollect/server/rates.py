"""How often one may ask: limits a minute, for each credential and for failed attempts of an address."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from recollect.errors import RateLimitedError, StoreError
from recollect.server.callers import Principal
from recollect.stores import RateWindows

log = logging.getLogger("recollect.server")

WINDOW_SECONDS = 60
PARTS = 20
LARGEST_PART = 100
"""A process takes a part of a limit at a time, so that few requests ask the store. What one process holds, no other
can give out: several together may refuse a little early, and never late."""
MOST_HELD = 10_000


@dataclass(slots=True)
class _Window:
    """What a process holds of a credential's limit in one minute."""

    number: int
    limit: int
    held: int = 0
    is_spent: bool = False
    counted_alone: int = 0
    taking: asyncio.Task[None] | None = None


class Rates:
    """Counts requests by credential, with all processes on the same store.

    While the store cannot count, each process counts for itself: requests are not refused for lack of a count, and
    one who asks too often is still held back.
    """

    def __init__(self, windows: RateWindows, limit: int | None, timer: Callable[[], float] = time.time) -> None:
        self._windows = windows
        self._limit = limit
        self._timer = timer
        self._held: OrderedDict[str, _Window] = OrderedDict()

    async def take(self, principal: Principal) -> None:
        """Count a request; raises `RateLimitedError` if there may be no more in this minute."""
        limit = self._limit if principal.rate_limit is None else principal.rate_limit
        if limit is None:
            return
        now = self._timer()
        window = self._window(principal.id, int(now // WINDOW_SECONDS), limit)
        while window.held < 1:
            if window.is_spent:
                raise RateLimitedError(
                    f"{limit} requests a minute is the limit of this credential: wait for the next minute.",
                    WINDOW_SECONDS - now % WINDOW_SECONDS,
                )
            if window.taking is None:
                window.taking = asyncio.create_task(self._take_part(principal.id, window))
            await asyncio.shield(window.taking)  # whoever gives up does so alone
        window.held -= 1

    def _window(self, id: str, number: int, limit: int) -> _Window:
        window = self._held.get(id)
        if window is None or window.number != number or window.limit != limit:
            window = self._held[id] = _Window(number, limit)
            if len(self._held) > MOST_HELD:
                self._held.popitem(last=False)
        self._held.move_to_end(id)
        return window

    async def _take_part(self, id: str, window: _Window) -> None:
        part = min(max(1, window.limit // PARTS), LARGEST_PART)
        try:
            granted = await self._windows.take(id, window.number, part, window.limit)
        except StoreError as error:
            log.warning("the store cannot count requests, this process counts alone: %s", type(error).__name__)
            granted = min(part, window.limit - window.counted_alone)
            window.counted_alone += granted
        finally:
            window.taking = None
        window.held += granted
        window.is_spent = granted < 1


class Failures:
    """Counts failed attempts to authenticate by address, in this process.

    From an address with too many of them, credentials are not looked at until the next minute, so that guessing is
    slow. Those that were good lately are, so that one who guesses locks out nobody behind the same address.
    """

    def __init__(self, limit: int | None, timer: Callable[[], float] = time.time) -> None:
        self._limit = limit
        self._timer = timer
        self._counts: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._good: OrderedDict[bytes, None] = OrderedDict()

    def check(self, client: tuple[str, int] | None, authorization: str | None) -> None:
        """Raise `RateLimitedError` if the address has failed too often and the credential is not known as good."""
        if self._limit is None or not self._counts or client is None or authorization is None:
            return
        now = self._timer()
        number, count = self._counts.get(network(client[0]), (0, 0))
        if number == int(now // WINDOW_SECONDS) and count >= self._limit and _digest(authorization) not in self._good:
            raise RateLimitedError(
                "Too many attempts with wrong credentials came from this address: wait for the next minute.",
                WINDOW_SECONDS - now % WINDOW_SECONDS,
            )

    def failed(self, client: tuple[str, int] | None) -> None:
        """Count a failed attempt."""
        if self._limit is None or client is None:
            return
        address, now = network(client[0]), int(self._timer() // WINDOW_SECONDS)
        number, count = self._counts.get(address, (now, 0))
        self._counts[address] = now, count + 1 if number == now else 1
        _bound(self._counts, address)

    def succeeded(self, authorization: str | None) -> None:
        """Remember a credential as good."""
        if self._limit is None or authorization is None:
            return
        digest = _digest(authorization)
        self._good[digest] = None
        _bound(self._good, digest)


def network(address: str) -> str:
    """What of an address is counted: one who has an IPv6 address has all of its network's.

    >>> network("2001:db8::7"), network("192.0.2.7"), network("::ffff:192.0.2.7")
    ('2001:db8::/64', '192.0.2.7', '192.0.2.7')
    """
    try:
        read = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:100]
    if isinstance(read, ipaddress.IPv4Address):
        return address
    if read.ipv4_mapped is not None:
        return str(read.ipv4_mapped)
    return str(ipaddress.ip_network((int(read) >> 64 << 64, 64)))


def _digest(authorization: str) -> bytes:
    return hashlib.sha256(authorization.encode()).digest()


def _bound(kept: OrderedDict[str, tuple[int, int]] | OrderedDict[bytes, None], newest: str | bytes) -> None:
    kept.move_to_end(newest)  # type: ignore[arg-type]
    if len(kept) > MOST_HELD:
        kept.popitem(last=False)
