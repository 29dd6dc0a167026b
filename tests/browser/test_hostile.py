"""Browser tests that send hostile text in messages, answers, lists and diagrams."""

from __future__ import annotations

from playwright.async_api import Page, expect

from tests.browser.browser_log import PHONE_SIZE, check_layout, take_screenshot
from tests.browser.chat_actions import finished_replies, send_message, start_new_conversation
from tests.browser.scripted_server import HOSTILE_TEXTS
from tests.browser.site import Site


async def assert_no_script_ran(page: Page, title: str) -> None:
    await expect(page).to_have_title(f"{title} · Tellback")
    assert await page.locator("img[src=x], a[href^='javascript:' i], main script").count() == 0
    overflow = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert overflow <= 0, f"{title} is {overflow} px too wide"


async def test_hostile_messages_and_answers_are_shown_literally(scripted_site: Site, page: Page) -> None:
    await page.set_viewport_size(PHONE_SIZE)  # type: ignore[arg-type]
    await page.goto(scripted_site.at(user="<b>mallory</b>"))
    for text in (*HOSTILE_TEXTS, "wide" * 200):
        answer = await send_message(page, text)
        await expect(answer).to_contain_text(f"You said: {text}")
    await assert_no_script_ran(page, "Chat")
    await take_screenshot(page, "hostile-chat")
    await finished_replies(page).first.get_by_role("button", name="Why this answer").click()
    await expect(page.get_by_role("dialog")).to_be_visible()
    await assert_no_script_ran(page, "Chat")
    await page.reload()
    for text in HOSTILE_TEXTS:
        await expect(page.get_by_role("log")).to_contain_text(text)
    await assert_no_script_ran(page, "Chat")
    await start_new_conversation(page)
    await page.goto(scripted_site.at("/conversations", user="<b>mallory</b>"))
    await expect(page.get_by_role("article").first).to_contain_text(HOSTILE_TEXTS[0])
    await assert_no_script_ran(page, "Conversations")
    await page.get_by_role("article").first.get_by_role("link").click()
    await expect(page.get_by_role("article").first).to_contain_text(HOSTILE_TEXTS[0])
    await assert_no_script_ran(page, "Conversations")


async def test_the_markdown_of_an_answer_is_rendered_and_its_html_is_not(scripted_site: Site, page: Page) -> None:
    await page.goto(scripted_site.at(user="mallory-h5"))
    for number in range(2):
        if number:
            await page.reload()  # the stored answer looks like the streamed one
            answer = finished_replies(page).last
        else:
            answer = await send_message(page, "Use marks")
        await expect(answer.get_by_role("heading", level=3)).to_have_text("Plan for <b>Lisbon</b>")
        await expect(answer.locator("strong")).to_have_text("Pack")
        await expect(answer.locator("em")).to_have_text("night")
        await expect(answer.locator("code")).to_have_text("--fast")
        await expect(answer.locator("pre")).to_have_text("print(\"<script>document.title='ran'</script>\")")
        await expect(answer).to_contain_text("[here](javascript:document.title='ran')")
        await expect(answer).to_contain_text("[7]")
        links = answer.get_by_role("link")
        assert [await link.get_attribute("href") for link in await links.all()] == [
            "https://example.com/madrid",
            "https://example.com/help",
        ]
        assert "noopener" in str(await links.first.get_attribute("rel"))
        await assert_no_script_ran(page, "Chat")
    await check_layout(page, "chat-marks")


async def test_hostile_titles_in_a_diagram_are_drawn_literally(scripted_site: Site, page: Page) -> None:
    await page.goto(scripted_site.at("/routes", user="mallory-h2", agent="Mallory"))
    for number, text in enumerate(HOSTILE_TEXTS):
        route = page.locator("section").nth(number)
        node = route.locator("g.node").nth(1)
        await expect(node).to_contain_text(f"field{number}")
        drawn = "".join((await node.text_content() or "").split())
        assert "".join(text.split()) in drawn
    await assert_no_script_ran(page, "Routes")
    await page.locator("g.node").nth(1).click(force=True)
    await assert_no_script_ran(page, "Routes")


async def test_hostile_replies_of_an_agent_are_shown_literally(scripted_site: Site, page: Page) -> None:
    await page.goto(scripted_site.at(user="mallory-h3", agent="Mallory"))
    await send_message(page, HOSTILE_TEXTS[0])
    await send_message(page, f"field0: {HOSTILE_TEXTS[1]}")
    await page.get_by_role("button", name="Why this answer").last.click()
    await expect(page.get_by_role("dialog")).to_be_visible()
    await assert_no_script_ran(page, "Chat")


async def test_hostile_query_parameters_run_no_script(scripted_site: Site, page: Page) -> None:
    for query in ({"agent": HOSTILE_TEXTS[0]}, {"user": HOSTILE_TEXTS[0]}, {"user": "x" * 300}):
        await page.goto(scripted_site.at("/", **query))
        await assert_no_script_ran(page, "Chat")
    await page.goto(scripted_site.at("/conversations", id=HOSTILE_TEXTS[0], message=HOSTILE_TEXTS[1]))
    await expect(page.get_by_role("alert")).to_be_visible()
    await assert_no_script_ran(page, "Conversations")
