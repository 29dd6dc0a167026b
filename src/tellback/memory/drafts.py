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

DEFAULT_CATEGORY = Category("fact", CategoryKind.FACT)
ATOM_FIELDS = frozenset(AtomDraft.__dataclass_fields__) - {
    "id",
    "origin",
    "embedder",
    "vector",
    "other_sources",
    "slot",
    "value",
}


def build_atom_draft(fields: Mapping[str, Any], now: datetime) -> AtomDraft:
    """An atom from what `add_atom` takes; None is as if it were not given."""
    unknown = set(fields) - ATOM_FIELDS
    if unknown or "text" not in fields:
        problem = f"no {', '.join(sorted(map(str, unknown)))}" if unknown else "a text"
        raise InvalidArgumentError(f"an atom has {problem}; it takes {', '.join(sorted(ATOM_FIELDS))}.")
    values = {name: value for name, value in fields.items() if value is not None}
    valid_from = checks.validate_moment("valid_from", values.get("valid_from")) or now.astimezone(UTC)
    valid_to = checks.validate_moment("valid_to", values.get("valid_to"))
    if valid_to is not None and valid_to <= valid_from:
        raise InvalidArgumentError(f"valid_to ({valid_to.isoformat()}) is not after {valid_from.isoformat()}.")
    source = values.get("source_conversation_id")
    return AtomDraft(
        id=new_id("atom"),
        text=checks.validate_text(fields["text"]),
        category=checks.validate_category(values.get("category", DEFAULT_CATEGORY)),
        valid_from=valid_from,
        importance=checks.validate_importance(values.get("importance", 3)),
        confidence=checks.validate_ratio("confidence", values.get("confidence", 1.0)),
        valid_to=valid_to,
        source_conversation_id=common.validate_optional_text("source_conversation_id", source, common.KEY_LENGTH),
        source_message_ids=checks.validate_ids("source_message_ids", values.get("source_message_ids", ())),
        entity_ids=checks.validate_ids("entity_ids", values.get("entity_ids", ())),
    )
