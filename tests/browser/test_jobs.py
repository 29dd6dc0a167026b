"""Browser tests of the jobs page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.async_api import Page, expect

from tellback import Tellback, WorkerOptions
from tellback.memory.extraction.values import Window
from tellback.stores import AtomDraft
from tests.browser.browser_log import check_layout
from tests.browser.site import Site, serve_site


class Failing:
    """An extractor that always fails."""

    def drafts(self, window: Window) -> list[AtomDraft]:
        raise RuntimeError("<b>the key sk-1</b> is not valid")


async def log_in(page: Page, site: Site, key: str, path: str, **query: str) -> None:
    await page.context.clear_cookies()
    await page.goto(site.at(path, **query))
    await page.get_by_label("API key or token").fill(key)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("region", name="Jobs")).to_be_attached()


async def test_a_failed_job_shows_its_error_and_succeeds_when_it_runs_again(page: Page, tmp_path: Path) -> None:
    store, failing = tmp_path / "tellback.db", Failing()
    extractor: Any = failing
    async with Tellback(store, extractor=extractor, embedder=None, worker=WorkerOptions(attempts=1)) as tb:
        maya = tb.user("maya")
        space = await maya.memory.create_space("default")
        conversation = await maya.conversations.create("chat")
        await maya.conversations.append_user_message(conversation.id, "I like figs.")
        await maya.memory.run_extraction_for_conversation(conversation.id, space_id=space.id)
        await tb.jobs.drain(10)
        mayas = (await tb.keys.create("user", user_id="maya")).secret
        admins = (await tb.keys.create("admin")).secret
    async with serve_site(store, "--extractor", "verbatim") as site:
        job = page.get_by_role("article")
        everyone_checkbox = page.get_by_text("All users of this app")
        await log_in(page, site, mayas, "/jobs", user="new-user")
        await expect(job).to_contain_text("RuntimeError: the server's log has the reason")
        await expect(everyone_checkbox).to_be_hidden()
        await log_in(page, site, admins, "/jobs", user="new-user")
        await expect(page.get_by_text("No jobs yet.")).to_be_visible()
        await check_layout(page, "jobs-empty")
        await everyone_checkbox.click()
        await expect(job).to_contain_text("message 1 of maya")
        await page.goto(site.at("/jobs", user="maya", status="failed"))
        await expect(job).to_contain_text("<b>the key sk-1</b> is not valid")
        await check_layout(page, "jobs")
        await page.get_by_label("Status", exact=True).click()
        await page.get_by_role("option", name="All").click()
        await job.get_by_role("button", name="Run again").click()
        await expect(job).to_contain_text("Done")
        await expect(job).to_contain_text("Memories added: 1")
        await page.goto("about:blank")  # before the server ends
