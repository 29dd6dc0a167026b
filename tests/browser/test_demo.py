"""A browser test of `make run`: the demo without any configuration."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import Page, expect

from tests.browser.browser_log import check_layout
from tests.browser.chat_actions import send_message
from tests.browser.site import CLEAN_ENVIRONMENT
from tests.integration.server.server_process import ROOT, ServerProcess

SAID = "I moved to Lisbon in March, and I'm vegetarian now."


@asynccontextmanager
async def demo_of(store: Path) -> AsyncIterator[ServerProcess]:
    """Run the command of `make run` on its own store."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tellback.cli", "demo", "--port", "0", "--url", str(store)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=CLEAN_ENVIRONMENT,
        cwd=ROOT,
        limit=2**22,
    )
    served = ServerProcess(process)
    try:
        await served.wait_until_ready()
        yield served
    finally:
        await served.stop()


def test_make_run_starts_the_demo() -> None:
    assert re.search(r"^run:.*\n\t\S+/tellback demo$", (ROOT / "Makefile").read_text(), re.MULTILINE)


async def test_a_new_user_chats_edits_a_memory_and_deletes_the_account_data(page: Page, tmp_path: Path) -> None:
    async with demo_of(tmp_path / "demo.db") as served:
        # The user sends a message.
        await page.goto(served.url)
        field = page.get_by_role("textbox", name=re.compile("^Write a message"))
        await field.fill(SAID)
        await field.press("Enter")
        chat_log = page.get_by_role("log")
        await expect(chat_log).to_contain_text("Your message becomes a memory when this conversation is closed")
        await check_layout(page, "walk-1-chat")

        # After a new conversation, the answer quotes the message with a citation.
        await page.get_by_role("button", name="New conversation").click()
        await expect(chat_log).not_to_contain_text(SAID)
        await field.fill("Where did I move?")
        await field.press("Enter")
        await expect(chat_log).to_contain_text(f'[1] "{SAID}"')
        await page.get_by_text("Why this answer").last.click()
        await check_layout(page, "walk-2-remembered")
        await page.keyboard.press("Escape")

        # The citation links to the message.
        await chat_log.get_by_role("link", name="[1]").first.click()
        await expect(page).to_have_url(re.compile(r"/console/conversations\?.*message="))
        await expect(page.get_by_text(SAID).first).to_be_visible()
        await check_layout(page, "walk-3-cited")

        # An edited memory keeps its old version in the timeline.
        await page.goto(f"{served.url}/console/memory")
        memory = page.get_by_role("article").filter(has_text=SAID)
        await memory.get_by_role("button", name="Edit").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Memory text").fill("Lives in Lisbon since March, and eats no meat")
        await dialog.get_by_label("Memory text").press("Control+Enter")
        changed = page.get_by_role("article").filter(has_text="eats no meat")
        await expect(changed).to_be_visible()
        await check_layout(page, "walk-4-edited")
        await changed.get_by_role("link", name="Show timeline").click()
        timeline = page.get_by_role("region", name="Timeline")
        await expect(timeline).to_contain_text("eats no meat")
        await expect(timeline).to_contain_text(SAID)
        await check_layout(page, "walk-5-timeline")

        # The user deletes the account data.
        await page.goto(f"{served.url}/console/data")
        await check_layout(page, "walk-6-data")
        delete = page.get_by_role("button", name="Delete account data")
        await expect(delete).to_be_disabled()
        await page.get_by_label("Type the user id to confirm").fill("local")
        await delete.click()
        await expect(page.get_by_text("All account data was deleted.")).to_be_visible()
        await page.goto(f"{served.url}/console/memory")
        await expect(page.get_by_text("eats no meat")).to_have_count(0)
        await expect(page.get_by_text(SAID)).to_have_count(0)
        await check_layout(page, "walk-7-deleted")
        await page.goto("about:blank")  # an open page would report the stopped server


async def test_a_completed_booking_is_shown_as_completed(page: Page, tmp_path: Path) -> None:
    async with demo_of(tmp_path / "demo.db") as served:
        await page.goto(f"{served.url}/console?agent=Restaurant")  # the redirect keeps the agent
        session = page.get_by_role("region", name="Session")
        for message in ("An Indian table for two tomorrow", "yes"):
            await send_message(page, message)
        await expect(session).to_contain_text("Book a table: completed")
        await expect(session).to_contain_text("Booking")
        await page.goto("about:blank")  # an open page would report the stopped server
