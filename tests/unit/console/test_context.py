"""What a page does goes through its context: only while the credential holds, counted, and with errors told."""

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
    """A credential that may end, and what the page shows."""

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
            raise StoreUnavailableError("The database is away.")
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


async def test_a_handler_is_given_as_much_as_it_takes_and_counts_once(fake_browser: FakeBrowser) -> None:
    calls: list[Any] = []

    async def later(one: int) -> None:
        calls.append(one)

    await build_context(fake_browser).guard(later)(1, 2, 3)
    await build_context(fake_browser).guard(lambda: calls.append("none"))("event")
    assert calls == [1, "none"]
    assert (fake_browser.counted_uses, fake_browser.valid_checks) == (2, [True, True])


async def test_nothing_is_done_once_the_credential_has_ended(fake_browser: FakeBrowser) -> None:
    fake_browser.is_valid = False
    calls: list[int] = []
    await build_context(fake_browser).guard(lambda: calls.append(1))()
    assert (calls, fake_browser.visited, fake_browser.counted_uses) == ([], ["./?user=maya"], 0)


async def test_errors_of_ours_are_told_and_others_are_told_of_and_raised(fake_browser: FakeBrowser) -> None:
    def refuse() -> None:
        raise InvalidArgumentError("That is no day.")

    def fail() -> None:
        raise ZeroDivisionError("a secret of the server")

    await build_context(fake_browser).guard(refuse)()
    with pytest.raises(ZeroDivisionError):
        await build_context(fake_browser).guard(fail)()
    assert fake_browser.notifications == ["That is no day.", SERVER_FAILED]


async def test_who_does_too_much_is_told_and_it_is_not_done(fake_browser: FakeBrowser) -> None:
    fake_browser.limit = 1
    calls: list[int] = []
    act = build_context(fake_browser).guard(lambda: calls.append(1))
    await act()
    await act()
    assert (calls, fake_browser.notifications) == ([1], ["Too many."])


async def test_what_a_page_does_by_itself_is_no_use_and_no_request(fake_browser: FakeBrowser) -> None:
    await build_context(fake_browser).guard(lambda: None, is_background=True)()
    await build_context(fake_browser).check_credential()
    assert (fake_browser.valid_checks, fake_browser.counted_uses, fake_browser.visited) == ([False, False], 0, [])
    fake_browser.is_valid = False
    await build_context(fake_browser).check_credential()
    assert fake_browser.visited == ["./?user=maya"]


async def test_while_the_store_is_away_nothing_is_done_that_is_told_and_the_page_stays(
    fake_browser: FakeBrowser,
) -> None:
    fake_browser.is_down = True
    calls: list[int] = []
    await build_context(fake_browser).guard(lambda: calls.append(1))()
    await build_context(fake_browser).guard(lambda: calls.append(2), is_background=True)()
    await build_context(fake_browser).check_credential()
    assert (calls, fake_browser.notifications, fake_browser.visited) == ([], ["The database is away."], [])
