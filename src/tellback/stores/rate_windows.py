"""Limits that all processes share, in SQL: `RateWindows` on any engine."""

from __future__ import annotations

from functools import partial

from tellback.stores.engine import Operation, SqlEngine

STORED_WINDOWS = 10
"""So many windows are kept: clocks of processes may differ by as much."""

WINDOW_DELETE_BATCH = 100
"""At most so many are deleted when one begins."""


class SqlRateWindows:
    """`RateWindows` on an engine."""

    def __init__(self, engine: SqlEngine) -> None:
        self._engine = engine

    async def take(self, name: str, window: int, requested: int, max_total: int) -> int:
        if requested <= 0 or max_total <= 0:
            return 0
        return await self._engine.write(None, partial(_take_from_window, name, window, requested, max_total))


def _take_from_window(name: str, window: int, requested: int, max_total: int) -> Operation[int]:
    values = {
        "name": name,
        "window": window,
        "wanted": requested,
        "most": max_total,
        "first": min(requested, max_total),
    }
    [(granted, taken)] = yield "platform_rate_take", values
    if granted == taken:  # it has just begun
        yield "platform_rates_forget", {"before": window - STORED_WINDOWS, "limit": WINDOW_DELETE_BATCH}
    return int(granted)
