"""Browser tests of the layout around every page."""

from __future__ import annotations

import re

from playwright.async_api import Page, expect

from tests.browser.browser_log import DESKTOP_SIZE, PHONE_SIZE, finish_animations, take_screenshot
from tests.browser.site import Site

PAGES = ("Chat", "Conversations", "Memory", "Timeline", "Entities", "Routes", "Jobs", "Usage", "Your data")


async def test_the_console_opens_at_the_chat(site: Site, page: Page) -> None:
    await page.goto(site.url)
    await expect(page.get_by_role("heading", name="Chat", level=1)).to_be_visible()
    await expect(page).to_have_title("Chat · Tellback")


async def test_the_navigation_opens_every_page_for_the_same_user(site: Site, page: Page) -> None:
    await page.goto(site.at(user="maya f&1"))
    for name in PAGES:
        await page.get_by_role("navigation", name="Pages").get_by_role("link", name=name, exact=True).click()
        await expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
        await expect(page).to_have_title(f"{name} · Tellback")
        await expect(page.get_by_role("button", name="User maya f&1")).to_be_visible()
        current = page.get_by_role("navigation", name="Pages").locator("[aria-current=page]")
        await expect(current).to_have_text(re.compile(name))
        assert await page.get_by_role("main").count() == 1


async def test_on_a_phone_a_button_opens_the_navigation(site: Site, page: Page) -> None:
    await page.set_viewport_size(PHONE_SIZE)  # type: ignore[arg-type]
    await page.goto(site.at(user="maya-f2-with-a-very-long-name-that-does-not-fit"))
    link = page.get_by_role("navigation", name="Pages").get_by_role("link", name="Routes")
    await expect(link).not_to_be_in_viewport()
    await page.get_by_role("button", name="Menu").click()
    await expect(link).to_be_in_viewport()
    await finish_animations(page)
    await take_screenshot(page, "frame-menu")
    await link.click()
    await expect(page.get_by_text("This server has no agents with routes.")).to_be_visible()
    await expect(link).not_to_be_in_viewport()
    overflow = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert overflow <= 0
    await take_screenshot(page, "routes-none")
    await page.set_viewport_size(DESKTOP_SIZE)  # type: ignore[arg-type]
    await expect(link).to_be_in_viewport()


async def test_the_browser_stores_the_chosen_theme(site: Site, page: Page) -> None:
    await page.emulate_media(color_scheme="light")
    await page.goto(site.at("/routes", user="maya-f3"))
    body = page.locator("body")
    await expect(body).not_to_have_class(re.compile("body--dark"))
    await page.get_by_role("button", name="Switch between light and dark").click()
    await expect(body).to_have_class(re.compile("body--dark"))
    await page.reload()
    await expect(body).to_have_class(re.compile("body--dark"))
    await page.get_by_role("button", name="Switch between light and dark").click()
    await expect(body).not_to_have_class(re.compile("body--dark"))


async def test_the_keyboard_skips_to_the_content(site: Site, page: Page) -> None:
    await page.goto(site.at("/routes", user="maya-f4"))
    await expect(page.get_by_text("This server has no agents with routes.")).to_be_visible()
    await page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to content")
    await expect(skip).to_be_focused()
    await expect(skip).to_be_in_viewport()
    await page.keyboard.press("Enter")
    await expect(page.locator("#content")).to_be_focused()
