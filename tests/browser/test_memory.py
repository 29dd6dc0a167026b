"""Browser tests of the memory pages."""

from __future__ import annotations

from playwright.async_api import Locator, Page, expect

from tests.browser.browser_log import check_layout
from tests.browser.seed import open_user, seed_user
from tests.browser.site import Site


def card(page: Page, text: str) -> Locator:
    return page.get_by_role("article").filter(has_text=text)


async def test_search_finds_a_memory_and_explains_its_score(site: Site, page: Page) -> None:
    await seed_user(site.store, "maya-m0")
    await page.goto(site.at("/memory", user="maya-m0"))
    await expect(card(page, "Is vegetarian")).to_contain_text("importance 5 of 5")
    await expect(card(page, "Is vegetarian")).to_contain_text("90% confidence")
    await expect(page.get_by_text("Lives in Berlin")).to_have_count(0)
    await page.get_by_label("Search memories").fill("vegetarian food")
    await page.keyboard.press("Enter")
    best = page.get_by_role("article").first
    await expect(best).to_contain_text("Is vegetarian")
    await expect(best).to_contain_text("score 0.")
    await best.get_by_text("Why this score?").click()
    await expect(best).to_contain_text("Words in common")
    assert "q=vegetarian+food" in page.url
    await check_layout(page, "memory")


async def test_memories_are_filtered_by_validity_date_and_status(site: Site, page: Page) -> None:
    await seed_user(site.store, "maya-m1")
    await page.goto(site.at("/memory", user="maya-m1"))
    await page.get_by_label("Valid on").fill("2022-01-01")
    await expect(card(page, "Lives in Berlin")).to_be_visible()
    await expect(page.get_by_role("article")).to_have_count(1)
    await page.goto(site.at("/memory", user="maya-m1", status="over"))
    await expect(card(page, "Lives in Berlin")).to_contain_text("Superseded")
    await expect(card(page, "Lives in Berlin").get_by_title("Replaced by a newer memory.")).to_be_visible()
    await expect(page.get_by_role("article")).to_have_count(1)


async def test_an_edit_supersedes_and_the_timeline_shows_both(site: Site, page: Page) -> None:
    seeded = await seed_user(site.store, "maya-m2")
    await page.goto(site.at("/memory", user="maya-m2"))
    await card(page, "Is vegetarian").get_by_role("button", name="Edit").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_label("Memory text")).to_be_focused()
    await dialog.get_by_label("Memory text").fill("Is vegan")
    await dialog.get_by_label("Memory text").press("Control+Enter")
    await expect(card(page, "Is vegan")).to_be_visible()
    await expect(page.get_by_text("Is vegetarian")).to_have_count(0)
    await card(page, "Is vegan").get_by_role("link", name="Show timeline").click()
    timeline = page.get_by_role("region", name="Timeline")
    await expect(timeline.get_by_text("Is vegan", exact=True)).to_be_visible()
    before = timeline.get_by_role("listitem").filter(has_text="Is vegetarian").locator(".over")
    await expect(before).to_have_css("text-decoration-line", "line-through")
    await check_layout(page, "timeline-of-a-memory")
    async with open_user(site.store, "maya-m2") as user:
        old = await user.memory.get_atom(seeded.diet)
        assert old is not None
        assert old.superseded_by is not None
        assert old.text == "Is vegetarian"
        new = await user.memory.get_atom(old.superseded_by)
        assert new is not None
        assert (new.text, new.category.name, new.importance) == ("Is vegan", "diet", 5)


async def test_an_archived_memory_is_hidden_and_can_be_restored(site: Site, page: Page) -> None:
    await seed_user(site.store, "maya-m3")
    await page.goto(site.at("/memory", user="maya-m3"))
    await card(page, "cello").get_by_role("button", name="Archive").click()
    await expect(card(page, "cello")).to_have_count(0)
    await page.get_by_label("Show", exact=True).click()
    await page.get_by_role("option", name="Archived").click()
    await expect(card(page, "cello")).to_contain_text("Archived")
    await card(page, "cello").get_by_role("button", name="Restore").click()
    await expect(page.get_by_text("No memories match.")).to_be_visible()


async def test_forgetting_needs_confirmation_and_escape_cancels_it(site: Site, page: Page) -> None:
    seeded = await seed_user(site.store, "maya-m4")
    await page.goto(site.at("/atom", user="maya-m4", id=seeded.lisbon))
    await page.get_by_role("button", name="Forget").click()
    await expect(page.get_by_role("dialog")).to_contain_text("you cannot restore it. The memory it replaced becomes")
    await expect(page.get_by_role("dialog")).to_contain_text("archive it instead")
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await page.get_by_role("button", name="Forget").click()
    await page.get_by_role("dialog").get_by_role("button", name="Forget").click()
    await expect(card(page, "Lives in Berlin")).to_be_visible()
    await expect(page.get_by_text("Lives in Lisbon")).to_have_count(0)


async def test_the_memory_page_shows_all_fields_and_links_to_the_source_message(site: Site, page: Page) -> None:
    seeded = await seed_user(site.store, "maya-m5")
    await page.goto(site.at("/atom", user="maya-m5", id=seeded.lisbon))
    await expect(page.get_by_role("blockquote")).to_contain_text("I moved to Lisbon in March")
    await expect(page.get_by_text("1 Mar 2026, 00:00 UTC")).to_be_visible()
    history = page.get_by_role("listitem")
    await expect(history).to_have_count(2)
    await expect(history.first).to_contain_text("Lives in Berlin")
    await expect(page.get_by_role("link", name="Lisbon", exact=True)).to_be_visible()
    await check_layout(page, "atom")
    await page.get_by_role("link", name="Show in conversation").click()
    await page.wait_for_url(f"**/conversations?*message={seeded.message}*")
    assert seeded.conversation in page.url
    await expect(page.get_by_text("I moved to Lisbon in March").last).to_be_in_viewport()


async def test_a_new_user_adds_the_first_memory(site: Site, page: Page) -> None:
    await page.goto(site.at("/memory", user="maya-m6"))
    await check_layout(page, "memory-empty")
    await page.get_by_role("link", name="Add memory").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Add memory").click()
    await expect(page.get_by_text("Enter the memory text.")).to_be_visible()
    await dialog.get_by_label("Memory text").fill("Likes the sea")
    await check_layout(page, "memory-write")
    await dialog.get_by_role("button", name="Add memory").click()
    await expect(card(page, "Likes the sea")).to_be_visible()
    assert "add=" not in page.url


async def test_a_user_creates_a_space_and_selects_another(site: Site, page: Page) -> None:
    await seed_user(site.store, "maya-m7")
    await page.goto(site.at("/memory", user="maya-m7"))
    await page.get_by_role("button", name="New space").click()
    await page.get_by_role("dialog").get_by_label("Name").fill("Work")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("This space has no memories yet.")).to_be_visible()
    await page.get_by_label("Space", exact=True).click()
    await page.get_by_role("option", name="default").click()
    await expect(card(page, "Is vegetarian")).to_be_visible()
