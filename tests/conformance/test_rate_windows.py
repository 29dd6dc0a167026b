"""Windows of a shared rate limit never grant more than the limit, in any order of requests."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tellback.stores import Store, open_store

_numbers = itertools.count()
takes = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.integers(0, 12), st.integers(0, 20)),
    min_size=1,
    max_size=30,
)


@pytest.fixture
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def stores(url: str, loop: asyncio.Runner) -> Iterator[list[Store]]:
    """Open the storage twice, if possible."""
    open_stores = [open_store(url) for _ in range(1 if url == ":memory:" else 2)]
    for store in open_stores:
        loop.run(store.open())
    yield open_stores
    for store in open_stores:
        loop.run(store.close())


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(requests=takes)
def test_sequential_requests_are_granted_up_to_the_limit(
    stores: list[Store], loop: asyncio.Runner, requests: list[tuple[str, int, int, int]]
) -> None:
    number = next(_numbers)  # all examples share the storage

    async def check() -> None:
        granted_totals: Counter[tuple[str, int]] = Counter()
        for turn, (name, window, amount, limit) in enumerate(requests):
            granted = await stores[turn % len(stores)].rate_windows.take(f"{name}{number}", window, amount, limit)
            assert granted == max(0, min(amount, limit - granted_totals[name, window]))
            granted_totals[name, window] += granted

    loop.run(check())


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(requests=takes, limit=st.integers(1, 40))
def test_concurrent_requests_use_exactly_the_limit(
    stores: list[Store], loop: asyncio.Runner, requests: list[tuple[str, int, int, int]], limit: int
) -> None:
    number = next(_numbers)

    async def check() -> None:
        store_cycle = itertools.cycle(stores)
        pending_takes = [
            next(store_cycle).rate_windows.take(f"{name}{number}", window, amount, limit)
            for name, window, amount, _ in requests
        ]
        granted, requested = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
        for (name, window, amount, _), granted_amount in zip(
            requests, await asyncio.gather(*pending_takes), strict=True
        ):
            assert 0 <= granted_amount <= amount
            granted[name, window] += granted_amount
            requested[name, window] += amount
        for each, requested_amount in requested.items():
            assert granted[each] == min(requested_amount, limit)

    loop.run(check())
