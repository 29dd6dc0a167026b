"""Temporary outages: subscriptions resume, other calls raise."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tellback import StoreError, Tellback
from tellback.client import TellbackClient, admin
from tellback.errors import RateLimitedError, RemoteUnavailableError
from tellback.server.lifecycle import ShutdownSignal
from tests.integration.client.server_apps import Gate, running_client

HTML = (502, b"text/html", b"<html>Bad gateway")


def problem_response(status: int, code: str, data: str = "null") -> tuple[int, bytes, bytes]:
    body = f'{{"code": "{code}", "detail": "Not now.", "status": {status}, "data": {data}}}'
    return status, b"application/problem+json", body.encode()


UNAVAILABLE_RESPONSES = {
    "a proxy": HTML,
    "a proxy with JSON": (503, b"application/json", b'{"message": "Service Unavailable"}'),
    "stopping": problem_response(503, "stopping"),
    "not ready": problem_response(503, "not-ready"),
    "the issuer": problem_response(503, "issuer-unavailable"),
    "the store": problem_response(503, "store-unavailable"),
    "a locked store": problem_response(503, "store-busy"),
    "too many": problem_response(429, "rate-limited", '{"retryAfter": 0.05}'),
}


@asynccontextmanager
async def followed_events(client: TellbackClient) -> Any:
    """Collect the subjects of events."""
    seen: list[str | None] = []

    async def follow() -> None:
        async for event in client.user("maya").events.subscribe(types=["conversation.created"]):
            seen.append(event.subject_id)  # noqa: PERF401 - streamed

    task = asyncio.create_task(follow())
    yield seen, task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def wait_until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("reason", UNAVAILABLE_RESPONSES)
async def test_a_subscription_survives_proxy_errors(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "RECONNECT_SECONDS", 0.02)
    tb = Tellback(":memory:")
    async with running_client(tb, Gate) as (client, gate), followed_events(client) as (seen, task):
        first = await client.user("maya").conversations.create("chat")
        await wait_until(lambda: seen == [first.id])
        gate.answer = UNAVAILABLE_RESPONSES[reason]
        gate._app.state.feed.end()
        await wait_until(lambda: gate.times > 2 or task.done())
        second = await tb.user("maya").conversations.create("chat")
        gate.answer = None
        await wait_until(lambda: task.done() or len(seen) == 2)
        assert seen == [first.id, second.id]
        assert not task.done()


@pytest.mark.parametrize("reason", UNAVAILABLE_RESPONSES)
async def test_a_subscription_that_cannot_start_raises(reason: str) -> None:
    async with running_client(Tellback(":memory:"), Gate) as (client, gate):
        gate.answer = UNAVAILABLE_RESPONSES[reason]
        with pytest.raises((RemoteUnavailableError, StoreError, RateLimitedError)):
            await anext(client.user("maya").events.subscribe())


async def test_a_write_with_unknown_outcome_raises_without_a_retry() -> None:
    async with running_client(Tellback(":memory:"), Gate) as (client, gate):
        gate.answer = problem_response(503, "store-unavailable", '{"inDoubt": true}')
        with pytest.raises(StoreError) as caught:
            await client.user("maya").conversations.create("chat")
        assert caught.value.in_doubt
        assert gate.times == 1
        with pytest.raises(StoreError):
            await client.user("maya").conversations.list()
        assert gate.times == 4, "reading a list is repeated"


async def test_a_turn_during_shutdown_raises() -> None:
    async with running_client(Tellback(":memory:")) as (client, app):
        ShutdownSignal.for_app(app).set()
        with pytest.raises(RemoteUnavailableError, match="shutting down"):
            await client.user("maya").chat("Hello")
        with pytest.raises(RemoteUnavailableError, match="shutting down"):
            await anext(client.user("maya").chat_stream("Hello"))


async def test_a_proxys_502_means_an_unavailable_server() -> None:
    async with running_client(Tellback(":memory:"), Gate, retries=0) as (client, gate):
        gate.answer = HTML
        with pytest.raises(RemoteUnavailableError, match="502") as caught:
            await client.user("maya").conversations.list()
        assert caught.value.status == 502


@pytest.mark.filterwarnings("ignore")
async def test_an_interrupted_export_leaves_no_file(tmp_path: Any) -> None:
    tb = Tellback(":memory:")
    async with running_client(tb, Gate) as (client, gate):
        await tb.user("maya").conversations.create("chat", title="A title that makes it longer")
        gate.cut_after = 40
        with pytest.raises(RemoteUnavailableError, match="interrupted"):
            await client.user("maya").admin.export_user_data(to=tmp_path / "export.json")
        assert list(tmp_path.iterdir()) == []
        gate.cut_after = None
        size = await client.user("maya").admin.export_user_data(to=tmp_path / "export.json", include_vectors=True)
        assert (tmp_path / "export.json").stat().st_size == size


async def test_two_exports_to_one_path_do_not_disturb_each_other(tmp_path: Any) -> None:
    tb = Tellback(":memory:")
    async with running_client(tb) as (client, _):
        await tb.user("maya").conversations.create("chat")
        admin, path = client.user("maya").admin, tmp_path / "export.json"
        sizes = await asyncio.gather(*(admin.export_user_data(to=path) for _ in range(3)))
        assert path.stat().st_size in sizes
        assert list(tmp_path.iterdir()) == [path]
        assert path.stat().st_mode & 0o777 == 0o600
