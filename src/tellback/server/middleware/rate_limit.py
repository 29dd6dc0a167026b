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
"""The largest part of a limit that a process reserves at a time.

Reserving saves queries. Reserved requests are not shared: several processes may reject slightly early, never late.
"""
MAX_TRACKED = 10_000


@dataclass(slots=True)
class _Window:
    """The part of a credential's limit that this process has reserved for one minute."""

    number: int
    limit: int
    available: int = 0
    is_exhausted: bool = False
    counted_locally: int = 0
    refill: asyncio.Task[None] | None = None


class RateLimiter:
    """Counts requests per credential, shared by all processes of a store.

    If the store fails, each process counts separately: requests are not rejected because of the failure, but are still
    limited.
    """

    def __init__(self, windows: RateWindows, limit: int | None, timer: Callable[[], float] = time.time) -> None:
        self._windows = windows
        self._limit = limit
        self._timer = timer
        self._by_credential: OrderedDict[str, _Window] = OrderedDict()

    async def acquire(self, principal: Principal) -> None:
        """Count a request. Raises `RateLimitedError` if the limit of this minute is reached."""
        limit = self._limit if principal.rate_limit is None else principal.rate_limit
        if limit is None:
            return
        now = self._timer()
        window = self._window(principal.id, int(now // WINDOW_SECONDS), limit)
        while window.available < 1:
            if window.is_exhausted:
                raise RateLimitedError(
                    f"This credential may send {limit} requests per minute: wait for the next minute.",
                    WINDOW_SECONDS - now % WINDOW_SECONDS,
                )
            if window.refill is None:
                window.refill = asyncio.create_task(self._acquire_batch(principal.id, window))
            await asyncio.shield(window.refill)  # a cancelled request must not cancel the others' refill
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
            log.warning("The store cannot count requests; this process counts separately: %s", type(error).__name__)
            granted = min(batch, window.limit - window.counted_locally)
            window.counted_locally += granted
        finally:
            window.refill = None
        window.available += granted
        window.is_exhausted = granted < 1


class ConcurrencyLimiter:
    """Counts the running requests and open streams of each credential in this process."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._counts: dict[str, int] = {}

    def acquire(self, id: str) -> None:
        """Count a request. Raises `RateLimitedError` if too many are running. `release` ends it."""
        count = self._counts.get(id, 0)
        if self._limit is not None and count >= self._limit:
            raise RateLimitedError(
                f"This credential may have {self._limit} simultaneous requests, including open streams: wait until"
                " one has finished.",
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
    """Counts failed authentication attempts per client address, in this process.

    An address with too many failures must wait until the next minute. Valid credentials are still accepted, so an
    attacker cannot lock out others behind the same address.
    """

    def __init__(self, limit: int | None, timer: Callable[[], float] = time.time) -> None:
        self._limit = limit
        self._timer = timer
        self._counts: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def record_failure(self, client: tuple[str, int] | None) -> None:
        """Count a failed attempt. Raises `RateLimitedError` if the address has failed too often."""
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
                "Too many failed authentication attempts from this address: wait for the next minute.",
                WINDOW_SECONDS - now % WINDOW_SECONDS,
            )


def client_network(address: str) -> str:
    """Return the part of an address to count by. For IPv6 it is the /64 network, which usually has one owner.

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
