"""Conversations on their way to memories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.async_api import Page, expect

from recollect import Recollect, WorkerOptions
from recollect.errors import ExtractionError
from recollect.memory.extraction.values import Window
from recollect.stores import AtomDraft
from tests.browser.serving import site_of
from tests.browser.watching import looks


class Failing:
    """Reads nothing."""

    def drafts(self, window: Window) -> list[AtomDraft]:
        raise ExtractionError("<b>no JSON</b> in what the model said", "<i>Sorry</i>")


async def test_a_failed_job_says_why_and_is_done_when_it_is_run_again(page: Page, tmp_path: Path) -> None:
    store = tmp_path / "recollect.db"
    failing: Any = Failing()
    async with Recollect(store, extractor=failing, embedder=None, worker=WorkerOptions(attempts=1)) as rc:
        maya = rc.user("maya")
        space = await maya.memory.create_space("default")
        talk = await maya.conversations.create("chat")
        await maya.conversations.append_user_message(talk.id, "I like figs.")
        await maya.memory.run_extraction_for_conversation(talk.id, space_id=space.id)
        await rc.jobs.drain(10)
    async with site_of(store, "--extractor", "verbatim") as site:
        await page.goto(site.at("/jobs", user="nobody"))
        await expect(page.get_by_text("There are no jobs.")).to_be_visible()
        await looks(page, "jobs-empty")
        await page.get_by_text("Of all users of this app").click()
        await expect(page.get_by_role("article")).to_contain_text("of maya")
        await page.goto(site.at("/jobs", user="maya", status="failed"))
        job = page.get_by_role("article")
        await expect(job).to_contain_text("<b>no JSON</b>")
        await looks(page, "jobs")
        await page.get_by_label("Show", exact=True).click()
        await page.get_by_role("option", name="All").click()
        await job.get_by_role("button", name="Run it again").click()
        await expect(job).to_contain_text("Done")
        await expect(job).to_contain_text("added: 1")
        await page.goto("about:blank")  # before the server ends
