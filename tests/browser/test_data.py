"""All that is kept of a user: counted, taken away, deleted; and what models cost."""

from __future__ import annotations

import json
import zipfile

from playwright.async_api import Page, expect

from tests.browser.browser_log import check_layout
from tests.browser.seed import open_user, seed_user
from tests.browser.site import Site


async def test_everything_can_be_downloaded_and_then_deleted_for_good(site: Site, page: Page) -> None:
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

    button = page.get_by_role("button", name="Delete everything")
    await expect(button).to_be_disabled()
    await page.get_by_label("Type the user id to confirm").fill("data-al")
    await expect(button).to_be_disabled()
    await page.get_by_label("Type the user id to confirm").fill("data-all")
    await button.click()
    await expect(page.get_by_text("Everything is deleted.")).to_be_visible()
    await expect(page.get_by_text("Nothing is kept of this user.")).to_be_visible()
    await check_layout(page, "data-deleted")
    async with open_user(site.store, "data-all") as user:
        exported = await user.admin.export_user_data()
        assert not any(exported[name] for name in ("conversations", "atoms", "spaces", "entities", "events"))


async def test_usage_is_added_up_and_where_there_is_none_that_is_said(site: Site, page: Page) -> None:
    await seed_user(site.store, "usage")
    await page.goto(site.at("/usage", user="usage"))
    await expect(page.get_by_role("row").filter(has_text="claude-sonnet-4-5")).to_contain_text("1,200")
    await expect(page.get_by_text("$0.0048").first).to_be_visible()
    await expect(page.locator("canvas")).to_have_count(2)
    await check_layout(page, "usage")
    await page.get_by_label("To", exact=True).fill("2020-01-01")
    await expect(page.get_by_text("No model was called in this time.")).to_be_visible()
    await check_layout(page, "usage-empty")
