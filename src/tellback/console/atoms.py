"""A memory on a page: what it says, how it is known, and what can be done with it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from nicegui import ui

from tellback.console import widgets
from tellback.console.seat import Seat, tell
from tellback.errors import InvalidArgumentError
from tellback.types.memory import Atom, AtomStatus, CategoryKind, RecallHit
from tellback.types.times import utc_now

Then = Callable[[Atom], Any]
"""What is done after a memory was changed: it is given the one that stands now."""

KINDS = {
    CategoryKind.FACT: "Fact: true until it changes",
    CategoryKind.PREFERENCE: "Preference: what is liked or not",
    CategoryKind.RULE: "Rule: always to be kept to",
    CategoryKind.INTENTION: "Intention: something planned",
    CategoryKind.EPISODE: "Episode: something that happened",
}
"""The kinds that a person can write. Patterns are found, not written."""

IMPORTANCES = {1: "1 · trivial", 2: "2 · minor", 3: "3 · usual", 4: "4 · important", 5: "5 · vital"}

PARTS = {
    "base": "where every memory starts",
    "same words": "it has words of the question",
    "words nearby": "words of the question were said right beside it",
    "same conversation": "words of the question were said in its conversation",
    "speaker": "the question names who said it, or somebody else",
    "meaning": "how close it is in meaning",
    "meaning of the conversation": "how close its conversation is in meaning",
    "date": "it is from the time that the question is about",
    "form": "what sort of sentence it is",
    "age": "how long ago it was",
    "importance": "how important it is",
    "entity": "it is about something that the question names",
    "about it": "it is about what was asked for",
    "mentions it": "it mentions what was asked for",
    "in this time": "it held in the time that was asked for",
}


def is_over(atom: Atom, now: datetime | None = None) -> bool:
    """Whether something else took its place, or it came to its end."""
    return atom.superseded_by is not None or (atom.valid_to is not None and atom.valid_to <= (now or utc_now()))


def held(atom: Atom) -> str:
    """Since when it holds, and until when."""
    if atom.valid_to is None and atom.category.kind is CategoryKind.EPISODE:
        return f"on {widgets.day(atom.valid_from)}"
    if atom.valid_to is None:
        return f"since {widgets.day(atom.valid_from)}"
    if atom.valid_to <= atom.valid_from:
        return "never held: it was corrected"
    return f"{widgets.day(atom.valid_from)} to {widgets.day(atom.valid_to)}"


def category_of(atom: Atom) -> str:
    """Its category, and the kind of it where the name does not say."""
    name, kind = atom.category.name, atom.category.kind.value.lower()
    return name if name.lower() == kind else f"{name} · {kind}"


def status_chip(atom: Atom) -> None:
    """What became of it, unless it holds."""
    if atom.status is AtomStatus.DELETED:
        widgets.chip("Forgotten", "bad")
    elif atom.status is AtomStatus.ARCHIVED:
        widgets.chip("Archived", "wait")
    if atom.superseded_by is not None:
        widgets.chip("Superseded", "wait")
    elif is_over(atom):
        widgets.chip("Over", "wait")


def card(seat: Seat, atom: Atom, then: Then, hit: RecallHit | None = None) -> None:
    """A memory in a list."""
    with widgets.box("card", "stack", "tight", tag="article"):
        link = ui.link(target=seat.link("/atom", id=atom.id)).classes("go plain")
        with link:
            ui.label(atom.text).classes("atom-text" + (" over" if is_over(atom) else "")).props("dir=auto")
        with widgets.box("line"):
            status_chip(atom)
            widgets.chip(category_of(atom))
            widgets.quiet(held(atom))
            widgets.quiet(f"importance {atom.importance} of 5")
            if atom.confidence < 1:
                widgets.quiet(f"{atom.confidence:.0%} sure")
        with widgets.box("line"):
            sources(seat, atom)
            with widgets.box("actions"):
                actions(seat, atom, then)
        if hit is not None:
            score(hit)


def sources(seat: Seat, atom: Atom) -> None:
    """How it is known: links to the messages where it was said."""
    cited = [(each.conversation_id, id) for each in atom.citations for id in each.message_ids or (None,)]
    if not cited:
        is_found = atom.category.kind is CategoryKind.PATTERN
        widgets.quiet("Found in what recurs" if is_found else "No source: it was written here, not said")
        return
    widgets.quiet("Known from")
    for number, (conversation_id, message_id) in enumerate(cited[:5], 1):
        what = "the conversation" if message_id is None else "the message" if len(cited) == 1 else f"message {number}"
        address = seat.link("/conversations", id=conversation_id, message=message_id)
        ui.link(what, address).classes("go quiet")
    if len(cited) > 5:
        widgets.quiet(f"and {len(cited) - 5} more")


def score(hit: RecallHit) -> None:
    """How well it answers what was asked, and what that is made of."""
    with widgets.box("line"):
        with widgets.box("meter").props("aria-hidden=true"):
            widgets.box().style(f"width: {hit.score:.0%}")
        widgets.quiet(f"score {hit.score:.2f} of 1")
    with ui.expansion("Why this score?").classes("full").props("dense dense-toggle header-class='quiet q-px-none'"):
        rows = [(PARTS.get(name, name), f"{value:+.2f}") for name, value in hit.explain().items()]
        widgets.table(("What counted", "Points"), rows, frozenset({1}))
        widgets.quiet(
            f"Points add up to {sum(hit.parts.values()):+.2f}: 0 would be a score of 0.5, more is better."
            f" Age has left {hit.decay_weight:.0%} of its weight."
        )


def actions(seat: Seat, atom: Atom, then: Then, *, timeline: bool = True) -> None:
    """What can be done with it, as buttons with pictures."""
    if timeline:
        link = widgets.icon_button("timeline", "Timeline of this", lambda: None)
        link.props["href"] = seat.link("/timeline", atom=atom.id)
    if atom.status is AtomStatus.DELETED:
        return
    if atom.superseded_by is None:
        widgets.icon_button("edit", "Edit", seat.doing(lambda: edit(seat, atom, then)))
    if atom.status is AtomStatus.ARCHIVED:
        widgets.icon_button("unarchive", "Restore", seat.doing(lambda: _restore(seat, atom, then)))
    else:
        widgets.icon_button("archive", "Archive", seat.doing(lambda: _archive(seat, atom, then)))
    widgets.icon_button("delete_outline", "Forget", seat.doing(lambda: _forget(seat, atom, then)))


async def _archive(seat: Seat, atom: Atom, then: Then) -> None:
    changed = await seat.user.memory.archive_atom(atom.id)
    tell("Archived: it is kept, and recalled only when asked for.")
    await then(changed)


async def _restore(seat: Seat, atom: Atom, then: Then) -> None:
    changed = await seat.user.memory.restore_atom(atom.id)
    tell("Restored: it is recalled again.")
    await then(changed)


def _forget(seat: Seat, atom: Atom, then: Then) -> None:
    async def forget() -> None:
        changed = await seat.user.memory.delete_atom(atom.id)
        tell("Forgotten: it is never recalled again.")
        await then(changed)

    text = f"“{widgets.cut(atom.text, 200)}” is never recalled again. This cannot be taken back."
    if atom.supersedes is not None:
        text += " What it had replaced holds again."
    text += " Its row stays in the store, marked, until all your data is deleted."
    widgets.confirmed(seat, "Forget this memory?", text, "Forget", forget)


def edit(seat: Seat, atom: Atom, then: Then) -> None:
    """Put a new memory in the place of one."""
    kind = atom.category.kind
    is_pattern = kind is CategoryKind.PATTERN
    with widgets.dialog("Edit this memory") as asking:
        widgets.quiet("Nothing is rewritten: the new text takes the old one's place, which is kept with its time.")
        form = _Form(
            atom.text,
            "fact" if is_pattern else atom.category.name,
            CategoryKind.FACT if is_pattern else kind,
            atom.importance,
            "True since (now, if empty)",
        )

        async def save() -> None:
            made = await seat.user.memory.supersede_atom(atom.id, **form.given())
            asking.close()
            tell("Saved. The timeline has what it was before.")
            await then(made)

        form.done(asking, "Save", seat.doing(save))


def add(seat: Seat, space_id: str | None, then: Then) -> None:
    """Write a memory by hand; without a space, into the one called "default"."""
    with widgets.dialog("Write a memory") as asking:
        form = _Form("", "fact", CategoryKind.FACT, 3, "True since (now, if empty)")

        async def save() -> None:
            memory = seat.user.memory
            space = space_id or (await memory.create_space(once=True)).id
            made = await memory.add_atom(space, **form.given())
            asking.close()
            tell("Remembered.")
            await then(made)

        form.done(asking, "Remember", seat.doing(save))


class _Form:
    """The fields of a memory."""

    def __init__(self, text: str, category: str, kind: CategoryKind, importance: int, since: str) -> None:
        self.text = ui.textarea("What to remember", value=text).props("outlined autogrow autofocus dir=auto")
        self.text.classes("full")
        with widgets.box("line"):
            self.kind = ui.select({each.value: says for each, says in KINDS.items()}, label="Kind", value=kind.value)
            self.kind.props("outlined dense options-dense").classes("wide pick")
            self.importance = ui.select(IMPORTANCES, label="Importance", value=importance)
            self.importance.props("outlined dense options-dense").classes("some")
        with widgets.box("line"):
            self.category = ui.input("Category", value=category).props("outlined dense").classes("wide")
            self.since = widgets.day_field(since, None).classes("wide")

    def given(self) -> dict[str, Any]:
        """What `add_atom` and `supersede_atom` take."""
        text = (self.text.value or "").strip()
        if not text:
            raise InvalidArgumentError("Say what to remember first.")
        name = (self.category.value or "").strip() or str(self.kind.value).lower()
        return {
            "text": text,
            "category": {"name": name, "kind": self.kind.value},
            "importance": self.importance.value,
            "valid_from": widgets.day_start(self.since.value),
        }

    def done(self, asking: ui.dialog, act: str, save: Callable[..., Any]) -> None:
        """The buttons; Enter in a line and Ctrl+Enter in the text do the same."""
        for field in (self.category, self.since):
            field.on("keydown.enter", save)
        self.text.on("keydown.ctrl.enter", save)
        self.text.on("keydown.meta.enter", save)
        widgets.buttons(asking, act, save)
