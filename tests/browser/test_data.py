"""Browser tests of the pages Your data and Usage."""

from __future__ import annotations

import json
import zipfile

from playwright.async_api import Page, expect

from tests.browser.browser_log import check_layout
from tests.browser.seed import open_user, seed_user
from tests.browser.site import Site


async def test_account_data_can_be_exported_and_deleted(site: Site, page: Page) -> None:
    await seed_user(site.store, "data-all")
    await page.goto(site.at("/data", user="data-all"))
    await expect(page.get_by_role("row").filter(has_text="Messages")).to_contain_text("2")
    await check_layout(page, "data")
    async with page.expect_download() as download:
        await page.get_by_role("link", name="Download JSON").click()
    found = json.loads((await (await download.value).path()).read_text())
    assert found["user"]["user_id"] == "data-all"
    assert "Lives in Berlin" in [atom["text"] for atom in found["atoms"]]
    async with page.expect_download() as download:
        await page.get_by_role("link", name="Download zip").click()
    with zipfile.ZipFile(await (await download.value).path()) as archive:
        assert "atoms.jsonl" in archive.namelist()

    button = page.get_by_role("button", name="Delete account data")
    await expect(button).to_be_disabled()
    await page.get_by_label("Type the user id to confirm").fill("data-al")
    await expect(button).to_be_disabled()
    await page.get_by_label("Type the user id to confirm").fill("data-all")
    await button.click()
    await expect(page.get_by_text("All account data was deleted.")).to_be_visible()
    await expect(page.get_by_text("No data is stored for this user.")).to_be_visible()
    await check_layout(page, "data-deleted")
    async with open_user(site.store, "data-all") as user:
        exported = await user.admin.export_user_data()
        assert not any(exported[name] for name in ("conversations", "atoms", "spaces", "entities", "events"))


async def test_usage_shows_totals_or_says_that_there_are_no_calls(site: Site, page: Page) -> None:
    await seed_user(site.store, "usage")
    await page.goto(site.at("/usage", user="usage"))
    await expect(page.get_by_role("row").filter(has_text="claude-sonnet-4-5")).to_contain_text("1,200")
    await expect(page.get_by_text("$0.0048").first).to_be_visible()
    await expect(page.locator("canvas")).to_have_count(2)
    await check_layout(page, "usage")
    await page.get_by_label("To", exact=True).fill("2020-01-01")
    await expect(page.get_by_text("No model calls in this period.")).to_be_visible()
    await check_layout(page, "usage-empty")


async def test_offline_answers_are_not_shown_as_model_calls(site: Site, page: Page) -> None:
    async with open_user(site.store, "usage-offline") as user:
        await user.chat("I like tea.")
    await page.goto(site.at("/usage", user="usage-offline"))
    await expect(page.get_by_text("No model calls in this period.")).to_be_visible()
    await expect(page.get_by_text(". 1 answer without a model cost nothing. Days are in UTC.")).to_be_visible()
    await expect(page.locator("canvas")).to_have_count(0)
