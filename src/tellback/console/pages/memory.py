"""The memory pages: the list of atoms with its filters, and one atom with its history and citations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from nicegui import ui

from tellback.console import atoms, widgets
from tellback.console.context import PageContext, notify
from tellback.console.layout import console_page
from tellback.errors import InvalidArgumentError, require_found
from tellback.memory.memory import load_versions
from tellback.types.ids import utc_now
from tellback.types.memory import Atom, AtomStatus, MemorySpace, RecallHit
from tellback.validation import QUERY_LENGTH

PATH = "/memory"
ATOM_PATH = "/atom"
MEMORIES_PER_PAGE = 20
MAX_ATOMS_SEARCHED = 1_000
"""How many memories are searched for superseded ones before an incomplete page is shown."""
CATEGORY_SAMPLE_SIZE = 300
"""The category filter offers the categories of this many newest memories."""

MAX_MESSAGES_QUOTED = 20
MAX_QUOTE_LENGTH = 700
"""The maximum length of a quoted message in characters."""

STATUS_LABELS = {"current": "Current", "over": "Superseded or expired", "archived": "Archived"}


@dataclass(slots=True)
class MemoryFilter:
    """The filters of the memory list."""

    query: str = ""
    status: str = "current"
    categories: list[str] = field(default_factory=list)
    on_day: str = ""

    @classmethod
    def from_query(cls, ctx: PageContext) -> MemoryFilter:
        query = ctx.query
        status = query.get("status", "current")
        categories = [name for name in query.get("category", "").split("\n") if name]
        return cls(
            query.get("q", "")[:QUERY_LENGTH],
            status if status in STATUS_LABELS else "current",
            categories,
            query.get("on", ""),
        )

    @property
    def valid_at(self) -> datetime | None:
        """The end of the selected day, or the current time if the day is today."""
        end = widgets.parse_day_end(self.on_day)
        return None if end is None else min(end, max(utc_now(), widgets.parse_day_start(self.on_day) or end))


@console_page(PATH, "Memory")
async def memory_page(ctx: PageContext) -> None:
    """Show the memories of a space."""
    spaces, space = await widgets.resolve_space(ctx)
    if space is None:
        widgets.show_no_memory(ctx, "psychology")
        if ctx.query.get("add"):
            atoms.open_add_dialog(ctx, None, lambda created: _go_to_space(ctx, created))
        return
    await MemoryPage(ctx, spaces, space).build()
    if ctx.query.get("add"):
        atoms.open_add_dialog(ctx, space.id, lambda created: _go_to_space(ctx, created))


async def _go_to_space(ctx: PageContext, atom: Atom) -> None:
    ui.navigate.to(ctx.link(PATH, space=atom.space_id))


class MemoryPage:
    """The page of one space."""

    def __init__(self, ctx: PageContext, spaces: list[MemorySpace], space: MemorySpace) -> None:
        self._ctx = ctx
        self._spaces = spaces
        self._space = space
        self._filter = MemoryFilter.from_query(ctx)
        self._rows: list[tuple[Atom, RecallHit | None]] = []
        self._request_number = 0

    async def build(self) -> None:
        ctx, filter_ = self._ctx, self._filter
        with widgets.box("line"):
            widgets.space_select(ctx, self._spaces, self._space, PATH).classes("wide pick")
            widgets.button("New space", "create_new_folder", ctx.guard(self._open_space_dialog), "flat")
            widgets.button("Add memory", "add", ctx.guard(self._open_add_dialog), "main")
        on_search = ctx.guard(self._search)
        with widgets.search_line("Search memories", filter_.query, QUERY_LENGTH, on_search) as field:
            self._query_field = field
        with widgets.box("line"):
            self._status_field = widgets.select_field(STATUS_LABELS, "Show", filter_.status, on_change=on_search)
            self._status_field.classes("some").style("flex-basis: 15rem")
            self._day_field = widgets.date_field("Valid on", filter_.on_day, on_search).classes("some")
            newest = await ctx.user.memory.list_atoms(
                self._space.id, limit=CATEGORY_SAMPLE_SIZE, include_superseded=True
            )
            names = sorted({*(atom.category.name for atom in newest), *filter_.categories}, key=str.casefold)
            self._categories_field = widgets.select_field(
                names, "Categories", filter_.categories, multiple=True, on_change=on_search
            ).classes("wide pick")
            self._categories_field.props("use-chips clearable")
        self._list_box = widgets.box("stack").props('aria-live=polite aria-label="Memories" role=region')
        self._footer_box = widgets.box("line")
        await self._show_first_page()

    async def _search(self) -> None:
        self._filter = MemoryFilter(
            (self._query_field.value or "").strip()[:QUERY_LENGTH],
            self._status_field.value,
            list(self._categories_field.value or ()),
            self._day_field.value or "",
        )
        filter_ = self._filter
        address = self._ctx.link(
            PATH,
            space=self._ctx.query.get("space"),
            q=filter_.query or None,
            status=None if filter_.status == "current" else filter_.status,
            category="\n".join(filter_.categories) or None,
            on=filter_.on_day or None,
        )
        ui.navigate.history.replace(address)
        await self._show_first_page()

    async def _show_first_page(self) -> None:
        """Show the first page, unless a newer request has started meanwhile."""
        self._request_number += 1
        request_number = self._request_number
        found, has_more = await self._load_rows(MEMORIES_PER_PAGE, None)
        if request_number != self._request_number:
            return
        self._rows = []
        self._list_box.clear()
        self._show_rows(found, has_more)

    def _show_rows(self, found: Sequence[tuple[Atom, RecallHit | None]], has_more: bool) -> None:
        with self._list_box:
            for atom, hit in found:
                atoms.show_card(self._ctx, atom, self._on_changed, hit)
            if not found and not self._rows:
                self._show_empty()
        self._rows += found
        self._footer_box.clear()
        with self._footer_box:
            if self._rows:
                widgets.muted(f"{widgets.format_count(len(self._rows), 'memory', 'memories')} shown")
            if has_more:
                widgets.button("More", None, self._ctx.guard(self._show_more), "outline")

    async def _show_more(self) -> None:
        request_number = self._request_number
        if self._filter.query:
            found, has_more = await self._load_rows(len(self._rows) + MEMORIES_PER_PAGE, None)
            found = found[len(self._rows) :]
        else:
            found, has_more = await self._load_rows(MEMORIES_PER_PAGE, self._rows[-1][0] if self._rows else None)
        if request_number == self._request_number:
            self._show_rows(found, has_more)

    async def _load_rows(self, limit: int, before: Atom | None) -> tuple[list[tuple[Atom, RecallHit | None]], bool]:
        if self._filter.query:
            hits = await self._search_by_topic(limit + 1)
            return [(hit.atom, hit) for hit in hits[:limit]], len(hits) > limit
        if self._filter.status == "over":
            superseded, has_more = await self._load_superseded(limit, before)
            return [(atom, None) for atom in superseded], has_more
        filter_ = self._filter
        found = await self._ctx.user.memory.list_atoms(
            self._space.id,
            status=AtomStatus.ARCHIVED if filter_.status == "archived" else None,
            valid_at=filter_.valid_at,
            categories=filter_.categories or None,
            limit=limit + 1,
            before=before,
        )
        return [(atom, None) for atom in found[:limit]], len(found) > limit

    async def _load_superseded(self, limit: int, before: Atom | None) -> tuple[list[Atom], bool]:
        """Search the memories for superseded and expired ones, at most `MAX_ATOMS_SEARCHED`."""
        found: list[Atom] = []
        now, searched = utc_now(), 0
        while searched < MAX_ATOMS_SEARCHED:
            page = await self._ctx.user.memory.list_atoms(
                self._space.id,
                valid_at=self._filter.valid_at,
                categories=self._filter.categories or None,
                limit=MEMORIES_PER_PAGE * 5,
                include_superseded=self._filter.valid_at is None,
                before=before,
            )
            for atom in page:
                if atoms.is_superseded_or_expired(atom, now):
                    if len(found) == limit:
                        return found, True
                    found.append(atom)
            if len(page) < MEMORIES_PER_PAGE * 5:
                return found, False
            before, searched = page[-1], searched + len(page)
        return found, bool(found)

    async def _search_by_topic(self, limit: int) -> list[RecallHit]:
        filter_, memory = self._filter, self._ctx.user.memory
        names = filter_.categories or None
        if filter_.status == "over":
            result = await memory.recall_timeline(
                self._space.id,
                query=filter_.query,
                from_=filter_.valid_at,
                to=filter_.valid_at,
                limit=limit * 3,
                category_names=names,
            )
            hits = [hit for hit in result if atoms.is_superseded_or_expired(hit.atom)]
            return sorted(hits, key=lambda hit: -hit.score)[:limit]
        is_archived = filter_.status == "archived"
        result = await memory.recall_by_topic(
            self._space.id,
            filter_.query,
            limit=max(limit, MAX_ATOMS_SEARCHED) if is_archived else limit,
            category_names=names,
            valid_at=filter_.valid_at,
            include_archived=is_archived,
        )
        if not is_archived:
            return list(result)
        return [hit for hit in result if hit.atom.status is AtomStatus.ARCHIVED][:limit]

    def _show_empty(self) -> None:
        filter_ = self._filter
        if filter_ == MemoryFilter():
            hint = (
                "When a conversation closes, Tellback extracts memories from it. You can also add one yourself, which"
                " is available immediately."
            )
            with widgets.empty_state("psychology", "This space has no memories yet.", hint):
                widgets.link_button("Start a chat", "chat", self._ctx.link("/"))
                widgets.button("Add memory", "add", self._ctx.guard(self._open_add_dialog), "small")
            return
        with widgets.empty_state(
            "search_off", "No memories match.", "Try another search, or show all current memories."
        ):
            widgets.link_button("Show all", "clear_all", self._ctx.link(PATH, space=self._space.id))

    async def _on_changed(self, atom: Atom) -> None:
        await self._show_first_page()

    def _open_add_dialog(self) -> None:
        atoms.open_add_dialog(self._ctx, self._space.id, self._on_changed)

    def _open_space_dialog(self) -> None:
        ctx = self._ctx
        with widgets.dialog("New space") as dialog:
            widgets.muted("Spaces are separate: a chat uses the memories of one space only.")

            async def create() -> None:
                space_name = (name.value or "").strip()
                if not space_name:
                    raise InvalidArgumentError("Enter a name.")
                space = await ctx.user.memory.create_space(space_name)
                notify("Space created.")
                ui.navigate.to(ctx.link(PATH, space=space.id))

            on_create = ctx.guard(create)
            name = widgets.text_field("Name", "", on_create).props("autofocus maxlength=200").classes("full")
            widgets.dialog_buttons(dialog, "Create", on_create)


@console_page(ATOM_PATH, "Memory")
async def atom_page(ctx: PageContext) -> None:
    """Show one memory with its sources, history and entities."""
    id = ctx.query.get("id", "")
    found = require_found(await ctx.user.memory.get_atom(id), "atom", id)
    space = await ctx.user.memory.get_space(found.space_id)
    back_link = ctx.link(PATH, space=found.space_id)
    ui.link(f"← {widgets.truncate(space.name, 60) if space else 'Memory'}", back_link).classes("go plain quiet")
    with widgets.box("card", "stack", tag="article"):
        atoms.show_text(found)
        with widgets.box("line"):
            atoms.show_status_chip(found)
            atoms.show_category_chip(found)
            widgets.muted(atoms.format_validity(found))
            with widgets.box("actions"):
                atoms.show_actions(ctx, found, lambda changed: _go_to_changed(ctx, changed))
    _show_fields(found, space.name if space else None)
    await _show_quotes(ctx, found)
    await _show_history(ctx, found)
    await _show_entities(ctx, found)


async def _go_to_changed(ctx: PageContext, changed: Atom) -> None:
    if changed.status is AtomStatus.DELETED:
        ui.navigate.to(ctx.link(PATH, space=changed.space_id))
    else:
        ui.navigate.to(ctx.link(ATOM_PATH, id=changed.id))


def _show_fields(found: Atom, space: str | None) -> None:
    widgets.heading("Details")
    status = {AtomStatus.ACTIVE: "Active", AtomStatus.ARCHIVED: "Archived: not used in answers, can be restored"}
    was_never_valid = found.valid_to is not None and found.valid_to <= found.valid_from
    ends = atoms.NEVER_VALID if was_never_valid else widgets.format_datetime(found.valid_to) or "still valid"
    widgets.pairs(
        ("Valid from", widgets.format_datetime(found.valid_from)),
        ("Valid until", ends),
        ("Stored on", widgets.format_datetime(found.created_at)),
        ("Superseded on", widgets.format_datetime(found.superseded_at)),
        ("Status", status.get(found.status, "Forgotten: never used again")),
        ("Kind", found.category.kind.value.capitalize()),
        ("Category", found.category.name),
        ("Importance", f"{found.importance} of 5"),
        ("Confidence", f"{found.confidence:.0%}"),
        ("Space", space),
        ("ID", found.id),
    )


async def _show_quotes(ctx: PageContext, found: Atom) -> None:
    widgets.heading("Source messages")
    if not found.citations:
        widgets.muted("No source message: it was added manually or by a program.")
        return
    sources = [(each.conversation_id, id) for each in found.citations for id in each.message_ids or (None,)]
    for conversation_id, message_id in sources[:MAX_MESSAGES_QUOTED]:
        message = None if message_id is None else await ctx.user.conversations.message(message_id)
        with widgets.box("card", "stack", "tight", tag="blockquote").style("margin: 0"):
            if message is not None:
                is_cut = len(message.text) > MAX_QUOTE_LENGTH
                widgets.text_label(message.text[: MAX_QUOTE_LENGTH - 1] + "…" if is_cut else message.text)
            elif message_id is not None:
                widgets.muted("This message was deleted.")
            with widgets.box("line"):
                if message is not None:
                    speaker = "You" if message.role == "user" else message.role.capitalize()
                    widgets.muted(f"{speaker}, {widgets.format_datetime(message.created_at)}")
                label = "Open conversation" if message_id is None else "Show in conversation"
                ui.link(label, ctx.link("/conversations", id=conversation_id, message=message_id)).classes("go quiet")
    if len(sources) > MAX_MESSAGES_QUOTED:
        widgets.muted(f"and {len(sources) - MAX_MESSAGES_QUOTED} more")


async def _show_history(ctx: PageContext, found: Atom) -> None:
    widgets.heading("History")
    versions = await load_versions(ctx.user.memory, found, atoms.MAX_HISTORY_LENGTH)
    if len(versions) == 1:
        widgets.muted("No changes.")
        return
    with widgets.box("stack", "tight", tag="ol").style("margin: 0; padding-left: 1.4rem"):
        for each in versions:
            with widgets.box(tag="li"):
                if each.id == found.id:
                    ui.label(each.text).classes("said").style("font-weight: 600").props("aria-current=true dir=auto")
                else:
                    style = " over" if atoms.is_superseded_or_expired(each) else ""
                    link = ui.link(each.text, ctx.link(ATOM_PATH, id=each.id)).classes(f"go said{style}")
                    link.props("dir=auto")
                widgets.muted(f"{atoms.format_validity(each)} · stored on {widgets.format_datetime(each.created_at)}")


async def _show_entities(ctx: PageContext, found: Atom) -> None:
    if not found.entity_ids:
        return
    widgets.heading("Entities")
    with widgets.box("line"):
        for id in found.entity_ids:
            entity = await ctx.user.memory.get_entity(id)
            if entity is not None:
                ui.link(entity.canonical_name, ctx.link("/entities", id=entity.id)).classes("go chip")
