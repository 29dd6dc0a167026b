"""The metrics for Prometheus, and access to them."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from tellback import Tellback
from tellback.errors import StoreUnavailableError
from tellback.server import ServerSettings, create_app
from tellback.server.operations.metrics import remove_dead_processes
from tellback.server.settings import is_loopback
from tests.support.http_server import app_client

pytestmark = pytest.mark.slow


@pytest.fixture
async def tb() -> AsyncIterator[Tellback]:
    async with Tellback(":memory:", worker=False) as tb:
        yield tb


def app_of(tb: Tellback, **settings: Any) -> FastAPI:
    return create_app(tb, ServerSettings(open=True, **settings), opens=False)


def from_elsewhere(app: FastAPI) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(app, client=("192.0.2.7", 4000))
    return httpx2.AsyncClient(transport=transport, base_url="http://192.0.2.1")


def sample(text: str, name: str, **labels: str) -> float:
    """Return the sum of a metric's samples with these labels."""
    found = re.findall(rf"^{name}(?:{{(.*?)}})? (\S+)$", text, re.MULTILINE)
    expected = [f'{label}="{value}"' for label, value in labels.items()]
    return sum(float(value) for labelled, value in found if all(each in labelled for each in expected))


async def read_metrics(app: FastAPI) -> str:
    async with app_client(app) as client:
        answer = await client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    return answer.text


async def test_requests_are_counted_by_route_and_class_of_status(tb: Tellback) -> None:
    app = app_of(tb)
    async with app_client(app) as client:
        for id in ("conv_a", "conv_b"):
            await client.get(f"/ai-conversations/{id}")
        await client.get("/ai-conversations")
        await client.request("BREW", "/ai-conversations")
    text = await read_metrics(app)
    assert sample(text, "tellback_requests_total", route="/ai-conversations/{id}", status="4xx") == 2
    assert sample(text, "tellback_requests_total", route="/ai-conversations", status="2xx") == 1
    assert sample(text, "tellback_request_seconds_count", route="/ai-conversations/{id}", method="GET") == 2
    assert "conv_a" not in text
    assert "BREW" not in text


async def test_two_apps_of_one_process_have_separate_metrics(tb: Tellback) -> None:
    one, other = app_of(tb), app_of(tb)
    async with app_client(one) as client:
        await client.get("/ai-conversations")
    assert sample(await read_metrics(one), "tellback_requests_total", route="/ai-conversations") == 1
    assert sample(await read_metrics(other), "tellback_requests_total", route="/ai-conversations") == 0


async def test_streams_are_counted_while_they_are_open(tb: Tellback) -> None:
    app, go_on = app_of(tb), asyncio.Event()

    async def events() -> AsyncIterator[bytes]:
        yield b": \n\n"
        await go_on.wait()

    @app.get("/stream")
    async def stream() -> StreamingResponse:
        return StreamingResponse(events(), media_type="text/event-stream")

    async with app_client(app) as client:
        streaming = asyncio.create_task(client.get("/stream"))
        async with asyncio.timeout(10):
            while sample(await read_metrics(app), "tellback_streams_open") != 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        go_on.set()
        await streaming
    assert sample(await read_metrics(app), "tellback_streams_open") == 0


async def test_rejected_requests_are_counted(tb: Tellback) -> None:
    app = create_app(tb, ServerSettings(rate_limit=1), opens=False)
    secret = (await tb.keys.create("app")).secret
    async with app_client(app, secret, "maya") as client:
        statuses = [(await client.get("/ai-conversations")).status_code for _ in range(3)]
        await client.get("/ai-conversations", headers={"Authorization": "Bearer nonsense"})
    text = await read_metrics(app)
    assert sample(text, "tellback_rate_limited_total") == statuses.count(429) > 0
    assert sample(text, "tellback_auth_failures_total") == 1


async def test_jobs_are_counted_with_few_queries(tb: Tellback, monkeypatch: pytest.MonkeyPatch) -> None:
    maya = tb.user("maya")
    space = await maya.memory.create_space("facts")
    conversation = await maya.conversations.create("chat")
    await maya.conversations.append_user_message(conversation.id, "Hello.")
    await maya.memory.run_extraction_for_conversation(conversation.id, space_id=space.id)
    statuses, list_jobs = [], tb.store.jobs.list_jobs

    async def count_jobs(*args: Any, **kwargs: Any) -> Any:
        statuses.append(kwargs["status"])
        return await list_jobs(*args, **kwargs)

    monkeypatch.setattr(tb.store.jobs, "list_jobs", count_jobs)
    app = app_of(tb)
    for _ in range(5):
        assert sample(await read_metrics(app), "tellback_jobs", status="queued") == 1
    assert len(statuses) == 3


async def test_a_failing_store_does_not_affect_other_metrics(tb: Tellback, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unavailable(*_: Any, **__: Any) -> Any:
        raise StoreUnavailableError("gone")

    monkeypatch.setattr(tb.store.jobs, "list_jobs", unavailable)
    assert "tellback_requests_total" in await read_metrics(app_of(tb))


async def test_metrics_are_only_available_locally(tb: Tellback) -> None:
    async with from_elsewhere(app_of(tb)) as client:
        answer = await client.get("/metrics")
    assert answer.status_code == 403
    assert answer.json()["code"] == "not-allowed"


@pytest.mark.parametrize("is_open", [True, False])
async def test_dns_rebinding_pages_cannot_read_metrics(tb: Tellback, is_open: bool) -> None:
    app = create_app(tb, ServerSettings(open=is_open), opens=False)
    async with app_client(app) as client:
        for headers in (
            {"Host": "evil.example.com"},
            {"Host": ""},
            {"Origin": "https://evil.example.com"},
            {"X-Forwarded-For": "192.0.2.7"},
        ):
            assert (await client.get("/metrics", headers=headers)).status_code == 403, headers
        for host in ("localhost:8765", "127.0.0.1", "[::1]:8765"):
            assert (await client.get("/metrics", headers={"Host": host})).status_code == 200, host


async def test_a_configured_metrics_token_is_required_from_all_clients(tb: Tellback) -> None:
    app = app_of(tb, metrics_token="scrape-me")
    async with app_client(app) as local_client, from_elsewhere(app) as remote_client:
        for client in (local_client, remote_client):
            assert (await client.get("/metrics")).status_code == 401
            for wrong in ("Bearer scrape", "scrape-me", "Bearer scrape-me ä"):
                headers = {b"Authorization": wrong.encode("utf-8")}
                assert (await client.get("/metrics", headers=headers)).status_code in (400, 401)
            headers = {b"Authorization": b"Bearer scrape-me"}
            assert (await client.get("/metrics", headers=headers)).status_code == 200


def test_is_loopback_recognizes_local_addresses() -> None:
    local_hosts = ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "localhost")
    remote_hosts = ("0.0.0.0", "::", "10.0.0.1", "", "example.org", "::ffff:10.0.0.1")
    assert all(map(is_loopback, local_hosts))
    assert not any(map(is_loopback, remote_hosts))


COUNTS = """
import asyncio, sys
from tellback import Tellback
from tellback.server.operations.metrics import Metrics
metrics = Metrics()
metrics.record_request("GET", "/x", 200, 0.1)
metrics.open_streams.inc()
print("ready", flush=True)
sys.stdin.readline()
async def main():
    async with Tellback(":memory:", worker=False) as tb:
        print((await metrics.render(tb)).decode())
asyncio.run(main())
"""


def test_metrics_of_several_processes_are_added_up(tmp_path: Path) -> None:
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    started = [subprocess.Popen([sys.executable, "-c", COUNTS], **pipes) for _ in range(2)]  # type: ignore[call-overload]
    try:
        for process in started:
            assert process.stdout.readline() == "ready\n"
        started[0].kill()
        started[0].wait(20)
        text, _ = started[1].communicate("\n", timeout=40)
    finally:
        for process in started:
            process.kill()
            process.communicate()
    assert sample(text, "tellback_requests_total", route="/x") == 2
    assert sample(text, "tellback_streams_open") == 1, "the gauges of the dead process are removed"
    assert sample(text, "tellback_jobs", status="queued") == 0


def test_only_gauges_of_dead_processes_are_removed(tmp_path: Path) -> None:
    for name in ("gauge_livesum_999999999.db", f"gauge_livesum_{os.getpid()}.db", "counter_999999999.db"):
        (tmp_path / name).touch()
    remove_dead_processes(str(tmp_path))
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "counter_999999999.db",
        f"gauge_livesum_{os.getpid()}.db",
    ]
