"""The pages Entities and one entity: search, create and merge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from nicegui import ui

from tellback.console import atoms, widgets
from tellback.console.context import PageContext, notify
from tellback.console.layout import console_page
from tellback.errors import InvalidArgumentError, require_found
from tellback.types.memory import Entity, EntityType, MemorySpace, RecallHit

PATH = "/entities"
ENTITIES_PER_PAGE = 30
MAX_MERGE_CHOICES = 500
"""How many entities the merge dialog offers. It offers those with the most memories."""
MAX_NAME_LENGTH = 500

TYPE_LABELS = {each.value: each.value.capitalize() for each in EntityType}


@console_page(PATH, "Entities")
async def entities_page(ctx: PageContext) -> None:
    """Show the entities of a space, or one entity."""
    id = ctx.query.get("id")
    if id is not None:
        await EntityPage(ctx, require_found(await ctx.user.memory.get_entity(id), "entity", id)).build()
        return
    spaces, space = await widgets.resolve_space(ctx)
    if space is None:
        widgets.show_no_memory(ctx, "hub", "This page then lists the people, places and things they are about.")
        return
    await EntityListPage(ctx, spaces, space).build()


class EntityListPage:
    """The entities of one space."""

    def __init__(self, ctx: PageContext, spaces: list[MemorySpace], space: MemorySpace) -> None:
        self._ctx = ctx
        self._spaces = spaces
        self._space = space

    async def build(self) -> None:
        ctx = self._ctx
        on_search = ctx.guard(self._search)
        with widgets.box("line"):
            widgets.space_select(ctx, self._spaces, self._space, PATH).classes("wide pick")
            on_merge = partial(open_merge_dialog, ctx, self._space.id, None, self._on_changed)
            widgets.button("Merge entities", "call_merge", ctx.guard(on_merge), "flat")
            widgets.button("New entity", "add", ctx.guard(self._open_create_dialog), "main")
        query, type = ctx.query.get("q", ""), ctx.query.get("type")
        with widgets.search_line("Search by name", query, MAX_NAME_LENGTH, on_search) as self._query_field:
            self._type_field = widgets.select_field(
                TYPE_LABELS, "Type", type if type in TYPE_LABELS else None, clearable=True, on_change=on_search
            ).classes("some")
        self._list = widgets.PagedList(ctx, ENTITIES_PER_PAGE, self._load, self._show_row, self._show_empty)
        self._list.root.props('aria-live=polite role=region aria-label="Entities"')
        await self._list.show()

    @property
    def _query(self) -> str | None:
        return (self._query_field.value or "").strip() or None

    async def _search(self) -> None:
        space, type = self._ctx.query.get("space"), self._type_field.value
        ui.navigate.history.replace(self._ctx.link(PATH, space=space, q=self._query, type=type))
        await self._list.restart()

    async def _on_changed(self, changed: Entity) -> None:
        await self._list.show()

    async def _load(self, limit: int) -> list[Entity]:
        return await self._ctx.user.memory.search_entities(self._space.id, self._query, self._type_field.value, limit)

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

    def _show_empty(self) -> None:
        if self._query or self._type_field.value:
            with widgets.empty_state("search_off", "No entities match.", "Try another name, or all types."):
                widgets.link_button("Show all", "clear_all", self._ctx.link(PATH, space=self._space.id))
            return
        hint = (
            "Entities are the people, places and things that memories are about. A model finds them when it extracts"
            " memories from a conversation. You can also create them yourself."
        )
        with widgets.empty_state("hub", "No entities yet.", hint):
            widgets.link_button("Start a chat", "chat", self._ctx.link("/"))

    def _open_create_dialog(self) -> None:
        ctx = self._ctx
        with widgets.dialog("New entity") as dialog:

            async def create() -> None:
                entity_name = (name.value or "").strip()
                if not entity_name:
                    raise InvalidArgumentError("Enter a name.")
                others = [each.strip() for each in (aliases.value or "").split(",") if each.strip()]
                text = (description.value or "").strip() or None
                await ctx.user.memory.create_entity(self._space.id, type.value, entity_name, text, aliases=others)
                dialog.close()
                notify("Entity created.")
                await self._list.show()

            on_create = ctx.guard(create)
            name = widgets.text_field("Name", "", on_create).props(f"autofocus maxlength={MAX_NAME_LENGTH}")
            type = widgets.select_field(TYPE_LABELS, "Type", EntityType.PERSON.value)
            aliases = widgets.text_field("Also called (separated by commas)", "", on_create)
            description = widgets.text_field("Description", "", on_create)
            for field in (name, type, aliases, description):
                field.classes("full")
            widgets.dialog_buttons(dialog, "Create", on_create)


class EntityPage:
    """The page of one entity."""

    def __init__(self, ctx: PageContext, entity: Entity) -> None:
        self._ctx = ctx
        self._entity = entity

    async def build(self) -> None:
        ctx, entity = self._ctx, self._entity
        ui.link("← Entities", ctx.link(PATH, space=entity.space_id)).classes("go plain quiet")
        with widgets.box("card", "stack", tag="article"):
            ui.label(entity.canonical_name).classes("atom-text").style("font-weight: 600").props("dir=auto")
            if entity.description:
                ui.label(entity.description).classes("said").props("dir=auto")
            with widgets.box("line"):
                widgets.chip(TYPE_LABELS[entity.type.value])
                with widgets.box("actions"):
                    timeline = ctx.link("/timeline", space=entity.space_id, entity=entity.id)
                    widgets.link_button("Timeline", "timeline", timeline)
                    if entity.merged_into is None:
                        widgets.button("Merge", "call_merge", ctx.guard(self._open_merge_dialog), "small")
        if entity.merged_into is not None:
            other = await ctx.user.memory.get_entity(entity.merged_into)
            with widgets.box("line"):
                widgets.muted("Merged into")
                widgets.page_link(
                    other.canonical_name if other else entity.merged_into, ctx.link(PATH, id=entity.merged_into)
                )
        widgets.pairs(
            ("Also called", ", ".join(entity.aliases) or None),
            ("First mentioned", widgets.format_datetime(entity.first_seen_at)),
            ("Last mentioned", widgets.format_datetime(entity.last_seen_at)),
            ("ID", entity.id),
        )
        if entity.attributes:
            widgets.heading("Attributes")
            widgets.pairs(
                *((str(name), widgets.format_plain_value(value)) for name, value in entity.attributes.items())
            )
        widgets.heading("Memories")
        self._list = widgets.PagedList(ctx, ENTITIES_PER_PAGE, self._load_hits, self._show_hit, self._show_empty)
        await self._list.show()

    async def _load_hits(self, limit: int) -> Sequence[RecallHit]:
        entity = self._entity
        return (await self._ctx.user.memory.recall_by_entity(entity.space_id, entity.id, limit=limit)).hits

    def _show_hit(self, hit: RecallHit) -> None:
        atoms.show_card(self._ctx, hit.atom, lambda changed: self._list.show())

    def _show_empty(self) -> None:
        widgets.muted("No current memories. The timeline may show superseded ones.")

    async def _open_merge_dialog(self) -> None:
        async def on_merged(entity: Entity) -> None:
            ui.navigate.to(self._ctx.link(PATH, id=entity.id))

        await open_merge_dialog(self._ctx, self._entity.space_id, self._entity, on_merged)


async def open_merge_dialog(
    ctx: PageContext, space_id: str, canonical_entity: Entity | None, on_merged: Callable[[Entity], Any]
) -> None:
    """Open a dialog that merges two entities and explains the result first."""
    found = await ctx.user.memory.search_entities(space_id, limit=MAX_MERGE_CHOICES)
    entities_by_id = {entity.id: entity for entity in [*found, *([canonical_entity] if canonical_entity else [])]}
    if len(entities_by_id) < 2:
        notify("You need at least two entities to merge.", is_error=True)
        return
    names = {
        id: f"{widgets.truncate(entity.canonical_name, 60)} · {TYPE_LABELS[entity.type.value]}"
        for id, entity in entities_by_id.items()
    }
    with widgets.dialog("Merge entities") as dialog:

        def update_summary() -> None:
            first, second = entities_by_id.get(canonical.value), entities_by_id.get(alias.value)
            if first is None or second is None:
                summary.text = "Choose the entity to keep and its duplicate."
            elif first.id == second.id:
                summary.text = "Choose two different entities."
            else:
                memories = widgets.format_count(second.atom_count, "memory", "memories")
                kept, removed = first.canonical_name, second.canonical_name
                summary.text = (
                    f"“{kept}” gets the {memories} of “{removed}”."
                    f" “{removed}” becomes another name of “{kept}”. This cannot be undone."
                )

        canonical_id = canonical_entity.id if canonical_entity else None
        canonical = widgets.select_field(names, "Entity to keep", canonical_id, with_input=True)
        alias = widgets.select_field(names, "Duplicate to remove", with_input=True)
        for field in (canonical, alias):
            field.classes("full pick").on_value_change(update_summary)
        summary = ui.label("").classes("said").props("aria-live=polite")
        update_summary()

        def swap() -> None:
            canonical.value, alias.value = alias.value, canonical.value

        widgets.button("Exchange", "swap_vert", swap, "flat").props("dense")

        async def merge_chosen() -> None:
            if canonical.value is None or alias.value is None or canonical.value == alias.value:
                raise InvalidArgumentError("Choose two different entities.")
            merged = await ctx.user.memory.merge_entities(canonical.value, alias.value)
            dialog.close()
            notify("The entities were merged.")
            await on_merged(merged)

        widgets.dialog_buttons(dialog, "Merge", ctx.guard(merge_chosen), is_destructive=True)
