"""Browser tests of the timeline page."""

from __future__ import annotations

from playwright.async_api import Page, expect

from tellback.console.pages.timeline import ATOMS_PER_PAGE
from tests.browser.browser_log import check_layout
from tests.browser.seed import open_user, seed_user
from tests.browser.site import Site


async def test_a_timeline_shows_validity_periods_and_applies_its_filters(site: Site, page: Page) -> None:
    await seed_user(site.store, "maya-t")
    await page.goto(site.at("/timeline", user="maya-t"))
    entries = page.get_by_role("region", name="Timeline").get_by_role("listitem")
    await expect(entries.first).to_contain_text("1 May 2021 to 1 Mar 2026")
    await expect(entries.first).to_contain_text("replaced by: Lives in Lisbon")
    await check_layout(page, "timeline")
    await page.get_by_label("To", exact=True).fill("2025-12-31")
    await expect(entries).to_have_count(1)
    await page.get_by_label("To", exact=True).fill("")
    await page.get_by_text("Include superseded").click()
    await expect(page.get_by_text("Lives in Berlin")).to_have_count(0)
    await page.get_by_label("Entity").fill("Lisb")
    await page.get_by_role("option", name="Lisbon").click()
    await expect(entries).to_have_count(1)
    await expect(entries).to_contain_text("Lives in Lisbon")
    assert "entity=ent_" in page.url


async def test_a_long_timeline_shows_the_newest_memories_or_the_best_matches_for_a_topic(
    site: Site, page: Page
) -> None:
    async with open_user(site.store, "maya-t1") as user:
        space = await user.memory.create_space("default")
        atoms = [await user.memory.add_atom(space.id, "Visited a museum") for _ in range(ATOMS_PER_PAGE + 1)]
    await page.goto(site.at("/timeline", user="maya-t1"))
    timeline = page.get_by_role("region", name="Timeline")
    await expect(timeline).to_contain_text(f"The {ATOMS_PER_PAGE} newest memories, oldest first.")
    await expect(timeline.get_by_role("listitem")).to_have_count(ATOMS_PER_PAGE)
    for topic, selection in (("museum", "best matches"), ("  ", "newest memories")):
        await page.get_by_label("Topic").fill(topic)
        await page.keyboard.press("Enter")
        await expect(timeline).to_contain_text(f"{selection}, oldest first.")
    await page.get_by_role("button", name="More").click()
    await expect(timeline.get_by_role("listitem")).to_have_count(ATOMS_PER_PAGE + 1)
    await expect(timeline).not_to_contain_text("oldest first.")
    await page.goto(site.at("/timeline", user="maya-t1", atom=atoms[0].id))
    await expect(timeline).to_contain_text("best matches, oldest first.")
