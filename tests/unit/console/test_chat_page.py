"""The chat page, without a browser: what happens to a person who is faster than the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping

import pytest
from nicegui import Client, core, ui

from tellback.console.pages.chat import LONGEST, ChatPage
from tellback.console.talks import Answer, Earlier
from tellback.errors import InvalidArgumentError
from tellback.types import ReplyDelta, TextDelta
from tests.unit.console.test_seat import World, seat, world

assert world


class SlowTalk:
    """Answers, and ends, when it is let."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.may_go_on = asyncio.Event()

    async def earlier(self) -> Earlier:
        return Earlier()

    async def say(self, text: str) -> AsyncGenerator[ReplyDelta | Answer, None]:
        self.said.append(text)
        yield TextDelta("Well, ")
        await self.may_go_on.wait()
        yield Answer("Well, yes.")

    def decide(self, decisions: Mapping[str, bool]) -> AsyncGenerator[ReplyDelta | Answer, None]:
        raise AssertionError("nothing is asked")

    async def end(self) -> bool:
        await self.may_go_on.wait()
        return False


@pytest.fixture
async def page(world: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ChatPage]:
    monkeypatch.setattr(core, "loop", asyncio.get_running_loop())
    client = Client(ui.page("/test"))
    with client:
        made = ChatPage(seat(world), {}, None)
        made._talk = SlowTalk()
        await made.build()
    yield made
    client.delete()


def texts(page: ChatPage) -> str:
    return " ".join(str(getattr(each, "text", "")) for each in page._log.descendants())


async def later() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_what_is_sent_while_a_conversation_ends_is_not_lost(page: ChatPage, world: World) -> None:
    talk = page._talk
    assert isinstance(talk, SlowTalk)
    page._field.set_value("And now?")
    ending = asyncio.create_task(page._begin_anew())
    await later()
    await page._send("And now?")
    assert (talk.said, page._field.value) == ([], "And now?")
    assert "becoming memories" in world.told[-1]
    talk.may_go_on.set()
    await ending
    await page._send("And now?")
    assert (talk.said, page._field.value) == (["And now?"], "")
    assert "And now?" in texts(page)


async def test_an_answer_on_its_way_is_not_cleared_away_nor_sent_for_twice(page: ChatPage) -> None:
    talk = page._talk
    assert isinstance(talk, SlowTalk)
    sending = asyncio.create_task(page._send("Is it so?"))
    await later()
    await page._send("Is it so?")
    await page._look_again()
    talk.may_go_on.set()
    await sending
    assert talk.said == ["Is it so?"]
    assert "Well, " in texts(page)


async def test_a_message_that_is_too_long_is_refused_whatever_a_browser_sends(page: ChatPage) -> None:
    with pytest.raises(InvalidArgumentError, match="at most 100,000 characters"):
        await page._send("x" * (LONGEST + 1))
    assert isinstance(page._talk, SlowTalk)
    assert page._talk.said == []
