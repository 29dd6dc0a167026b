"""Limits per minute: shared by all processes, with few queries, and effective while the store fails."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellback import Tellback
from tellback.errors import RateLimitedError, StoreBusyError
from tellback.server.auth import Principal
from tellback.server.middleware import rate_limit as module
from tellback.server.middleware.rate_limit import ConcurrencyLimiter, FailedLoginLimiter, RateLimiter
from tellback.server.problems import error_response
from tellback.stores import RateWindows

NOW = 1_800_000_000.0
ADDRESS = ("192.0.2.7", 4711)


class Windows(RateWindows):
    """A store that counts the requests of all processes and its queries."""

    def __init__(self) -> None:
        self.used: dict[tuple[str, int], int] = {}
        self.call_count = 0
        self.fails = False

    async def take(self, name: str, window: int, requested: int, maximum: int) -> int:
        self.call_count += 1
        await asyncio.sleep(0)
        if self.fails:
            raise StoreBusyError("busy")
        before = self.used.get((name, window), 0)
        granted = max(0, min(requested, maximum - before))
        self.used[name, window] = before + granted
        return granted


def make_principal(id: str = "key_1", limit: int | None = None) -> Principal:
    return Principal(id, "acme", "default", "app", None, limit)


async def count_admitted(rates: RateLimiter, times: int, principal: Principal | None = None) -> int:
    count = 0
    for _ in range(times):
        try:
            await rates.acquire(principal or make_principal())
        except RateLimitedError:
            continue
        count += 1
    return count


@pytest.mark.parametrize(
    ("seconds", "retry_after"), [(0.01, "1"), (1.0, "1"), (1.2, "2"), (47.5, "48"), (59.999, "60")]
)
def test_waiting_for_retry_after_reaches_the_next_window(seconds: float, retry_after: str) -> None:
    assert error_response(RateLimitedError("Too many.", seconds)).headers["Retry-After"] == retry_after


async def test_requests_per_minute_are_limited() -> None:
    now = [NOW]
    rates = RateLimiter(Windows(), 50, lambda: now[0])
    assert await count_admitted(rates, 80) == 50
    now[0] += 60
    assert await count_admitted(rates, 80) == 50


async def test_the_rate_limit_error_says_when_to_retry() -> None:
    rates = RateLimiter(Windows(), 1, lambda: NOW + 12.5)
    await rates.acquire(make_principal())
    with pytest.raises(RateLimitedError, match="1 requests per minute") as limited:
        await rates.acquire(make_principal())
    assert limited.value.retry_after == 47.5


async def test_each_credential_has_its_own_limit() -> None:
    rates = RateLimiter(Windows(), 5, lambda: NOW)
    assert await count_admitted(rates, 10) == 5
    assert await count_admitted(rates, 10, make_principal("key_2")) == 5
    assert await count_admitted(rates, 40, make_principal("key_3", limit=30)) == 30


async def test_requests_without_a_limit_are_not_counted() -> None:
    windows = Windows()
    assert await count_admitted(RateLimiter(windows, None), 1_000) == 1_000
    assert windows.call_count == 0


async def test_most_requests_need_no_query() -> None:
    windows = Windows()
    assert await count_admitted(RateLimiter(windows, 600, lambda: NOW), 700) == 600
    assert windows.call_count <= module.BATCHES_PER_WINDOW + 1


@given(
    limit=st.integers(1, 120),
    asking=st.lists(st.integers(0, 2), max_size=200),
)
@settings(max_examples=60)
async def test_processes_together_never_exceed_the_limit_and_waste_little(limit: int, asking: list[int]) -> None:
    windows = Windows()
    processes = [RateLimiter(windows, limit, lambda: NOW) for _ in range(3)]

    async def ask(which: int) -> bool:
        try:
            await processes[which].acquire(make_principal())
        except RateLimitedError:
            return False
        return True

    count = sum(await asyncio.gather(*map(ask, asking)))
    part = max(1, limit // module.BATCHES_PER_WINDOW)
    assert count <= limit
    assert count >= min(len(asking), limit - 2 * part)


async def test_concurrent_requests_share_one_query() -> None:
    windows = Windows()
    rates = RateLimiter(windows, 600, lambda: NOW)
    asking = [asyncio.create_task(rates.acquire(make_principal())) for _ in range(30)]
    await asyncio.sleep(0)
    asking[0].cancel()
    await asyncio.gather(*asking[1:])
    assert windows.call_count == 1


async def test_a_process_counts_separately_while_the_store_fails() -> None:
    windows = Windows()
    windows.fails = True
    rates = RateLimiter(windows, 40, lambda: NOW)
    assert await count_admitted(rates, 100) == 40


async def test_the_number_of_tracked_credentials_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TRACKED", 10)
    rates = RateLimiter(Windows(), 5, lambda: NOW)
    for number in range(50):
        await rates.acquire(make_principal(f"key_{number}"))
    assert len(rates._by_credential) == 10


async def test_two_servers_on_one_store_share_a_limit() -> None:
    async with Tellback(":memory:", worker=False) as tb:
        first, second = (RateLimiter(tb.store.rate_windows, 40) for _ in range(2))
        async with asyncio.timeout(50):
            count = await count_admitted(first, 25) + await count_admitted(second, 25) + await count_admitted(first, 25)
    assert 38 <= count <= 80  # up to twice as many if a new minute began


def failures_of(limit: int | None, now: list[float] | None = None) -> FailedLoginLimiter:
    return FailedLoginLimiter(limit, lambda: NOW + 20 if now is None else now[0])


def fails(failures: FailedLoginLimiter, address: str, times: int) -> int:
    """Return how many of the failed attempts are rate limited."""
    count = 0
    for _ in range(times):
        try:
            failures.record_failure((address, 4711))
        except RateLimitedError:
            count += 1
    return count


def test_an_address_with_too_many_failures_is_limited() -> None:
    failures = failures_of(3)
    assert fails(failures, "192.0.2.7", 3) == 0
    with pytest.raises(RateLimitedError, match="address") as limited:
        failures.record_failure(ADDRESS)
    assert limited.value.retry_after == 40
    assert fails(failures, "192.0.2.8", 3) == 0
    failures.record_failure(None)


def test_after_a_minute_an_address_may_fail_again() -> None:
    now = [NOW]
    failures = failures_of(1, now)
    assert fails(failures, "192.0.2.7", 3) == 2
    now[0] += 60
    assert fails(failures, "192.0.2.7", 3) == 2


def test_addresses_of_one_ipv6_network_are_counted_together() -> None:
    failures = failures_of(3)
    for number in range(3):
        failures.record_failure((f"2001:db8::{number:x}", 1))
    assert fails(failures, "2001:db8::ffff", 1) == 1
    assert fails(failures, "2001:db8:0:1::1", 1) == 0
    for odd in ("", "testclient", "fe80::1%eth0", "x" * 10_000):
        failures.record_failure((odd, 1))


def test_failures_without_a_limit_are_not_counted() -> None:
    assert fails(failures_of(None), "192.0.2.7", 1_000) == 0


def test_the_number_of_tracked_addresses_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TRACKED", 10)
    failures = failures_of(3)
    for number in range(100):
        failures.record_failure((f"10.0.0.{number}", 1))
    assert len(failures._counts) == 10


@given(
    limit=st.none() | st.integers(1, 4),
    steps=st.lists(st.tuples(st.sampled_from(["key_1", "key_2"]), st.booleans()), max_size=60),
)
def test_the_concurrency_limit_is_never_exceeded_and_finished_requests_leave_no_state(
    limit: int | None, steps: list[tuple[str, bool]]
) -> None:
    at_once, active = ConcurrencyLimiter(limit), {"key_1": 0, "key_2": 0}
    for id, enters in steps:
        if enters and limit is not None and active[id] >= limit:
            with pytest.raises(RateLimitedError, match="simultaneous") as limited:
                at_once.acquire(id)
            assert limited.value.retry_after == 1
        elif enters:
            at_once.acquire(id)
            active[id] += 1
        elif active[id]:
            at_once.release(id)
            active[id] -= 1
    assert at_once._counts == {id: count for id, count in active.items() if count}
