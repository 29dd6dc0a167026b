"""Tests of mounting the console on a server, and of its public paths."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest
from nicegui import Client, __version__

from tellback import Tellback
from tellback.console import ConsoleUI, create_console_ui
from tellback.errors import MissingExtraError
from tellback.server import create_app
from tellback.server.auth import Authenticator, ServerContext
from tellback.server.middleware.browser_auth import BrowserAuth
from tellback.server.middleware.rate_limit import FailedLoginLimiter, RateLimiter
from tellback.server.settings import HostPolicy, ServerSettings
from tests.support.http_server import app_client

pytestmark = pytest.mark.slow


async def test_only_the_static_files_of_nicegui_need_no_credential() -> None:
    async with Tellback(":memory:", worker=False) as tb:
        settings = ServerSettings()
        console_ui = ConsoleUI()
        rates = RateLimiter(tb.store.rate_windows, None)
        browser_auth = BrowserAuth(
            [console_ui],
            ServerContext(tb, settings),
            Authenticator(tb, settings),
            HostPolicy((), is_open=False),
            FailedLoginLimiter(None),
            rates,
        )

        async def status(path: str) -> int | None:
            scope: dict[str, Any] = {
                "type": "http",
                "method": "GET",
                "path": path,
                "query_string": b"",
                "headers": [],
                "client": None,
            }
            answer = await browser_auth.admit(console_ui, path, scope, asyncio.sleep)  # type: ignore[arg-type]
            return None if answer is None else answer.status_code

        assert await status(f"/console/_nicegui/{__version__}/static/nicegui.js") is None
        for path in ("auto/static/token/export.zip", "client/id/upload/3", "auto/media/x", "0.0.0/static/x"):
            assert await status(f"/console/_nicegui/{path}") == 401
        assert await status("/console/memory") == 303


async def test_requests_for_unknown_paths_create_no_nicegui_client() -> None:
    """This includes requests without a credential, because the assets path is public."""
    tb = Tellback(":memory:")
    app = create_app(tb, ServerSettings(), web_uis=[ConsoleUI()])
    async with app.router.lifespan_context(app), app_client(app) as client:
        before = len(Client.instances)
        for path in ("nothing", "dynamic_resources/a/b"):
            for method in ("GET", "POST"):
                answer = await client.request(method, f"/console/_nicegui/{__version__}/{path}")
                assert (answer.status_code, answer.json()["code"]) == (404, "unknown-path")
        key = await tb.keys.create("admin")
        response = await client.get(
            "/console/nowhere", headers={"Authorization": f"Bearer {key.secret}", "Accept": "text/html"}
        )
        assert (response.status_code, 'href="/console/"' in response.text) == (404, True)
        assert len(Client.instances) == before


def test_without_nicegui_the_error_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nicegui", None)
    with pytest.raises(MissingExtraError, match=r"tellback\[console\]"):
        create_console_ui()
