"""Fixtures for tests with a real Chromium and a real `tellback serve`.

All tests of a process share one browser and one server, so each test uses its own user
(`site.at("/", user="maya-7")`). A test fails if its browser reports an error.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright, expect
from pytest_asyncio import is_async_test

from tests.browser.browser_log import DESKTOP_SIZE, BrowserLog
from tests.browser.site import Site, serve_site

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
HERE = Path(__file__).parent
WAIT_SECONDS = 60.0
"""The timeout of actions and expectations. It is long because test machines can be slow."""
TEST_SECONDS = 240
"""The timeout of a test, longer than a single wait, so that a failure names the element."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all browser tests in one event loop, because they share a browser."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TEST_SECONDS))
            if is_async_test(item):
                item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


def _chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        reason = "chromium is not installed: install Debian's package chromium"
        if os.environ.get("TELLBACK_REQUIRE_SERVERS") == "1" and os.geteuid() == 0:
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    path = _chromium()
    expect.set_options(timeout=WAIT_SECONDS * 1_000)
    async with async_playwright() as playwright:
        found = await playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield found
        await found.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """A server without keys and without a model."""
    async with serve_site(tmp_path_factory.mktemp("site") / "tellback.db") as found:
        yield found


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def scripted_site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """A server with the scripted model and agents of `tests.browser.scripted_server`."""
    store = tmp_path_factory.mktemp("world") / "tellback.db"
    async with serve_site(store, "--agents", "tests.browser.scripted_server:install") as found:
        yield found


@pytest.fixture
def browser_log() -> BrowserLog:
    """The errors of the browser; call `ignore` for those that the test causes."""
    return BrowserLog()


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser, browser_log: BrowserLog) -> AsyncIterator[Page]:
    """A tab with no cookies."""
    context = await browser.new_context(viewport=DESKTOP_SIZE, locale="en-GB", timezone_id="UTC")  # type: ignore[arg-type]
    context.set_default_timeout(WAIT_SECONDS * 1_000)
    found = await context.new_page()
    browser_log.listen(found)
    yield found
    await context.close()
    assert browser_log.problems == []
