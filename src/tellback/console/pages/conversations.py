"""Conversations: what was said, message by message, and where a citation leads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from nicegui import ui

from tellback.console import widgets
from tellback.console.frame import console_page
from tellback.console.log_view import ConversationView
from tellback.console.parts import text_label
from tellback.console.seat import PageContext
from tellback.errors import NotFoundError
from tellback.types.conversations import Conversation

PATH = "/conversations"
CONVERSATIONS_PER_PAGE = 20


@console_page(PATH, "Conversations")
async def conversations_page(ctx: PageContext) -> None:
    """The user's conversations, or the one that the address names."""
    id = ctx.query.get("id")
    if id is None:
        await ConversationList(ctx).build()
        return
    found = await ctx.user.conversations.get(id)
    if found is None:
        raise NotFoundError("conversation", id)
    await ConversationView(ctx, found, ctx.query.get("message")).build()


class ConversationList:
    """A list, the newest first, that grows by pages."""

    def __init__(self, ctx: PageContext) -> None:
        self._ctx = ctx
        self._namespace = ctx.query.get("namespace") or None
        self._status = ctx.query.get("status") or None
        self._last_shown: Conversation | None = None

    async def build(self) -> None:
        self._show_filters()
        self._rows = widgets.box("stack")
        self._more_box = widgets.box("line").style("justify-content: center")
        await self._show_more()

    def _show_filters(self) -> None:
        with widgets.box("line"):
            field = ui.input("Namespace", value=self._namespace or "").props("outlined dense clearable debounce=0")
            field.classes("some")
            field.on("keydown.enter", lambda: self._navigate(field.value, self._status))
            field.on("clear", lambda: self._navigate(None, self._status))
            ui.select(
                {"": "Open and closed", "open": "Open", "closed": "Closed"},
                label="Status",
                value=self._status if self._status in ("open", "closed") else "",
                on_change=lambda event: self._navigate(field.value, event.value),
            ).props("outlined dense options-dense").classes("some")

    def _navigate(self, namespace: str | None, status: str | None) -> None:
        ui.navigate.to(self._ctx.link(PATH, namespace=namespace or None, status=status or None))

    async def _show_more(self) -> None:
        conversations = self._ctx.user.conversations
        found = await conversations.list(self._namespace, self._status, CONVERSATIONS_PER_PAGE + 1, self._last_shown)
        if not found and self._last_shown is None:
            self._show_empty()
            return
        shown = found[:CONVERSATIONS_PER_PAGE]
        titles = await asyncio.gather(*map(self._load_title, shown))
        with self._rows:
            self._show_rows(shown, titles)
        self._last_shown = shown[-1]
        self._more_box.clear()
        if len(found) > CONVERSATIONS_PER_PAGE:
            with self._more_box:
                ui.button("More", icon="expand_more", on_click=self._ctx.guard(self._show_more)).props("flat no-caps")

    async def _load_title(self, conversation: Conversation) -> str:
        if conversation.title:
            return conversation.title
        first = await self._ctx.user.conversations.messages(conversation.id, 1, after=0)
        return first[0].text if first else ""

    def _show_rows(self, conversations: Sequence[Conversation], titles: Sequence[str]) -> None:
        for conversation, title in zip(conversations, titles, strict=True):
            with widgets.box("card", "stack", "tight", tag="article"):
                with ui.link(target=self._ctx.link(PATH, id=conversation.id)).classes("go plain"):
                    text_label(widgets.truncate(title, 160) or "Nothing was said").classes("strong")
                with widgets.box("line"):
                    widgets.chip("open" if conversation.is_open else "closed", "good" if conversation.is_open else "")
                    widgets.chip(conversation.namespace)
                    widgets.muted(widgets.format_count(conversation.last_seq, "message"))
                    widgets.muted(widgets.format_datetime(conversation.updated_at) or "")

    def _show_empty(self) -> None:
        if self._namespace is not None or self._status is not None:
            with widgets.empty_state("filter_alt_off", "No conversation is like that.", "Look at all of them instead."):
                widgets.link_button("Show all", "clear_all", self._ctx.link(PATH))
            return
        hint = "What you say in a chat is kept here, message by message, and memories cite it."
        with widgets.empty_state("forum", "There are no conversations yet.", hint):
            widgets.link_button("Start a chat", "chat", self._ctx.link("/"))
