"""Tests of `PageContext.guard`: it checks the credential, counts requests and shows errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from nicegui import ui

from tellback import Tellback
from tellback.console.context import SERVER_FAILED, PageContext
from tellback.errors import InvalidArgumentError, RateLimitedError, StoreUnavailableError
from tellback.server import ServerSettings
from tellback.server.auth import OPEN_PRINCIPAL, Caller, ServerContext
from tellback.server.tenant_agents import TenantAgents


@dataclass
class FakeBrowser:
    """A credential that can expire, and the notifications and addresses of the page."""

    is_valid: bool = True
    is_down: bool = False
    valid_checks: list[bool] = field(default_factory=list)
    counted_uses: int = 0
    limit: int = 100
    notifications: list[str] = field(default_factory=list)
    visited: list[str] = field(default_factory=list)

    async def is_still_valid(self, *, is_used: bool = True) -> bool:
        self.valid_checks.append(is_used)
        if self.is_down:
            raise StoreUnavailableError("The database is not available.")
        return self.is_valid

    async def count(self) -> None:
        self.counted_uses += 1
        if self.counted_uses > self.limit:
            raise RateLimitedError("Too many.", 1.0)


@pytest.fixture
def fake_browser(monkeypatch: pytest.MonkeyPatch) -> FakeBrowser:
    browser = FakeBrowser()
    monkeypatch.setattr(ui, "notify", lambda text, **_: browser.notifications.append(text))
    monkeypatch.setattr(ui.navigate, "to", browser.visited.append)
    return browser


def build_context(fake_browser: FakeBrowser) -> PageContext:
    caller = Caller(ServerContext(Tellback(":memory:"), ServerSettings(open=True)), OPEN_PRINCIPAL, "local")
    return PageContext(caller, {"user": "maya"}, fake_browser.is_still_valid, fake_browser.count, TenantAgents())


async def test_a_handler_gets_as_many_arguments_as_it_accepts_and_counts_once(fake_browser: FakeBrowser) -> None:
    calls: list[Any] = []

    async def later(one: int) -> None:
        calls.append(one)

    await build_context(fake_browser).guard(later)(1, 2, 3)
    await build_context(fake_browser).guard(lambda: calls.append("none"))("event")
    assert calls == [1, "none"]
    assert (fake_browser.counted_uses, fake_browser.valid_checks) == (2, [True, True])


async def test_a_handler_does_not_run_after_the_credential_expired(fake_browser: FakeBrowser) -> None:
    fake_browser.is_valid = False
    calls: list[int] = []
    await build_context(fake_browser).guard(lambda: calls.append(1))()
    assert (calls, fake_browser.visited, fake_browser.counted_uses) == ([], ["./?user=maya"], 0)


async def test_tellback_errors_are_shown_and_other_errors_are_also_raised(fake_browser: FakeBrowser) -> None:
    def refuse() -> None:
        raise InvalidArgumentError("That is not a date.")

    def fail() -> None:
        raise ZeroDivisionError("a secret of the server")

    await build_context(fake_browser).guard(refuse)()
    with pytest.raises(ZeroDivisionError):
        await build_context(fake_browser).guard(fail)()
    assert fake_browser.notifications == ["That is not a date.", SERVER_FAILED]


async def test_a_handler_over_the_rate_limit_does_not_run_and_shows_the_error(fake_browser: FakeBrowser) -> None:
    fake_browser.limit = 1
    calls: list[int] = []
    act = build_context(fake_browser).guard(lambda: calls.append(1))
    await act()
    await act()
    assert (calls, fake_browser.notifications) == ([1], ["Too many."])


async def test_background_handlers_do_not_count_as_requests_or_use_of_the_credential(fake_browser: FakeBrowser) -> None:
    await build_context(fake_browser).guard(lambda: None, is_background=True)()
    await build_context(fake_browser).check_credential()
    assert (fake_browser.valid_checks, fake_browser.counted_uses, fake_browser.visited) == ([False, False], 0, [])
    fake_browser.is_valid = False
    await build_context(fake_browser).check_credential()
    assert fake_browser.visited == ["./?user=maya"]


async def test_if_the_store_is_not_available_handlers_show_the_error_and_the_page_stays(
    fake_browser: FakeBrowser,
) -> None:
    fake_browser.is_down = True
    calls: list[int] = []
    await build_context(fake_browser).guard(lambda: calls.append(1))()
    await build_context(fake_browser).guard(lambda: calls.append(2), is_background=True)()
    await build_context(fake_browser).check_credential()
    assert (calls, fake_browser.notifications, fake_browser.visited) == ([], ["The database is not available."], [])
