"""The working context on the wire."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field

from tellback.types.context import WorkingContext
from tellback.wire.base import InputModel, WireModel
from tellback.wire.bounds import CountIn, DatetimeIn, FractionIn, IdIn, NameIn, QueryIn
from tellback.wire.memory import AtomWire
from tellback.wire.messages import MessageOut
from tellback.wire.recall import MAX_CATEGORIES, RecallHitWire

MAX_TURNS = 1_000
MAX_RECALLED = 200


class WorkingContextWire(WireModel):
    """What a model should know before it answers, within a token budget.

    `contextBlock` is a system prompt, or the beginning of one; `messages` is the same as chat messages, and `system`
    the block without the turns. `atomsUsed` are the memories in it, `hits` the recalled ones among them.
    """

    value_type: ClassVar[type[Any] | None] = WorkingContext

    context_block: str
    system: str = ""
    messages: list[MessageOut]
    atoms_used: list[AtomWire]
    tokens_estimated: int
    over_budget: bool = Field(default=False, description="The summary and the always-on memories alone are larger.")
    hits: list[RecallHitWire] = Field(default_factory=list)
    turns_used: int = 0
    turns_dropped: int = 0
    hits_dropped: int = 0
    recall_query: str | None = None
    remembers: bool = Field(default=False, description="There is a summary or a memory in it.")


class RecallIn(InputModel):
    """How to remember: the fields of a working context. Null stands for a field's default."""

    memory_space_id: IdIn | None = None
    recall_query: QueryIn | None = Field(default=None, description="By default the last thing the user said.")
    recent_turns: Annotated[int, Field(ge=0, le=MAX_TURNS)] | None = Field(default=None, examples=[10])
    recall_limit: Annotated[int, Field(ge=0, le=MAX_RECALLED)] | None = Field(default=None, examples=[8])
    token_budget: CountIn | None = Field(default=None, examples=[8_000])
    include_rolling_summary: bool | None = None
    always_on_category_names: list[NameIn] | None = Field(
        default=None, max_length=MAX_CATEGORIES, examples=[["identity", "preference"]]
    )
    template_id: str | None = Field(default=None, max_length=200, examples=["default"])
    min_score: FractionIn | None = None
    now: DatetimeIn | None = None

    def arguments(self) -> dict[str, Any]:
        """What was given and is not null."""
        return {name: value for name, value in super().arguments().items() if value is not None}


class BuildWorkingContext(RecallIn):
    """What to put together. Null stands for a field's default."""

    conversation_id: IdIn | None = Field(default=None, description="None for a conversation that is yet to begin.")
    memory_space_id: IdIn | None = Field(default=None, description="Without one nothing is remembered.")
