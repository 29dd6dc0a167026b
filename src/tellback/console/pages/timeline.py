"""The page Timeline: how a memory, an entity or a topic changed."""

from __future__ import annotations

from datetime import datetime

from nicegui import ui

from tellback.console import atoms, widgets
from tellback.console.context import PageContext
from tellback.console.layout import console_page
from tellback.errors import require_found
from tellback.memory.memory import load_versions
from tellback.types.ids import utc_now
from tellback.types.memory import Atom, Entity, MemorySpace
from tellback.validation import QUERY_LENGTH

PATH = "/timeline"
ATOMS_PER_PAGE = 30
EMPTY_HINT = "The timeline shows when each memory was valid and what replaced it."
MAX_ENTITY_CHOICES = 200
"""How many entities the filter offers. It offers those with the most memories."""

_TIMELINE_CSS = """
.time { list-style: none; margin: 0; padding: 0; width: 100%; }
.time > li { position: relative; padding: 0 0 1.1rem 1.6rem; }
.time > li::before { content: ""; position: absolute; left: .35rem; top: .5rem; bottom: -.5rem; width: 2px;
  background: var(--edge); }
.time > li:last-child::before { display: none; }
.time > li::after { content: ""; position: absolute; left: 0; top: .3rem; width: .8rem; height: .8rem;
  border-radius: 50%; background: var(--q-primary); }
.time > li.past::after { background: transparent; border: 2px solid var(--quiet); }
.time > li[aria-current] { font-weight: 600; }
"""


@console_page(PATH, "Timeline")
async def timeline_page(ctx: PageContext) -> None:
    """Show when the memories of a space were valid."""
    ui.add_css(_TIMELINE_CSS)
    atom_id = ctx.query.get("atom")
    atom = None if atom_id is None else require_found(await ctx.user.memory.get_atom(atom_id), "atom", atom_id)
    spaces, space = await widgets.resolve_space(ctx)
    if atom is not None:
        space = next((each for each in spaces if each.id == atom.space_id), None)
    if space is None:
        widgets.show_no_memory(ctx, "timeline", EMPTY_HINT)
        return
    await TimelinePage(ctx, spaces, space, atom).build()


class TimelinePage:
    """The timeline of a space, or of the memory in the page's address."""

    def __init__(self, ctx: PageContext, spaces: list[MemorySpace], space: MemorySpace, atom: Atom | None) -> None:
        self._ctx = ctx
        self._spaces = spaces
        self._space = space
        self._atom = atom
        self._limit = ATOMS_PER_PAGE
        self._request_number = 0

    async def build(self) -> None:
        ctx, query = self._ctx, self._ctx.query
        on_search = ctx.guard(self._search)
        if self._atom is not None:
            with widgets.box("line"):
                widgets.muted("Timeline of")
                widgets.page_link(widgets.truncate(self._atom.text, 120), ctx.link("/atom", id=self._atom.id))
                widgets.link_button("Show all memories", "clear_all", ctx.link(PATH, space=self._space.id))
        else:
            with widgets.box("line"):
                widgets.space_select(ctx, self._spaces, self._space, PATH).classes("wide pick")
                entities = await self._load_entity_names()
                self._entity_field = widgets.select_field(
                    entities, "Entity", query.get("entity"), with_input=True, clearable=True, on_change=on_search
                ).classes("wide pick")
            with widgets.search_line("Topic", query.get("q", ""), QUERY_LENGTH, on_search, "Search") as field:
                self._query_field = field
        with widgets.box("line"):
            self._from_field = widgets.date_field("From", query.get("from"), on_search).classes("some")
            self._to_field = widgets.date_field("To", query.get("to"), on_search).classes("some")
            self._superseded_field = ui.checkbox(
                "Include superseded", value=query.get("over") != "0", on_change=on_search
            )
        self._list_box = widgets.box("stack").props('aria-live=polite role=region aria-label="Timeline"')
        await self._show_list()

    async def _load_entity_names(self) -> dict[str, str]:
        memory, requested = self._ctx.user.memory, self._ctx.query.get("entity")
        found = await memory.search_entities(self._space.id, limit=MAX_ENTITY_CHOICES)
        names = {entity.id: _format_entity(entity) for entity in found}
        if requested is not None and requested not in names:
            entity = require_found(await memory.get_entity(requested), "entity", requested)
            names[entity.id] = _format_entity(entity)
        return names

    async def _search(self) -> None:
        self._limit = ATOMS_PER_PAGE
        query = {
            "from": self._from_field.value or None,
            "to": self._to_field.value or None,
            "over": None if self._superseded_field.value else "0",
        }
        if self._atom is not None:
            query["atom"] = self._atom.id
        else:
            query |= {
                "space": self._ctx.query.get("space"),
                "entity": self._entity_field.value,
                "q": (self._query_field.value or "").strip() or None,
            }
        ui.navigate.history.replace(self._ctx.link(PATH, **query))
        await self._show_list()

    async def _show_more(self) -> None:
        self._limit += ATOMS_PER_PAGE
        await self._show_list()

    async def _show_list(self) -> None:
        self._request_number += 1
        request_number = self._request_number
        found, has_more = await self._load_atoms()
        if request_number != self._request_number:
            return
        self._list_box.clear()
        with self._list_box:
            if not found:
                self._show_empty()
                return
            now = utc_now()
            texts = {atom.id: atom.text for atom in found}
            if has_more:
                has_topic = self._atom is not None or bool((self._query_field.value or "").strip())
                selection = "best matches" if has_topic else "newest memories"
                with widgets.box("line"):
                    widgets.muted(f"The {len(found)} {selection}, oldest first.")
                    widgets.button("More", None, self._ctx.guard(self._show_more), "outline").props("dense")
            with widgets.box("time", tag="ol"):
                for atom in found:
                    self._show_entry(atom, texts, now)

    async def _load_atoms(self) -> tuple[list[Atom], bool]:
        memory = self._ctx.user.memory
        start, end = widgets.parse_day_start(self._from_field.value), widgets.parse_day_end(self._to_field.value)
        include_superseded = bool(self._superseded_field.value)
        subject = self._atom
        if subject is None:
            query = (self._query_field.value or "").strip()[:QUERY_LENGTH] or None
            entity = self._entity_field.value
        else:
            query, entity = subject.text[:QUERY_LENGTH], None
        result = await memory.recall_timeline(
            self._space.id, entity, query, start, end, limit=self._limit + 1, include_superseded=include_superseded
        )
        hits, has_more = list(result.hits), len(result) > self._limit
        if has_more:  # the additional one: the worst match, or the oldest memory
            hits.remove(min(hits, key=lambda hit: (hit.score if query else 0, hit.atom.valid_from, hit.atom.id)))
        found = {hit.atom.id: hit.atom for hit in hits}
        if subject is not None:
            now = utc_now()
            for each in await load_versions(memory, subject, atoms.MAX_HISTORY_LENGTH):
                if (include_superseded or not atoms.is_superseded_or_expired(each, now)) and _overlaps(
                    each, start, end
                ):
                    found[each.id] = each
        return sorted(found.values(), key=lambda atom: (atom.valid_from, atom.id)), has_more

    def _show_entry(self, atom: Atom, texts: dict[str, str], now: datetime) -> None:
        is_past = atoms.is_superseded_or_expired(atom, now)
        with widgets.box("past" if is_past else "", tag="li") as entry:
            if self._atom is not None and atom.id == self._atom.id:
                entry.props("aria-current=true")
            with widgets.box("line"):
                widgets.muted(atoms.format_validity(atom))
                atoms.show_status_chip(atom)
            with ui.link(target=self._ctx.link("/atom", id=atom.id)).classes("go plain"):
                atoms.show_text(atom)
            successor_text = texts.get(atom.superseded_by or "")
            if successor_text is not None:
                widgets.muted(f"replaced by: {widgets.truncate(successor_text, 100)}")

    def _show_empty(self) -> None:
        if self._space.atom_count == 0:
            widgets.show_no_memory(self._ctx, "timeline", EMPTY_HINT)
            return
        hint = "Try another topic or entity, or a longer period."
        with widgets.empty_state("timeline", "No memories in this period.", hint):
            widgets.link_button("Show all memories", "clear_all", self._ctx.link(PATH, space=self._space.id))


def _format_entity(entity: Entity) -> str:
    return f"{widgets.truncate(entity.canonical_name, 60)} · {entity.type.value.lower()}"


def _overlaps(atom: Atom, start: datetime | None, end: datetime | None) -> bool:
    starts_in_time = end is None or atom.valid_from <= end
    return starts_in_time and (start is None or atom.valid_to is None or atom.valid_to > start)
