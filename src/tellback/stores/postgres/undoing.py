"""Giving a connection back clean, whatever happened on it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import asyncpg

ROLLBACK_SECONDS = 2.0
"""How long undoing may take."""


async def roll_back(connection: Any, statement: str = "ROLLBACK") -> None:
    """Leave the connection clean for whoever gets it next, or close it."""
    try:
        async with asyncio.timeout(ROLLBACK_SECONDS):
            if not connection.is_closed():
                await connection.execute(statement)
    except asyncio.CancelledError:
        _terminate(connection)  # a connection in an unknown state must not be used again
        raise
    except Exception:  # noqa: BLE001
        _terminate(connection)  # what went wrong before is what the caller should hear of


async def skip_reset(connection: Any) -> None:
    """Nothing outlives our transactions, so a connection needs no cleaning between them."""


def _terminate(connection: Any) -> None:
    with contextlib.suppress(asyncpg.InterfaceError):  # the pool has taken it back after a timeout, and closed it
        connection.terminate()
