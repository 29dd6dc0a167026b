"""One memory: all that is known of it, where it was said, and what it was before."""

from __future__ import annotations

from nicegui import ui

from tellback.console import atoms, widgets
from tellback.console.frame import console_page
from tellback.console.seat import Seat
from tellback.errors import NotFoundError
from tellback.types.memory import Atom, AtomStatus

PATH = "/atom"
MOST_QUOTED = 20
LONGEST_CHAIN = 50
QUOTED = 700
"""How many characters of a message are quoted."""


@console_page(PATH, "Memory")
async def atom(seat: Seat) -> None:
    """A memory by its id."""
    id = seat.query.get("id", "")
    found = await seat.user.memory.get_atom(id)
    if found is None:
        raise NotFoundError("atom", id)
    space = await seat.user.memory.get_space(found.space_id)
    go_back = seat.link("/memory", space=found.space_id)
    ui.link(f"← {widgets.cut(space.name, 60) if space else 'Memory'}", go_back).classes("go plain quiet")
    with widgets.box("card", "stack", tag="article"):
        ui.label(found.text).classes("atom-text" + (" over" if atoms.is_over(found) else "")).props("dir=auto")
        with widgets.box("line"):
            atoms.status_chip(found)
            widgets.chip(atoms.category_of(found))
            widgets.quiet(atoms.held(found))
            with widgets.box("actions"):
                atoms.actions(seat, found, lambda changed: _shown(seat, changed))
    _fields(found, space.name if space else None)
    await _quotes(seat, found)
    await _history(seat, found)
    await _about(seat, found)


async def _shown(seat: Seat, changed: Atom) -> None:
    if changed.status is AtomStatus.DELETED:
        ui.navigate.to(seat.link("/memory", space=changed.space_id))
    else:
        ui.navigate.to(seat.link(PATH, id=changed.id))


def _fields(found: Atom, space: str | None) -> None:
    widgets.title("What is known")
    status = {AtomStatus.ACTIVE: "Recalled", AtomStatus.ARCHIVED: "Archived: recalled only when asked for"}
    never_held = found.valid_to is not None and found.valid_to <= found.valid_from
    ends = "never: it was corrected" if never_held else widgets.moment(found.valid_to) or "still"
    widgets.pairs(
        ("True from", widgets.moment(found.valid_from)),
        ("True until", ends),
        ("Noted", widgets.moment(found.created_at)),
        ("Superseded", widgets.moment(found.superseded_at)),
        ("Status", status.get(found.status, "Forgotten: never recalled")),
        ("Kind", found.category.kind.value.capitalize()),
        ("Category", found.category.name),
        ("Importance", f"{found.importance} of 5"),
        ("Confidence", f"{found.confidence:.0%}"),
        ("Space", space),
        ("Id", found.id),
    )


async def _quotes(seat: Seat, found: Atom) -> None:
    widgets.title("Where it was said")
    if not found.citations:
        widgets.quiet("No message is cited: it was written by hand, or by a program.")
        return
    cited = [(each.conversation_id, id) for each in found.citations for id in each.message_ids or (None,)]
    for conversation_id, message_id in cited[:MOST_QUOTED]:
        said = None if message_id is None else await seat.user.conversations.message(message_id)
        with widgets.box("card", "stack", "tight", tag="blockquote").style("margin: 0"):
            if said is not None:
                text = said.text if len(said.text) <= QUOTED else said.text[: QUOTED - 1] + "…"
                ui.label(text).classes("said").props("dir=auto")
            elif message_id is not None:
                widgets.quiet("This message is no longer kept.")
            with widgets.box("line"):
                if said is not None:
                    widgets.quiet(f"{said.role}, {widgets.moment(said.created_at)}")
                what = "Open the conversation" if message_id is None else "Show it in the conversation"
                ui.link(what, seat.link("/conversations", id=conversation_id, message=message_id)).classes("go quiet")
    if len(cited) > MOST_QUOTED:
        widgets.quiet(f"and {len(cited) - MOST_QUOTED} more")


async def chain(seat: Seat, found: Atom) -> list[Atom]:
    """What stood in its place before and after, and itself: the oldest first."""
    memory = seat.user.memory
    before: list[Atom] = []
    after: list[Atom] = []
    id = found.supersedes
    while id is not None and len(before) < LONGEST_CHAIN and (other := await memory.get_atom(id)) is not None:
        before.append(other)
        id = other.supersedes
    id = found.superseded_by
    while id is not None and len(after) < LONGEST_CHAIN and (other := await memory.get_atom(id)) is not None:
        after.append(other)
        id = other.superseded_by
    return [*reversed(before), found, *after]


async def _history(seat: Seat, found: Atom) -> None:
    widgets.title("History")
    known = await chain(seat, found)
    if len(known) == 1:
        widgets.quiet("It was never changed.")
        return
    with widgets.box("stack", "tight", tag="ol").style("margin: 0; padding-left: 1.4rem"):
        for each in known:
            with widgets.box(tag="li"):
                if each.id == found.id:
                    ui.label(each.text).classes("said").style("font-weight: 600").props("aria-current=true dir=auto")
                else:
                    over = " over" if atoms.is_over(each) else ""
                    link = ui.link(each.text, seat.link(PATH, id=each.id)).classes(f"go said{over}")
                    link.props("dir=auto")
                widgets.quiet(f"{atoms.held(each)} · noted {widgets.moment(each.created_at)}")


async def _about(seat: Seat, found: Atom) -> None:
    if not found.entity_ids:
        return
    widgets.title("About")
    with widgets.box("line"):
        for id in found.entity_ids:
            entity = await seat.user.memory.get_entity(id)
            if entity is not None:
                ui.link(entity.canonical_name, seat.link("/entities", id=entity.id)).classes("go chip")
