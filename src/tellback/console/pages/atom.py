"""The page of one memory: its fields, the messages it cites, and its history."""

from __future__ import annotations

from nicegui import ui

from tellback.console import atoms, widgets
from tellback.console.atoms import load_history
from tellback.console.context import PageContext
from tellback.console.layout import console_page
from tellback.errors import NotFoundError
from tellback.types.memory import Atom, AtomStatus

PATH = "/atom"
MAX_MESSAGES_QUOTED = 20
MAX_QUOTE_LENGTH = 700
"""How many characters of a message are quoted."""


@console_page(PATH, "Memory")
async def atom_page(ctx: PageContext) -> None:
    """A memory by its id."""
    id = ctx.query.get("id", "")
    found = await ctx.user.memory.get_atom(id)
    if found is None:
        raise NotFoundError("atom", id)
    space = await ctx.user.memory.get_space(found.space_id)
    back_link = ctx.link("/memory", space=found.space_id)
    ui.link(f"← {widgets.truncate(space.name, 60) if space else 'Memory'}", back_link).classes("go plain quiet")
    with widgets.box("card", "stack", tag="article"):
        ui.label(found.text).classes("atom-text" + (" over" if atoms.is_superseded_or_expired(found) else "")).props(
            "dir=auto"
        )
        with widgets.box("line"):
            atoms.show_status_chip(found)
            widgets.chip(atoms.format_category(found))
            widgets.muted(atoms.format_validity(found))
            with widgets.box("actions"):
                atoms.show_actions(ctx, found, lambda changed: _go_to_changed(ctx, changed))
    _show_fields(found, space.name if space else None)
    await _show_quotes(ctx, found)
    await _show_history(ctx, found)
    await _show_entities(ctx, found)


async def _go_to_changed(ctx: PageContext, changed: Atom) -> None:
    if changed.status is AtomStatus.DELETED:
        ui.navigate.to(ctx.link("/memory", space=changed.space_id))
    else:
        ui.navigate.to(ctx.link(PATH, id=changed.id))


def _show_fields(found: Atom, space: str | None) -> None:
    widgets.heading("What is known")
    status = {AtomStatus.ACTIVE: "Recalled", AtomStatus.ARCHIVED: "Archived: recalled only when asked for"}
    never_held = found.valid_to is not None and found.valid_to <= found.valid_from
    ends = "never: it was corrected" if never_held else widgets.format_datetime(found.valid_to) or "still"
    widgets.pairs(
        ("True from", widgets.format_datetime(found.valid_from)),
        ("True until", ends),
        ("Noted", widgets.format_datetime(found.created_at)),
        ("Superseded", widgets.format_datetime(found.superseded_at)),
        ("Status", status.get(found.status, "Forgotten: never recalled")),
        ("Kind", found.category.kind.value.capitalize()),
        ("Category", found.category.name),
        ("Importance", f"{found.importance} of 5"),
        ("Confidence", f"{found.confidence:.0%}"),
        ("Space", space),
        ("Id", found.id),
    )


async def _show_quotes(ctx: PageContext, found: Atom) -> None:
    widgets.heading("Where it was said")
    if not found.citations:
        widgets.muted("No message is cited: it was written by hand, or by a program.")
        return
    sources = [(each.conversation_id, id) for each in found.citations for id in each.message_ids or (None,)]
    for conversation_id, message_id in sources[:MAX_MESSAGES_QUOTED]:
        message = None if message_id is None else await ctx.user.conversations.message(message_id)
        with widgets.box("card", "stack", "tight", tag="blockquote").style("margin: 0"):
            if message is not None:
                text = (
                    message.text
                    if len(message.text) <= MAX_QUOTE_LENGTH
                    else message.text[: MAX_QUOTE_LENGTH - 1] + "…"
                )
                ui.label(text).classes("said").props("dir=auto")
            elif message_id is not None:
                widgets.muted("This message is no longer kept.")
            with widgets.box("line"):
                if message is not None:
                    widgets.muted(f"{message.role}, {widgets.format_datetime(message.created_at)}")
                label = "Open the conversation" if message_id is None else "Show it in the conversation"
                ui.link(label, ctx.link("/conversations", id=conversation_id, message=message_id)).classes("go quiet")
    if len(sources) > MAX_MESSAGES_QUOTED:
        widgets.muted(f"and {len(sources) - MAX_MESSAGES_QUOTED} more")


async def _show_history(ctx: PageContext, found: Atom) -> None:
    widgets.heading("History")
    versions = await load_history(ctx, found)
    if len(versions) == 1:
        widgets.muted("It was never changed.")
        return
    with widgets.box("stack", "tight", tag="ol").style("margin: 0; padding-left: 1.4rem"):
        for each in versions:
            with widgets.box(tag="li"):
                if each.id == found.id:
                    ui.label(each.text).classes("said").style("font-weight: 600").props("aria-current=true dir=auto")
                else:
                    style = " over" if atoms.is_superseded_or_expired(each) else ""
                    link = ui.link(each.text, ctx.link(PATH, id=each.id)).classes(f"go said{style}")
                    link.props("dir=auto")
                widgets.muted(f"{atoms.format_validity(each)} · noted {widgets.format_datetime(each.created_at)}")


async def _show_entities(ctx: PageContext, found: Atom) -> None:
    if not found.entity_ids:
        return
    widgets.heading("About")
    with widgets.box("line"):
        for id in found.entity_ids:
            entity = await ctx.user.memory.get_entity(id)
            if entity is not None:
                ui.link(entity.canonical_name, ctx.link("/entities", id=entity.id)).classes("go chip")
