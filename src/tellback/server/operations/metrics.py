"""`/metrics` for Prometheus.

With several worker processes, each counts into files of a shared folder (`PROMETHEUS_MULTIPROC_DIR`, set before
prometheus-client is loaded), and the worker that Prometheus reads adds them up.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import os
import time
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.values import ValueClass

from tellback.app import Tellback
from tellback.errors import NotAllowedError, NotAuthenticatedError, StoreError
from tellback.server.auth import ServerContext
from tellback.server.responses import problem_responses
from tellback.server.settings import HostPolicy

log = logging.getLogger("tellback.server")

MULTIPROCESS_DIR_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)

JOB_REFRESH_SECONDS = 15.0
"""The minimum time between job counts, regardless of how often `/metrics` is read."""

STORE_TIMEOUT_SECONDS = 2.0
MAX_JOBS = 500
"""The timeout of the job count, and the largest count per status."""

router = APIRouter(tags=["operations"])

_LOOPBACK_ONLY = HostPolicy((), is_open=True)

_METRICS_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {"description": "Metrics.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


@router.get("/metrics", response_class=Response, responses={**problem_responses(), **_METRICS_RESPONSE})
async def read_metrics(request: Request) -> Response:
    """Return metrics in the Prometheus format. Needs the metrics token, or a client on this machine."""
    server_context: ServerContext = request.app.state.server_context
    check_metrics_access(request, server_context.settings.metrics_token)
    metrics: Metrics = request.app.state.metrics
    body = await metrics.render(server_context.tb)
    return Response(body, headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"})


def check_metrics_access(request: Request, token: str | None) -> None:
    """Raise unless the client may read metrics.

    If a token is configured, all clients need it, because requests through a proxy seem to come from this machine.
    Otherwise, only this machine may read metrics, and only under a loopback name: a web page could use a domain that
    resolves to this machine.
    """
    if token is not None:
        header = request.headers.get("authorization", "")
        if not hmac.compare_digest(header.encode(), f"Bearer {token}".encode()):
            raise NotAuthenticatedError("Reading metrics needs `Authorization: Bearer <metrics token>`.")
        return
    try:
        _LOOPBACK_ONLY.check(dict(request.scope["headers"]), request.client)
        is_local = request.client is not None
    except NotAllowedError:
        is_local = False
    if not is_local:
        raise NotAllowedError(
            "Without a metrics token, metrics are only available on this machine, as http://localhost or"
            " http://127.0.0.1."
        )


class Metrics:
    """The metrics of one app, in a separate registry."""

    def __init__(self) -> None:
        # If the variable was set too late, only this process is counted.
        self._folder = os.environ.get(MULTIPROCESS_DIR_VARIABLE) if ValueClass._multiprocess else None
        options: dict[str, Any] = {"registry": CollectorRegistry()}
        self._registry: CollectorRegistry = options["registry"]
        labels = ("method", "route", "status")
        self._requests = Counter("tellback_requests", "Requests, by method, route and status class.", labels, **options)
        self._seconds = Histogram(
            "tellback_request_seconds", "Duration of requests.", ("method", "route"), buckets=BUCKETS, **options
        )
        self.open_streams = Gauge("tellback_streams_open", "Open streams.", multiprocess_mode="livesum", **options)
        self._rate_limited = Counter("tellback_rate_limited", "Requests rejected by a rate limit.", **options)
        self._auth_failures = Counter("tellback_auth_failures", "Requests without a valid credential.", **options)
        self._jobs = Gauge(
            "tellback_jobs",
            f"Jobs in the store, by status; counted up to {MAX_JOBS}.",
            ("status",),
            multiprocess_mode="mostrecent",
            **options,
        )
        self._request_counters: dict[tuple[str, str, str], Counter] = {}
        self._request_timers: dict[tuple[str, str], Histogram] = {}
        self._refreshed_at = float("-inf")
        self._refresh_lock = asyncio.Lock()

    def record_request(self, method: str, route: str, status: int, seconds: float) -> None:
        key = (method, route, f"{status // 100}xx")
        counter = self._request_counters.get(key)
        if counter is None:
            counter = self._request_counters[key] = self._requests.labels(*key)
        counter.inc()
        timer = self._request_timers.get((method, route))
        if timer is None:
            timer = self._request_timers[method, route] = self._seconds.labels(method, route)
        timer.observe(seconds)
        if status == 429:
            self._rate_limited.inc()
        elif status == 401:
            self._auth_failures.inc()

    async def render(self, tb: Tellback) -> bytes:
        await self._refresh_job_counts(tb)
        if self._folder is None:
            return generate_latest(self._registry)
        return await asyncio.to_thread(_render_all_processes, self._folder)

    async def _refresh_job_counts(self, tb: Tellback) -> None:
        """Count the store's jobs, unless they were counted recently."""
        async with self._refresh_lock:
            if time.monotonic() - self._refreshed_at < JOB_REFRESH_SECONDS:
                return
            self._refreshed_at = time.monotonic()
            try:
                async with asyncio.timeout(STORE_TIMEOUT_SECONDS):
                    for status in ("queued", "running", "failed"):
                        found = await tb.jobs.list(status, limit=MAX_JOBS)
                        self._jobs.labels(status).set(len(found))
            except (StoreError, TimeoutError) as error:
                log.warning("Could not count jobs: %s", type(error).__name__)


def _render_all_processes(folder: str) -> bytes:
    remove_dead_processes(folder)
    registry = CollectorRegistry()
    MultiProcessCollector(registry, folder)  # type: ignore[no-untyped-call]
    return generate_latest(registry)


def remove_dead_processes(folder: str) -> None:
    """Remove the gauges of dead processes; their counters remain."""
    for path in Path(folder).glob("gauge_live*.db"):
        pid = path.stem.rpartition("_")[2]
        if pid.isdecimal() and not _is_alive(int(pid)):
            with contextlib.suppress(FileNotFoundError):  # another worker removed it at the same time
                mark_process_dead(int(pid), folder)  # type: ignore[no-untyped-call]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
