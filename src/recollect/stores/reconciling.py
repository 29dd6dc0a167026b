"""Changing a space all at once, as an extraction asks for it."""

from __future__ import annotations

from collections.abc import Sequence

from recollect.errors import NotFoundError
from recollect.stores import atoms, entities, jobs, memory_rows, rows
from recollect.stores.engine import Operation
from recollect.stores.ports import AddedCitation, AtomDraft, JobEnd, KnownAtom, Reconciliation, Replacement
from recollect.types.memory import Atom, Citation
from recollect.types.scope import Scope


class SpaceMoved(Exception):
    """Someone was faster; what was begun is undone. It never leaves the store."""


def known(space_id: str, slots: Sequence[str], conversation_id: str | None) -> Operation[list[KnownAtom]]:
    """What a space has about some slots, and what cites a conversation, whatever became of it."""
    yield from atoms.version(space_id)
    found = []
    for slot in dict.fromkeys(slots):
        found += yield "atoms_of_slot", {"space_id": space_id, "slot": slot}
    if conversation_id is not None:
        values = {"space_id": space_id, "conversation_id": conversation_id, "mention": f'%"{conversation_id}"%'}
        found += yield "atoms_of_conversation", values
    by_seq = {row[memory_rows.SEQ]: row for row in found}
    return [_known(by_seq[seq]) for seq in sorted(by_seq)]


def _known(row: Sequence[object]) -> KnownAtom:
    slot, value = row[memory_rows.SLOT], row[memory_rows.VALUE]
    return KnownAtom(memory_rows.atom(row), slot, value)  # type: ignore[arg-type]


def reconcile(
    scope: Scope, space_id: str, wanted: Reconciliation, expected: int, end: JobEnd | None, now: int, wide: bool
) -> Operation[list[Atom] | None]:
    """Make every change, or none if the space is not as it was when they were thought of."""
    if (yield from atoms.version(space_id)).version != expected:
        return None
    # Touching it locks it: nobody else changes the space from here on, but someone may have since we looked.
    if (yield from atoms.touched(space_id, now)).version != expected + 1:
        raise SpaceMoved(space_id)
    for entity in wanted.entities:
        yield from entities.create(space_id, entity, now)
    for entity_id, names in wanted.aliases.items():
        yield from entities.also_called(entity_id, names, now)
    changed: list[Atom] = []
    for change in wanted.changes:
        if isinstance(change, AtomDraft):
            changed += yield from atoms.add(scope, space_id, [change], now, wide)
        elif isinstance(change, Replacement):
            changed.append((yield from atoms.supersede(scope, change.old_id, change.draft, now, wide)))
        else:
            changed.append((yield from _cited(space_id, change, now)))
    if end is not None:
        yield from jobs.finish(end, now)
    return changed


def _cited(space_id: str, added: AddedCitation, now: int) -> Operation[Atom]:
    """Say where an atom was said again."""
    found = yield "atom_get", {"id": added.atom_id}
    if not found or found[0][1] != space_id:
        raise NotFoundError("atom", added.atom_id)
    atom = memory_rows.atom(found[0])
    sources = _with(atom.citations, added.citation)
    if sources == atom.citations:
        return atom
    space = yield from atoms.touched(space_id, now)
    first, *others = sources
    values = {
        "space_id": space_id,
        "seq": found[0][memory_rows.SEQ],
        "source_conversation_id": first.conversation_id,
        "source_message_ids": rows.to_json(first.message_ids),
        "other_sources": memory_rows.citations_text(others),
        "version": space.version,
        "now": now,
    }
    yield "atom_set_sources", values
    data = {"space_id": space_id, "conversation_id": added.citation.conversation_id}
    yield atoms.event("atom.cited", atom.id, data, now)
    [row] = yield "atom_get", {"id": atom.id}
    return memory_rows.atom(row)


def _with(sources: Sequence[Citation], added: Citation) -> tuple[Citation, ...]:
    """Citations with one more, each conversation once.

    >>> _with([Citation("a", ("1",))], Citation("a", ("1", "2")))
    (Citation(conversation_id='a', message_ids=('1', '2')),)
    """
    merged: dict[str, dict[str, None]] = {}
    for source in (*sources, added):
        merged.setdefault(source.conversation_id, {}).update(dict.fromkeys(source.message_ids))
    return tuple(Citation(id, tuple(messages)) for id, messages in merged.items())
