"""Memories on a page: cards, score explanations, history, and the forms to add, edit, archive and forget them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Any

from nicegui import ui

from tellback.console import widgets
from tellback.console.context import PageContext, notify
from tellback.errors import InvalidArgumentError
from tellback.memory.recall_service import SCORE_PART_LABELS
from tellback.types.ids import utc_now
from tellback.types.memory import TURN_CATEGORY, Atom, AtomStatus, Category, CategoryKind, RecallHit

OnChanged = Callable[[Atom], Any]
"""Called after a memory was changed, with its current version."""

Change = Callable[[str], Awaitable[Atom]]
"""Changes the memory with an id and returns its current version."""

KIND_LABELS = {
    CategoryKind.FACT: "Fact: true until it changes",
    CategoryKind.PREFERENCE: "Preference: a like or dislike",
    CategoryKind.RULE: "Rule: must always be followed",
    CategoryKind.INTENTION: "Intention: a plan",
    CategoryKind.EPISODE: "Episode: something that happened",
}
"""The kinds that a user can choose. Only Tellback creates patterns."""

MAX_HISTORY_LENGTH = 50

IMPORTANCE_LABELS = {1: "1 · very low", 2: "2 · low", 3: "3 · normal", 4: "4 · high", 5: "5 · very high"}

NEVER_VALID = "corrected: was never true"
PATTERN_LABEL = "Pattern: found in several memories"


def is_superseded_or_expired(atom: Atom, now: datetime | None = None) -> bool:
    """Whether a newer version replaced the memory, or its validity has ended."""
    return atom.superseded_by is not None or (atom.valid_to is not None and atom.valid_to <= (now or utc_now()))


def format_validity(atom: Atom) -> str:
    """Format the period in which the memory is valid."""
    if atom.valid_to is None and atom.category.kind is CategoryKind.EPISODE:
        return f"on {widgets.format_date(atom.valid_from)}"
    if atom.valid_to is None:
        return f"since {widgets.format_date(atom.valid_from)}"
    if atom.valid_to <= atom.valid_from:
        return NEVER_VALID
    return f"{widgets.format_date(atom.valid_from)} to {widgets.format_date(atom.valid_to)}"


def format_category(atom: Atom) -> str:
    """Format the category, with its kind if the name differs from it."""
    if atom.category == TURN_CATEGORY:
        return "message"
    name, kind = atom.category.name, atom.category.kind.value.lower()
    return name if name.lower() == kind else f"{name} · {kind}"


def show_category_chip(atom: Atom) -> None:
    """Show the category and the kind; the tooltip explains them."""
    kind = KIND_LABELS.get(atom.category.kind, PATTERN_LABEL)
    verbatim = "A message, stored word for word. " if atom.category == TURN_CATEGORY else ""
    widgets.chip(format_category(atom), tooltip=f"{verbatim}Category: {atom.category.name}. {kind}.")


def show_text(atom: Atom) -> None:
    """Show the text of a memory, struck through if it is superseded or expired."""
    ui.label(atom.text).classes("atom-text" + (" over" if is_superseded_or_expired(atom) else "")).props("dir=auto")


def show_status_chip(atom: Atom) -> None:
    """Show the status of a memory that is not current."""
    if atom.status is AtomStatus.DELETED:
        widgets.chip("Forgotten", "bad", "Never used again. It cannot be restored.")
    elif atom.status is AtomStatus.ARCHIVED:
        widgets.chip("Archived", "wait", "Not used in answers. It can be restored.")
    if atom.superseded_by is not None:
        widgets.chip("Superseded", "wait", "Replaced by a newer memory.")
    elif is_superseded_or_expired(atom):
        widgets.chip("Expired", "wait", "No longer true: its end date has passed.")


def show_card(ctx: PageContext, atom: Atom, on_changed: OnChanged, hit: RecallHit | None = None) -> None:
    """Show a memory as a card in a list."""
    with widgets.box("card", "stack", "tight", tag="article"):
        with ui.link(target=ctx.link("/atom", id=atom.id)).classes("go plain"):
            show_text(atom)
        with widgets.box("line"):
            show_status_chip(atom)
            show_category_chip(atom)
            widgets.muted(format_validity(atom))
            widgets.muted(f"importance {atom.importance} of 5")
            if atom.confidence < 1:
                widgets.muted(f"{atom.confidence:.0%} confidence")
        with widgets.box("line"):
            show_sources(ctx, atom)
            with widgets.box("actions"):
                show_actions(ctx, atom, on_changed)
        if hit is not None:
            show_score(hit)


def show_sources(ctx: PageContext, atom: Atom) -> None:
    """Show links to the source messages of a memory."""
    sources = [(each.conversation_id, id) for each in atom.citations for id in each.message_ids or (None,)]
    if not sources:
        is_pattern = atom.category.kind is CategoryKind.PATTERN
        widgets.muted(PATTERN_LABEL if is_pattern else "No source message: added manually")
        return
    for number, (conversation_id, message_id) in enumerate(sources[:5], 1):
        label = "Source conversation" if message_id is None else "Source message"
        if len(sources) > 1:
            label = f"{label} {number}"
        address = ctx.link("/conversations", id=conversation_id, message=message_id)
        ui.link(label, address).classes("go quiet")
    if len(sources) > 5:
        widgets.muted(f"and {len(sources) - 5} more")


def show_score(hit: RecallHit) -> None:
    """Show the score of a search result, and the points of each factor."""
    with widgets.box("line"):
        with widgets.box("meter").props("aria-hidden=true"):
            widgets.box().style(f"width: {hit.score:.0%}")
        widgets.muted(f"score {hit.score:.2f} of 1")
    with ui.expansion("Why this score?").classes("full").props("dense dense-toggle header-class='quiet q-px-none'"):
        rows = [(SCORE_PART_LABELS.get(name, name), f"{value:+.2f}") for name, value in hit.explain().items()]
        widgets.table(("Factor", "Points"), rows, frozenset({1}))
        widgets.muted(
            f"Total: {sum(hit.parts.values()):+.2f} points. More points give a higher score; 0 points give 0.50."
        )


def show_actions(ctx: PageContext, atom: Atom, on_changed: OnChanged, *, has_timeline_link: bool = True) -> None:
    """Show the actions for a memory as icon buttons."""
    if has_timeline_link:
        link = widgets.icon_button("timeline", "Show timeline", lambda: None)
        link.props["href"] = ctx.link("/timeline", atom=atom.id)
    if atom.status is AtomStatus.DELETED:
        return
    memory = ctx.user.memory

    def add_button(icon: str, name: str, change: Change, notice: str) -> None:
        widgets.icon_button(icon, name, ctx.guard(lambda: _change_atom(atom, change, notice, on_changed)))

    if atom.superseded_by is None:
        widgets.icon_button("edit", "Edit", ctx.guard(lambda: open_edit_dialog(ctx, atom, on_changed)))
    if atom.status is AtomStatus.ARCHIVED:
        add_button("unarchive", "Restore", memory.restore_atom, "Restored. Answers can use this memory again.")
    else:
        notice = "Archived. Answers no longer use this memory. You can restore it."
        add_button("archive", "Archive (can be restored)", memory.archive_atom, notice)
    widgets.icon_button(
        "delete_outline", "Forget (cannot be undone)", ctx.guard(lambda: _confirm_forget(ctx, atom, on_changed))
    )


async def _change_atom(atom: Atom, change: Change, notice: str, on_changed: OnChanged) -> None:
    changed = await change(atom.id)
    notify(notice)
    await on_changed(changed)


def _confirm_forget(ctx: PageContext, atom: Atom, on_changed: OnChanged) -> None:
    text = f"“{widgets.truncate(atom.text, 200)}” will never be used again, and you cannot restore it."
    if atom.supersedes is not None:
        text += " The memory it replaced becomes current again."
    if atom.status is not AtomStatus.ARCHIVED:
        text += " If you may need it later, archive it instead."
    text += " The text stays in the database, marked as forgotten, until you delete the account data."
    notice = "Forgotten. This memory will never be used again."
    forget = partial(_change_atom, atom, ctx.user.memory.delete_atom, notice, on_changed)
    widgets.confirm(ctx, "Forget this memory?", text, "Forget", forget)


def open_edit_dialog(ctx: PageContext, atom: Atom, on_changed: OnChanged) -> None:
    """Open a dialog that supersedes a memory with a new version."""
    is_pattern = atom.category.kind is CategoryKind.PATTERN
    category = Category("fact", CategoryKind.FACT) if is_pattern else atom.category
    with widgets.dialog("Edit this memory") as dialog:
        widgets.muted("Saving creates a new version. The timeline still shows the old one.")
        form = AtomForm(atom.text, category, atom.importance)

        async def save() -> None:
            created = await ctx.user.memory.supersede_atom(atom.id, **form.values())
            dialog.close()
            notify("Saved. The timeline shows the old version.")
            await on_changed(created)

        form.add_buttons(dialog, "Save", ctx.guard(save))


def open_add_dialog(ctx: PageContext, space_id: str | None, on_changed: OnChanged) -> None:
    """Open a dialog that adds a memory; without a space, to the space "default"."""
    with widgets.dialog("Add memory") as dialog:
        form = AtomForm("", Category("fact", CategoryKind.FACT), 3)

        async def save() -> None:
            memory = ctx.user.memory
            space = space_id or (await memory.create_space(once=True)).id
            created = await memory.add_atom(space, **form.values())
            dialog.close()
            notify("Memory added.")
            await on_changed(created)

        form.add_buttons(dialog, "Add memory", ctx.guard(save))


class AtomForm:
    """The form fields of a memory."""

    def __init__(self, text: str, category: Category, importance: int) -> None:
        self.text = ui.textarea("Memory text", value=text).props("outlined autogrow autofocus dir=auto")
        self.text.classes("full")
        with widgets.box("line"):
            kinds = {each.value: label for each, label in KIND_LABELS.items()}
            self.kind = widgets.select_field(kinds, "Kind", category.kind.value).classes("wide pick")
            self.importance = widgets.select_field(IMPORTANCE_LABELS, "Importance", importance).classes("some")
        with widgets.box("line"):
            self.category = widgets.text_field("Category", category.name).classes("wide")
            self.since = widgets.date_field("Valid from (default: now)", None).classes("wide")

    def values(self) -> dict[str, Any]:
        """Return the arguments for `add_atom` and `supersede_atom`."""
        text = (self.text.value or "").strip()
        if not text:
            raise InvalidArgumentError("Enter the memory text.")
        name = (self.category.value or "").strip() or str(self.kind.value).lower()
        return {
            "text": text,
            "category": {"name": name, "kind": self.kind.value},
            "importance": self.importance.value,
            "valid_from": widgets.parse_day_start(self.since.value),
        }

    def add_buttons(self, dialog: ui.dialog, label: str, on_save: Callable[..., Any]) -> None:
        """Add the buttons. Pressing Enter in a single-line field, or Ctrl+Enter in the text, also saves."""
        for field in (self.category, self.since):
            field.on("keydown.enter", on_save)
        self.text.on("keydown.ctrl.enter", on_save)
        self.text.on("keydown.meta.enter", on_save)
        widgets.dialog_buttons(dialog, label, on_save)
