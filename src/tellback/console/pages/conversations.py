"""Conversations: what was said, message by message, and where a citation leads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from nicegui import ui

from tellback.console import widgets
from tellback.console.frame import console_page
from tellback.console.log_view import ConversationView
from tellback.console.parts import words
from tellback.console.seat import Seat
from tellback.errors import NotFoundError
from tellback.types.conversations import Conversation

PATH = "/conversations"
PAGE = 20


@console_page(PATH, "Conversations")
async def conversations(seat: Seat) -> None:
    """The user's conversations, or the one that the address names."""
    id = seat.query.get("id")
    if id is None:
        await ConversationList(seat).build()
        return
    found = await seat.user.conversations.get(id)
    if found is None:
        raise NotFoundError("conversation", id)
    await ConversationView(seat, found, seat.query.get("message")).build()


class ConversationList:
    """A list, the newest first, that grows by pages."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._namespace = seat.query.get("namespace") or None
        self._status = seat.query.get("status") or None
        self._last: Conversation | None = None

    async def build(self) -> None:
        self._filters()
        self._rows = widgets.box("stack")
        self._end = widgets.box("line").style("justify-content: center")
        await self._more()

    def _filters(self) -> None:
        with widgets.box("line"):
            field = ui.input("Namespace", value=self._namespace or "").props("outlined dense clearable debounce=0")
            field.classes("some")
            field.on("keydown.enter", lambda: self._go(field.value, self._status))
            field.on("clear", lambda: self._go(None, self._status))
            ui.select(
                {"": "Open and closed", "open": "Open", "closed": "Closed"},
                label="Status",
                value=self._status if self._status in ("open", "closed") else "",
                on_change=lambda event: self._go(field.value, event.value),
            ).props("outlined dense options-dense").classes("some")

    def _go(self, namespace: str | None, status: str | None) -> None:
        ui.navigate.to(self._seat.link(PATH, namespace=namespace or None, status=status or None))

    async def _more(self) -> None:
        talks = self._seat.user.conversations
        found = await talks.list(self._namespace, self._status, PAGE + 1, self._last)
        if not found and self._last is None:
            self._nothing()
            return
        shown = found[:PAGE]
        firsts = await asyncio.gather(*map(self._first_words, shown))
        with self._rows:
            self._show(shown, firsts)
        self._last = shown[-1]
        self._end.clear()
        if len(found) > PAGE:
            with self._end:
                ui.button("More", icon="expand_more", on_click=self._seat.doing(self._more)).props("flat no-caps")

    async def _first_words(self, talk: Conversation) -> str:
        if talk.title:
            return talk.title
        first = await self._seat.user.conversations.messages(talk.id, 1, after=0)
        return first[0].text if first else ""

    def _show(self, talks: Sequence[Conversation], firsts: Sequence[str]) -> None:
        for talk, first in zip(talks, firsts, strict=True):
            with widgets.box("card", "stack", "tight", tag="article"):
                with ui.link(target=self._seat.link(PATH, id=talk.id)).classes("go plain"):
                    words(widgets.cut(first, 160) or "Nothing was said").classes("strong")
                with widgets.box("line"):
                    widgets.chip("open" if talk.is_open else "closed", "good" if talk.is_open else "")
                    widgets.chip(talk.namespace)
                    widgets.quiet(widgets.counted(talk.last_seq, "message"))
                    widgets.quiet(widgets.moment(talk.updated_at) or "")

    def _nothing(self) -> None:
        if self._namespace is not None or self._status is not None:
            with widgets.empty("filter_alt_off", "No conversation is like that.", "Look at all of them instead."):
                widgets.link_button("Show all", "clear_all", self._seat.link(PATH))
            return
        how = "What you say in a chat is kept here, message by message, and memories cite it."
        with widgets.empty("forum", "There are no conversations yet.", how):
            widgets.link_button("Start a chat", "chat", self._seat.link("/"))
