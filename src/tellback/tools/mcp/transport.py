"""The transport under an MCP session: requests out, answers in, each of a bounded size.

The SDK's own transports hold messages of any size, keep reading after nobody waits, and pass our trace context on. An
`McpTransport` does none of that."""

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

AnswerFilter = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
"""Makes an answer to a method small and usable, before anything else reads it."""

_LONE_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class ConnectionBroken(Exception):
    """An answer can no longer come; the message says why."""

    def __init__(self, reason: str, *, was_sent: bool = True) -> None:
        super().__init__(reason)
        self.was_sent = was_sent


class McpTransport(ABC):
    """The channel of one connection, for the SDK's session to run on.

    `ended` is set when nothing more can be sent; `tool_changes` counts how often the server announced
    other tools.
    """

    def __init__(self, filter_answer: AnswerFilter) -> None:
        self.ended = asyncio.Event()
        self.tool_changes = 0
        self._filter_answer = filter_answer
        self._request_ids = itertools.count(1)

    @abstractmethod
    async def __aenter__(self) -> McpTransport: ...

    @abstractmethod
    async def __aexit__(self, *_: object) -> None: ...

    @abstractmethod
    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Send what has no answer; a failure is not reported."""

    @abstractmethod
    async def _request(self, request: dict[str, Any], opts: CallOptions) -> dict[str, Any]:
        """The message that answers a request; raises `ConnectionBroken` when none can come."""

    def describe_stderr(self) -> str:
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
        """The result of a request; raises `MCPError` if the server refuses it, and `ConnectionBroken`."""
        opts = opts or {}
        request = {"id": next(self._request_ids), **build_message(method, params)}
        try:
            async with asyncio.timeout(opts.get("timeout")):
                answer = await self._request(request, opts)
        except TimeoutError:
            raise MCPError(types.REQUEST_TIMEOUT, f"{method} was not answered in time") from None
        return await self._filter_answer(method, _extract_result(answer))


def build_message(method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
    """A message to send; `params` is left out where there are none."""
    return {"jsonrpc": "2.0", "method": method, **({"params": dict(params)} if params else {})}


def build_cancellation(request: Mapping[str, Any]) -> dict[str, Any]:
    """The message that tells a server to stop."""
    return build_message("notifications/cancelled", {"requestId": request["id"], "reason": "nobody waits any more"})


def build_response(request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to what a server asks of us: we are here, and can do nothing for it."""
    if request["method"] == "ping":
        return {"jsonrpc": "2.0", "id": request["id"], "result": {}}
    error = {"code": types.METHOD_NOT_FOUND, "message": "Method not found"}
    return {"jsonrpc": "2.0", "id": request["id"], "error": error}


def encode(message: Mapping[str, Any]) -> bytes:
    """A message as one line of JSON, without the line's end."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def decode(data: bytes) -> dict[str, Any] | None:
    """A message as it came, or nothing if it is none. Characters and numbers that do not exist are replaced.

    Raises `ConnectionBroken` for one that would take too long to read.
    """
    if data.count(b"[") + data.count(b"{") > MAX_VALUES:
        raise ConnectionBroken(f"it sent a message of more than {MAX_VALUES} values")
    try:
        parsed = json.loads(data.decode("utf-8", "replace"), parse_constant=lambda _: None)
        if _LONE_SURROGATE.search(data):
            parsed = json.loads(json.dumps(parsed, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _extract_result(answer: Mapping[str, Any]) -> dict[str, Any]:
    error, result = answer.get("error"), answer.get("result")
    if isinstance(error, dict):
        code = error.get("code")
        error_code = code if isinstance(code, int) else types.INTERNAL_ERROR
        raise MCPError(error_code, str(error.get("message", ""))[:1_000], error.get("data"))
    if not isinstance(result, dict):
        raise MCPError(types.PARSE_ERROR, "the answer holds neither a result nor an error")
    return result
