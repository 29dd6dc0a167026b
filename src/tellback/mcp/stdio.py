"""Serve MCP over standard input and output, to the program that started the process."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import anyio
from mcp.server.stdio import stdio_server

from tellback.mcp.server import build_server
from tellback.tools.threads import ThreadPool

if TYPE_CHECKING:
    from tellback.app import Tellback

log = logging.getLogger("tellback.mcp")

MAX_MESSAGE_BYTES = 1024 * 1024
CHUNK_BYTES = 64 * 1024


async def serve_stdio(
    rc: Tellback,
    user_id: str,
    tenant_id: str = "default",
    app_id: str = "default",
    *,
    read_only: bool = False,
) -> None:
    """Serve one user's memory over standard input and output, until the input ends.

    While it runs, what the process prints goes to standard error: the output is the protocol's alone. Cancelling it
    ends it at once, also while it waits for input. A message of more than `MOST_BYTES` ends it too.
    """
    user = rc.user(user_id, tenant_id, app_id)
    server = build_server(lambda scope: user, read_only=read_only)
    # Threads of its own: a pipe may keep one waiting for ever, which must not keep the process from ending.
    threads = ThreadPool(max_threads=2)
    with _stdout_redirected() as descriptor:
        lines = cast("anyio.AsyncFile[str]", _PipeReader(threads, sys.stdin.fileno()))
        output = cast("anyio.AsyncFile[str]", _PipeWriter(threads, descriptor))
        with _broken_streams_ignored():
            async with stdio_server(lines, output) as (read, write):
                await server.run(read, write, server.create_initialization_options())


@contextmanager
def _broken_streams_ignored() -> Iterator[None]:
    """A stream that breaks is the end of the connection, no failure: the client is gone, or this was cancelled and the
    SDK's tasks have closed each other's streams."""
    try:
        yield
    except BaseExceptionGroup as error:
        if error.split((anyio.BrokenResourceError, anyio.ClosedResourceError))[1] is not None:
            raise
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError from error
        log.info("the client is gone")


class _PipeReader:
    """The lines of a pipe: what the SDK asks of a file to read."""

    def __init__(self, threads: ThreadPool, descriptor: int) -> None:
        self._threads = threads
        self._descriptor = descriptor

    async def __aiter__(self) -> AsyncIterator[str]:
        rest = b""
        while chunk := await self._threads.run(os.read, self._descriptor, CHUNK_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield line.decode(errors="replace")
            if len(rest) > MAX_MESSAGE_BYTES:
                log.error("a message has more than %d bytes: the connection ends", MAX_MESSAGE_BYTES)
                return


class _PipeWriter:
    """The writing end of a pipe: what the SDK asks of a file to write."""

    def __init__(self, threads: ThreadPool, descriptor: int) -> None:
        self._threads = threads
        self._descriptor = descriptor

    async def write(self, text: str) -> int:
        try:
            await self._threads.run(_write_all, self._descriptor, text.encode(errors="replace"))
        except BrokenPipeError:  # nobody reads any more, so this is the end
            raise anyio.ClosedResourceError from None
        return len(text)

    async def flush(self) -> None:
        """Nothing is held back."""


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


@contextmanager
def _stdout_redirected() -> Iterator[int]:
    """The standard output as it was; meanwhile, what anybody else writes there goes to standard error."""
    sys.stdout.flush()
    stdout_descriptor = sys.stdout.fileno()
    protocol_descriptor = os.dup(stdout_descriptor)
    os.dup2(sys.stderr.fileno(), stdout_descriptor)
    try:
        yield protocol_descriptor
    finally:
        sys.stdout.flush()
        # It is not closed: a thread may still be writing, and its number would be given to another file.
        os.dup2(protocol_descriptor, stdout_descriptor)
