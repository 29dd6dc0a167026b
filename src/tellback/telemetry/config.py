"""Where spans go and what they may contain: the configured tracer, or none."""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer, TracerProvider

log = logging.getLogger("tellback.telemetry")

CAPTURE_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"

_TRACE_MODULE = "opentelemetry.trace"
_CAPTURE_VALUES = ("true", "1", "span_only", "span_and_event")

P = ParamSpec("P")
R = TypeVar("R")


class _TracerSource:
    """What was configured, and the tracer made of it."""

    __slots__ = (
        "_capture_content",
        "_configured_provider",
        "_provider",
        "_tracer",
        "captures_content",
        "has_warned",
        "is_idle",
    )

    def __init__(self, tracer_provider: TracerProvider | None = None, capture_content: bool | None = None) -> None:
        self._configured_provider = tracer_provider
        self._capture_content = capture_content
        self._provider: TracerProvider | None = None
        self._tracer: Tracer | None = None
        self.is_idle = False
        self.captures_content = False
        self.has_warned = False

    def tracer(self, trace: Any) -> Tracer | None:
        provider: TracerProvider = self._configured_provider or trace.get_tracer_provider()
        if provider is self._provider:
            return self._tracer
        self.is_idle = isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider)
        self._tracer = None if self.is_idle else provider.get_tracer("tellback", sys.modules["tellback"].__version__)
        self.captures_content = _captures_by_environment() if self._capture_content is None else self._capture_content
        self._provider = provider
        return self._tracer


_source = _TracerSource()


def configure(*, tracer_provider: TracerProvider | None = None, capture_content: bool | None = None) -> None:
    """Say where spans go and what may be in them; whatever is not given is as it was at the start.

    Without `tracer_provider`, it is the one that the application has set for OpenTelemetry as a whole; without any,
    there are no spans. With `capture_content`, they carry what was said: messages, arguments and results of tools, the
    texts of errors. Where it is not given, `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true` does the same.

    >>> configure(capture_content=False)
    >>> configure()
    """
    global _source
    if tracer_provider is not None and not callable(getattr(tracer_provider, "get_tracer", None)):
        raise TypeError(
            f"tracer_provider is an OpenTelemetry TracerProvider, not {tracer_provider!r:.80}:"
            " make one with opentelemetry.sdk.trace.TracerProvider()."
        )
    _source = _TracerSource(tracer_provider, capture_content)


def tracer() -> Tracer | None:
    """The tracer, or None while nobody wants spans.

    Nobody does unless OpenTelemetry was loaded: to set up a tracer provider, one has to. So this loads nothing.
    """
    if _TRACE_MODULE not in sys.modules:
        return None
    trace: Any = sys.modules[_TRACE_MODULE]
    # Asking in the public way costs more than a span that is off may, as that looks into the environment.
    if _source.is_idle and getattr(trace, "_TRACER_PROVIDER", trace) is None:
        return None
    return _resolve_tracer(trace)


def captures_content() -> bool:
    """Whether spans may carry what was said."""
    return _source.captures_content


def suppress_errors(function: Callable[P, R]) -> Callable[P, R | None]:
    """Let a failure to observe be no failure of what is observed: it is logged, once, and gives None."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return function(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - tracers, processors and exporters may be anybody's code
            _warn_once(error)
            return None

    return wrapper


@suppress_errors
def _resolve_tracer(trace: Any) -> Tracer | None:
    return _source.tracer(trace)


def _warn_once(error: Exception) -> None:
    if not _source.has_warned:
        _source.has_warned = True
        log.warning("spans are incomplete: OpenTelemetry failed; this is said only once", exc_info=error)


def _captures_by_environment() -> bool:
    return os.environ.get(CAPTURE_VARIABLE, "").strip().lower() in _CAPTURE_VALUES
