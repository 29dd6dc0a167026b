"""Every request is seen: it has an id, one line in the log, and a place in the metrics; failures have an answer."""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from collections.abc import Iterable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tellback.server.disconnects import LEFT
from tellback.server.logs import request_id_now, trace_id_now
from tellback.server.metrics import Metrics
from tellback.server.problems import problem_for
from tellback.server.tracing import RequestSpan, TraceParent, read_parent

access_log = logging.getLogger("tellback.server.access")

REQUEST_ID = b"x-request-id"
NO_ROUTE = "(none)"
"""The route of what matches none: paths are not for labels, as there are endlessly many."""

QUIET = frozenset({"/health/live", "/health/ready", "/metrics"})
"""What is asked every few seconds by machines, and of interest only when it fails."""

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

_LINE = "%s %s %d, %.1f ms, %d bytes"
_PLAIN_ID = re.compile(r"[A-Za-z0-9._:-]{1,100}")


class Observing:
    """The outermost layer. Puts `request_id` and `trace_id` in `scope["state"]`, and turns what nobody foresaw into a
    500 that names the request; where the answer has begun already, the connection ends instead."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        seen = _Seen(scope, send, self._metrics)
        tokens = request_id_now.set(seen.request_id), trace_id_now.set(seen.trace_id)
        try:
            with seen.span:
                try:
                    await self._answered(seen, receive)
                finally:
                    seen.end()
        finally:
            request_id_now.reset(tokens[0])
            trace_id_now.reset(tokens[1])

    async def _answered(self, seen: _Seen, receive: Receive) -> None:
        try:
            await self._app(seen.scope, receive, seen.send)
        except asyncio.CancelledError:
            seen.status = seen.status or LEFT
            raise
        except Exception as error:  # noqa: BLE001 - told in the log
            answer = problem_for(error, seen.request_id)
            if seen.status:  # not completing the answer makes the server end the connection
                seen.status = 500
                return
            await answer(seen.scope, receive, seen.send)


class _Seen:
    """A request while it is answered. All requests pass here: it looks at headers as they are, once."""

    __slots__ = (
        "_begun", "_is_stream", "_metrics", "_root", "_send", "_size",
        "method", "request_id", "scope", "span", "status", "trace_id",
    )  # fmt: skip

    def __init__(self, scope: Scope, send: Send, metrics: Metrics) -> None:
        given, parent = _given(scope["headers"])
        made = f"{random.getrandbits(224):056x}"  # ids to tell requests apart, and no secrets
        self.scope = scope
        self.method = scope["method"] if scope["method"] in METHODS else "OTHER"
        self.span = RequestSpan(self.method, parent)
        self.request_id = given or f"req_{made[:24]}"
        self.trace_id = self.span.trace_id or (parent.trace_id if parent else made[24:])
        self.status = 0
        self._send = send
        self._metrics = metrics
        self._root = scope.get("root_path", "")
        self._begun = time.perf_counter()
        self._size = 0
        self._is_stream = False
        state = scope.setdefault("state", {})
        state["request_id"], state["trace_id"] = self.request_id, self.trace_id

    async def send(self, message: Message) -> None:
        """Pass on a part of the answer."""
        if message["type"] == "http.response.body":
            self._size += len(message.get("body", b""))
        elif message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [each for each in message.get("headers", ()) if each[0].lower() != REQUEST_ID]
            if any(name == b"content-type" and value.startswith(b"text/event-stream") for name, value in headers):
                self._is_stream = True
                self._metrics.stream_begins()
            headers.append((REQUEST_ID, self.request_id.encode()))
            message = {**message, "headers": headers}
        await self._send(message)

    def end(self) -> None:
        """Note how it went."""
        seconds, route, status = time.perf_counter() - self._begun, self._route(), self.status or LEFT
        if self._is_stream:
            self._metrics.stream_ends()
        self._metrics.request_ends(self.method, route, status, seconds)
        self.span.answered(f"{self.method} {route}", status, {"http.route": route})
        level = logging.DEBUG if route in QUIET and status < 400 else logging.INFO
        if access_log.isEnabledFor(level):
            self._log(level, route, status, round(seconds * 1_000, 1))

    def _log(self, level: int, route: str, status: int, ms: float) -> None:
        told = (self.method, route, status, ms, self._size)
        fields: dict[str, Any] = dict(zip(("method", "route", "status", "ms", "bytes"), told, strict=True))
        caller = self.scope["state"].get("caller")
        if caller is not None:
            fields["credential"], fields["tenant"] = caller.principal.id, caller.principal.tenant_id
        # Made by hand: where a line comes from is known, and finding it out is most of the cost.
        record = logging.LogRecord(access_log.name, level, __file__, 0, _LINE, told, None)
        record.fields, record.is_discreet = fields, True
        access_log.handle(record)

    def _route(self) -> str:
        """The template of the path, in which ids are names in braces."""
        mounted = self.scope.get("root_path", "").removeprefix(self._root)
        path = getattr(self.scope.get("route"), "path", None)
        if path is None and "endpoint" in self.scope and not self.scope.get("path_params"):
            path = self.scope["path"]  # it was found, and nothing in it varies
        return str(mounted or path or NO_ROUTE)


def _given(headers: Iterable[tuple[bytes, bytes]]) -> tuple[str | None, TraceParent | None]:
    """The request's id and its place in a trace, as far as the caller gave them in a form that can be used."""
    request_id, parent = None, None
    for name, value in headers:
        if name == REQUEST_ID:
            request_id = plain_id(value.decode("latin-1"))
        elif name == b"traceparent":
            parent = read_parent(value.decode("latin-1"))
    return request_id, parent


def plain_id(given: str) -> str | None:
    """An id if it is short and plain, since it goes into logs and headers.

    >>> plain_id("web-42"), plain_id("web 42")
    ('web-42', None)
    """
    return given if _PLAIN_ID.fullmatch(given) else None
