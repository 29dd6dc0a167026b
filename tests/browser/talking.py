"""What tests do on the chat page."""

from __future__ import annotations

from playwright.async_api import Locator, Page, expect


def field(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Message")


def answers(page: Page) -> Locator:
    """The answers that have come, or were there; one that still comes is busy."""
    return page.locator("article.answer:not([aria-busy=true])")


async def say(page: Page, text: str) -> Locator:
    """Say something, and wait for the whole answer."""
    await expect(field(page)).to_be_visible()
    count = await answers(page).count()
    await field(page).fill(text)
    await field(page).press("Enter")
    await expect(answers(page)).to_have_count(count + 1)
    return answers(page).last


async def begin_anew(page: Page) -> None:
    """Close the conversation, and wait until it is remembered."""
    await page.get_by_role("button", name="New conversation").click()
    await expect(page.get_by_text("Say something.")).to_be_visible()
