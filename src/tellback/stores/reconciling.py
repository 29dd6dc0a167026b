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


class SpaceChangedError(Exception):
    """Someone was faster; what was begun is undone. It never leaves the store."""


def load_known_atoms(space_id: str, slots: Sequence[str], conversation_id: str | None) -> Operation[list[KnownAtom]]:
    """What a space has about some slots, and what cites a conversation, whatever became of it."""
    yield from atoms.space_version(space_id)
    found = []
    for slot in dict.fromkeys(slots):
        found += yield "atoms_of_slot", {"space_id": space_id, "slot": slot}
    if conversation_id is not None:
        values = {"space_id": space_id, "conversation_id": conversation_id, "mention": f'%"{conversation_id}"%'}
        # The database looks for the id as it looks for any words: it may find a little too much.
        mentions = yield "atoms_of_conversation", values
        found += [row for row in mentions if _cites(memory_rows.atom_from_row(row), conversation_id)]
    by_seq = {row[memory_rows.SEQ]: _known_atom_from_row(row) for row in found}
    # What took the place of one of them by hand has no slot of its own.
    ids = {each.atom.id for each in by_seq.values()}
    successors = [each.atom.superseded_by for each in by_seq.values()]
    while successors:
        id = successors.pop()
        if id is not None and id not in ids:
            ids.add(id)
            [row] = yield "atom_get", {"id": id}
            by_seq[row[memory_rows.SEQ]] = KnownAtom(memory_rows.atom_from_row(row))
            successors.append(row[memory_rows.SUPERSEDED_BY])
    return (yield from _add_message_dates([by_seq[seq] for seq in sorted(by_seq)]))


def _add_message_dates(found: Sequence[KnownAtom]) -> Operation[list[KnownAtom]]:
    """Atoms with the dates of what they cite."""
    cited_ids = [[id for source in each.atom.citations for id in source.message_ids] for each in found]
    ids = sorted({id for each in cited_ids for id in each})
    message_rows = (yield "messages_said", {"ids": rows.dump_stored_json(ids)}) if ids else ()
    dates = {id: from_micros(created_at) for id, created_at in message_rows}
    return [
        replace(each, message_dates=tuple(sorted({dates[id] for id in ids_of_atom if id in dates})))
        for each, ids_of_atom in zip(found, cited_ids, strict=True)
    ]


def _cites(atom: Atom, conversation_id: str) -> bool:
    return any(source.conversation_id == conversation_id for source in atom.citations)


def _known_atom_from_row(row: Sequence[Any]) -> KnownAtom:
    return KnownAtom(memory_rows.atom_from_row(row), row[memory_rows.SLOT], row[memory_rows.VALUE])


def reconcile(
    scope: Scope,
    space_id: str,
    changes: Reconciliation,
    expected_version: int,
    end: JobEnd | None,
    now: int,
    is_searchable: bool,
) -> Operation[list[Atom] | None]:
    """Make every change, or none if the space is not as it was when they were thought of."""
    if end is not None:
        yield from jobs.hold_job(end)  # before the space: an erasure takes jobs first, too
    if (yield from atoms.space_version(space_id)).version != expected_version:
        return None
    # Touching it locks it: nobody else changes the space from here on, but someone may have since we looked.
    if (yield from atoms.touch_space(space_id, now)).version != expected_version + 1:
        raise SpaceChangedError(space_id)
    for entity in changes.entities:
        yield from entities.create_entity(space_id, entity, now)
    for entity_id, names in changes.aliases.items():
        yield from entities.resolve_entities(space_id, [entity_id])
        yield from entities.add_aliases(entity_id, names, now)
    changed: list[Atom] = []
    for change in changes.changes:
        if isinstance(change, AtomDraft):
            changed += yield from atoms.add_atoms(scope, space_id, [change], now, is_searchable)
        elif isinstance(change, Replacement):
            yield from _load_atom_row(space_id, change.old_id)
            changed.append((yield from atoms.supersede_atom(scope, change.old_id, change.draft, now, is_searchable)))
        else:
            changed.append((yield from _add_citation(space_id, change, now)))
    if end is not None:
        yield from jobs.finish_job(end, now)
    return changed


def _add_citation(space_id: str, added: AddedCitation, now: int) -> Operation[Atom]:
    """Say where an atom was said again."""
    row = yield from _load_atom_row(space_id, added.atom_id)
    atom = memory_rows.atom_from_row(row)
    sources = [*_merge_citation(atom.citations, added.citation)]
    if sources == [*atom.citations]:
        return atom
    space = yield from atoms.touch_space(space_id, now)
    first: Citation | None = None
    if atom.source_conversation_id is not None or not atom.source_message_ids:
        first, *sources = sources  # or it cites messages of no known conversation, which stay first
    values = {
        "space_id": space_id,
        "seq": row[memory_rows.SEQ],
        "source_conversation_id": None if first is None else first.conversation_id,
        "source_message_ids": rows.dump_stored_json(atom.source_message_ids if first is None else first.message_ids),
        "other_sources": memory_rows.dump_citations(sources),
        "version": space.version,
        "now": now,
    }
    yield "atom_set_sources", values
    data = {"space_id": space_id, "conversation_id": added.citation.conversation_id}
    yield atoms.event_statement("atom.cited", atom.id, data, now)
    [row] = yield "atom_get", {"id": atom.id}
    return memory_rows.atom_from_row(row)


def _load_atom_row(space_id: str, atom_id: str) -> Operation[Sequence[Any]]:
    """The row of an atom of this space: those of others are not to be changed by the way."""
    found = yield "atom_get", {"id": atom_id}
    if not found or found[0][1] != space_id:
        raise NotFoundError("atom", atom_id)
    row: Sequence[Any] = found[0]
    return row


def _merge_citation(sources: Sequence[Citation], added: Citation) -> tuple[Citation, ...]:
    """Citations with one more, each conversation once.

    >>> _merge_citation([Citation("a", ("1",))], Citation("a", ("1", "2")))
    (Citation(conversation_id='a', message_ids=('1', '2')),)
    """
    merged: dict[str, dict[str, None]] = {}
    for source in (*sources, added):
        merged.setdefault(source.conversation_id, {}).update(dict.fromkeys(source.message_ids))
    return tuple(Citation(id, tuple(messages)) for id, messages in merged.items())
