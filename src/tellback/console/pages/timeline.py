"""Timeline: how a fact, an entity or a topic changed."""

from __future__ import annotations

from datetime import datetime

from nicegui import ui

from tellback.console import atoms, widgets
from tellback.console.frame import console_page
from tellback.console.pages.atom import chain
from tellback.console.seat import Seat
from tellback.conversations.checks import QUERY_LENGTH
from tellback.errors import NotFoundError
from tellback.types.memory import Atom, Entity, MemorySpace
from tellback.types.times import utc_now

PATH = "/timeline"
PAGE = 30
HERE = "Here you will see what held when, and what took its place."
ENTITIES = 200
"""How many entities there are to choose from: those most spoken of."""

_STYLE = """
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
async def timeline(seat: Seat) -> None:
    """What held when, in a space."""
    ui.add_css(_STYLE)
    about = await _atom(seat)
    spaces, space = await widgets.chosen_space(seat)
    if about is not None:
        space = next((each for each in spaces if each.id == about.space_id), None)
    if space is None:
        widgets.no_spaces(seat, "timeline", HERE)
        return
    await Timeline(seat, spaces, space, about).build()


async def _atom(seat: Seat) -> Atom | None:
    id = seat.query.get("atom")
    if id is None:
        return None
    found = await seat.user.memory.get_atom(id)
    if found is None:
        raise NotFoundError("atom", id)
    return found


class Timeline:
    """The page for one space, and for one memory of it if the address names one."""

    def __init__(self, seat: Seat, spaces: list[MemorySpace], space: MemorySpace, about: Atom | None) -> None:
        self._seat = seat
        self._spaces = spaces
        self._space = space
        self._about = about
        self._most = PAGE
        self._round = 0

    async def build(self) -> None:
        """Show it."""
        seat, asked = self._seat, self._seat.query
        again = seat.doing(self._search)
        if self._about is not None:
            with widgets.box("line"):
                widgets.quiet("The timeline of")
                widgets.go(widgets.cut(self._about.text, 120), seat.link("/atom", id=self._about.id))
                widgets.link_button("Of everything", "clear_all", seat.link(PATH, space=self._space.id))
        else:
            with widgets.box("line"):
                widgets.space_field(seat, self._spaces, self._space, PATH).classes("wide pick")
                entities = await self._entities()
                self._entity = ui.select(
                    entities, label="About", value=asked.get("entity"), with_input=True, clearable=True, on_change=again
                ).classes("wide pick")
                self._entity.props("outlined dense options-dense")
            with widgets.box("line").props("role=search"):
                self._query = ui.input("On a topic", value=asked.get("q", "")).classes("wide")
                self._query.props(f"outlined dense clearable maxlength={QUERY_LENGTH} dir=auto")
                self._query.on("keydown.enter", again)
                self._query.on("clear", again)
                ui.button("Show", icon="search", on_click=again).props("no-caps outline")
        with widgets.box("line"):
            self._from = widgets.day_field("From", asked.get("from"), again).classes("some")
            self._to = widgets.day_field("To", asked.get("to"), again).classes("some")
            self._over = ui.checkbox("With what is over", value=asked.get("over") != "0", on_change=again)
        self._list = widgets.box("stack").props('aria-live=polite role=region aria-label="Timeline"')
        await self._show()

    async def _entities(self) -> dict[str, str]:
        memory, asked = self._seat.user.memory, self._seat.query.get("entity")
        found = await memory.search_entities(self._space.id, limit=ENTITIES)
        names = {entity.id: _named(entity) for entity in found}
        if asked is not None and asked not in names:
            entity = await memory.get_entity(asked)
            if entity is None:
                raise NotFoundError("entity", asked)
            names[entity.id] = _named(entity)
        return names

    async def _search(self) -> None:
        self._most = PAGE
        asked = {
            "from": self._from.value or None,
            "to": self._to.value or None,
            "over": None if self._over.value else "0",
        }
        if self._about is not None:
            asked["atom"] = self._about.id
        else:
            asked |= {
                "space": self._seat.query.get("space"),
                "entity": self._entity.value,
                "q": (self._query.value or "").strip() or None,
            }
        ui.navigate.history.replace(self._seat.link(PATH, **asked))
        await self._show()

    async def _more(self) -> None:
        self._most += PAGE
        await self._show()

    async def _show(self) -> None:
        self._round += 1
        this = self._round
        found, has_more = await self._found()
        if this != self._round:
            return
        self._list.clear()
        with self._list:
            if not found:
                self._nothing()
                return
            now = utc_now()
            texts = {atom.id: atom.text for atom in found}
            if has_more:
                with widgets.box("line"):
                    widgets.quiet(f"The {len(found)} that fit best, or the newest; the oldest of them first.")
                    ui.button("More", on_click=self._seat.doing(self._more)).props("outline no-caps dense")
            with widgets.box("time", tag="ol"):
                for atom in found:
                    self._entry(atom, texts, now)

    async def _found(self) -> tuple[list[Atom], bool]:
        memory = self._seat.user.memory
        start, end = widgets.day_start(self._from.value), widgets.day_end(self._to.value)
        over = bool(self._over.value)
        about = self._about
        if about is None:
            query = (self._query.value or "").strip()[:QUERY_LENGTH] or None
            entity = self._entity.value
        else:
            query, entity = about.text[:QUERY_LENGTH], None
        result = await memory.recall_timeline(
            self._space.id, entity, query, start, end, limit=self._most + 1, include_superseded=over
        )
        found = {atom.id: atom for atom in result.atoms}
        if about is not None:
            now = utc_now()
            for each in await chain(self._seat, about):
                if (over or not atoms.is_over(each, now)) and _overlaps(each, start, end):
                    found[each.id] = each
        return sorted(found.values(), key=lambda atom: (atom.valid_from, atom.id)), len(result) > self._most

    def _entry(self, atom: Atom, texts: dict[str, str], now: datetime) -> None:
        past = atoms.is_over(atom, now)
        with widgets.box("past" if past else "", tag="li") as entry:
            if self._about is not None and atom.id == self._about.id:
                entry.props("aria-current=true")
            with widgets.box("line"):
                widgets.quiet(atoms.held(atom))
                atoms.status_chip(atom)
            link = ui.link(target=self._seat.link("/atom", id=atom.id)).classes("go plain")
            with link:
                ui.label(atom.text).classes("atom-text" + (" over" if past else "")).props("dir=auto")
            after = texts.get(atom.superseded_by or "")
            if after is not None:
                widgets.quiet(f"then: {widgets.cut(after, 100)}")

    def _nothing(self) -> None:
        if self._space.atom_count == 0:
            widgets.no_spaces(self._seat, "timeline", HERE)
            return
        how = "Ask about another topic or entity, or a longer time."
        with widgets.empty("timeline", "Nothing is known of that time.", how):
            widgets.link_button("Of everything", "clear_all", self._seat.link(PATH, space=self._space.id))


def _named(entity: Entity) -> str:
    return f"{widgets.cut(entity.canonical_name, 60)} · {entity.type.value.lower()}"


def _overlaps(atom: Atom, start: datetime | None, end: datetime | None) -> bool:
    begins_in_time = end is None or atom.valid_from <= end
    return begins_in_time and (start is None or atom.valid_to is None or atom.valid_to > start)
