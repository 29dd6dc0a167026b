"""`/metrics`: what Prometheus reads.

Where several worker processes serve one port, each counts into files of a folder they share
(`PROMETHEUS_MULTIPROC_DIR`, set before prometheus-client is loaded), and whichever of them is asked adds up all.
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
from tellback.server.answers import problems
from tellback.server.callers import Home
from tellback.server.hosts import Hosts
from tellback.server.hosts import is_loopback as is_loopback

log = logging.getLogger("tellback.server")

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)

LOOK_SECONDS = 15.0
"""How often at most the store is asked for its jobs, however often `/metrics` is."""

ASK_SECONDS = 2.0
MOST_JOBS = 500
"""How long the store may take for that, and how many jobs are counted of each kind."""

router = APIRouter(tags=["operations"])

_THIS_MACHINE = Hosts((), is_open=True)

_METRICS: dict[int | str, dict[str, Any]] = {
    200: {"description": "Metrics.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


@router.get("/metrics", response_class=Response, responses={**problems(), **_METRICS})
async def read_metrics(request: Request) -> Response:
    """Metrics in the format of Prometheus: for callers on this machine, or with the server's metrics token."""
    home: Home = request.app.state.home
    check_reader(request, home.settings.metrics_token)
    metrics: Metrics = request.app.state.metrics
    return Response(await metrics.text(home.rc), headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"})


def check_reader(request: Request, token: str | None) -> None:
    """Refuse who may not read metrics. A token that is set is needed by all: behind a proxy everyone seems local.

    Without one they are for this machine, under a name of its own: a page's name that leads here is not.
    """
    if token is not None:
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            raise NotAuthenticatedError("Metrics need `Authorization: Bearer <metrics token>`.")
        return
    try:
        _THIS_MACHINE.check(dict(request.scope["headers"]), request.client)
        is_near = request.client is not None
    except NotAllowedError:
        is_near = False
    if not is_near:
        raise NotAllowedError(
            "Metrics are for this machine alone, as http://localhost or http://127.0.0.1, until the server has a"
            " metrics token."
        )


class Metrics:
    """What an app counts, in a registry of its own."""

    def __init__(self) -> None:
        # Whoever set the variable too late gets the counts of the process that is asked.
        self._folder = os.environ.get(FOLDER_VARIABLE) if ValueClass._multiprocess else None
        own: dict[str, Any] = {"registry": CollectorRegistry()}
        self._registry: CollectorRegistry = own["registry"]
        labels = ("method", "route", "status")
        self._requests = Counter("tellback_requests", "Requests, by route and class of status.", labels, **own)
        self._seconds = Histogram(
            "tellback_request_seconds", "How long requests took.", ("method", "route"), buckets=BUCKETS, **own
        )
        self._streams = Gauge("tellback_streams_open", "Streams open now.", multiprocess_mode="livesum", **own)
        self._limited = Counter("tellback_rate_limited", "Requests over their credential's limit.", **own)
        self._refused = Counter("tellback_auth_failures", "Requests without a valid credential.", **own)
        self._jobs = Gauge(
            "tellback_jobs",
            f"Jobs in the store, by status; counted up to {MOST_JOBS}.",
            ("status",),
            multiprocess_mode="mostrecent",
            **own,
        )
        self._known: dict[tuple[str, str, str], Counter] = {}
        self._timed: dict[tuple[str, str], Histogram] = {}
        self._looked = float("-inf")
        self._looking = asyncio.Lock()

    def request_ends(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        key = (method, route, f"{status // 100}xx")
        counter = self._known.get(key)
        if counter is None:
            counter = self._known[key] = self._requests.labels(*key)
        counter.inc()
        timer = self._timed.get((method, route))
        if timer is None:
            timer = self._timed[method, route] = self._seconds.labels(method, route)
        timer.observe(seconds)
        if status == 429:
            self._limited.inc()
        elif status == 401:
            self._refused.inc()

    def stream_begins(self) -> None:
        """Count a stream that is open from now on."""
        self._streams.inc()

    def stream_ends(self) -> None:
        """Count it no more."""
        self._streams.dec()

    async def text(self, rc: Tellback) -> bytes:
        """All of it, as Prometheus reads it."""
        await self._look(rc)
        if self._folder is None:
            return generate_latest(self._registry)
        return await asyncio.to_thread(_of_all_processes, self._folder)

    async def _look(self, rc: Tellback) -> None:
        """Count the store's jobs, unless that was done lately."""
        async with self._looking:
            if time.monotonic() - self._looked < LOOK_SECONDS:
                return
            self._looked = time.monotonic()
            try:
                async with asyncio.timeout(ASK_SECONDS):
                    for status in ("queued", "running", "failed"):
                        found = await rc.jobs.list(status, limit=MOST_JOBS)
                        self._jobs.labels(status).set(len(found))
            except (StoreError, TimeoutError) as error:
                log.warning("jobs could not be counted: %s", type(error).__name__)


def _of_all_processes(folder: str) -> bytes:
    forget_dead(folder)
    registry = CollectorRegistry()
    MultiProcessCollector(registry, folder)  # type: ignore[no-untyped-call]
    return generate_latest(registry)


def forget_dead(folder: str) -> None:
    """Drop what processes that are gone had open; what they counted stays."""
    for path in Path(folder).glob("gauge_live*.db"):
        pid = path.stem.rpartition("_")[2]
        if pid.isdecimal() and not _is_alive(int(pid)):
            with contextlib.suppress(FileNotFoundError):  # another worker was asked at the same time
                mark_process_dead(int(pid), folder)  # type: ignore[no-untyped-call]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
