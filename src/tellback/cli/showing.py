"""Memories on the terminal: atoms, hits and where they come from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tellback.cli.printing import SHORT, day, minute, one_line, plain, show_pairs, show_table

if TYPE_CHECKING:
    from tellback.types.conversations import StoredMessage
    from tellback.types.memory import Atom, Entity, RecallHit
    from tellback.user import User

CITED = 3
"""How many of an atom's messages are quoted."""


def held(atom: Atom) -> str:
    """When an atom holds or held."""
    ends = "" if atom.valid_to is None else f" to {day(atom.valid_to)}"
    return f"{day(atom.valid_from)}{ends}"


def kind_of(atom: Atom) -> str:
    """An atom's category, and its kind where that says more."""
    name, kind = atom.category.name, atom.category.kind.value
    return name if name.upper() == kind else f"{name} ({kind.lower()})"


def cited(atom: Atom) -> str:
    """Where an atom comes from, in short: the first conversation, and how many more there are."""
    places = [citation.conversation_id for citation in atom.citations]
    return "" if not places else places[0] + (f" +{len(places) - 1}" if len(places) > 1 else "")


def plain_atom(atom: Atom) -> dict[str, Any]:
    """An atom as JSON has it, with all its citations."""
    found: dict[str, Any] = plain(atom)
    return {**found, "citations": plain(atom.citations)}


def plain_hit(hit: RecallHit) -> dict[str, Any]:
    """A hit as JSON has it, with what its score is made of."""
    found = {"score": hit.score, "decay_weight": hit.decay_weight, "entity_match_bonus": hit.entity_match_bonus}
    return {**found, "atom": plain_atom(hit.atom), "explanation": dict(hit.explain())}


def show_atoms(atoms: Sequence[Atom]) -> None:
    """A table of atoms."""
    rows = [(each.id, held(each), kind_of(each), str(each.importance), cited(each), each.text) for each in atoms]
    show_table(("ID", "HOLDS", "CATEGORY", "IMPORTANCE", "SAID IN", "TEXT"), rows)


def show_hits(hits: Iterable[RecallHit]) -> None:
    """A table of what was recalled."""
    rows = [
        (f"{hit.score:.2f}", held(hit.atom), kind_of(hit.atom), hit.atom.id, cited(hit.atom), hit.atom.text)
        for hit in hits
    ]
    show_table(("SCORE", "HOLDS", "CATEGORY", "ID", "SAID IN", "TEXT"), rows)


def show_explanations(hits: Iterable[RecallHit]) -> None:
    """What each hit's score is made of."""
    for hit in hits:
        parts = ", ".join(f"{name} {value:+.2f}" for name, value in hit.explain().items())
        show_pairs([(f"{hit.score:.2f}", one_line(hit.atom.text, SHORT)), ("", parts or "nothing")])


async def quoted(user: User, atom: Atom) -> list[StoredMessage]:
    """The messages that an atom cites, as far as they are still there."""
    ids = [id for citation in atom.citations for id in citation.message_ids][:CITED]
    found = [await user.conversations.message(id) for id in ids]
    return [message for message in found if message is not None]


def quotes(messages: Iterable[StoredMessage]) -> list[tuple[str, str]]:
    """Messages as lines: who said it and when, and what."""
    return [
        ("said", f'{minute(each.created_at)} {each.role}: "{one_line(each.text, 200)}" ({each.conversation_id})')
        for each in messages
    ]


def entity_rows(entities: Iterable[Entity]) -> list[tuple[str, str, str, str, str, str]]:
    """Rows of a table of entities."""
    return [
        (each.id, each.type.value, each.canonical_name, ", ".join(each.aliases), str(each.atom_count), _about(each))
        for each in entities
    ]


def _about(entity: Entity) -> str:
    return "" if entity.description is None else one_line(entity.description, SHORT)


ENTITY_COLUMNS = ("ID", "TYPE", "NAME", "ALSO", "ATOMS", "DESCRIPTION")
