"""The liveness and readiness probes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tellback import Tellback
from tellback.errors import StoreUnavailableError
from tellback.server import ServerSettings, create_app
from tellback.server.operations import health
from tests.support.http_server import app_client


async def test_a_server_is_ready_without_a_credential() -> None:
    async with Tellback(":memory:", worker=False) as tb:
        app = create_app(tb, ServerSettings(), opens=False)
        async with app_client(app) as client:
            for name in ("live", "ready"):
                answer = await client.get(f"/health/{name}")
                assert (answer.status_code, answer.json()) == (200, {"status": name})


async def test_a_stopping_server_is_live_but_not_ready() -> None:
    async with Tellback(":memory:", worker=False) as tb:
        app = create_app(tb, ServerSettings(), opens=False)
        app.state.stopping.set()
        async with app_client(app) as client:
            assert (await client.get("/health/live")).status_code == 200
            answer = await client.get("/health/ready")
    assert answer.status_code == 503
    assert answer.json()["code"] == "not-ready"
    assert answer.headers["retry-after"] == "1"


async def test_a_server_whose_store_is_closed_is_not_ready() -> None:
    app = create_app(Tellback(":memory:", worker=False), ServerSettings(), opens=False)
    async with app_client(app) as client:
        answer = await client.get("/health/ready")
    assert answer.status_code == 503
    assert "StoreClosedError" in answer.json()["detail"]


@pytest.mark.parametrize("fails", ["is unavailable", "is silent"])
async def test_concurrent_probes_share_one_store_check(fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call_count = 0

    async def latest() -> Any:
        nonlocal call_count
        call_count += 1
        if fails == "is silent":
            await asyncio.Event().wait()
        raise StoreUnavailableError("no server at db.internal")

    monkeypatch.setattr(health, "STORE_TIMEOUT_SECONDS", 0.05)
    monkeypatch.setattr(health, "CACHE_SECONDS", 100.0)
    async with Tellback(":memory:", worker=False) as tb:
        monkeypatch.setattr(tb.store.events, "latest", latest)
        app = create_app(tb, ServerSettings(), opens=False)
        async with app_client(app) as client:
            answers = await asyncio.gather(*(client.get("/health/ready") for _ in range(20)))
    assert {answer.status_code for answer in answers} == {503}
    assert call_count == 1
    assert "db.internal" not in answers[0].text


async def test_a_server_recovers_with_its_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "CACHE_SECONDS", 0.0)
    tb = Tellback(":memory:", worker=False)
    app = create_app(tb, ServerSettings(), opens=False)
    async with app_client(app) as client:
        assert (await client.get("/health/ready")).status_code == 503
        async with tb:
            assert (await client.get("/health/ready")).status_code == 200
