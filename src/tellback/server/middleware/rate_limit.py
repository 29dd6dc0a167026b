"""Rate limits: requests per minute and concurrent requests per credential, failed logins per address."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from tellback.errors import RateLimitedError, StoreError
from tellback.server.auth import Principal
from tellback.stores import RateWindows

log = logging.getLogger("tellback.server")

WINDOW_SECONDS = 60
BATCHES_PER_WINDOW = 20
MAX_BATCH = 100
"""A process takes a part of a limit at a time, so that few requests ask the store. What one process holds, no other
can give out: several together may refuse a little early, and never late."""
MAX_TRACKED = 10_000


@dataclass(slots=True)
class _Window:
    """What a process holds of a credential's limit in one minute."""

    number: int
    limit: int
    available: int = 0
    is_exhausted: bool = False
    counted_locally: int = 0
    refill: asyncio.Task[None] | None = None


class RateLimiter:
    """Counts requests by credential, with all processes on the same store.

    While the store cannot count, each process counts for itself: requests are not refused for lack of a count, and
    one who asks too often is still held back.
    """

    def __init__(self, windows: RateWindows, limit: int | None, timer: Callable[[], float] = time.time) -> None:
        self._windows = windows
        self._limit = limit
        self._timer = timer
        self._by_credential: OrderedDict[str, _Window] = OrderedDict()

    async def acquire(self, principal: Principal) -> None:
        """Count a request; raises `RateLimitedError` if there may be no more in this minute."""
        limit = self._limit if principal.rate_limit is None else principal.rate_limit
        if limit is None:
            return
        now = self._timer()
        window = self._window(principal.id, int(now // WINDOW_SECONDS), limit)
        while window.available < 1:
            if window.is_exhausted:
                raise RateLimitedError(
                    f"{limit} requests a minute is the limit of this credential: wait for the next minute.",
                    WINDOW_SECONDS - now % WINDOW_SECONDS,
                )
            if window.refill is None:
                window.refill = asyncio.create_task(self._acquire_batch(principal.id, window))
            await asyncio.shield(window.refill)  # whoever gives up does so alone
        window.available -= 1

    def _window(self, id: str, number: int, limit: int) -> _Window:
        window = self._by_credential.get(id)
        if window is None or window.number != number or window.limit != limit:
            window = self._by_credential[id] = _Window(number, limit)
            if len(self._by_credential) > MAX_TRACKED:
                self._by_credential.popitem(last=False)
        self._by_credential.move_to_end(id)
        return window

    async def _acquire_batch(self, id: str, window: _Window) -> None:
        batch = min(max(1, window.limit // BATCHES_PER_WINDOW), MAX_BATCH)
        try:
            granted = await self._windows.take(id, window.number, batch, window.limit)
        except StoreError as error:
            log.warning("the store cannot count requests, this process counts alone: %s", type(error).__name__)
            granted = min(batch, window.limit - window.counted_locally)
            window.counted_locally += granted
        finally:
            window.refill = None
        window.available += granted
        window.is_exhausted = granted < 1


class ConcurrencyLimiter:
    """Counts the requests of each credential that this process is answering, streams for as long as they last."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._counts: dict[str, int] = {}

    def acquire(self, id: str) -> None:
        """Count a request; raises `RateLimitedError` if there may be no more of them now. `release` takes it back."""
        count = self._counts.get(id, 0)
        if self._limit is not None and count >= self._limit:
            raise RateLimitedError(
                f"{self._limit} requests at once is the limit of this credential, open streams among them: wait until"
                " one has ended.",
                1.0,
            )
        self._counts[id] = count + 1

    def release(self, id: str) -> None:
        count = self._counts[id] - 1
        if count:
            self._counts[id] = count
        else:
            del self._counts[id]


class FailedLoginLimiter:
    """Counts failed attempts to authenticate by address, in this process.

    An address with too many of them is told to wait until the next minute. Credentials that are good are let in all the
    same, so that one who guesses locks out nobody behind the same address.
    """

    def __init__(self, limit: int | None, timer: Callable[[], float] = time.time) -> None:
        self._limit = limit
        self._timer = timer
        self._counts: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def record_failure(self, client: tuple[str, int] | None) -> None:
        """Count a failed attempt; raises `RateLimitedError` if the address has failed too often."""
        if self._limit is None or client is None:
            return
        address, now = client_network(client[0]), self._timer()
        window = int(now // WINDOW_SECONDS)
        number, count = self._counts.get(address, (window, 0))
        count = count + 1 if number == window else 1
        self._counts[address] = window, count
        self._counts.move_to_end(address)
        if len(self._counts) > MAX_TRACKED:
            self._counts.popitem(last=False)
        if count > self._limit:
            raise RateLimitedError(
                "Too many attempts with wrong credentials came from this address: wait for the next minute.",
                WINDOW_SECONDS - now % WINDOW_SECONDS,
            )


def client_network(address: str) -> str:
    """What of an address is counted: one who has an IPv6 address has all of its network's.

    >>> client_network("2001:db8::7"), client_network("192.0.2.7"), client_network("::ffff:192.0.2.7")
    ('2001:db8::/64', '192.0.2.7', '192.0.2.7')
    """
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:100]
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((int(parsed) >> 64 << 64, 64)))
