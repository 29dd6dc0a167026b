"""Changing a space all at once, as an extraction asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tellback.errors import NotFoundError
from tellback.stores import atoms, entities, jobs, memory_rows, rows
from tellback.stores.engine import Operation
from tellback.stores.ports import AddedCitation, AtomDraft, JobEnd, KnownAtom, Reconciliation, Replacement
from tellback.types.memory import Atom, Citation
from tellback.types.scope import Scope
from tellback.types.times import from_micros


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
        # The database looks for the id as it looks for any words: it may find a little too much.
        mentions = yield "atoms_of_conversation", values
        found += [row for row in mentions if _cites(memory_rows.atom(row), conversation_id)]
    by_seq = {row[memory_rows.SEQ]: _known(row) for row in found}
    # What took the place of one of them by hand has no slot of its own.
    ids = {each.atom.id for each in by_seq.values()}
    following = [each.atom.superseded_by for each in by_seq.values()]
    while following:
        id = following.pop()
        if id is not None and id not in ids:
            ids.add(id)
            [row] = yield "atom_get", {"id": id}
            by_seq[row[memory_rows.SEQ]] = KnownAtom(memory_rows.atom(row))
            following.append(row[memory_rows.SUPERSEDED_BY])
    return (yield from _dated([by_seq[seq] for seq in sorted(by_seq)]))


def _dated(found: Sequence[KnownAtom]) -> Operation[list[KnownAtom]]:
    """Atoms with the dates of what they cite."""
    cited = [[id for source in each.atom.citations for id in source.message_ids] for each in found]
    ids = sorted({id for each in cited for id in each})
    said = (yield "messages_said", {"ids": rows.to_json(ids)}) if ids else ()
    dates = {id: from_micros(created_at) for id, created_at in said}
    return [
        replace(each, said=tuple(sorted({dates[id] for id in of if id in dates})))
        for each, of in zip(found, cited, strict=True)
    ]


def _cites(atom: Atom, conversation_id: str) -> bool:
    return any(source.conversation_id == conversation_id for source in atom.citations)


def _known(row: Sequence[Any]) -> KnownAtom:
    return KnownAtom(memory_rows.atom(row), row[memory_rows.SLOT], row[memory_rows.VALUE])


def reconcile(
    scope: Scope, space_id: str, wanted: Reconciliation, expected: int, end: JobEnd | None, now: int, wide: bool
) -> Operation[list[Atom] | None]:
    """Make every change, or none if the space is not as it was when they were thought of."""
    if end is not None:
        yield from jobs.held(end)  # before the space: an erasure takes jobs first, too
    if (yield from atoms.version(space_id)).version != expected:
        return None
    # Touching it locks it: nobody else changes the space from here on, but someone may have since we looked.
    if (yield from atoms.touched(space_id, now)).version != expected + 1:
        raise SpaceMoved(space_id)
    for entity in wanted.entities:
        yield from entities.create(space_id, entity, now)
    for entity_id, names in wanted.aliases.items():
        yield from entities.resolved(space_id, [entity_id])
        yield from entities.also_called(entity_id, names, now)
    changed: list[Atom] = []
    for change in wanted.changes:
        if isinstance(change, AtomDraft):
            changed += yield from atoms.add(scope, space_id, [change], now, wide)
        elif isinstance(change, Replacement):
            yield from _found(space_id, change.old_id)
            changed.append((yield from atoms.supersede(scope, change.old_id, change.draft, now, wide)))
        else:
            changed.append((yield from _cited(space_id, change, now)))
    if end is not None:
        yield from jobs.finish(end, now)
    return changed


def _cited(space_id: str, added: AddedCitation, now: int) -> Operation[Atom]:
    """Say where an atom was said again."""
    row = yield from _found(space_id, added.atom_id)
    atom = memory_rows.atom(row)
    sources = [*_with(atom.citations, added.citation)]
    if sources == [*atom.citations]:
        return atom
    space = yield from atoms.touched(space_id, now)
    first: Citation | None = None
    if atom.source_conversation_id is not None or not atom.source_message_ids:
        first, *sources = sources  # or it cites messages of no known conversation, which stay first
    values = {
        "space_id": space_id,
        "seq": row[memory_rows.SEQ],
        "source_conversation_id": None if first is None else first.conversation_id,
        "source_message_ids": rows.to_json(atom.source_message_ids if first is None else first.message_ids),
        "other_sources": memory_rows.citations_text(sources),
        "version": space.version,
        "now": now,
    }
    yield "atom_set_sources", values
    data = {"space_id": space_id, "conversation_id": added.citation.conversation_id}
    yield atoms.event("atom.cited", atom.id, data, now)
    [row] = yield "atom_get", {"id": atom.id}
    return memory_rows.atom(row)


def _found(space_id: str, atom_id: str) -> Operation[Sequence[Any]]:
    """The row of an atom of this space: those of others are not to be changed by the way."""
    found = yield "atom_get", {"id": atom_id}
    if not found or found[0][1] != space_id:
        raise NotFoundError("atom", atom_id)
    row: Sequence[Any] = found[0]
    return row


def _with(sources: Sequence[Citation], added: Citation) -> tuple[Citation, ...]:
    """Citations with one more, each conversation once.

    >>> _with([Citation("a", ("1",))], Citation("a", ("1", "2")))
    (Citation(conversation_id='a', message_ids=('1', '2')),)
    """
    merged: dict[str, dict[str, None]] = {}
    for source in (*sources, added):
        merged.setdefault(source.conversation_id, {}).update(dict.fromkeys(source.message_ids))
    return tuple(Citation(id, tuple(messages)) for id, messages in merged.items())
