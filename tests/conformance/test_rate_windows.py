"""Whoever takes from a shared limit in whichever order, no window grants more than there is."""

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
    """The storage opened twice, where that is possible."""
    opened = [open_store(url) for _ in range(1 if url == ":memory:" else 2)]
    for store in opened:
        loop.run(store.open())
    yield opened
    for store in opened:
        loop.run(store.close())


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(asked=takes)
def test_one_after_the_other_all_that_is_left_is_granted(
    stores: list[Store], loop: asyncio.Runner, asked: list[tuple[str, int, int, int]]
) -> None:
    number = next(_numbers)  # the storage is the same for all examples

    async def check() -> None:
        taken: Counter[tuple[str, int]] = Counter()
        for turn, (name, window, wanted, most) in enumerate(asked):
            granted = await stores[turn % len(stores)].rate_windows.take(f"{name}{number}", window, wanted, most)
            assert granted == max(0, min(wanted, most - taken[name, window]))
            taken[name, window] += granted

    loop.run(check())


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(asked=takes, most=st.integers(1, 40))
def test_all_at_once_never_more_than_there_is_and_nothing_is_left_unused(
    stores: list[Store], loop: asyncio.Runner, asked: list[tuple[str, int, int, int]], most: int
) -> None:
    number = next(_numbers)

    async def check() -> None:
        doors = itertools.cycle(stores)
        work = [
            next(doors).rate_windows.take(f"{name}{number}", window, wanted, most) for name, window, wanted, _ in asked
        ]
        granted, wishes = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
        for (name, window, wanted, _), got in zip(asked, await asyncio.gather(*work), strict=True):
            assert 0 <= got <= wanted
            granted[name, window] += got
            wishes[name, window] += wanted
        for each, wish in wishes.items():
            assert granted[each] == min(wish, most)

    loop.run(check())
