"""Tests of the chat page without a browser, with a user who is faster than the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest
from nicegui import Client, core, ui

from tellback.chat_backends import BackendReply, ChatBackend, ChatHistory, ReplyStream
from tellback.console.pages.chat import MAX_MESSAGE_LENGTH, ChatPage
from tellback.errors import InvalidArgumentError
from tellback.types import TextDelta
from tellback.types.conversations import TurnResult
from tellback.user import User
from tests.unit.console.test_context import FakeBrowser, build_context, fake_browser

assert fake_browser


class SlowBackend(ChatBackend):
    """Replies and closes only after `may_continue` is set."""

    def __init__(self, user: User) -> None:
        super().__init__(user, "chat")
        self.sent: list[str] = []
        self.may_continue = asyncio.Event()

    async def load_history(self) -> ChatHistory:
        return ChatHistory()

    async def _stream(self, text: str | None, approvals: Mapping[str, bool] | None) -> ReplyStream:
        assert text is not None, "no approvals are expected"
        self.sent.append(text)
        yield TextDelta("Well, ")
        await self.may_continue.wait()
        yield BackendReply(TurnResult(ok=True, text="Well, yes."))

    async def close(self) -> str | None:
        await self.may_continue.wait()
        return None


@pytest.fixture
async def page(fake_browser: FakeBrowser, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ChatPage]:
    monkeypatch.setattr(core, "loop", asyncio.get_running_loop())
    client = Client(ui.page("/test"))
    with client:
        ctx = build_context(fake_browser)
        chat_page = ChatPage(ctx, [], None)
        chat_page._backend = SlowBackend(ctx.user)
        await chat_page.build()
    yield chat_page
    client.delete()


def shown_text(page: ChatPage) -> str:
    return " ".join(str(getattr(each, "text", "")) for each in page._log.descendants())


async def run_pending_tasks() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_message_sent_during_closing_is_not_lost(page: ChatPage, fake_browser: FakeBrowser) -> None:
    backend = page._backend
    assert isinstance(backend, SlowBackend)
    page._message_field.set_value("And now?")
    ending = asyncio.create_task(page._start_new_conversation())
    await run_pending_tasks()
    await page._send("And now?")
    assert (backend.sent, page._message_field.value) == ([], "And now?")
    assert "still extracting memories" in fake_browser.notifications[-1]
    backend.may_continue.set()
    await ending
    await page._send("And now?")
    assert (backend.sent, page._message_field.value) == (["And now?"], "")
    assert "And now?" in shown_text(page)


async def test_a_streaming_answer_is_not_cleared_and_not_requested_twice(page: ChatPage) -> None:
    backend = page._backend
    assert isinstance(backend, SlowBackend)
    sending = asyncio.create_task(page._send("Is it so?"))
    await run_pending_tasks()
    await page._send("Is it so?")
    await page._reload()
    backend.may_continue.set()
    await sending
    assert backend.sent == ["Is it so?"]
    assert "Well, " in shown_text(page)


async def test_a_message_that_is_too_long_is_rejected_on_the_server(page: ChatPage) -> None:
    with pytest.raises(InvalidArgumentError, match="at most 100,000 characters"):
        await page._send("x" * (MAX_MESSAGE_LENGTH + 1))
    assert isinstance(page._backend, SlowBackend)
    assert page._backend.sent == []
