"""Browser tests of the entities page."""

from __future__ import annotations

from playwright.async_api import Page, expect

from tests.browser.browser_log import check_layout
from tests.browser.seed import open_user, seed_user
from tests.browser.site import Site


async def test_entities_are_found_by_any_of_their_names(site: Site, page: Page) -> None:
    await seed_user(site.store, "maya-e0")
    await page.goto(site.at("/entities", user="maya-e0"))
    await expect(page.get_by_role("article")).to_have_count(3)
    await check_layout(page, "entities")
    await page.get_by_label("Search by name").fill("Lisboa")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("article")).to_have_count(1)
    await page.get_by_role("link", name="Lisbon", exact=True).click()
    await expect(page.get_by_text("A city in Portugal")).to_be_visible()
    await expect(page.get_by_text("country")).to_be_visible()
    await expect(page.get_by_role("article").filter(has_text="Lives in Lisbon")).to_be_visible()
    await check_layout(page, "entity")


async def test_merging_two_entities_explains_the_result_first(site: Site, page: Page) -> None:
    seeded = await seed_user(site.store, "maya-e1")
    await page.goto(site.at("/entities", user="maya-e1", id=seeded.robert))
    await page.get_by_role("button", name="Merge").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Duplicate to remove").fill("Bob")
    await page.get_by_role("option", name="Bob").click()
    await expect(dialog).to_contain_text("“Robert” gets the 1 memory of “Bob”. “Bob” becomes another name of “Robert”.")
    await check_layout(page, "merge")
    await dialog.get_by_role("button", name="Merge").click()
    await expect(page.get_by_role("article").filter(has_text="Bob owes them a dinner")).to_be_visible()
    async with open_user(site.store, "maya-e1") as user:
        bob = await user.memory.get_entity(seeded.bob)
        assert bob is not None
        assert bob.merged_into == seeded.robert


async def test_a_user_creates_an_entity(site: Site, page: Page) -> None:
    async with open_user(site.store, "maya-e2") as user:
        await user.memory.create_space("default")
    await page.goto(site.at("/entities", user="maya-e2"))
    await expect(page.get_by_text("No entities yet.")).to_be_visible()
    await check_layout(page, "entities-empty")
    await page.get_by_role("button", name="New entity").click()
    await page.get_by_role("dialog").get_by_label("Name").fill("Ada")
    await page.get_by_role("dialog").get_by_label("Also called").fill("Countess, Ada L.")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("article")).to_contain_text("also called Countess, Ada L.")
