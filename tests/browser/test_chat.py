"""Browser tests of the chat page."""

from __future__ import annotations

import re

from playwright.async_api import Page, WebSocket, expect

from tests.browser.browser_log import check_layout
from tests.browser.chat_actions import finished_replies, message_field, send_message, start_new_conversation
from tests.browser.site import Site


async def test_the_next_conversation_remembers_a_message_and_cites_it(site: Site, page: Page) -> None:
    await page.goto(site.at(user="maya-c1"))
    await expect(page.get_by_role("note", name="No model")).to_contain_text("No model is set up")
    await check_layout(page, "chat-empty")
    await send_message(page, "I moved to Lisbon in March.")
    await expect(page.get_by_role("note", name="No model")).to_have_count(0)
    await start_new_conversation(page)
    answer = await send_message(page, "Where did I move to?")
    await expect(answer).to_contain_text("I moved to Lisbon in March.")
    await expect(answer.get_by_role("link", name="[1] User: I moved to Lisbon in March.")).to_have_text("[1]")
    await answer.get_by_role("button", name="1 memory recalled, 1 quoted").click()
    await expect(answer.get_by_role("link", name="User: I moved to Lisbon in March.", exact=True)).to_be_visible()
    await check_layout(page, "chat-cited")

    await answer.get_by_role("button", name="Why this answer").click()
    reason_dialog = page.get_by_role("dialog")
    await expect(reason_dialog).to_contain_text("cited as [1]")
    await expect(reason_dialog).to_contain_text("No model was called: this answer only quotes memories.")
    await expect(reason_dialog).to_contain_text("score 0.")
    await reason_dialog.get_by_text("Why this score?").click()
    await expect(reason_dialog).to_contain_text("Words in common")
    await expect(reason_dialog.locator("pre")).to_contain_text("I moved to Lisbon in March.")
    await check_layout(page, "chat-why")

    await reason_dialog.get_by_role("link", name="Source message").click()
    highlighted = page.locator("[aria-current=true]")
    await expect(highlighted).to_contain_text("I moved to Lisbon in March.")
    await expect(highlighted).to_be_focused()
    await expect(highlighted).to_be_in_viewport()
    await check_layout(page, "conversation-lit")
    await expect(page.get_by_text("Memories from this conversation")).to_be_visible()

    await page.goto(site.at(user="maya-c1"))
    await expect(finished_replies(page)).to_have_count(1)
    await finished_replies(page).get_by_role("button", name="Why this answer").click()
    await expect(page.get_by_role("dialog")).to_contain_text("before you opened this page")


async def test_the_notice_about_the_missing_model_stays_dismissed(site: Site, page: Page) -> None:
    await page.goto(site.at(user="maya-c11"))
    await page.get_by_role("button", name="Dismiss").click()
    await expect(page.get_by_role("note")).to_have_count(0)
    await page.reload()
    await expect(message_field(page)).to_be_visible()
    await expect(page.get_by_role("note")).to_have_count(0)


async def test_a_citation_links_to_its_message_and_the_explanation_links_to_the_memory(site: Site, page: Page) -> None:
    await page.goto(site.at(user="maya-c2"))
    await send_message(page, "My sister Noor plays the oud.")
    await start_new_conversation(page)
    answer = await send_message(page, "What does Noor play?")
    await answer.get_by_role("link", name="[1]").click()
    await expect(page.locator("[aria-current=true]")).to_contain_text("My sister Noor plays the oud.")
    await page.goto(site.at(user="maya-c2"))
    await start_new_conversation(page)
    second_reply = await send_message(page, "Who plays the oud?")
    await second_reply.get_by_role("button", name="Why this answer").click()
    await page.get_by_role("dialog").get_by_role("link", name="My sister Noor plays the oud.").click()
    await expect(page).to_have_url(re.compile(r"/console/atom\?"))


async def test_an_answer_can_be_stopped_and_the_conversation_continues(scripted_site: Site, page: Page) -> None:
    await page.goto(scripted_site.at(user="maya-c3"))
    await message_field(page).fill("Answer slowly")
    await message_field(page).press("Enter")
    await expect(page.get_by_text("word3", exact=False)).to_be_visible()
    await page.get_by_role("button", name="Stop").click()
    await expect(finished_replies(page).last).to_contain_text("Stopped.")
    await expect(finished_replies(page).last).to_contain_text("word3")
    await expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    await expect(message_field(page)).to_be_focused()
    await expect(await send_message(page, "Hello?")).to_contain_text("You said: Hello?")


async def test_a_failed_answer_keeps_its_text_and_shows_what_to_do(scripted_site: Site, page: Page) -> None:
    await page.goto(scripted_site.at(user="maya-c4"))
    answer = await send_message(page, "Please fail")
    await expect(answer).to_contain_text("I was about to say")
    wrong = answer.get_by_role("alert")
    await expect(wrong).to_have_text(
        "Incorrect API key provided. Set a valid key in the server's environment and restart the server."
    )
    assert "Traceback" not in await page.content()
    await expect(await send_message(page, "Better?")).to_contain_text("You said: Better?")
    await page.reload()
    await expect(page.get_by_role("log")).to_contain_text("Please fail")
    await expect(page.get_by_role("log")).to_contain_text("You said: Better?")


async def test_enter_sends_shift_enter_adds_a_line_and_thinking_can_be_expanded(
    scripted_site: Site, page: Page
) -> None:
    await page.goto(scripted_site.at(user="maya-c5"))
    await expect(message_field(page)).to_be_focused()
    await page.keyboard.type("please think")
    await page.keyboard.press("Shift+Enter")
    await page.keyboard.type("twice")
    await page.keyboard.press("Enter")
    await expect(page.locator("article.mine")).to_have_text("please think\ntwice", use_inner_text=True)
    await expect(message_field(page)).to_have_value("")
    answer = finished_replies(page).last
    await expect(answer).to_contain_text("You said: please think")
    await expect(answer).to_contain_text("154 tokens · $0.0021")
    await answer.get_by_text("Thoughts of the model").click()
    await expect(answer.get_by_text("The user wants me to think.")).to_be_visible()


async def test_an_empty_message_is_not_sent(scripted_site: Site, page: Page) -> None:
    await page.goto(scripted_site.at(user="maya-c6"))
    await message_field(page).fill("   \n ")
    await message_field(page).press("Enter")
    await page.get_by_role("button", name="Send").click()
    await expect(page.get_by_text("Send a message.")).to_be_visible()
    await page.get_by_role("button", name="Where did I move?").click()
    await expect(message_field(page)).to_have_value("Where did I move?")
    await expect(message_field(page)).to_be_focused()


async def test_a_stream_of_a_thousand_deltas_needs_few_websocket_messages(scripted_site: Site, page: Page) -> None:
    frames: list[int] = []

    def count_frames(socket: WebSocket) -> None:
        socket.on("framereceived", lambda data: frames.append(len(data)))

    page.on("websocket", count_frames)
    await page.goto(scripted_site.at(user="maya-c7"))
    answer = await send_message(page, "Answer quickly")
    await expect(answer).to_contain_text("word999")
    assert len(frames) < 400
    assert sum(frames) < 500_000  # sending the whole answer with each delta would need millions of bytes


async def test_tool_calls_are_shown_and_wait_for_approval_if_required(scripted_site: Site, page: Page) -> None:
    await page.goto(scripted_site.at(user="maya-c8", agent="clerk"))
    answer = await send_message(page, "look it up")
    card = answer.get_by_role("button", name="lookup")
    await expect(card).to_contain_text("done")
    await card.click()
    await expect(answer.locator("pre").first).to_contain_text('"order": 7')
    await expect(answer.locator("pre").last).to_have_text("order 7 is on its way")
    await expect(answer).to_contain_text("The tool gave: order 7 is on its way")

    await send_message(page, "pay for it")
    await page.reload()  # the call still waits after a reload
    await expect(page.get_by_role("button", name="Decline")).to_be_visible()
    await check_layout(page, "chat-approval")
    await page.get_by_role("button", name="Approve").click()
    await expect(finished_replies(page).last).to_contain_text("The tool gave: paid 12")

    second_reply = await send_message(page, "pay again")
    await second_reply.get_by_role("button", name="Decline").click()
    await expect(second_reply).not_to_contain_text("paid 12")
    await expect(second_reply).to_contain_text("The tool gave:")
    await expect(await send_message(page, "Thanks")).to_contain_text("You said: Thanks")


async def test_a_chat_with_an_agent_follows_its_routes(scripted_site: Site, page: Page) -> None:
    await page.goto(scripted_site.at(user="maya-c9"))
    await page.get_by_role("combobox", name="Agent").click()
    await page.get_by_role("option", name="Wanda").click()
    await expect(page.get_by_role("region", name="Session")).to_contain_text("no active route")
    answer = await send_message(page, "I want to book a flight to Rome")
    progress_region = page.get_by_role("region", name="Session")
    await expect(progress_region).to_contain_text("Book a flight")
    await expect(progress_region).to_contain_text("Ask when and how many")
    await expect(progress_region).to_contain_text("Rome")
    await answer.get_by_role("button", name="Why this answer").click()
    await expect(page.get_by_role("dialog")).to_contain_text("destination is known")
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await check_layout(page, "chat-agent")

    await page.get_by_role("link", name="View routes").click()
    route = page.get_by_role("region", name="Route Book a flight")
    await expect(route).to_contain_text("current")
    await expect(route.locator("g.node.current")).to_contain_text("Ask when and how many")
    await expect(page.locator("g.node.current")).to_have_count(1)
    await check_layout(page, "routes")

    await page.get_by_role("link", name="Try it").click()
    await expect(page.get_by_role("log")).to_contain_text("I want to book a flight to Rome")
    await start_new_conversation(page)
    await expect(page.get_by_role("region", name="Session")).to_contain_text("no active route")
    await page.reload()
    await expect(page.get_by_text("Send a message.")).to_be_visible()


async def test_the_page_works_with_the_keyboard_alone(scripted_site: Site, page: Page) -> None:
    await page.goto(scripted_site.at(user="maya-c10"))
    await expect(message_field(page)).to_be_focused()
    await page.keyboard.type("Hello")
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("button", name="Send")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(finished_replies(page).last).to_contain_text("You said: Hello")
    await expect(message_field(page)).to_be_focused()
    await page.keyboard.press("Shift+Tab")
    reason_button = finished_replies(page).last.get_by_role("button", name="Why this answer")
    await expect(reason_button).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog").get_by_role("button", name="Close")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await expect(reason_button).to_be_focused()
