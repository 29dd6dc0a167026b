"""Tests of paged lists and of formatted values."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import date
from enum import Enum

import pytest
from nicegui import Client, core, ui
from pydantic import BaseModel

from tellback.console.widgets import MAX_VALUE_LINES, PagedList, format_plain_value
from tests.unit.console.test_context import FakeBrowser, build_context, fake_browser

assert fake_browser


@pytest.fixture
async def client(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    monkeypatch.setattr(core, "loop", asyncio.get_running_loop())
    opened = Client(ui.page("/test"))
    yield opened
    opened.delete()


class Trip(BaseModel):
    """A gathered value with fields."""

    city: str
    day: date


class Meal(Enum):
    """A gathered value with a fixed set of options."""

    VEGAN = "vegan"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("Rome", "Rome"),
        (date(2026, 11, 19), "19 Nov 2026"),
        ("2026-11-19T08:30:00Z", "19 Nov 2026, 08:30 UTC"),
        ("2026-11-19T08:30:00", "2026-11-19T08:30:00"),
        ("2026-99-99", "2026-99-99"),
        ("2026-11-19 to 2026-11-21", "2026-11-19 to 2026-11-21"),
        (["19:30", "21:00"], "19:30\n21:00"),
        (Trip(city="Rome", day=date(2026, 11, 19)), "city: Rome\nday: 19 Nov 2026"),
        ([{"seats": 2, "meal": Meal.VEGAN}], "seats: 2, meal: vegan"),
        (False, "no"),
        ([], ""),
        ("x" * 301, "x" * 299 + "…"),
    ],
)
def test_values_are_formatted_without_json_syntax(value: object, text: str) -> None:
    assert format_plain_value(value) == text


def test_long_lists_of_values_are_cut() -> None:
    assert format_plain_value(list(range(100))).splitlines()[MAX_VALUE_LINES - 1 :] == ["19", "…"]


class Letters:
    """A paged list of letters whose loading can be delayed."""

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


async def test_the_more_button_shows_the_next_page(client: Client, fake_browser: FakeBrowser) -> None:
    letters = Letters(client, fake_browser, "abc")
    await letters.list.show()
    assert letters.shown == ["a", "b", "More"]
    await letters.list._show_more()
    assert letters.shown == ["a", "b", "c"]
    await letters.list.restart()
    assert letters.shown == ["a", "b", "More"]


async def test_an_unchanged_list_is_not_redrawn(client: Client, fake_browser: FakeBrowser) -> None:
    letters = Letters(client, fake_browser, "")
    await letters.list.show()
    await letters.list.show()
    assert (letters.shown, letters.drawn) == (["nothing"], ["nothing"])
    letters.letters = "a"
    await letters.list.show()
    assert letters.shown == ["a"]


async def test_a_late_response_does_not_replace_a_newer_one(client: Client, fake_browser: FakeBrowser) -> None:
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
