"""What is around every page."""

from __future__ import annotations

from playwright.async_api import Page, expect

from tests.browser.serving import Site


async def test_the_console_opens_at_the_chat(site: Site, page: Page) -> None:
    await page.goto(site.url)
    await expect(page.get_by_role("heading", name="Chat", level=1)).to_be_visible()
    await expect(page).to_have_title("Chat · Recollect")
