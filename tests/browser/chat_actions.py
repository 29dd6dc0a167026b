"""Actions on the chat page."""

from __future__ import annotations

from playwright.async_api import Locator, Page, expect


def message_field(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Message")


def finished_replies(page: Page) -> Locator:
    """The complete answers; an answer that still streams is busy."""
    return page.locator("article.answer:not([aria-busy=true])")


async def send_message(page: Page, text: str) -> Locator:
    """Send a message, and wait for the complete answer."""
    await expect(message_field(page)).to_be_visible()
    count = await finished_replies(page).count()
    await message_field(page).fill(text)
    await message_field(page).press("Enter")
    await expect(finished_replies(page)).to_have_count(count + 1)
    return finished_replies(page).last


async def start_new_conversation(page: Page) -> None:
    """Close the conversation, and wait for its memories."""
    await page.get_by_role("button", name="New conversation").click()
    await expect(page.get_by_text("Send a message.")).to_be_visible()
