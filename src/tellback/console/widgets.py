"""Widgets that pages are built from. Text that a person wrote is shown as text, never as markup."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, time, timedelta
from typing import Any, Generic, Literal, TypeVar

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from tellback.console.context import PageContext
from tellback.errors import InvalidArgumentError, require_found
from tellback.types.memory import MemorySpace

Work = Callable[[], Awaitable[Any]]
T = TypeVar("T")

_BUTTON_PROPS = {
    "flat": "flat",
    "main": "unelevated",
    "outline": "outline",
    "small": "outline dense padding='4px 12px'",
}


def text_label(text: str) -> ui.label:
    """A text that somebody wrote: line breaks kept, long words broken, its direction found by its letters."""
    return ui.label(text).classes("said").props("dir=auto")


def code_block(text: str) -> TextElement:
    """A text of fixed width, such as JSON or a prompt, that scrolls if it is long."""
    return TextElement(tag="pre", text=text).classes("block").props("tabindex=0 dir=auto")


def note(text: str, *, is_error: bool = False) -> ui.label:
    """A remark beside what was said; what is wrong is told at once to those who do not see it."""
    label = text_label(text).classes("note wrong" if is_error else "note")
    return label.props("role=alert") if is_error else label


def box(*classes: str, tag: str = "div") -> ui.element:
    """A plain element that holds others."""
    return ui.element(tag).classes(" ".join(classes))


def heading(text: str) -> ui.label:
    """The heading of a part of a page."""
    return ui.label(text).classes("head2").props('role=heading aria-level="2"')


def muted(text: str) -> ui.label:
    """A remark."""
    return ui.label(text).classes("quiet said")


def chip(text: str, tone: str = "") -> ui.label:
    """A word about something: `tone` is "good", "bad", "wait" or nothing."""
    return ui.label(text).classes(f"chip {tone}".strip())


def set_accessible_name(element: ui.element, name: str) -> ui.element:
    """Say what something is to those who do not see it, and to those who point at it; it may hold any characters."""
    element.props["aria-label"] = name
    element.props["title"] = name
    return element


def icon_button(icon: str, name: str, on_click: Callable[..., Any]) -> ui.button:
    """A button with a picture, and a name for everyone."""
    found = ui.button(icon=icon, on_click=on_click).props("flat round dense size=md")
    set_accessible_name(found, name)
    return found


def button(
    text: str, icon: str | None, on_click: Callable[..., Any] | None, look: Literal["flat", "main", "outline", "small"]
) -> ui.button:
    """A button with words on it."""
    return ui.button(text, icon=icon, on_click=on_click).props(f"no-caps {_BUTTON_PROPS[look]}")


def page_link(text: str, address: str) -> ui.link:
    """A link within the console."""
    return ui.link(text, address).classes("go said")


def link_button(text: str, icon: str, address: str) -> ui.button:
    """A button that leads to another page."""
    link = button(text, icon, None, "small")
    link.props["href"] = address
    return link


@contextmanager
def empty_state(icon: str, message: str, hint: str) -> Iterator[None]:
    """Where there is nothing yet: what that means, and what to do. What is put in it are the ways on."""
    with box("empty"):
        ui.icon(icon, size="2.2rem").classes("quiet").props("aria-hidden=true")
        ui.label(message).classes("said").style("font-weight: 600")
        ui.label(hint).classes("quiet said").style("max-width: 34rem")
        with box("line").style("justify-content: center"):
            yield


def pairs(*rows: tuple[str, str | None]) -> None:
    """Names and values, one below the other; what is None is left out."""
    with box("pairs"):
        for name, value in rows:
            if value is not None:
                ui.label(name)
                ui.label(value).classes("said")


def table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], numbers: frozenset[int] = frozenset()) -> None:
    """A table of plain text. Columns in `numbers` are aligned to the right."""
    with box("scroll"), box("facts", tag="table"):
        for tag, cell_tag, lines in (("thead", "th", [columns]), ("tbody", "td", rows)):
            with box(tag=tag):
                for line in lines:
                    with box(tag="tr"):
                        for index, text in enumerate(line):
                            with box("number" if index in numbers else "", tag=cell_tag):
                                ui.label(text)


@contextmanager
def dialog(name: str) -> Iterator[ui.dialog]:
    """A dialog that is open, closes by Escape, and is gone when it was closed."""
    with ui.dialog(value=True) as opened, ui.card().classes("dialog"):
        opened.props["aria-label"] = name
        opened.on("hide", opened.delete)
        ui.label(name).classes("dialog-title")
        yield opened


def confirm(ctx: PageContext, name: str, text: str, label: str, work: Work, *, is_destructive: bool = True) -> None:
    """Ask before something is done."""
    with dialog(name) as opened:
        ui.label(text).classes("said")

        async def run_work() -> None:
            await work()
            opened.close()

        dialog_buttons(opened, label, ctx.guard(run_work), is_destructive=is_destructive)


def dialog_buttons(
    opened: ui.dialog, label: str, on_confirm: Callable[..., Any], *, is_destructive: bool = False
) -> ui.button:
    """How a dialog ends: by not doing it, or by doing it."""
    with box("line").style("justify-content: flex-end"):
        button("Cancel", None, opened.close, "flat").props("autofocus" if is_destructive else "")
        confirm_button = button(label, None, on_confirm, "main")
        if is_destructive:
            confirm_button.props("color=negative")
    return confirm_button


def close_button(opened: ui.dialog) -> None:
    """How a dialog ends in which there is nothing to do."""
    with box("line").style("justify-content: flex-end"):
        button("Close", None, opened.close, "flat").props("autofocus")


def text_field(label: str, value: str = "", on_enter: Callable[..., Any] | None = None) -> ui.input:
    """A line of text."""
    field = ui.input(label, value=value).props("outlined dense dir=auto")
    return field if on_enter is None else field.on("keydown.enter", on_enter)


def select_field(options: list[str] | dict[Any, str], label: str, value: Any = None, **settings: Any) -> ui.select:
    """A choice of one or several; `settings` are those of `ui.select`."""
    return ui.select(options, label=label, value=value, **settings).props("outlined dense options-dense")


@contextmanager
def search_line(
    label: str, value: str, max_length: int, on_search: Callable[..., Any], button_label: str = "Search"
) -> Iterator[ui.input]:
    """A line to search by: what is looked for, what is put in it, and a button."""
    with box("line").props("role=search"):
        field = text_field(label, value, on_search).classes("wide").props(f"clearable maxlength={max_length}")
        yield field.on("clear", on_search)
        button(button_label, "search", on_search, "outline")


def date_field(label: str, value: str | None, on_change: Callable[..., Any] | None = None) -> ui.input:
    """A day, which may be left out: `value` is like 2026-03-01."""
    field = ui.input(label, value=value or "", on_change=on_change)
    return field.props("type=date stack-label outlined dense clearable clear-icon=close")


def parse_day_start(day: str | None) -> datetime | None:
    """When a day begins, by UTC.

    >>> parse_day_start("2026-03-01").isoformat()
    '2026-03-01T00:00:00+00:00'
    """
    if not day:
        return None
    try:
        return datetime.combine(datetime.strptime(day, "%Y-%m-%d").date(), time(), UTC)
    except ValueError:
        raise InvalidArgumentError(f"A day is written like 2026-03-01, not {day!r:.40}.") from None


def parse_day_end(day: str | None) -> datetime | None:
    """The last moment of a day, by UTC."""
    start = parse_day_start(day)
    return None if start is None else start + timedelta(days=1, microseconds=-1)


def format_date(moment: datetime) -> str:
    """The day of a moment, by UTC.

    >>> format_date(datetime(2026, 3, 1, tzinfo=UTC))
    '1 Mar 2026'
    """
    utc = moment.astimezone(UTC)
    return f"{utc.day} {utc:%b} {utc.year}"


def format_datetime(at: datetime | None) -> str | None:
    """A moment, by UTC."""
    return None if at is None else f"{format_date(at)}, {at.astimezone(UTC):%H:%M} UTC"


def format_count(number: int, singular: str, plural: str | None = None) -> str:
    """A number of things.

    >>> format_count(1, "memory", "memories"), format_count(1200, "job")
    ('1 memory', '1,200 jobs')
    """
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def format_value(value: object, *, indent: int | None = None) -> str:
    """A value as text: a string as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=indent, default=str)


def truncate(text: str, length: int = 80) -> str:
    """A text for a place that is small."""
    flat = " ".join(text.split())
    return flat if len(flat) <= length else flat[: length - 1].rstrip() + "…"


async def resolve_space(ctx: PageContext) -> tuple[list[MemorySpace], MemorySpace | None]:
    """The user's spaces, and the one that the page is about: the one its address names, "default", or the first."""
    spaces = await ctx.user.memory.list_spaces()
    requested = ctx.query.get("space")
    if requested is not None:
        found = next((space for space in spaces if space.id == requested), None)
        return spaces, require_found(found, "space", requested)
    return spaces, next((space for space in spaces if space.name == "default"), spaces[0] if spaces else None)


def space_select(ctx: PageContext, spaces: list[MemorySpace], chosen: MemorySpace, path: str) -> ui.select:
    """Choose another space: the page is shown anew for it."""
    names = {space.id: f"{truncate(space.name, 60)} ({space.atom_count:,})" for space in spaces}
    return select_field(
        names, "Space", chosen.id, on_change=lambda event: ui.navigate.to(ctx.link(path, space=event.value))
    )


class PagedList(Generic[T]):
    """A list on a page that grows by pages. `load` is asked for one item more than are shown: then there are more."""

    def __init__(
        self,
        ctx: PageContext,
        page_size: int,
        load: Callable[[int], Awaitable[Sequence[T]]],
        show_item: Callable[[T], Any],
        show_empty: Callable[[], Any],
    ) -> None:
        self._ctx = ctx
        self._page_size = self._limit = page_size
        self._load = load
        self._show_item = show_item
        self._show_empty = show_empty
        self._request_number = 0
        self.items: Sequence[T] | None = None
        self.root = box("stack")

    async def restart(self) -> None:
        """Show the first page of what is wanted now."""
        self._limit, self.items = self._page_size, None
        await self.show()

    async def show(self) -> None:
        """Show it anew, unless it is as it was, or something else is wanted by the time it is there."""
        self._request_number += 1
        request_number = self._request_number
        found = await self._load(self._limit + 1)
        if request_number != self._request_number or found == self.items:
            return  # do not disturb a user who reads it or types in it
        self.items = found
        self.root.clear()
        with self.root:
            for item in found[: self._limit]:
                self._show_item(item)
            if len(found) > self._limit:
                button("More", None, self._ctx.guard(self._show_more), "outline")
            if not found:
                self._show_empty()

    async def _show_more(self) -> None:
        self._limit, self.items = self._limit + self._page_size, None
        await self.show()


def show_no_memory(ctx: PageContext, icon: str, extra_hint: str = "") -> None:
    """What is shown to whom nothing is remembered of; `extra_hint` says what there will be."""
    hint = (
        "What you say in a chat becomes memories when the conversation closes, each with the place where it was said."
        " You can also write one yourself."
    )
    with empty_state(icon, "Nothing is remembered yet.", f"{hint} {extra_hint}".strip()):
        link_button("Start a chat", "chat", ctx.link("/"))
        link_button("Write a memory", "edit_note", ctx.link("/memory", add="1"))
