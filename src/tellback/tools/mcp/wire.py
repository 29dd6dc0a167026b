"""What a session with a server speaks through: requests out, answers in, each of a bounded size.

The SDK's own transports hold messages of any size, and keep reading after nobody waits any more. They also tell the
server about our traces. A `Wire` does neither.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import anyio.abc
import mcp_types as types
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError

MAX_MESSAGE = 16 * 1024 * 1024
MAX_VALUES = 500_000
TOO_LONG = f"it sent a message of more than {MAX_MESSAGE // 1024 // 1024} MB"

Clean = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
"""Makes an answer to a method small and usable, before anything else reads it."""

_HALF_A_CHARACTER = re.compile(rb"\\u[dD][89a-fA-F]")


class Broken(Exception):
    """An answer can no longer come; the message says why."""

    def __init__(self, why: str, *, sent: bool = True) -> None:
        super().__init__(why)
        self.sent = sent


class Wire(ABC):
    """The channel of one connection, for the SDK's session to run on.

    `ended` is set when nothing more can be sent; `changes` counts how often the server said that its tools changed.
    """

    def __init__(self, clean: Clean) -> None:
        self.ended = asyncio.Event()
        self.changes = 0
        self._clean = clean
        self._numbers = itertools.count(1)

    @abstractmethod
    async def __aenter__(self) -> Wire: ...

    @abstractmethod
    async def __aexit__(self, *_: object) -> None: ...

    @abstractmethod
    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Send what has no answer; a failure is not reported."""

    @abstractmethod
    async def _ask(self, request: dict[str, Any], opts: CallOptions) -> dict[str, Any]:
        """The message that answers a request; raises `Broken` when none can come."""

    def last_words(self) -> str:
        """A sentence about what the server wrote beside its messages, for when it cannot be connected."""
        return ""

    async def run(
        self,
        on_request: Any,
        on_notify: Any,
        on_notify_intercept: Any = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Last as long as the channel; servers' requests and notifications are dealt with here, not by the session."""
        task_status.started()
        await self.ended.wait()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """The result of a request; raises `MCPError` if the server refuses it, and `Broken`."""
        opts = opts or {}
        request = {"id": next(self._numbers), **message(method, params)}
        try:
            async with asyncio.timeout(opts.get("timeout")):
                answer = await self._ask(request, opts)
        except TimeoutError:
            raise MCPError(types.REQUEST_TIMEOUT, f"{method} was not answered in time") from None
        return await self._clean(method, _result(answer))


def message(method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
    """A message to send; `params` is left out where there are none."""
    return {"jsonrpc": "2.0", "method": method, **({"params": dict(params)} if params else {})}


def cancelled(request: Mapping[str, Any]) -> dict[str, Any]:
    """The message that tells a server to stop."""
    return message("notifications/cancelled", {"requestId": request["id"], "reason": "nobody waits any more"})


def reply_to(request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to what a server asks of us: we are here, and can do nothing for it."""
    if request["method"] == "ping":
        return {"jsonrpc": "2.0", "id": request["id"], "result": {}}
    error = {"code": types.METHOD_NOT_FOUND, "message": "Method not found"}
    return {"jsonrpc": "2.0", "id": request["id"], "error": error}


def encode(sent: Mapping[str, Any]) -> bytes:
    """A message as one line of JSON, without the line's end."""
    return json.dumps(sent, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def decode(data: bytes) -> dict[str, Any] | None:
    """A message as it came, or nothing if it is none. Characters and numbers that do not exist are replaced.

    Raises `Broken` for one that would take too long to read.
    """
    if data.count(b"[") + data.count(b"{") > MAX_VALUES:
        raise Broken(f"it sent a message of more than {MAX_VALUES} values")
    try:
        found = json.loads(data.decode("utf-8", "replace"), parse_constant=lambda _: None)
        if _HALF_A_CHARACTER.search(data):
            found = json.loads(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _result(answer: Mapping[str, Any]) -> dict[str, Any]:
    error, result = answer.get("error"), answer.get("result")
    if isinstance(error, dict):
        code = error.get("code")
        known = code if isinstance(code, int) else types.INTERNAL_ERROR
        raise MCPError(known, str(error.get("message", ""))[:1_000], error.get("data"))
    if not isinstance(result, dict):
        raise MCPError(types.PARSE_ERROR, "the answer holds neither a result nor an error")
    return result
