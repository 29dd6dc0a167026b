"""Chains of atoms that stood in one place one after the other: when each ends, and what is forgotten."""

from __future__ import annotations

from typing import Any

from tellback.stores.engine import UNBOUNDED, Operation
from tellback.types.memory import Atom

NEVER_HELD = 1 - UNBOUNDED
"""Where an atom is closed that turns out never to hold: then it is over at every moment, not only from its end on."""


def close_chain(
    space_id: str, old_id: str, successor_id: str, by_seq: int, ends_at: int, version: int, now: int
) -> Operation[None]:
    """From `now` on, no atom of a chain up to the old one is known to hold past the beginning of the new one."""
    found = yield "chain_before", {"space_id": space_id, "id": old_id, "ends": ends_at}
    for seq, id, valid_from, ends, superseded_at, superseded_by in found:
        location = {"space_id": space_id, "seq": seq}
        is_cut = _is_cut_short(ends_at, valid_from, ends)
        if is_cut:
            ends = ends_at
            closing = {"by_seq": by_seq, "known_at": now, "valid_to": _closing_time(ends_at, valid_from)}
            yield "closing_insert", {**location, **closing}
        if is_cut or id == old_id:
            yield (
                "atom_set_superseded",
                {
                    **location,
                    "valid_to": ends,
                    "superseded_at": now if superseded_at is None else superseded_at,
                    "superseded_by": superseded_by or successor_id,
                    "version": version,
                    "now": now,
                },
            )


def remove_from_chain(atom: Atom, seq: int, version: int, now: int) -> Operation[None]:
    """Take an atom out of its chain: what it closed ends where those after it begin, or is open again."""
    space_id, before, after = atom.memory_space_id, atom.supersedes, atom.superseded_by
    change = {"space_id": space_id, "version": version, "now": now}
    if after is not None:
        yield "chain_join_back", {**change, "id": after, "supersedes": before}
    if before is None:
        return
    yield "chain_join_on", {**change, "id": before, "superseded_by": after}
    found = yield "chain_closed_by", {"space_id": space_id, "by_seq": seq, "before": before}
    closed = {row[0] for row in found}
    yield "closings_forget", {"space_id": space_id, "by_seq": seq}
    chain = yield "chain_after", {"space_id": space_id, "id": found[0][1]}
    for number, (each, _, valid_from, _) in enumerate(chain, 1):
        if each in closed:
            yield from _recompute_closings(change, each, valid_from, chain[number:])


def _recompute_closings(change: dict[str, Any], seq: int, valid_from: int, later: list[Any]) -> Operation[None]:
    """Close an atom as it would have been, had there been only these after it."""
    location = {"space_id": change["space_id"], "seq": seq}
    stated = yield "closing_given", location
    ends = stated[0][0] if stated else None
    yield "closings_reopen", location
    for by_seq, _, ends_at, known_at in later:
        if _is_cut_short(ends_at, valid_from, ends):
            ends = ends_at
            closing = {"by_seq": by_seq, "known_at": known_at, "valid_to": _closing_time(ends_at, valid_from)}
            yield "closing_insert", {**location, **closing}
    superseded = {"superseded_by": later[0][1], "superseded_at": later[0][3]} if later else _NOT_SUPERSEDED
    yield "atom_set_superseded", {**change, **location, **superseded, "valid_to": ends}


_NOT_SUPERSEDED = {"superseded_by": None, "superseded_at": None}


def _is_cut_short(ends_at: int, valid_from: int, ends: int | None) -> bool:
    """Whether an atom is cut by one that begins then. What never holds cannot be cut further."""
    return ends is None or (ends_at < ends and valid_from < ends)


def _closing_time(ends_at: int, valid_from: int) -> int:
    return ends_at if ends_at > valid_from else NEVER_HELD
