"""`space`: an empty one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.memory.reconciling.space import Space, opened


@pytest.fixture
async def space() -> AsyncIterator[Space]:
    async with opened() as made:
        yield made
