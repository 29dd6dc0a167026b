"""Browser tests that show stored hostile text literally."""

from __future__ import annotations

from playwright.async_api import Page, expect

from tests.browser.browser_log import DESKTOP_SIZE, PHONE_SIZE, take_screenshot
from tests.browser.seed import open_user
from tests.browser.site import Site

EVIL = (
    """<img src=x onerror="window.hacked=1"> <script>window.hacked=1</script>"""
    """ "it's" `x` {{7*7}} ${1+1} مرحبا 👩‍👩‍👧 :on"""
)
LONG = "Donaudampfschifffahrtsgesellschaft" * 5


async def test_stored_markup_is_shown_literally_and_runs_no_script(site: Site, page: Page) -> None:
    async with open_user(site.store, "evil") as user:
        memory, log = user.memory, user.conversations
        space = await memory.create_space(EVIL)
        conversation = await log.create("chat", title=EVIL)
        message = await log.append_user_message(conversation.id, EVIL)
        entity = await memory.create_entity(space.id, "PERSON", EVIL, EVIL, {EVIL: EVIL, "deep": [EVIL]}, [LONG])
        old = await memory.add_atom(space.id, LONG, valid_from="2026-01-01T00:00:00Z")
        atom = await memory.supersede_atom(
            old.id,
            EVIL,
            {"name": EVIL, "kind": "FACT"},
            source_conversation_id=conversation.id,
            source_message_ids=[message.id],
            entity_ids=[entity.id],
        )
        await log.append_assistant_turn(
            conversation.id,
            "Yes",
            model=EVIL,
            usage={"input_tokens": 3, "output_tokens": 2, "cost_usd": 0.1, "model": EVIL},
        )
    await page.set_viewport_size(PHONE_SIZE)  # type: ignore[arg-type]
    for number, address in enumerate(
        (
            site.at("/memory", user="evil", q=EVIL),
            site.at("/atom", user="evil", id=atom.id),
            site.at("/timeline", user="evil", atom=atom.id),
            site.at("/timeline", user="evil", entity=entity.id),
            site.at("/entities", user="evil"),
            site.at("/entities", user="evil", id=entity.id),
            site.at("/usage", user="evil"),
        )
    ):
        await page.goto(address)
        await expect(page.get_by_text("<script>window.hacked=1</script>").first).to_be_attached()
        overflow = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert overflow <= 0, f"{address} is {overflow} px too wide"
        await take_screenshot(page, f"evil-{number}")
    await page.set_viewport_size(DESKTOP_SIZE)  # type: ignore[arg-type]
    await page.goto(site.at("/memory", user="evil"))
    await page.get_by_label("Space", exact=True).click()
    await expect(page.get_by_role("option").first).to_contain_text("<img src=x")
    await page.keyboard.press("Escape")
    await page.get_by_role("button", name="Edit").first.click()
    await expect(page.get_by_role("dialog").get_by_label("Memory text")).to_have_value(EVIL)
    await page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    await page.get_by_role("button", name="Forget").first.click()
    await expect(page.get_by_role("dialog")).to_contain_text("<img src=x")
    await page.goto(site.at("/data", user='"><img src=x onerror="window.hacked=1">'))
    await expect(page.get_by_text("No data is stored for this user.")).to_be_visible()
    assert await page.evaluate("window.hacked") is None
    assert await page.evaluate("document.querySelectorAll('img[src=x]').length") == 0
