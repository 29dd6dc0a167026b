"""`space`: an empty space."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.memory.space import Space, open_space


@pytest.fixture
async def space() -> AsyncIterator[Space]:
    async with open_space() as empty_space:
        yield empty_space
