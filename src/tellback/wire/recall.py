"""What is asked of a memory, and what it gives, on the wire."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field

from tellback.types.memory import RecallHit, RecallMode, RecallResult
from tellback.wire.base import InputModel, WireModel
from tellback.wire.bounds import CountIn, DatetimeIn, FractionIn, NameIn, QueryIn
from tellback.wire.memory import AtomWire

MAX_CATEGORIES = 100


class RecallHitWire(WireModel):
    """A recalled atom."""

    value_type: ClassVar[type[Any] | None] = RecallHit

    atom: AtomWire
    score: float = Field(description="0 to 1; it orders the hits of a topic.")
    decay_weight: float = Field(default=1.0, description="What its age left of its weight.")
    entity_match_bonus: float = Field(default=1.0, description="Above 1 when the query names what the atom is about.")
    context: list[AtomWire] = Field(default_factory=list, description="The turns around it, with `neighbours`.")
    parts: dict[str, float] = Field(default_factory=dict, description="What each part added to the score's log-odds.")


class RecallResultWire(WireModel):
    """What was recalled."""

    value_type: ClassVar[type[Any] | None] = RecallResult

    mode: RecallMode
    hits: list[RecallHitWire]
    total_candidates: int = Field(description="How many atoms were considered.")
    latency_ms: float


class _RecallInput(InputModel):
    limit: CountIn | None = Field(default=None, description="How many at most; the server has a limit.")
    category_names: list[NameIn] | None = Field(default=None, max_length=MAX_CATEGORIES)
    known_at: DatetimeIn | None = Field(default=None, description="Recall what was known then.")
    now: DatetimeIn | None = Field(default=None, description="What 'last May' and ages are counted from.")


class RecallByTopicInput(_RecallInput):
    """A question, and what may answer it."""

    query: QueryIn = Field(examples=["When does the user like to meet?"])
    min_importance: Annotated[int, Field(ge=0, le=5)] | None = None
    valid_at: DatetimeIn | None = Field(default=None, description="Recall what held at that moment.")
    min_score: FractionIn = 0.0
    neighbours: CountIn = Field(default=0, description="So many turns before and after a hit come along.")
    include_archived: bool = False


class RecallByEntityInput(_RecallInput):
    """An entity, by its id or a name."""

    entity_id_or_name: NameIn = Field(examples=["Ana Silva"])
    valid_at: DatetimeIn | None = Field(default=None, description="Recall what held at that moment.")
    include_archived: bool = False


class RecallTimelineInput(_RecallInput):
    """A stretch of time; about an entity, on a topic, both, or everything."""

    entity_id_or_name: NameIn | None = None
    query: QueryIn | None = None
    from_: DatetimeIn | None = None
    to: DatetimeIn | None = None
    include_superseded: bool = True
