"""A request's place in a trace: the W3C header `traceparent`, and a span for whoever wants to see it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tellback import telemetry

if TYPE_CHECKING:
    from opentelemetry.trace import Span

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


@dataclass(frozen=True, slots=True)
class TraceParent:
    """What `traceparent` says."""

    trace_id: str
    span_id: str
    flags: str


def parse_traceparent(header: str | None) -> TraceParent | None:
    """The trace a caller is in, or None if the header is not there or not valid.

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
    """The span of a request, for a `with` block: what happens in it is below it. Off unless tracing is set up."""

    __slots__ = ("_attached", "_span")

    def __init__(self, method: str, parent: TraceParent | None) -> None:
        self._attached: Any = None
        self._span = _start_span(method, parent)

    @property
    def trace_id(self) -> str | None:
        """The id of its trace, if there is a span."""
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
        """Note how it went."""
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
