"""Chains of atoms that stood in one place one after the other: when each ends, and what is forgotten."""

from __future__ import annotations

from typing import Any

from tellback.stores.engine import FOREVER, Operation
from tellback.types.memory import Atom

NEVER_HELD = 1 - FOREVER
"""Where an atom is closed that turns out never to hold: then it is over at every moment, not only from its end on."""


def close(
    space_id: str, old_id: str, made_id: str, by_seq: int, begins: int, version: int, now: int
) -> Operation[None]:
    """From `now` on, no atom of a chain up to the old one is known to hold past the beginning of the new one."""
    found = yield "chain_before", {"space_id": space_id, "id": old_id, "ends": begins}
    for seq, id, valid_from, held_to, superseded_at, superseded_by in found:
        place = {"space_id": space_id, "seq": seq}
        shorter = _is_shorter(begins, valid_from, held_to)
        if shorter:
            held_to = begins
            closing = {"by_seq": by_seq, "known_at": now, "valid_to": _closing(begins, valid_from)}
            yield "closing_insert", {**place, **closing}
        if shorter or id == old_id:
            yield (
                "atom_set_superseded",
                {
                    **place,
                    "valid_to": held_to,
                    "superseded_at": now if superseded_at is None else superseded_at,
                    "superseded_by": superseded_by or made_id,
                    "version": version,
                    "now": now,
                },
            )


def forget(atom: Atom, seq: int, version: int, now: int) -> Operation[None]:
    """Take an atom out of its chain: what it closed ends where those after it begin, or is open again."""
    space_id, before, after = atom.memory_space_id, atom.supersedes, atom.superseded_by
    changed = {"space_id": space_id, "version": version, "now": now}
    if after is not None:
        yield "chain_join_back", {**changed, "id": after, "supersedes": before}
    if before is None:
        return
    yield "chain_join_on", {**changed, "id": before, "superseded_by": after}
    found = yield "chain_closed_by", {"space_id": space_id, "by_seq": seq, "before": before}
    closed = {row[0] for row in found}
    yield "closings_forget", {"space_id": space_id, "by_seq": seq}
    chain = yield "chain_after", {"space_id": space_id, "id": found[0][1]}
    for number, (each, _, valid_from, _) in enumerate(chain, 1):
        if each in closed:
            yield from _recompute(changed, each, valid_from, chain[number:])


def _recompute(changed: dict[str, Any], seq: int, valid_from: int, later: list[Any]) -> Operation[None]:
    """Close an atom as it would have been, had there been only these after it."""
    place = {"space_id": changed["space_id"], "seq": seq}
    given = yield "closing_given", place
    held_to = given[0][0] if given else None
    yield "closings_reopen", place
    for by_seq, _, begins, known_at in later:
        if _is_shorter(begins, valid_from, held_to):
            held_to = begins
            closing = {"by_seq": by_seq, "known_at": known_at, "valid_to": _closing(begins, valid_from)}
            yield "closing_insert", {**place, **closing}
    superseded = {"superseded_by": later[0][1], "superseded_at": later[0][3]} if later else _NOT_SUPERSEDED
    yield "atom_set_superseded", {**changed, **place, **superseded, "valid_to": held_to}


_NOT_SUPERSEDED = {"superseded_by": None, "superseded_at": None}


def _is_shorter(begins: int, valid_from: int, held_to: int | None) -> bool:
    """Whether an atom is cut by one that begins then. What never holds cannot be cut further."""
    return held_to is None or (begins < held_to and valid_from < held_to)


def _closing(begins: int, valid_from: int) -> int:
    return begins if begins > valid_from else NEVER_HELD
