"""The pages Entities and one entity: search, create and merge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui import ui

from tellback.console import atoms, widgets
from tellback.console.context import PageContext, notify
from tellback.console.layout import console_page
from tellback.errors import InvalidArgumentError, NotFoundError
from tellback.types.memory import Atom, Entity, EntityType, MemorySpace

PATH = "/entities"
ENTITIES_PER_PAGE = 30
MAX_MERGE_CHOICES = 500
"""How many there are to choose from in a merge: those most spoken of."""
MAX_NAME_LENGTH = 500

TYPE_LABELS = {each.value: each.value.capitalize() for each in EntityType}


@console_page(PATH, "Entities")
async def entities_page(ctx: PageContext) -> None:
    """The entities of a space, or one of them."""
    id = ctx.query.get("id")
    if id is not None:
        await EntityPage(ctx, await _load_entity(ctx, id)).build()
        return
    spaces, space = await widgets.resolve_space(ctx)
    if space is None:
        widgets.show_no_memory(ctx, "hub", "Here you will see whom and what it is about.")
        return
    await EntityListPage(ctx, spaces, space).build()


async def _load_entity(ctx: PageContext, id: str) -> Entity:
    found = await ctx.user.memory.get_entity(id)
    if found is None:
        raise NotFoundError("entity", id)
    return found


class EntityListPage:
    """The page for one space."""

    def __init__(self, ctx: PageContext, spaces: list[MemorySpace], space: MemorySpace) -> None:
        self._ctx = ctx
        self._spaces = spaces
        self._space = space
        self._limit = ENTITIES_PER_PAGE
        self._request_number = 0

    async def build(self) -> None:
        """Show it."""
        ctx = self._ctx
        on_search = ctx.guard(self._search)
        with widgets.box("line"):
            widgets.space_select(ctx, self._spaces, self._space, PATH).classes("wide pick")
            ui.button("Merge two", icon="call_merge", on_click=ctx.guard(self._open_merge_dialog)).props("flat no-caps")
            ui.button("New entity", icon="add", on_click=ctx.guard(self._open_create_dialog)).props(
                "no-caps unelevated"
            )
        with widgets.box("line").props("role=search"):
            self._query_field = ui.input("Search by name", value=ctx.query.get("q", "")).classes("wide")
            self._query_field.props(f"outlined dense clearable maxlength={MAX_NAME_LENGTH} dir=auto")
            self._query_field.on("keydown.enter", on_search)
            self._query_field.on("clear", on_search)
            self._type_field = ui.select(
                TYPE_LABELS, label="Type", value=_parse_type(ctx.query.get("type")), clearable=True, on_change=on_search
            ).classes("some")
            self._type_field.props("outlined dense options-dense")
            ui.button("Search", icon="search", on_click=on_search).props("no-caps outline")
        self._list_box = widgets.box("stack").props('aria-live=polite role=region aria-label="Entities"')
        await self._show_list()

    async def _search(self) -> None:
        self._limit = ENTITIES_PER_PAGE
        query, type = (self._query_field.value or "").strip() or None, self._type_field.value
        space = self._ctx.query.get("space")
        ui.navigate.history.replace(self._ctx.link(PATH, space=space, q=query, type=type))
        await self._show_list()

    async def _show_more(self) -> None:
        self._limit += ENTITIES_PER_PAGE
        await self._show_list()

    async def _show_list(self) -> None:
        self._request_number += 1
        request_number = self._request_number
        query = (self._query_field.value or "").strip() or None
        found = await self._ctx.user.memory.search_entities(
            self._space.id, query, self._type_field.value, self._limit + 1
        )
        if request_number != self._request_number:
            return
        self._list_box.clear()
        with self._list_box:
            for entity in found[: self._limit]:
                self._show_row(entity)
            if len(found) > self._limit:
                ui.button("More", on_click=self._ctx.guard(self._show_more)).props("outline no-caps")
            if not found:
                self._show_empty(query)

    def _show_row(self, entity: Entity) -> None:
        with widgets.box("card", "stack", "tight", tag="article"):
            with widgets.box("line"):
                link = ui.link(entity.canonical_name, self._ctx.link(PATH, id=entity.id)).classes("go plain said")
                link.style("font-weight: 600").props("dir=auto")
                widgets.chip(TYPE_LABELS[entity.type.value])
                widgets.muted(widgets.format_count(entity.atom_count, "memory", "memories"))
            if entity.description:
                ui.label(widgets.truncate(entity.description, 240)).classes("said").props("dir=auto")
            if entity.aliases:
                widgets.muted(f"also called {widgets.truncate(', '.join(entity.aliases), 200)}").props("dir=auto")

    def _show_empty(self, query: str | None) -> None:
        if query or self._type_field.value:
            with widgets.empty_state("search_off", "No entity matches.", "Look for another name, or for all types."):
                widgets.link_button("Show all", "clear_all", self._ctx.link(PATH, space=self._space.id))
            return
        hint = (
            "Entities are the people, places and things that memories are about. A model finds them when it reads a"
            " conversation; without one, make them yourself."
        )
        with widgets.empty_state("hub", "No entities are known yet.", hint):
            widgets.link_button("Start a chat", "chat", self._ctx.link("/"))

    async def _open_merge_dialog(self) -> None:
        await open_merge_dialog(self._ctx, self._space.id, None, self._on_merged)

    async def _on_merged(self, entity: Entity) -> None:
        await self._show_list()

    def _open_create_dialog(self) -> None:
        ctx = self._ctx
        with widgets.dialog("New entity") as dialog:
            name = (
                ui.input("Name").props(f"outlined dense autofocus dir=auto maxlength={MAX_NAME_LENGTH}").classes("full")
            )
            type = ui.select(TYPE_LABELS, label="Type", value=EntityType.PERSON.value).classes("full")
            type.props("outlined dense options-dense")
            aliases = ui.input("Also called (separated by commas)").props("outlined dense dir=auto").classes("full")
            description = ui.input("Description").props("outlined dense dir=auto").classes("full")

            async def create() -> None:
                entity_name = (name.value or "").strip()
                if not entity_name:
                    raise InvalidArgumentError("Say what to call it first.")
                others = [each.strip() for each in (aliases.value or "").split(",") if each.strip()]
                text = (description.value or "").strip() or None
                await ctx.user.memory.create_entity(self._space.id, type.value, entity_name, text, aliases=others)
                dialog.close()
                notify("Made.")
                await self._show_list()

            for field in (name, aliases, description):
                field.on("keydown.enter", ctx.guard(create))
            widgets.dialog_buttons(dialog, "Make it", ctx.guard(create))


def _parse_type(name: str | None) -> str | None:
    return name if name in TYPE_LABELS else None


class EntityPage:
    """The page of one entity."""

    def __init__(self, ctx: PageContext, entity: Entity) -> None:
        self._ctx = ctx
        self._entity = entity
        self._limit = ENTITIES_PER_PAGE

    async def build(self) -> None:
        """Show it."""
        ctx, entity = self._ctx, self._entity
        ui.link("← Entities", ctx.link(PATH, space=entity.space_id)).classes("go plain quiet")
        with widgets.box("card", "stack", tag="article"):
            ui.label(entity.canonical_name).classes("atom-text").style("font-weight: 600").props("dir=auto")
            if entity.description:
                ui.label(entity.description).classes("said").props("dir=auto")
            with widgets.box("line"):
                widgets.chip(TYPE_LABELS[entity.type.value])
                with widgets.box("actions"):
                    widgets.link_button("Timeline", "timeline", ctx.link("/timeline", **self._timeline_query()))
                    if entity.merged_into is None:
                        ui.button("Merge", icon="call_merge", on_click=ctx.guard(self._open_merge_dialog)).props(
                            "outline no-caps dense padding='4px 12px'"
                        )
        if entity.merged_into is not None:
            other = await ctx.user.memory.get_entity(entity.merged_into)
            with widgets.box("line"):
                widgets.muted("It was merged into")
                widgets.page_link(
                    other.canonical_name if other else entity.merged_into, ctx.link(PATH, id=entity.merged_into)
                )
        widgets.pairs(
            ("Also called", ", ".join(entity.aliases) or None),
            ("First spoken of", widgets.format_datetime(entity.first_seen_at)),
            ("Last spoken of", widgets.format_datetime(entity.last_seen_at)),
            ("Id", entity.id),
        )
        if entity.attributes:
            widgets.heading("Attributes")
            widgets.pairs(*((str(name), widgets.format_value(value)) for name, value in entity.attributes.items()))
        widgets.heading("Memories about it")
        self._list_box = widgets.box("stack")
        await self._show_memories()

    def _timeline_query(self) -> dict[str, str]:
        return {"space": self._entity.space_id, "entity": self._entity.id}

    async def _show_memories(self) -> None:
        entity = self._entity
        found = await self._ctx.user.memory.recall_by_entity(entity.space_id, entity.id, limit=self._limit + 1)
        self._list_box.clear()
        with self._list_box:
            for hit in found.hits[: self._limit]:
                atoms.show_card(self._ctx, hit.atom, self._on_changed)
            if len(found) > self._limit:
                ui.button("More", on_click=self._ctx.guard(self._show_more)).props("outline no-caps")
            if not found.hits:
                widgets.muted("Nothing current is about it; its timeline may have more.")

    async def _show_more(self) -> None:
        self._limit += ENTITIES_PER_PAGE
        await self._show_memories()

    async def _on_changed(self, atom: Atom) -> None:
        await self._show_memories()

    async def _open_merge_dialog(self) -> None:
        async def on_merged(entity: Entity) -> None:
            ui.navigate.to(self._ctx.link(PATH, id=entity.id))

        await open_merge_dialog(self._ctx, self._entity.space_id, self._entity, on_merged)


async def open_merge_dialog(
    ctx: PageContext, space_id: str, canonical_entity: Entity | None, on_merged: Callable[[Entity], Any]
) -> None:
    """Have one entity stand for another, after saying what that means."""
    found = await ctx.user.memory.search_entities(space_id, limit=MAX_MERGE_CHOICES)
    entities_by_id = {entity.id: entity for entity in [*found, *([canonical_entity] if canonical_entity else [])]}
    if len(entities_by_id) < 2:
        notify("There is nothing to merge: it takes two entities.", is_error=True)
        return
    names = {
        id: f"{widgets.truncate(entity.canonical_name, 60)} · {TYPE_LABELS[entity.type.value]}"
        for id, entity in entities_by_id.items()
    }
    with widgets.dialog("Merge two entities") as dialog:

        def update_summary() -> None:
            first, second = entities_by_id.get(canonical.value), entities_by_id.get(alias.value)
            if first is None or second is None:
                summary.text = "Choose which one stays, and which one goes into it."
            elif first.id == second.id:
                summary.text = "Choose two different ones."
            else:
                is_single = second.atom_count == 1
                memories = "1 memory" if is_single else f"{second.atom_count:,} memories"
                summary.text = (
                    f"“{second.canonical_name}” is the same as “{first.canonical_name}” from now on."
                    f" {memories} about it {'becomes one' if is_single else 'become memories'} about"
                    f" “{first.canonical_name}”, which is also called “{second.canonical_name}” then."
                    " This cannot be taken back."
                )

        canonical = ui.select(
            names, label="The one that stays", value=canonical_entity.id if canonical_entity else None, with_input=True
        )
        alias = ui.select(names, label="The one that goes into it", with_input=True)
        for field in (canonical, alias):
            field.props("outlined dense options-dense").classes("full pick").on_value_change(update_summary)
        summary = ui.label("").classes("said").props("aria-live=polite")
        update_summary()

        def swap() -> None:
            canonical.value, alias.value = alias.value, canonical.value

        ui.button("Swap", icon="swap_vert", on_click=swap).props("flat no-caps dense")

        async def merge_chosen() -> None:
            if canonical.value is None or alias.value is None or canonical.value == alias.value:
                raise InvalidArgumentError("Choose two different entities.")
            merged = await ctx.user.memory.merge_entities(canonical.value, alias.value)
            dialog.close()
            notify("Merged.")
            await on_merged(merged)

        widgets.dialog_buttons(dialog, "Merge", ctx.guard(merge_chosen), is_destructive=True)
