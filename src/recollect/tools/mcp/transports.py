"""The SDK's transports, opened with what we learn from them on the way."""

from __future__ import annotations

import os
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx2
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from recollect.tools.mcp.options import Address, Program, Target
from recollect.tools.mcp.stderr import StderrLog, StderrPipe

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

MAX_EVENT_BYTES = 32 * 1024 * 1024
_SESSION_HEADER = "mcp-session-id"


@dataclass(slots=True)
class Evidence:
    """What was seen of a connection beside its messages: it explains what went wrong."""

    stderr: StderrLog | None = None
    status: int | None = None
    session_gone: bool = False

    def explain(self) -> str:
        """A sentence to add to an error, or nothing."""
        if self.status is not None:
            return f" It answered with HTTP status {self.status}."
        if self.stderr is not None and self.stderr.last:
            return f" It last wrote: {' / '.join(self.stderr.last)[-500:]}"
        return ""


async def open_transport(
    stack: AsyncExitStack, server: str, target: Target, evidence: Evidence, read_timeout: float
) -> TransportStreams:
    """Start the program or the HTTP client; leaving the stack ends it."""
    if isinstance(target, Program):
        return await _start(stack, server, target, evidence)
    return await _reach(stack, target, evidence, read_timeout)


async def _start(stack: AsyncExitStack, server: str, program: Program, evidence: Evidence) -> TransportStreams:
    parameters = StdioServerParameters(
        command=program.command,
        args=list(program.args),
        env=dict(program.env) if program.env is not None else None,
        cwd=program.cwd,
        encoding_error_handler="replace",
    )
    if sys.platform == "win32":  # its event loop cannot read from such a pipe
        writing = os.open(os.devnull, os.O_WRONLY)
    else:
        evidence.stderr = StderrLog(server)
        pipe = StderrPipe(evidence.stderr)
        stack.push_async_callback(pipe.close)
        writing = await pipe.open()
    with os.fdopen(writing, "w") as errlog:
        return await stack.enter_async_context(stdio_client(parameters, errlog=errlog))


async def _reach(stack: AsyncExitStack, address: Address, evidence: Evidence, read_timeout: float) -> TransportStreams:
    async def note(response: httpx2.Response) -> None:
        if response.request.method != "POST":
            return
        evidence.status = response.status_code if response.status_code >= 400 else None
        if response.status_code == 404 and _SESSION_HEADER in response.request.headers:
            evidence.session_gone = True  # the protocol's way to say so: nothing of the request was done

    client = httpx2.AsyncClient(
        headers=dict(address.headers or {}),
        timeout=httpx2.Timeout(30, read=read_timeout),
        event_hooks={"response": [note]},
    )
    await stack.enter_async_context(client)
    return await stack.enter_async_context(
        streamable_http_client(address.url, http_client=client, max_sse_event_size=MAX_EVENT_BYTES)
    )
