"""A list on a page that grows: what is shown of it, and when it is drawn anew."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from nicegui import Client, core, ui

from tellback.console.widgets import PagedList
from tests.unit.console.test_context import FakeBrowser, build_context, fake_browser

assert fake_browser


@pytest.fixture
async def client(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    monkeypatch.setattr(core, "loop", asyncio.get_running_loop())
    opened = Client(ui.page("/test"))
    yield opened
    opened.delete()


class Letters:
    """A list of letters, which may come late."""

    def __init__(self, client: Client, fake_browser: FakeBrowser, letters: str) -> None:
        self.letters = letters
        self.may_come = asyncio.Event()
        self.may_come.set()
        self.drawn: list[str] = []
        with client:
            self.list = PagedList(build_context(fake_browser), 2, self.load, self.draw, lambda: self.draw("nothing"))

    async def load(self, limit: int) -> list[str]:
        found, may_come = list(self.letters[:limit]), self.may_come
        await may_come.wait()
        return found

    def draw(self, text: str) -> None:
        self.drawn.append(text)
        ui.label(text)

    @property
    def shown(self) -> list[str]:
        return [str(getattr(each, "text", "")) for each in self.list.root]


async def test_the_last_of_a_list_is_shown_by_more(client: Client, fake_browser: FakeBrowser) -> None:
    letters = Letters(client, fake_browser, "abc")
    await letters.list.show()
    assert letters.shown == ["a", "b", "More"]
    await letters.list._show_more()
    assert letters.shown == ["a", "b", "c"]
    await letters.list.restart()
    assert letters.shown == ["a", "b", "More"]


async def test_what_has_not_changed_is_left_alone(client: Client, fake_browser: FakeBrowser) -> None:
    letters = Letters(client, fake_browser, "")
    await letters.list.show()
    await letters.list.show()
    assert (letters.shown, letters.drawn) == (["nothing"], ["nothing"])
    letters.letters = "a"
    await letters.list.show()
    assert letters.shown == ["a"]


async def test_what_was_asked_for_last_is_shown_though_it_came_first(client: Client, fake_browser: FakeBrowser) -> None:
    letters = Letters(client, fake_browser, "a")
    may_come = letters.may_come
    may_come.clear()
    earlier = asyncio.create_task(letters.list.show())
    await asyncio.sleep(0)
    letters.letters, letters.may_come = "b", asyncio.Event()
    letters.may_come.set()
    await letters.list.restart()
    may_come.set()
    await earlier
    assert (letters.shown, letters.drawn) == (["b"], ["b"])
