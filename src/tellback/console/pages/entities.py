"""Entities: whom and what memories are about."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from nicegui import ui

from tellback.console import atoms, widgets
from tellback.console.frame import console_page
from tellback.console.seat import Seat, tell
from tellback.errors import InvalidArgumentError, NotFoundError
from tellback.types.memory import Atom, Entity, EntityType, MemorySpace

PATH = "/entities"
PAGE = 30
CHOICES = 500
"""How many there are to choose from in a merge: those most spoken of."""
LONGEST_NAME = 500

TYPES = {each.value: each.value.capitalize() for each in EntityType}


@console_page(PATH, "Entities")
async def entities(seat: Seat) -> None:
    """The entities of a space, or one of them."""
    id = seat.query.get("id")
    if id is not None:
        await Shown(seat, await _known(seat, id)).build()
        return
    spaces, space = await widgets.chosen_space(seat)
    if space is None:
        widgets.no_spaces(seat, "hub", "Here you will see whom and what it is about.")
        return
    await Entities(seat, spaces, space).build()


async def _known(seat: Seat, id: str) -> Entity:
    found = await seat.user.memory.get_entity(id)
    if found is None:
        raise NotFoundError("entity", id)
    return found


class Entities:
    """The page for one space."""

    def __init__(self, seat: Seat, spaces: list[MemorySpace], space: MemorySpace) -> None:
        self._seat = seat
        self._spaces = spaces
        self._space = space
        self._most = PAGE
        self._round = 0

    async def build(self) -> None:
        """Show it."""
        seat = self._seat
        again = seat.doing(self._search)
        with widgets.box("line"):
            widgets.space_field(seat, self._spaces, self._space, PATH).classes("wide pick")
            ui.button("Merge two", icon="call_merge", on_click=seat.doing(self._merge)).props("flat no-caps")
            ui.button("New entity", icon="add", on_click=seat.doing(self._make)).props("no-caps unelevated")
        with widgets.box("line").props("role=search"):
            self._query = ui.input("Search by name", value=seat.query.get("q", "")).classes("wide")
            self._query.props(f"outlined dense clearable maxlength={LONGEST_NAME} dir=auto")
            self._query.on("keydown.enter", again)
            self._query.on("clear", again)
            self._type = ui.select(
                TYPES, label="Type", value=_type(seat.query.get("type")), clearable=True, on_change=again
            ).classes("some")
            self._type.props("outlined dense options-dense")
            ui.button("Search", icon="search", on_click=again).props("no-caps outline")
        self._list = widgets.box("stack").props('aria-live=polite role=region aria-label="Entities"')
        await self._show()

    async def _search(self) -> None:
        self._most = PAGE
        query, type = (self._query.value or "").strip() or None, self._type.value
        space = self._seat.query.get("space")
        ui.navigate.history.replace(self._seat.link(PATH, space=space, q=query, type=type))
        await self._show()

    async def _more(self) -> None:
        self._most += PAGE
        await self._show()

    async def _show(self) -> None:
        self._round += 1
        this = self._round
        query = (self._query.value or "").strip() or None
        found = await self._seat.user.memory.search_entities(self._space.id, query, self._type.value, self._most + 1)
        if this != self._round:
            return
        self._list.clear()
        with self._list:
            for entity in found[: self._most]:
                self._row(entity)
            if len(found) > self._most:
                ui.button("More", on_click=self._seat.doing(self._more)).props("outline no-caps")
            if not found:
                self._nothing(query)

    def _row(self, entity: Entity) -> None:
        with widgets.box("card", "stack", "tight", tag="article"):
            with widgets.box("line"):
                link = ui.link(entity.canonical_name, self._seat.link(PATH, id=entity.id)).classes("go plain said")
                link.style("font-weight: 600").props("dir=auto")
                widgets.chip(TYPES[entity.type.value])
                widgets.quiet(widgets.counted(entity.atom_count, "memory", "memories"))
            if entity.description:
                ui.label(widgets.cut(entity.description, 240)).classes("said").props("dir=auto")
            if entity.aliases:
                widgets.quiet(f"also called {widgets.cut(', '.join(entity.aliases), 200)}").props("dir=auto")

    def _nothing(self, query: str | None) -> None:
        if query or self._type.value:
            with widgets.empty("search_off", "No entity matches.", "Look for another name, or for all types."):
                widgets.link_button("Show all", "clear_all", self._seat.link(PATH, space=self._space.id))
            return
        how = (
            "Entities are the people, places and things that memories are about. A model finds them when it reads a"
            " conversation; without one, make them yourself."
        )
        with widgets.empty("hub", "No entities are known yet.", how):
            widgets.link_button("Start a chat", "chat", self._seat.link("/"))

    async def _merge(self) -> None:
        await merge(self._seat, self._space.id, None, self._merged)

    async def _merged(self, entity: Entity) -> None:
        await self._show()

    def _make(self) -> None:
        seat = self._seat
        with widgets.dialog("New entity") as asking:
            name = ui.input("Name").props(f"outlined dense autofocus dir=auto maxlength={LONGEST_NAME}").classes("full")
            type = ui.select(TYPES, label="Type", value=EntityType.PERSON.value).classes("full")
            type.props("outlined dense options-dense")
            aliases = ui.input("Also called (separated by commas)").props("outlined dense dir=auto").classes("full")
            about = ui.input("Description").props("outlined dense dir=auto").classes("full")

            async def make() -> None:
                called = (name.value or "").strip()
                if not called:
                    raise InvalidArgumentError("Say what to call it first.")
                others = [each.strip() for each in (aliases.value or "").split(",") if each.strip()]
                text = (about.value or "").strip() or None
                await seat.user.memory.create_entity(self._space.id, type.value, called, text, aliases=others)
                asking.close()
                tell("Made.")
                await self._show()

            for field in (name, aliases, about):
                field.on("keydown.enter", seat.doing(make))
            widgets.buttons(asking, "Make it", seat.doing(make))


def _type(asked: str | None) -> str | None:
    return asked if asked in TYPES else None


class Shown:
    """The page of one entity."""

    def __init__(self, seat: Seat, entity: Entity) -> None:
        self._seat = seat
        self._entity = entity
        self._most = PAGE

    async def build(self) -> None:
        """Show it."""
        seat, entity = self._seat, self._entity
        ui.link("← Entities", seat.link(PATH, space=entity.space_id)).classes("go plain quiet")
        with widgets.box("card", "stack", tag="article"):
            ui.label(entity.canonical_name).classes("atom-text").style("font-weight: 600").props("dir=auto")
            if entity.description:
                ui.label(entity.description).classes("said").props("dir=auto")
            with widgets.box("line"):
                widgets.chip(TYPES[entity.type.value])
                with widgets.box("actions"):
                    widgets.link_button("Timeline", "timeline", seat.link("/timeline", **self._place()))
                    if entity.merged_into is None:
                        ui.button("Merge", icon="call_merge", on_click=seat.doing(self._merge)).props(
                            "outline no-caps dense padding='4px 12px'"
                        )
        if entity.merged_into is not None:
            other = await seat.user.memory.get_entity(entity.merged_into)
            with widgets.box("line"):
                widgets.quiet("It was merged into")
                widgets.go(
                    other.canonical_name if other else entity.merged_into, seat.link(PATH, id=entity.merged_into)
                )
        widgets.pairs(
            ("Also called", ", ".join(entity.aliases) or None),
            ("First spoken of", widgets.moment(entity.first_seen_at)),
            ("Last spoken of", widgets.moment(entity.last_seen_at)),
            ("Id", entity.id),
        )
        if entity.attributes:
            widgets.title("Attributes")
            widgets.pairs(*((str(name), _told(value)) for name, value in entity.attributes.items()))
        widgets.title("Memories about it")
        self._list = widgets.box("stack")
        await self._show()

    def _place(self) -> dict[str, str]:
        return {"space": self._entity.space_id, "entity": self._entity.id}

    async def _show(self) -> None:
        entity = self._entity
        found = await self._seat.user.memory.recall_by_entity(entity.space_id, entity.id, limit=self._most + 1)
        self._list.clear()
        with self._list:
            for hit in found.hits[: self._most]:
                atoms.card(self._seat, hit.atom, self._changed)
            if len(found) > self._most:
                ui.button("More", on_click=self._seat.doing(self._more)).props("outline no-caps")
            if not found.hits:
                widgets.quiet("Nothing current is about it; its timeline may have more.")

    async def _more(self) -> None:
        self._most += PAGE
        await self._show()

    async def _changed(self, atom: Atom) -> None:
        await self._show()

    async def _merge(self) -> None:
        async def then(entity: Entity) -> None:
            ui.navigate.to(self._seat.link(PATH, id=entity.id))

        await merge(self._seat, self._entity.space_id, self._entity, then)


def _told(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


async def merge(seat: Seat, space_id: str, kept: Entity | None, then: Callable[[Entity], Any]) -> None:
    """Have one entity stand for another, after saying what that means."""
    found = await seat.user.memory.search_entities(space_id, limit=CHOICES)
    known = {entity.id: entity for entity in [*found, *([kept] if kept else [])]}
    if len(known) < 2:
        tell("There is nothing to merge: it takes two entities.", is_wrong=True)
        return
    names = {
        id: f"{widgets.cut(entity.canonical_name, 60)} · {TYPES[entity.type.value]}" for id, entity in known.items()
    }
    with widgets.dialog("Merge two entities") as asking:

        def show() -> None:
            first, second = known.get(canonical.value), known.get(alias.value)
            if first is None or second is None:
                what.text = "Choose which one stays, and which one goes into it."
            elif first.id == second.id:
                what.text = "Choose two different ones."
            else:
                is_one = second.atom_count == 1
                memories = "1 memory" if is_one else f"{second.atom_count:,} memories"
                what.text = (
                    f"“{second.canonical_name}” is the same as “{first.canonical_name}” from now on."
                    f" {memories} about it {'becomes one' if is_one else 'become memories'} about"
                    f" “{first.canonical_name}”, which is also called “{second.canonical_name}” then."
                    " This cannot be taken back."
                )

        canonical = ui.select(names, label="The one that stays", value=kept.id if kept else None, with_input=True)
        alias = ui.select(names, label="The one that goes into it", with_input=True)
        for field in (canonical, alias):
            field.props("outlined dense options-dense").classes("full pick").on_value_change(show)
        what = ui.label("").classes("said").props("aria-live=polite")
        show()

        def swap() -> None:
            canonical.value, alias.value = alias.value, canonical.value

        ui.button("Swap", icon="swap_vert", on_click=swap).props("flat no-caps dense")

        async def do() -> None:
            if canonical.value is None or alias.value is None or canonical.value == alias.value:
                raise InvalidArgumentError("Choose two different entities.")
            made = await seat.user.memory.merge_entities(canonical.value, alias.value)
            asking.close()
            tell("Merged.")
            await then(made)

        widgets.buttons(asking, "Merge", seat.doing(do), is_grave=True)
