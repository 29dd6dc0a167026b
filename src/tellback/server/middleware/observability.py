"""Observability middleware: request ids, the access log, metrics, trace spans, and a response to unhandled errors."""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tellback import telemetry
from tellback.server.lifecycle import CLIENT_CLOSED_REQUEST
from tellback.server.operations.logs import current_request_id, current_trace_id
from tellback.server.operations.metrics import Metrics
from tellback.server.problems import any_error_response

if TYPE_CHECKING:
    from opentelemetry.trace import Span

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")

access_log = logging.getLogger("tellback.server.access")

REQUEST_ID_HEADER = b"x-request-id"
UNMATCHED_ROUTE = "(none)"
"""The route label of unmatched requests. Their paths are unbounded, so they cannot be labels."""

QUIET_ROUTES = frozenset({"/health/live", "/health/ready", "/metrics"})
"""Routes that monitoring calls every few seconds; only their failures are logged."""

KNOWN_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

_ACCESS_LOG_FORMAT = "%s %s %d, %.1f ms, %d bytes"
_REQUEST_ID_PATTERN = re.compile(r"[A-Za-z0-9._:-]{1,100}")


@dataclass(frozen=True, slots=True)
class TraceParent:
    """The content of a `traceparent` header."""

    trace_id: str
    span_id: str
    flags: str


def parse_traceparent(header: str | None) -> TraceParent | None:
    """Parse a `traceparent` header; None if it is missing or invalid.

    >>> parse_traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").trace_id
    '4bf92f3577b34da6a3ce929d0e0e4736'
    >>> parse_traceparent("00-00000000000000000000000000000000-00f067aa0ba902b7-01") is None
    True
    """
    match = None if header is None or len(header) > 200 else _TRACEPARENT.fullmatch(header.strip())
    if match is None:
        return None
    version, trace_id, span_id, flags, rest = match.groups()
    is_known = version != "ff" and not (version == "00" and rest)
    if not is_known or not trace_id.strip("0") or not span_id.strip("0"):
        return None
    return TraceParent(trace_id, span_id, flags)


class RequestSpan:
    """The span of a request, as a context manager. It does nothing unless tracing is configured."""

    __slots__ = ("_attached", "_span")

    def __init__(self, method: str, parent: TraceParent | None) -> None:
        self._attached: Any = None
        self._span = _start_span(method, parent)

    @property
    def trace_id(self) -> str | None:
        """The trace id, if there is a span."""
        return None if self._span is None else f"{self._span.get_span_context().trace_id:032x}"

    def __enter__(self) -> Self:
        if self._span is not None:
            from opentelemetry import context, trace

            self._attached = context.attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._span is not None:
            from opentelemetry import context

            context.detach(self._attached)
            self._span.end()

    def record_response(self, name: str, status: int, attributes: Mapping[str, Any]) -> None:
        if self._span is None:
            return
        from opentelemetry.trace import StatusCode

        self._span.update_name(name)
        self._span.set_attributes({"http.response.status_code": status, **attributes})
        if status >= 500:
            self._span.set_status(StatusCode.ERROR)


def _start_span(method: str, parent: TraceParent | None) -> Span | None:
    tracer = telemetry.tracer()
    if tracer is None:
        return None
    from opentelemetry import context, trace

    parent_context = context.Context()
    if parent is not None:
        flags = trace.TraceFlags(int(parent.flags, 16))
        remote = trace.SpanContext(int(parent.trace_id, 16), int(parent.span_id, 16), True, flags)
        parent_context = trace.set_span_in_context(trace.NonRecordingSpan(remote), parent_context)
    attributes = {"http.request.method": method}
    return tracer.start_span(method, context=parent_context, kind=trace.SpanKind.SERVER, attributes=attributes)


class ObservabilityMiddleware:
    """The outermost middleware: sets `request_id` and `trace_id` in `scope["state"]`, and handles unexpected errors.

    An unexpected error becomes a 500 response with the request id. If the response has begun, the connection is closed.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        observed = _ObservedRequest(scope, send, self._metrics)
        tokens = current_request_id.set(observed.request_id), current_trace_id.set(observed.trace_id)
        try:
            with observed.span:
                try:
                    await self._respond(observed, receive)
                finally:
                    observed.end()
        finally:
            current_request_id.reset(tokens[0])
            current_trace_id.reset(tokens[1])

    async def _respond(self, observed: _ObservedRequest, receive: Receive) -> None:
        try:
            await self._app(observed.scope, receive, observed.send)
        except asyncio.CancelledError:
            observed.status = observed.status or CLIENT_CLOSED_REQUEST
            raise
        except Exception as error:  # noqa: BLE001 - logged by any_error_response
            response = any_error_response(error, observed.request_id)
            if observed.status:  # an incomplete response makes the server close the connection
                observed.status = 500
                return
            await response(observed.scope, receive, observed.send)


class _ObservedRequest:
    """A request in progress. Reads the raw headers once, because this code runs for every request."""

    __slots__ = (
        *("_is_stream", "_metrics", "_root", "_send", "_size", "_started"),
        *("method", "request_id", "scope", "span", "status", "trace_id"),
    )

    def __init__(self, scope: Scope, send: Send, metrics: Metrics) -> None:
        client_id, parent = _read_trace_headers(scope["headers"])
        random_hex = f"{random.getrandbits(224):056x}"  # ids, not secrets
        self.scope = scope
        self.method = scope["method"] if scope["method"] in KNOWN_METHODS else "OTHER"
        self.span = RequestSpan(self.method, parent)
        self.request_id = client_id or f"req_{random_hex[:24]}"
        self.trace_id = self.span.trace_id or (parent.trace_id if parent else random_hex[24:])
        self.status = 0
        self._send = send
        self._metrics = metrics
        self._root = scope.get("root_path", "")
        self._started = time.perf_counter()
        self._size = 0
        self._is_stream = False
        state = scope.setdefault("state", {})
        state["request_id"], state["trace_id"] = self.request_id, self.trace_id

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            self._size += len(message.get("body", b""))
        elif message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [each for each in message.get("headers", ()) if each[0].lower() != REQUEST_ID_HEADER]
            if any(name == b"content-type" and value.startswith(b"text/event-stream") for name, value in headers):
                self._is_stream = True
                self._metrics.open_streams.inc()
            headers.append((REQUEST_ID_HEADER, self.request_id.encode()))
            message = {**message, "headers": headers}
        await self._send(message)

    def end(self) -> None:
        seconds, route = time.perf_counter() - self._started, self._route()
        status = self.status or CLIENT_CLOSED_REQUEST
        if self._is_stream:
            self._metrics.open_streams.dec()
        self._metrics.record_request(self.method, route, status, seconds)
        self.span.record_response(f"{self.method} {route}", status, {"http.route": route})
        level = logging.DEBUG if route in QUIET_ROUTES and status < 400 else logging.INFO
        if access_log.isEnabledFor(level):
            self._log(level, route, status, round(seconds * 1_000, 1))

    def _log(self, level: int, route: str, status: int, ms: float) -> None:
        values = (self.method, route, status, ms, self._size)
        fields: dict[str, Any] = dict(zip(("method", "route", "status", "ms", "bytes"), values, strict=True))
        caller = self.scope["state"].get("caller")
        if caller is not None:
            fields["credential"], fields["tenant"] = caller.principal.id, caller.principal.tenant_id
        # Build the record directly: `logging` would look up the calling code, which is most of the cost.
        record = logging.LogRecord(access_log.name, level, __file__, 0, _ACCESS_LOG_FORMAT, values, None)
        record.fields, record.is_redacted = fields, True
        access_log.handle(record)

    def _route(self) -> str:
        """Return the path template, with parameter names in braces."""
        mounted = self.scope.get("root_path", "").removeprefix(self._root)
        path = getattr(self.scope.get("route"), "path", None)
        if path is None and "endpoint" in self.scope and not self.scope.get("path_params"):
            path = self.scope["path"]  # a matched path without parameters
        return str(mounted or path or UNMATCHED_ROUTE)


def _read_trace_headers(headers: Iterable[tuple[bytes, bytes]]) -> tuple[str | None, TraceParent | None]:
    """Return the request id and trace parent sent by the client, if they are valid."""
    request_id, parent = None, None
    for name, value in headers:
        if name == REQUEST_ID_HEADER:
            request_id = parse_request_id(value.decode("latin-1"))
        elif name == b"traceparent":
            parent = parse_traceparent(value.decode("latin-1"))
    return request_id, parent


def parse_request_id(text: str) -> str | None:
    """Return the id if it is short and plain; it is used in logs and headers.

    >>> parse_request_id("web-42"), parse_request_id("web 42")
    ('web-42', None)
    """
    return text if _REQUEST_ID_PATTERN.fullmatch(text) else None
