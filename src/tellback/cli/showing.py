"""Memories on the terminal: atoms, hits and where they come from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tellback.cli.printing import (
    SHORT_LENGTH,
    format_date,
    format_minute,
    print_pairs,
    print_table,
    to_json_value,
    to_one_line,
)

if TYPE_CHECKING:
    from tellback.types.conversations import StoredMessage
    from tellback.types.memory import Atom, Entity, RecallHit
    from tellback.user import User

MAX_MESSAGES_QUOTED = 3
"""How many of an atom's messages are quoted."""


def format_validity(atom: Atom) -> str:
    """When an atom holds or held."""
    end = "" if atom.valid_to is None else f" to {format_date(atom.valid_to)}"
    return f"{format_date(atom.valid_from)}{end}"


def format_category(atom: Atom) -> str:
    """An atom's category, and its kind where that says more."""
    name, kind = atom.category.name, atom.category.kind.value
    return name if name.upper() == kind else f"{name} ({kind.lower()})"


def format_source(atom: Atom) -> str:
    """Where an atom comes from, in short: the first conversation, and how many more there are."""
    conversation_ids = [citation.conversation_id for citation in atom.citations]
    return (
        ""
        if not conversation_ids
        else conversation_ids[0] + (f" +{len(conversation_ids) - 1}" if len(conversation_ids) > 1 else "")
    )


def atom_to_json(atom: Atom) -> dict[str, Any]:
    """An atom as JSON has it, with all its citations."""
    fields: dict[str, Any] = to_json_value(atom)
    return {**fields, "citations": to_json_value(atom.citations)}


def hit_to_json(hit: RecallHit) -> dict[str, Any]:
    """A hit as JSON has it, with what its score is made of."""
    scores = {"score": hit.score, "decay_weight": hit.decay_weight, "entity_match_bonus": hit.entity_match_bonus}
    return {**scores, "atom": atom_to_json(hit.atom), "explanation": dict(hit.explain())}


def print_atoms(atoms: Sequence[Atom]) -> None:
    """A table of atoms."""
    rows = [
        (each.id, format_validity(each), format_category(each), str(each.importance), format_source(each), each.text)
        for each in atoms
    ]
    print_table(("ID", "HOLDS", "CATEGORY", "IMPORTANCE", "SAID IN", "TEXT"), rows)


def print_hits(hits: Iterable[RecallHit]) -> None:
    """A table of what was recalled."""
    rows = [
        (
            f"{hit.score:.2f}",
            format_validity(hit.atom),
            format_category(hit.atom),
            hit.atom.id,
            format_source(hit.atom),
            hit.atom.text,
        )
        for hit in hits
    ]
    print_table(("SCORE", "HOLDS", "CATEGORY", "ID", "SAID IN", "TEXT"), rows)


def print_score_parts(hits: Iterable[RecallHit]) -> None:
    """What each hit's score is made of."""
    for hit in hits:
        parts = ", ".join(f"{name} {value:+.2f}" for name, value in hit.explain().items())
        print_pairs([(f"{hit.score:.2f}", to_one_line(hit.atom.text, SHORT_LENGTH)), ("", parts or "nothing")])


async def load_cited_messages(user: User, atom: Atom) -> list[StoredMessage]:
    """The messages that an atom cites, as far as they are still there."""
    ids = [id for citation in atom.citations for id in citation.message_ids][:MAX_MESSAGES_QUOTED]
    found = [await user.conversations.message(id) for id in ids]
    return [message for message in found if message is not None]


def quote_rows(messages: Iterable[StoredMessage]) -> list[tuple[str, str]]:
    """Messages as lines: who said it and when, and what."""
    return [
        (
            "said",
            f'{format_minute(each.created_at)} {each.role}: "{to_one_line(each.text, 200)}" ({each.conversation_id})',
        )
        for each in messages
    ]


def entity_rows(entities: Iterable[Entity]) -> list[tuple[str, str, str, str, str, str]]:
    """Rows of a table of entities."""
    return [
        (
            each.id,
            each.type.value,
            each.canonical_name,
            ", ".join(each.aliases),
            str(each.atom_count),
            _entity_description(each),
        )
        for each in entities
    ]


def _entity_description(entity: Entity) -> str:
    return "" if entity.description is None else to_one_line(entity.description, SHORT_LENGTH)


ENTITY_COLUMNS = ("ID", "TYPE", "NAME", "ALSO", "ATOMS", "DESCRIPTION")
