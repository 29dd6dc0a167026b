"""Permissions and errors of `/ai-admin`, and aborted downloads."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tellback import Tellback
from tellback.server import ServerSettings, create_app
from tellback.server.responses import CHUNK_BYTES, FileDownload
from tests.support.http_server import app_client

OPERATING: list[tuple[str, str, Any]] = [
    ("GET", "/ai-admin/jobs", None),
    ("GET", "/ai-admin/jobs/job_1", None),
    ("POST", "/ai-admin/jobs/job_1/retry", None),
    ("POST", "/ai-admin/jobs/job_1/cancel", None),
    ("GET", "/ai-admin/bindings", None),
    ("GET", "/ai-admin/bindings/bind_1", None),
    ("PATCH", "/ai-admin/bindings/bind_1", {"enabled": False}),
    ("DELETE", "/ai-admin/bindings/bind_1", None),
    ("POST", "/ai-admin/close-stale", {"olderThan": 1}),
    ("POST", "/ai-admin/replay", {}),
    ("GET", "/ai-admin/usage?everyone=true", None),
    ("GET", "/ai-admin/usage/totals?everyone=true", None),
    ("GET", "/ai-admin/usage?userId=omar", None),
    ("GET", "/ai-admin/export?userId=omar", None),
    ("POST", "/ai-admin/delete", {"userId": "omar", "confirm": True}),
]


@pytest.fixture
async def tb() -> AsyncIterator[Tellback]:
    async with Tellback(":memory:", worker=False) as opened:
        yield opened


@pytest.fixture
def app(tb: Tellback) -> Any:
    return create_app(tb, ServerSettings(), opens=False)


@pytest.mark.parametrize("role", ["user", "app"])
async def test_operations_on_other_users_need_an_admin(tb: Tellback, app: Any, role: Any) -> None:
    created = await tb.keys.create(role, user_id="maya" if role == "user" else None)
    async with app_client(app, created.secret, "maya") as client:
        for method, path, body in OPERATING:
            answer = await client.request(method, path, json=body)
            assert (answer.status_code, answer.json()["code"]) == (403, "not-allowed"), path


async def test_an_app_key_exports_and_erases_the_user_in_the_header(tb: Tellback, app: Any) -> None:
    await tb.user("omar").conversations.create("chat")
    created = await tb.keys.create("app")
    async with app_client(app, created.secret, "omar") as client:
        assert len((await client.get("/ai-admin/export")).json()["conversations"]) == 1
        assert (await client.post("/ai-admin/delete", json={"confirm": True})).status_code == 200
        assert (await client.get("/ai-admin/export")).json()["conversations"] == []


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/ai-admin/delete", {}),
        ("POST", "/ai-admin/delete", {"confirm": False}),
        ("POST", "/ai-admin/delete", {"confirm": "true"}),
        ("POST", "/ai-admin/delete", {"confirm": True, "userId": "*"}),
        ("POST", "/ai-admin/delete", {"confirm": True, "userId": "a\x00"}),
        ("GET", "/ai-admin/export?format=tar", None),
        ("GET", "/ai-admin/export?userId=%00", None),
        ("GET", "/ai-admin/usage?limit=0", None),
        ("GET", "/ai-admin/usage?cursor=AA", None),
        ("GET", "/ai-admin/usage?since=yesterday", None),
        ("GET", "/ai-admin/usage?since=2026-01-01T00:00:00", None),
        ("GET", "/ai-admin/usage?jobId=%00", None),
        ("GET", "/ai-admin/usage?everyone=true&userId=omar", None),
        ("GET", "/ai-admin/jobs?userId=%00", None),
        ("GET", "/ai-admin/jobs?conversationId=%00", None),
        ("GET", "/ai-admin/jobs?cursor=AA", None),
        ("GET", "/ai-admin/jobs?cursor=ä", None),
        ("GET", "/ai-admin/jobs?status=lost", None),
        ("POST", "/ai-admin/close-stale", {"olderThan": -1}),
        ("POST", "/ai-admin/close-stale", {"olderThan": 1e300}),
        ("POST", "/ai-admin/close-stale", {"olderThan": 1, "limit": 0}),
        ("POST", "/ai-admin/replay", {"namespace": "\x00"}),
        ("POST", "/ai-admin/replay", {"cursor": "AA"}),
        ("POST", "/ai-admin/replay", {"limit": 10**40}),
        ("PATCH", "/ai-admin/bindings/bind_1", {"conversationScope": {}}),
    ],
)
async def test_invalid_admin_requests_are_rejected(app: Any, tb: Tellback, method: str, path: str, body: Any) -> None:
    created = await tb.keys.create("admin")
    async with app_client(app, created.secret, "maya") as client:
        answer = await client.request(method, path, json=body)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")


@pytest.mark.parametrize("path", ["jobs/%00", "jobs/job_1", "bindings/%00", "bindings/bind_1", "keys/%00", "keys/k"])
async def test_unknown_ids_are_not_found(app: Any, tb: Tellback, path: str) -> None:
    created = await tb.keys.create("admin")
    async with app_client(app, created.secret) as client:
        assert (await client.get(f"/ai-admin/{path}")).status_code == 404


async def test_a_stalled_download_is_aborted_and_its_file_closed() -> None:
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the response closes it
    file.write(b"x" * (3 * CHUNK_BYTES))
    file.seek(0)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)
        if len(sent) == 2:
            await asyncio.sleep(60)

    async def receive() -> Any:
        return await asyncio.Event().wait()

    answer = FileDownload(file, 3 * CHUNK_BYTES, "export.json", "application/json", 0.05)
    scope = {"type": "http", "asgi": {"spec_version": "2.4"}}
    async with asyncio.timeout(20):
        await answer(scope, receive, send)
    assert file.closed
    assert len(sent) == 2
