"""Errors that end a connection over pipes, and errors that are raised."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from tellback.mcp.server import _broken_streams_ignored

BROKEN = ExceptionGroup("", [anyio.BrokenResourceError(), ExceptionGroup("", [anyio.ClosedResourceError()])])


async def test_a_broken_stream_ends_the_connection_without_an_error() -> None:
    with _broken_streams_ignored():
        raise BROKEN


async def test_another_error_beside_a_broken_stream_is_raised() -> None:
    with pytest.raises(ExceptionGroup), _broken_streams_ignored():
        raise ExceptionGroup("", [anyio.BrokenResourceError(), ValueError("a mistake")])


async def test_streams_that_break_during_a_cancellation_do_not_hide_it() -> None:
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
