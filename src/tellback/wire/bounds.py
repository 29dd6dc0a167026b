"""How long and how large what comes in may be: what is meant is checked by the methods it goes to."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AwareDatetime, BeforeValidator, Field

from tellback.conversations.checks import QUERY_LENGTH
from tellback.types.memory import AtomStatus, CategoryKind, EntityType

MAX_SAFE_INTEGER = 2**53 - 1
"""The largest whole number that JSON of every language can hold."""

IdIn = Annotated[str, Field(min_length=1, max_length=200)]
NameIn = Annotated[str, Field(min_length=1, max_length=500)]
CountIn = Annotated[int, Field(ge=0, le=MAX_SAFE_INTEGER)]
FractionIn = Annotated[float, Field(ge=0, le=1)]
QueryIn = Annotated[str, Field(max_length=QUERY_LENGTH)]
"""A question: ranking by a whole document takes its time, and a document has no topic."""


def _reject_numeric_datetime(value: Any) -> Any:
    """Refuse a number, which says neither what it counts nor from when."""
    if isinstance(value, int | float) or (isinstance(value, str) and "-" not in value[1:]):
        raise ValueError("a moment is written like 2026-03-01T09:00:00Z")
    return value


DatetimeIn = Annotated[
    AwareDatetime, BeforeValidator(_reject_numeric_datetime), Field(examples=["2026-03-01T09:00:00Z"])
]
"""A moment that says its timezone."""


def _to_upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


CategoryKindIn = Annotated[CategoryKind, BeforeValidator(_to_upper)]
EntityTypeIn = Annotated[EntityType, BeforeValidator(_to_upper)]
AtomStatusIn = Annotated[AtomStatus, BeforeValidator(_to_upper)]
