"""Browser tests of the conversations page."""

from __future__ import annotations

import re

from playwright.async_api import Page, expect

from tests.browser.browser_log import check_layout
from tests.browser.seed import open_user
from tests.browser.site import Site


async def test_conversations_are_paged_and_filtered_by_namespace_and_status(site: Site, page: Page) -> None:
    async with open_user(site.store, "maya-v1") as maya:
        log = maya.conversations
        for number in range(22):
            conversation = await log.create("notes" if number else "letters")
            await log.append_user_message(conversation.id, f"Number {number}")
        await log.close(conversation.id)
    await page.goto(site.at("/conversations", user="maya-v1"))
    await expect(page.get_by_role("article")).to_have_count(20)
    await expect(page.get_by_role("article").first).to_contain_text("Number 21")
    await page.get_by_role("button", name="More").click()
    await expect(page.get_by_role("article")).to_have_count(22)
    await expect(page.get_by_role("button", name="More")).to_have_count(0)

    await page.get_by_role("combobox", name="Status").click()
    await page.get_by_role("option", name="Closed", exact=True).click()
    await expect(page.get_by_role("article")).to_have_count(1)
    await page.goto(site.at("/conversations", user="maya-v1"))
    await page.get_by_label("Namespace").fill("letters")
    await page.get_by_label("Namespace").press("Enter")
    await expect(page.get_by_role("article")).to_have_count(1)
    await expect(page).to_have_url(re.compile("namespace=letters"))
    await page.get_by_role("link", name="Number 0").click()
    await expect(page.get_by_role("heading", level=2)).to_have_text("Number 0")


async def test_a_citation_link_opens_the_middle_of_a_long_conversation(site: Site, page: Page) -> None:
    async with open_user(site.store, "maya-v2") as maya:
        log = maya.conversations
        conversation = await log.create("chat", "A long one")
        messages = [await log.append_user_message(conversation.id, f"Line {number}.") for number in range(1, 151)]
        await log.append_system_message(conversation.id, "Be brief.")
    await page.goto(site.at("/conversations", user="maya-v2", id=conversation.id, message=messages[59].id))
    highlighted = page.locator("[aria-current=true]")
    await expect(highlighted).to_contain_text("Line 60.")
    await expect(highlighted).to_be_in_viewport()
    await expect(page.get_by_text("Line 50.")).to_have_count(1)
    await expect(page.get_by_text("Line 49.")).to_have_count(0)
    await page.get_by_role("button", name="Earlier messages").click()
    await expect(page.get_by_text("Line 1.", exact=True)).to_have_count(1)
    await expect(page.get_by_role("button", name="Earlier messages")).to_have_count(0)
    await page.get_by_role("button", name="Later messages").click()
    await expect(page.get_by_text("Line 149.")).to_have_count(1)
    order = await page.get_by_role("article").locator(".said[dir=auto]").all_inner_texts()
    assert order[:149] == [f"Line {number}." for number in range(1, 150)]

    await page.goto(site.at("/conversations", user="maya-v2", id=conversation.id))
    await expect(page.get_by_text("Line 150.")).to_be_visible()
    await page.goto(site.at("/conversations", user="maya-v2", id=conversation.id, message="msg_unknown"))
    await expect(page.get_by_role("alert")).to_contain_text("not in this conversation")


async def test_internal_and_hidden_messages_are_marked(site: Site, page: Page) -> None:
    async with open_user(site.store, "maya-v3") as maya:
        log = maya.conversations
        conversation = await log.create("chat")
        await log.append_user_message(conversation.id, "Hello.")
        await log.append_messages(
            conversation.id,
            [
                {"role": "assistant", "content": "Thinking aloud.", "visibility": "internal"},
                {"role": "user", "content": "This is hidden.", "visibility": "hidden"},
            ],
        )
    await page.goto(site.at("/conversations", user="maya-v3", id=conversation.id))
    articles = page.get_by_role("article")
    await expect(articles.filter(has_text="Thinking aloud.")).to_contain_text("internal: sent to the model")
    await expect(articles.filter(has_text="This is hidden.")).to_contain_text("hidden: stored")
    await check_layout(page, "conversation")


async def test_closing_a_conversation_extracts_memories(site: Site, page: Page) -> None:
    async with open_user(site.store, "maya-v4") as maya:
        reply = await maya.chat("My train leaves at seven.")
    await page.goto(site.at("/conversations", user="maya-v4", id=str(reply.conversation_id)))
    await page.get_by_role("button", name="Close conversation").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("extracts memories")
    await dialog.get_by_role("button", name="Close conversation").click()
    await expect(page.get_by_text("Memories from this conversation")).to_be_visible()
    await expect(page.get_by_role("button", name="Close conversation")).to_have_count(0)
    await page.get_by_role("link", name="My train leaves at seven.").click()
    await expect(page).to_have_url(re.compile(r"/console/atom\?"))


async def test_conversations_of_other_users_are_not_found(site: Site, page: Page) -> None:
    async with open_user(site.store, "maya-v5") as maya:
        conversation = await maya.conversations.create("chat", "Secret plans")
    await page.goto(site.at("/conversations", user="noor-v5", id=conversation.id))
    await expect(page.get_by_role("alert")).to_contain_text(conversation.id)
    await expect(page.get_by_text("Secret plans")).to_have_count(0)
    await page.goto(site.at("/conversations", user="noor-v5"))
    await page.get_by_role("link", name="Start a chat").click()
    await expect(page.get_by_role("heading", name="Chat", level=1)).to_be_visible()
