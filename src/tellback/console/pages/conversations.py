"""The page Conversations: the list, and one conversation with its messages and memories."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from nicegui import ui

from tellback.console import widgets
from tellback.console.context import EXTRACTION_WAIT_SECONDS, PageContext, notify
from tellback.console.explanation import format_cost
from tellback.console.layout import console_page
from tellback.console.messages import has_own_content, show_blocks, tool_results_by_id
from tellback.console.widgets import note, text_label
from tellback.errors import require_found
from tellback.types.conversations import Conversation, StoredMessage
from tellback.types.memory import Atom

PATH = "/conversations"
CONVERSATIONS_PER_PAGE = 20
MESSAGES_PER_PAGE = 50
MESSAGES_BEFORE_CITED = 10
"""How many messages are shown before a cited message."""
MAX_ATOMS_SHOWN = 20
MAX_ATOMS_SEARCHED = 500
NAMESPACE_TOOLTIP = "Namespace: the kind of conversation, such as chat or support"

_SCROLL_TO_HIGHLIGHT = """
const lit = document.querySelector('.lit');
if (lit) { lit.scrollIntoView({block: 'center'}); lit.focus({preventScroll: true}); }
"""
_ROLE_LABELS = {"user": "You", "assistant": "Assistant", "system": "System", "tool": "Tool"}
_VISIBILITY_LABELS = {
    "internal": "internal: sent to the model, not shown in chats",
    "hidden": "hidden: stored, but neither shown nor sent to the model",
}


class ConversationView:
    """A conversation, with the message in the page's address highlighted."""

    def __init__(self, ctx: PageContext, conversation: Conversation, highlighted_id: str | None) -> None:
        self._ctx = ctx
        self._conversation = conversation
        self._highlighted_id = highlighted_id
        self._first_seq = self._last_seq = 0

    async def build(self) -> None:
        messages = await self._load_initial()
        self._show_header(messages)
        self._earlier_box = widgets.box("line").style("justify-content: center")
        self._messages_box = widgets.box("stack")
        self._later_box = widgets.box("line").style("justify-content: center")
        if messages:
            self._first_seq, self._last_seq = messages[0].seq, messages[-1].seq
            with self._messages_box:
                self._show_messages(messages)
        else:
            with self._messages_box:
                widgets.muted("No messages.")
        self._show_paging()
        await self._show_memories()
        if self._highlighted_id is not None:
            ui.run_javascript(_SCROLL_TO_HIGHLIGHT)

    async def _load_initial(self) -> list[StoredMessage]:
        conversations = self._ctx.user.conversations
        if self._highlighted_id is not None:
            found = await conversations.message(self._highlighted_id)
            if found is not None and found.conversation_id == self._conversation.id:
                return await self._load_messages(after=max(0, found.seq - MESSAGES_BEFORE_CITED - 1))
            note("The linked message is not in this conversation. It may have been deleted.", is_error=True)
        return await self._load_messages()

    async def _load_messages(self, *, before: int | None = None, after: int | None = None) -> list[StoredMessage]:
        return await self._ctx.user.conversations.messages(
            self._conversation.id,
            MESSAGES_PER_PAGE,
            include_internal=True,
            before=before,
            after=after,
            include_hidden=True,
        )

    def _show_header(self, messages: Sequence[StoredMessage]) -> None:
        conversation, ctx = self._conversation, self._ctx
        with widgets.box("line"):
            widgets.page_link("All conversations", ctx.link("/conversations"))
            if conversation.is_open:
                with widgets.box("actions"):
                    widgets.button("Close conversation", "check_circle_outline", self._confirm_close, "small")
        first = next((message.text for message in messages if message.role == "user"), "")
        title = text_label(widgets.truncate(conversation.title or first, 160) or "Conversation").classes("head2")
        title.props("role=heading aria-level=2")
        with widgets.box("line"):
            widgets.chip("open" if conversation.is_open else "closed", "good" if conversation.is_open else "")
            widgets.chip(conversation.namespace, tooltip=NAMESPACE_TOOLTIP)
            widgets.muted(widgets.format_count(conversation.last_seq, "message"))
            widgets.muted(f"started {widgets.format_datetime(conversation.created_at)}")
            if conversation.closed_at is not None:
                widgets.muted(f"closed {widgets.format_datetime(conversation.closed_at)}")
            if conversation.session_id is not None:
                widgets.muted(f"session {widgets.truncate(conversation.session_id, 60)}")
        if conversation.rolling_summary:
            with widgets.box("card", tag="section"):
                widgets.muted(f"Summary of messages 1 to {conversation.rolling_summary_until_seq}")
                text_label(conversation.rolling_summary)

    def _show_messages(self, messages: Sequence[StoredMessage]) -> None:
        results = tool_results_by_id(messages)
        call_ids = {call.id for message in messages for call in message.tool_calls}
        for message in messages:
            # Results are shown with their calls, unless the calls are on another page.
            if not has_own_content(message.content) and call_ids.issuperset(tool_results_by_id([message])):
                continue
            with widgets.box("message", message.role, tag="article") as article:
                if message.id == self._highlighted_id:
                    article.classes("lit").props("tabindex=-1 aria-current=true")
                with widgets.box("line"):
                    ui.label(_ROLE_LABELS.get(message.role, message.role)).classes("who")
                    widgets.muted(widgets.format_datetime(message.created_at) or "")
                    if message.visibility in _VISIBILITY_LABELS:
                        widgets.chip(_VISIBILITY_LABELS[message.visibility], "wait")
                    if message.usage is not None or message.model:
                        widgets.muted(self._format_cost(message))
                    with widgets.box("actions"):
                        address = self._ctx.link("/conversations", id=self._conversation.id, message=message.id)
                        link = ui.link(f"#{message.seq}", address).classes("go plain quiet")
                        widgets.set_accessible_name(link, f"Link to message {message.seq}")
                show_blocks(message.content, results, has_markdown=message.role == "assistant")
                if not has_own_content(message.content):
                    for result in tool_results_by_id([message]).values():
                        text_label(result.content)

    def _format_cost(self, message: StoredMessage) -> str:
        found = "" if message.usage is None else format_cost(message.usage)
        if message.model is None or message.model in found:
            return found
        return f"{message.model} · {found}" if found else message.model

    def _show_paging(self) -> None:
        """Show the buttons that load earlier and later messages."""
        self._earlier_box.clear()
        self._later_box.clear()
        if self._first_seq > 1:
            with self._earlier_box:
                widgets.button("Earlier messages", "expand_less", self._ctx.guard(self._show_earlier), "flat")
        if self._last_seq < self._conversation.last_seq:
            with self._later_box:
                widgets.button("Later messages", "expand_more", self._ctx.guard(self._show_later), "flat")

    async def _show_earlier(self) -> None:
        found = await self._load_messages(before=self._first_seq)
        self._first_seq = found[0].seq if found else 1
        with self._messages_box:
            box = widgets.box("stack")
            with box:
                self._show_messages(found)
            box.move(self._messages_box, 0)
        self._show_paging()

    async def _show_later(self) -> None:
        found = await self._load_messages(after=self._last_seq)
        self._last_seq = found[-1].seq if found else self._conversation.last_seq
        with self._messages_box:
            self._show_messages(found)
        self._show_paging()

    def _confirm_close(self) -> None:
        async def close() -> None:
            await self._ctx.user.conversations.close(self._conversation.id)
            notify("Closed. Extracting memories…")
            await self._ctx.user.memory.wait_for_extraction(EXTRACTION_WAIT_SECONDS)
            ui.navigate.to(self._ctx.link("/conversations", id=self._conversation.id))

        text = (
            "You cannot add messages to a closed conversation. If memory is set up for this kind of conversation,"
            " Tellback extracts memories from it."
        )
        widgets.confirm(self._ctx, "Close this conversation?", text, "Close conversation", close, is_destructive=False)

    async def _show_memories(self) -> None:
        """Show the newest memories from this conversation, and its last extraction job."""
        memory = self._ctx.user.memory
        jobs = await memory.list_jobs(conversation_id=self._conversation.id, limit=1)
        atoms: list[Atom] = []
        is_partial = False
        for space in await memory.list_spaces():
            newest = await memory.list_atoms(space.id, limit=MAX_ATOMS_SEARCHED, include_superseded=True)
            atoms += [
                atom for atom in newest if any(each.conversation_id == self._conversation.id for each in atom.citations)
            ]
            is_partial = is_partial or len(newest) == MAX_ATOMS_SEARCHED
        if not atoms and not jobs:
            return
        widgets.heading("Memories from this conversation")
        for atom in atoms[:MAX_ATOMS_SHOWN]:
            with widgets.box("card"):
                widgets.page_link(widgets.truncate(atom.text, 300), self._ctx.link("/atom", id=atom.id))
        if len(atoms) > MAX_ATOMS_SHOWN:
            widgets.muted(f"and {len(atoms) - MAX_ATOMS_SHOWN:,} more")
        if is_partial:
            widgets.muted(f"Only the newest {MAX_ATOMS_SEARCHED} memories of each space were searched.")
        if jobs:
            with widgets.box("line"):
                created, status = widgets.format_datetime(jobs[0].created_at), jobs[0].status.value.lower()
                widgets.muted(f"Last extraction job: {status}, created {created}.")
                ui.link("Jobs", self._ctx.link("/jobs")).classes("go quiet")


@console_page(PATH, "Conversations")
async def conversations_page(ctx: PageContext) -> None:
    """Show the user's conversations, or the one in the page's address."""
    id = ctx.query.get("id")
    if id is None:
        await ConversationList(ctx).build()
        return
    found = require_found(await ctx.user.conversations.get(id), "conversation", id)
    await ConversationView(ctx, found, ctx.query.get("message")).build()


class ConversationList:
    """The conversations, newest first, in a list that grows by pages."""

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
            field = ui.input("Namespace, such as chat", value=self._namespace or "").props(
                "outlined dense clearable debounce=0"
            )
            field.classes("some").tooltip(NAMESPACE_TOOLTIP)
            field.on("keydown.enter", lambda: self._navigate(field.value, self._status))
            field.on("clear", lambda: self._navigate(None, self._status))
            widgets.select_field(
                {"": "Open and closed", "open": "Open", "closed": "Closed"},
                "Status",
                self._status if self._status in ("open", "closed") else "",
                on_change=lambda event: self._navigate(field.value, event.value),
            ).classes("some")

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
                widgets.button("More", "expand_more", self._ctx.guard(self._show_more), "flat")

    async def _load_title(self, conversation: Conversation) -> str:
        if conversation.title:
            return conversation.title
        first = await self._ctx.user.conversations.messages(conversation.id, 1, after=0)
        return first[0].text if first else ""

    def _show_rows(self, conversations: Sequence[Conversation], titles: Sequence[str]) -> None:
        for conversation, title in zip(conversations, titles, strict=True):
            with widgets.box("card", "stack", "tight", tag="article"):
                with ui.link(target=self._ctx.link(PATH, id=conversation.id)).classes("go plain"):
                    text_label(widgets.truncate(title, 160) or "Empty conversation").classes("strong")
                with widgets.box("line"):
                    widgets.chip("open" if conversation.is_open else "closed", "good" if conversation.is_open else "")
                    widgets.chip(conversation.namespace, tooltip=NAMESPACE_TOOLTIP)
                    widgets.muted(widgets.format_count(conversation.last_seq, "message"))
                    widgets.muted(widgets.format_datetime(conversation.updated_at) or "")

    def _show_empty(self) -> None:
        if self._namespace is not None or self._status is not None:
            with widgets.empty_state(
                "filter_alt_off", "No conversations match.", "Clear the filters to see all of them."
            ):
                widgets.link_button("Show all", "clear_all", self._ctx.link(PATH))
            return
        hint = "Your chats appear here, message by message. Memories link to their source messages."
        with widgets.empty_state("forum", "No conversations yet.", hint):
            widgets.link_button("Start a chat", "chat", self._ctx.link("/"))
