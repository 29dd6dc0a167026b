"""Browser tests of signing in with keys of each role."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.async_api import Page, expect

from tellback import Tellback
from tests.browser.browser_log import BrowserLog, check_layout
from tests.browser.chat_actions import message_field, send_message
from tests.browser.site import serve_site


async def test_a_key_gives_access_to_its_users_until_it_is_revoked(
    tmp_path: Path, page: Page, browser_log: BrowserLog
) -> None:
    browser_log.ignore("401")
    browser_log.ignore("WebSocket")
    store = tmp_path / "tellback.db"
    async with Tellback(store, worker=False) as tb:
        maya = await tb.keys.create("user", user_id="maya")
        app = await tb.keys.create("app")
        admin = await tb.keys.create("admin")
    async with serve_site(store) as site:
        await page.goto(site.at("/memory"))
        await expect(page).to_have_url(re.compile("/console/login"))
        await check_layout(page, "login")
        await page.get_by_label("API key or token").fill("tb_wrong")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("alert")).to_be_visible()
        await page.get_by_label("API key or token").fill(maya.secret)
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="Memory", level=1)).to_be_visible()

        await page.goto(site.at("/", user="noor"))  # the key belongs to Maya, so the page ignores the parameter
        await expect(page.get_by_text("maya", exact=True)).to_be_visible()
        await send_message(page, "I like tea.")
        await page.get_by_role("button", name="Sign out").click()
        await expect(page).to_have_url(re.compile("/console/login"))
        await page.go_back()
        await expect(page).to_have_url(re.compile("/console/login"))

        await page.goto(site.at())
        await page.get_by_label("API key or token").fill(app.secret)
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("Choose a user")).to_be_visible()
        await check_layout(page, "whose")
        await page.get_by_label("User id").fill("noor")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("button", name="User noor")).to_be_visible()
        await expect(page.get_by_text("I like tea.")).to_have_count(0)
        await page.get_by_role("button", name="User noor").click()
        await page.get_by_label("Id of another user").fill("maya")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("log")).to_contain_text("I like tea.")

        async with site.process.client(admin.secret) as client:
            assert (await client.delete(f"/ai-admin/keys/{app.key.id}")).status_code < 300
        await message_field(page).fill("Anyone?")
        await message_field(page).press("Enter")
        await expect(page).to_have_url(re.compile("/console/login"))
        await page.goto("about:blank")  # an open page would report the stopped server
