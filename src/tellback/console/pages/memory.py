"""Memory: what is remembered, found by topic or by filters, and changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from nicegui import ui

from tellback.console import atoms, widgets
from tellback.console.frame import console_page
from tellback.console.seat import Seat, tell
from tellback.conversations.checks import QUERY_LENGTH
from tellback.errors import InvalidArgumentError
from tellback.types.memory import Atom, AtomStatus, MemorySpace, RecallHit
from tellback.types.times import utc_now

PATH = "/memory"
PAGE = 20
LOOKED_AT = 1_000
"""How many are looked through for those that are over, before a page is shown with fewer."""
CATEGORIES = 300
"""The categories to choose from are those of so many memories, the newest."""

STATUSES = {"current": "Current", "over": "Superseded or over", "archived": "Archived"}


@dataclass(slots=True)
class Wanted:
    """What is looked for."""

    query: str = ""
    status: str = "current"
    categories: list[str] = field(default_factory=list)
    on: str = ""

    @classmethod
    def of(cls, seat: Seat) -> Wanted:
        """What the address of the page says."""
        asked = seat.query
        status = asked.get("status", "current")
        named = [name for name in asked.get("category", "").split("\n") if name]
        return cls(
            asked.get("q", "")[:QUERY_LENGTH], status if status in STATUSES else "current", named, asked.get("on", "")
        )

    @property
    def at(self) -> datetime | None:
        """The end of the day that is asked about, or now while that day lasts."""
        end = widgets.day_end(self.on)
        return None if end is None else min(end, max(utc_now(), widgets.day_start(self.on) or end))


@console_page(PATH, "Memory")
async def memory(seat: Seat) -> None:
    """The memories of a space."""
    spaces, space = await widgets.chosen_space(seat)
    if space is None:
        widgets.no_spaces(seat, "psychology")
        if seat.query.get("add"):
            atoms.add(seat, None, lambda made: _shown(seat, made))
        return
    await Memories(seat, spaces, space).build()
    if seat.query.get("add"):
        atoms.add(seat, space.id, lambda made: _shown(seat, made))


async def _shown(seat: Seat, atom: Atom) -> None:
    ui.navigate.to(seat.link(PATH, space=atom.space_id))


class Memories:
    """The page for one space."""

    def __init__(self, seat: Seat, spaces: list[MemorySpace], space: MemorySpace) -> None:
        self._seat = seat
        self._spaces = spaces
        self._space = space
        self._wanted = Wanted.of(seat)
        self._shown: list[tuple[Atom, RecallHit | None]] = []
        self._round = 0

    async def build(self) -> None:
        """Show it."""
        seat, wanted = self._seat, self._wanted
        with widgets.box("line"):
            widgets.space_field(seat, self._spaces, self._space, PATH).classes("wide pick")
            ui.button("New space", icon="create_new_folder", on_click=seat.doing(self._make_space)).props(
                "flat no-caps"
            )
            ui.button("Write a memory", icon="add", on_click=seat.doing(self._add)).props("no-caps unelevated")
        again = seat.doing(self._search)
        with widgets.box("line").props("role=search"):
            self._query = ui.input("Search what is remembered", value=wanted.query).classes("wide")
            self._query.props(f"outlined dense clearable maxlength={QUERY_LENGTH} dir=auto")
            self._query.on("keydown.enter", again)
            self._query.on("clear", again)
            ui.button("Search", icon="search", on_click=again).props("no-caps outline")
        with widgets.box("line"):
            self._status = ui.select(STATUSES, label="Show", value=wanted.status, on_change=again).classes("some")
            self._status.props("outlined dense options-dense")
            self._on = widgets.day_field("What held on", wanted.on, again).classes("some")
            names = sorted({*(await self._categories()), *wanted.categories}, key=str.casefold)
            self._categories_field = ui.select(
                names, label="Categories", value=wanted.categories, multiple=True, on_change=again
            ).classes("wide pick")
            self._categories_field.props("outlined dense options-dense use-chips clearable")
        self._list = widgets.box("stack").props('aria-live=polite aria-label="Memories" role=region')
        self._foot = widgets.box("line")
        await self._show()

    async def _categories(self) -> set[str]:
        found = await self._seat.user.memory.list_atoms(self._space.id, limit=CATEGORIES, include_superseded=True)
        return {atom.category.name for atom in found}

    async def _search(self) -> None:
        self._wanted = Wanted(
            (self._query.value or "").strip()[:QUERY_LENGTH],
            self._status.value,
            list(self._categories_field.value or ()),
            self._on.value or "",
        )
        wanted = self._wanted
        address = self._seat.link(
            PATH,
            space=self._seat.query.get("space"),
            q=wanted.query or None,
            status=None if wanted.status == "current" else wanted.status,
            category="\n".join(wanted.categories) or None,
            on=wanted.on or None,
        )
        ui.navigate.history.replace(address)
        await self._show()

    async def _show(self) -> None:
        """The first page of what is wanted, unless something else is wanted by the time it is there."""
        self._round += 1
        this = self._round
        found, has_more = await self._found(PAGE, None)
        if this != self._round:
            return
        self._shown = []
        self._list.clear()
        self._add_rows(found, has_more)

    def _add_rows(self, found: Sequence[tuple[Atom, RecallHit | None]], has_more: bool) -> None:
        with self._list:
            for atom, hit in found:
                atoms.card(self._seat, atom, self._changed, hit)
            if not found and not self._shown:
                self._nothing()
        self._shown += found
        self._foot.clear()
        with self._foot:
            if self._shown:
                widgets.quiet(f"{widgets.counted(len(self._shown), 'memory', 'memories')} shown")
            if has_more:
                ui.button("More", on_click=self._seat.doing(self._more)).props("outline no-caps")

    async def _more(self) -> None:
        this = self._round
        if self._wanted.query:
            found, has_more = await self._found(len(self._shown) + PAGE, None)
            found = found[len(self._shown) :]
        else:
            found, has_more = await self._found(PAGE, self._shown[-1][0] if self._shown else None)
        if this == self._round:
            self._add_rows(found, has_more)

    async def _found(self, most: int, before: Atom | None) -> tuple[list[tuple[Atom, RecallHit | None]], bool]:
        if self._wanted.query:
            hits = await self._recalled(most + 1)
            return [(hit.atom, hit) for hit in hits[:most]], len(hits) > most
        if self._wanted.status == "over":
            over, has_more = await self._over(most, before)
            return [(atom, None) for atom in over], has_more
        wanted = self._wanted
        found = await self._seat.user.memory.list_atoms(
            self._space.id,
            status=AtomStatus.ARCHIVED if wanted.status == "archived" else None,
            valid_at=wanted.at,
            categories=wanted.categories or None,
            limit=most + 1,
            before=before,
        )
        return [(atom, None) for atom in found[:most]], len(found) > most

    async def _over(self, most: int, before: Atom | None) -> tuple[list[Atom], bool]:
        """Those that are over, looked for among all."""
        found: list[Atom] = []
        now, looked = utc_now(), 0
        while looked < LOOKED_AT:
            page = await self._seat.user.memory.list_atoms(
                self._space.id,
                valid_at=self._wanted.at,
                categories=self._wanted.categories or None,
                limit=PAGE * 5,
                include_superseded=self._wanted.at is None,
                before=before,
            )
            for atom in page:
                if atoms.is_over(atom, now):
                    if len(found) == most:
                        return found, True
                    found.append(atom)
            if len(page) < PAGE * 5:
                return found, False
            before, looked = page[-1], looked + len(page)
        return found, bool(found)

    async def _recalled(self, most: int) -> list[RecallHit]:
        wanted, memory = self._wanted, self._seat.user.memory
        names = wanted.categories or None
        if wanted.status == "over":
            result = await memory.recall_timeline(
                self._space.id,
                query=wanted.query,
                from_=wanted.at,
                to=wanted.at,
                limit=most * 3,
                category_names=names,
            )
            hits = [hit for hit in result if atoms.is_over(hit.atom)]
            return sorted(hits, key=lambda hit: -hit.score)[:most]
        is_archived = wanted.status == "archived"
        result = await memory.recall_by_topic(
            self._space.id,
            wanted.query,
            limit=max(most, LOOKED_AT) if is_archived else most,
            category_names=names,
            valid_at=wanted.at,
            include_archived=is_archived,
        )
        if not is_archived:
            return list(result)
        return [hit for hit in result if hit.atom.status is AtomStatus.ARCHIVED][:most]

    def _nothing(self) -> None:
        wanted = self._wanted
        if wanted == Wanted():
            how = (
                "Chat, and what you say becomes memories when the conversation closes. Or write one yourself: it is"
                " recalled at once."
            )
            with widgets.empty("psychology", "This space holds no memories.", how):
                widgets.link_button("Start a chat", "chat", self._seat.link("/"))
                ui.button("Write a memory", icon="add", on_click=self._seat.doing(self._add)).props(
                    "outline no-caps dense padding='4px 12px'"
                )
            return
        with widgets.empty(
            "search_off", "No memory matches.", "Search for something else, or show all that is current."
        ):
            widgets.link_button("Show all", "clear_all", self._seat.link(PATH, space=self._space.id))

    async def _changed(self, atom: Atom) -> None:
        await self._show()

    def _add(self) -> None:
        atoms.add(self._seat, self._space.id, self._changed)

    def _make_space(self) -> None:
        seat = self._seat
        with widgets.dialog("New space") as asking:
            widgets.quiet("A space is a part of your memory of its own: what is in one is not recalled from another.")
            name = ui.input("Name").props("outlined dense autofocus dir=auto maxlength=200").classes("full")

            async def make() -> None:
                wanted = (name.value or "").strip()
                if not wanted:
                    raise InvalidArgumentError("Say what to call it first.")
                made = await seat.user.memory.create_space(wanted)
                tell("Made.")
                ui.navigate.to(seat.link(PATH, space=made.id))

            name.on("keydown.enter", seat.doing(make))
            widgets.buttons(asking, "Make it", seat.doing(make))
