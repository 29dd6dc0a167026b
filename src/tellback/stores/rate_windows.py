"""Limits that all processes share, in SQL: `RateWindows` on any engine."""

from __future__ import annotations

from functools import partial

from tellback.stores.engine import Engine, Operation

KEPT = 10
"""So many windows are kept: clocks of processes may differ by as much."""

FORGOTTEN = 100
"""At most so many are deleted when one begins."""


class SqlRateWindows:
    """`RateWindows` on an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def take(self, name: str, window: int, wanted: int, most: int) -> int:
        if wanted <= 0 or most <= 0:
            return 0
        return await self._engine.write(None, partial(_take, name, window, wanted, most))


def _take(name: str, window: int, wanted: int, most: int) -> Operation[int]:
    values = {"name": name, "window": window, "wanted": wanted, "most": most, "first": min(wanted, most)}
    [(granted, taken)] = yield "platform_rate_take", values
    if granted == taken:  # it has just begun
        yield "platform_rates_forget", {"before": window - KEPT, "limit": FORGOTTEN}
    return int(granted)
