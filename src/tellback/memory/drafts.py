"""What is given to be remembered, checked, with the rest filled in."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tellback.conversations import checks as common
from tellback.errors import InvalidArgumentError
from tellback.memory import checks
from tellback.stores import AtomDraft
from tellback.types.ids import new_id
from tellback.types.memory import Category, CategoryKind

FACT = Category("fact", CategoryKind.FACT)
KNOWN = frozenset(AtomDraft.__dataclass_fields__) - {
    "id",
    "origin",
    "embedder",
    "vector",
    "other_sources",
    "slot",
    "value",
}


def atom_draft(given: Mapping[str, Any], now: datetime) -> AtomDraft:
    """An atom from what `add_atom` takes; None is as if it were not given."""
    unknown = set(given) - KNOWN
    if unknown or "text" not in given:
        problem = f"no {', '.join(sorted(map(str, unknown)))}" if unknown else "a text"
        raise InvalidArgumentError(f"an atom has {problem}; it takes {', '.join(sorted(KNOWN))}.")
    said = {name: value for name, value in given.items() if value is not None}
    valid_from = checks.moment("valid_from", said.get("valid_from")) or now.astimezone(UTC)
    valid_to = checks.moment("valid_to", said.get("valid_to"))
    if valid_to is not None and valid_to <= valid_from:
        raise InvalidArgumentError(f"valid_to ({valid_to.isoformat()}) is not after {valid_from.isoformat()}.")
    source = said.get("source_conversation_id")
    return AtomDraft(
        id=new_id("atom"),
        text=checks.text(given["text"]),
        category=checks.category(said.get("category", FACT)),
        valid_from=valid_from,
        importance=checks.importance(said.get("importance", 3)),
        confidence=checks.share("confidence", said.get("confidence", 1.0)),
        valid_to=valid_to,
        source_conversation_id=common.optional_text("source_conversation_id", source, common.KEY_LENGTH),
        source_message_ids=checks.ids("source_message_ids", said.get("source_message_ids", ())),
        entity_ids=checks.ids("entity_ids", said.get("entity_ids", ())),
    )
