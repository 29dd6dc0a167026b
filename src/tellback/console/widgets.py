"""Widgets for the pages. Text of users and models is shown as text, never as markup."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, time, timedelta
from enum import Enum
from typing import Any, Generic, Literal, TypeVar

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement
from pydantic import BaseModel

from tellback.console.context import PageContext
from tellback.errors import InvalidArgumentError, require_found
from tellback.types.memory import MemorySpace

MAX_VALUE_LINES = 20
"""How many items of a list or mapping are shown."""

Work = Callable[[], Awaitable[Any]]
T = TypeVar("T")

_ISO_DATE = re.compile(r"^\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:|$)")

_BUTTON_PROPS = {
    "flat": "flat",
    "main": "unelevated",
    "outline": "outline",
    "small": "outline dense padding='4px 12px'",
}


def text_label(text: str) -> ui.label:
    """Show text of a user or model, with its line breaks; the browser detects the text direction."""
    return ui.label(text).classes("said").props("dir=auto")


def code_block(text: str) -> TextElement:
    """Show monospaced text, such as JSON or a prompt, that scrolls if it is long."""
    return TextElement(tag="pre", text=text).classes("block").props("tabindex=0 dir=auto")


def note(text: str, *, is_error: bool = False) -> ui.label:
    """Show a remark in a conversation; screen readers announce errors immediately."""
    label = text_label(text).classes("note wrong" if is_error else "note")
    return label.props("role=alert") if is_error else label


def box(*classes: str, tag: str = "div") -> ui.element:
    """Create a plain container element."""
    return ui.element(tag).classes(" ".join(classes))


def heading(text: str) -> ui.label:
    """Show the heading of a section."""
    return ui.label(text).classes("head2").props('role=heading aria-level="2"')


def muted(text: str) -> ui.label:
    """Show small grey text."""
    return ui.label(text).classes("quiet said")


def chip(text: str, tone: str = "", tooltip: str | None = None) -> ui.label:
    """Show a small label: `tone` is "good", "bad", "wait" or empty."""
    found = ui.label(text).classes(f"chip {tone}".strip())
    if tooltip is not None:
        found.props["title"] = tooltip
    return found


def set_accessible_name(element: ui.element, name: str) -> ui.element:
    """Set the name for screen readers and the tooltip; it may contain any characters."""
    element.props["aria-label"] = name
    element.props["title"] = name
    return element


def icon_button(icon: str, name: str, on_click: Callable[..., Any]) -> ui.button:
    """Create a button with an icon and an accessible name."""
    found = ui.button(icon=icon, on_click=on_click).props("flat round dense size=md")
    set_accessible_name(found, name)
    return found


def button(
    text: str, icon: str | None, on_click: Callable[..., Any] | None, look: Literal["flat", "main", "outline", "small"]
) -> ui.button:
    """Create a button with a label."""
    return ui.button(text, icon=icon, on_click=on_click).props(f"no-caps {_BUTTON_PROPS[look]}")


def page_link(text: str, address: str) -> ui.link:
    """Create a link to another page of the console."""
    return ui.link(text, address).classes("go said")


def link_button(text: str, icon: str, address: str) -> ui.button:
    """Create a button that opens another page."""
    link = button(text, icon, None, "small")
    link.props["href"] = address
    return link


@contextmanager
def empty_state(icon: str, message: str, hint: str) -> Iterator[None]:
    """Show an empty state: what is missing, and what to do. Put buttons and links inside the block."""
    with box("empty"):
        ui.icon(icon, size="2.2rem").classes("quiet").props("aria-hidden=true")
        ui.label(message).classes("said").style("font-weight: 600")
        ui.label(hint).classes("quiet said").style("max-width: 34rem")
        with box("line").style("justify-content: center"):
            yield


def pairs(*rows: tuple[str, str | None]) -> None:
    """Show a list of names and values; rows whose value is None are omitted."""
    with box("pairs"):
        for name, value in rows:
            if value is not None:
                ui.label(name)
                ui.label(value).classes("said")


def table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], numbers: frozenset[int] = frozenset()) -> None:
    """Show a table of plain text. The columns in `numbers` are right-aligned."""
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
    """Open a dialog. Escape closes it, and closing deletes it."""
    with ui.dialog(value=True) as opened, ui.card().classes("dialog"):
        opened.props["aria-label"] = name
        opened.on("hide", opened.delete)
        ui.label(name).classes("dialog-title")
        yield opened


def confirm(ctx: PageContext, name: str, text: str, label: str, work: Work, *, is_destructive: bool = True) -> None:
    """Ask for confirmation before running `work`."""
    with dialog(name) as opened:
        ui.label(text).classes("said")

        async def run_work() -> None:
            await work()
            opened.close()

        dialog_buttons(opened, label, ctx.guard(run_work), is_destructive=is_destructive)


def dialog_buttons(
    opened: ui.dialog, label: str, on_confirm: Callable[..., Any], *, is_destructive: bool = False
) -> ui.button:
    """Show the buttons Cancel and `label`; returns the second one."""
    with box("line").style("justify-content: flex-end"):
        button("Cancel", None, opened.close, "flat").props("autofocus" if is_destructive else "")
        confirm_button = button(label, None, on_confirm, "main")
        if is_destructive:
            confirm_button.props("color=negative")
    return confirm_button


def close_button(opened: ui.dialog) -> None:
    """Show the button of a dialog that only displays something."""
    with box("line").style("justify-content: flex-end"):
        button("Close", None, opened.close, "flat").props("autofocus")


def text_field(label: str, value: str = "", on_enter: Callable[..., Any] | None = None) -> ui.input:
    """Create a single-line text field."""
    field = ui.input(label, value=value).props("outlined dense dir=auto")
    return field if on_enter is None else field.on("keydown.enter", on_enter)


def select_field(options: list[str] | dict[Any, str], label: str, value: Any = None, **settings: Any) -> ui.select:
    """Create a select field; `settings` are passed to `ui.select`."""
    return ui.select(options, label=label, value=value, **settings).props("outlined dense options-dense")


@contextmanager
def search_line(
    label: str, value: str, max_length: int, on_search: Callable[..., Any], button_label: str = "Search"
) -> Iterator[ui.input]:
    """Show a search field and its button, with the elements of the block in between."""
    with box("line").props("role=search"):
        field = text_field(label, value, on_search).classes("wide").props(f"clearable maxlength={max_length}")
        yield field.on("clear", on_search)
        button(button_label, "search", on_search, "outline")


def date_field(label: str, value: str | None, on_change: Callable[..., Any] | None = None) -> ui.input:
    """Create an optional date field; `value` has the form 2026-03-01."""
    field = ui.input(label, value=value or "", on_change=on_change)
    return field.props("type=date stack-label outlined dense clearable clear-icon=close")


def parse_day_start(day: str | None) -> datetime | None:
    """Return the start of a day in UTC.

    >>> parse_day_start("2026-03-01").isoformat()
    '2026-03-01T00:00:00+00:00'
    """
    if not day:
        return None
    try:
        return datetime.combine(datetime.strptime(day, "%Y-%m-%d").date(), time(), UTC)
    except ValueError:
        raise InvalidArgumentError(f"A date must have the form 2026-03-01, got {day!r:.40}.") from None


def parse_day_end(day: str | None) -> datetime | None:
    """Return the last moment of a day in UTC."""
    start = parse_day_start(day)
    return None if start is None else start + timedelta(days=1, microseconds=-1)


def format_date(moment: datetime) -> str:
    """Format the date of a datetime in UTC.

    >>> format_date(datetime(2026, 3, 1, tzinfo=UTC))
    '1 Mar 2026'
    """
    utc = moment.astimezone(UTC)
    return f"{utc.day} {utc:%b} {utc.year}"


def format_datetime(at: datetime | None) -> str | None:
    """Format a datetime in UTC."""
    return None if at is None else f"{format_date(at)}, {at.astimezone(UTC):%H:%M} UTC"


def format_count(number: int, singular: str, plural: str | None = None) -> str:
    """Format a number with its noun.

    >>> format_count(1, "memory", "memories"), format_count(1200, "job")
    ('1 memory', '1,200 jobs')
    """
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def format_value(value: object, *, indent: int | None = None) -> str:
    """Format a value for developers: a string unchanged, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=indent, default=str)


def format_plain_value(value: object, max_length: int = 300) -> str:
    """Format a value for reading: dates as `format_date` does, and one line for each item of a list or mapping.

    >>> format_plain_value("2026-11-19"), format_plain_value(True), format_plain_value(2)
    ('19 Nov 2026', 'yes', '2')
    >>> print(format_plain_value({"days": ["2026-11-19", "2026-11-20"], "city": "Rome"}))
    days: 19 Nov 2026, 20 Nov 2026
    city: Rome
    """
    lines = list(_plain_lines(value))
    shown = [truncate(line, max_length) for line in lines[:MAX_VALUE_LINES]]
    return "\n".join([*shown, "…"] if len(lines) > MAX_VALUE_LINES else shown)


def _plain_lines(value: object) -> Iterator[str]:
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield f"{name}: {', '.join(_plain_lines(each))}"
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield ", ".join(_plain_lines(each))
    elif isinstance(value, bool):
        yield "yes" if value else "no"
    else:
        yield _format_moment(str(value.value if isinstance(value, Enum) else value))


def _format_moment(text: str) -> str:
    """Format text that is an ISO date or a date with a time and zone; other text stays unchanged."""
    if not _ISO_DATE.match(text):
        return text
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return text
    if len(text) == len("2026-03-01"):
        return format_date(found.replace(tzinfo=UTC))
    return text if found.tzinfo is None else format_datetime(found) or text


def format_field_name(name: str) -> str:
    """Format a field's name as a label.

    >>> format_field_name("departure_date")
    'Departure date'
    """
    words = name.replace("_", " ").strip()
    return words[:1].upper() + words[1:]


def truncate(text: str, length: int = 80) -> str:
    """Shorten a text to one line of at most `length` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= length else flat[: length - 1].rstrip() + "…"


async def resolve_space(ctx: PageContext) -> tuple[list[MemorySpace], MemorySpace | None]:
    """Return the user's spaces and the page's space: the one in its address, "default", or the first."""
    spaces = await ctx.user.memory.list_spaces()
    requested = ctx.query.get("space")
    if requested is not None:
        found = next((space for space in spaces if space.id == requested), None)
        return spaces, require_found(found, "space", requested)
    return spaces, next((space for space in spaces if space.name == "default"), spaces[0] if spaces else None)


def space_select(ctx: PageContext, spaces: list[MemorySpace], chosen: MemorySpace, path: str) -> ui.select:
    """Create a select field that reloads the page for another space."""
    names = {
        space.id: f"{truncate(space.name, 60)} ({format_count(space.atom_count, 'memory', 'memories')} in total)"
        for space in spaces
    }
    return select_field(
        names, "Space", chosen.id, on_change=lambda event: ui.navigate.to(ctx.link(path, space=event.value))
    )


class PagedList(Generic[T]):
    """A list that grows by pages. `load` receives one more than the page size, to detect further items."""

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
        """Go back to the first page, with the current filters."""
        self._limit, self.items = self._page_size, None
        await self.show()

    async def show(self) -> None:
        """Load and redraw the list, unless its items are unchanged or a newer request has started meanwhile."""
        self._request_number += 1
        request_number = self._request_number
        found = await self._load(self._limit + 1)
        if request_number != self._request_number or found == self.items:
            return  # redrawing would lose the user's focus and scroll position
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
    """Show the empty state of a user without memories; `extra_hint` says what the page will show."""
    hint = (
        "When a conversation closes, Tellback extracts memories from it, each with a link to its source message."
        " You can also add one yourself."
    )
    with empty_state(icon, "No memories yet.", f"{hint} {extra_hint}".strip()):
        link_button("Start a chat", "chat", ctx.link("/"))
        link_button("Add memory", "edit_note", ctx.link("/memory", add="1"))
