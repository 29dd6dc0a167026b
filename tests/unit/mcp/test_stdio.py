"""What ends a connection over pipes, and what is a failure."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from tellback.mcp.server import _broken_streams_ignored

BROKEN = ExceptionGroup("", [anyio.BrokenResourceError(), ExceptionGroup("", [anyio.ClosedResourceError()])])


async def test_a_broken_stream_is_the_end() -> None:
    with _broken_streams_ignored():
        raise BROKEN


async def test_another_failure_is_not_hidden_behind_a_broken_stream() -> None:
    with pytest.raises(ExceptionGroup), _broken_streams_ignored():
        raise ExceptionGroup("", [anyio.BrokenResourceError(), ValueError("a mistake")])


async def test_streams_that_break_while_it_is_cancelled_do_not_hide_the_cancellation() -> None:
    async def serve() -> None:
        with _broken_streams_ignored():
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                raise BROKEN from None

    task = asyncio.create_task(serve())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
