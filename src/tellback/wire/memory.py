"""Spaces, atoms, entities, recall and working contexts on the wire."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from tellback.wire.base import (
    CategoryKindIn,
    CountIn,
    DatetimeIn,
    EntityTypeIn,
    FractionIn,
    IdIn,
    InputModel,
    NameIn,
    QueryIn,
)

MAX_ATOMS = 500
"""How many atoms one request may add."""

MAX_IDS = 200
"""How many ids a field may have."""

_ATOM_ID, _SPACE_ID, _ENTITY_ID = (f"{kind}_018f3c0de0a17b2c4d5e6f708192" for kind in ("atom", "ms", "ent"))

MAX_CATEGORIES = 100

MAX_TURNS = 1_000
MAX_RECALLED = 200


class CreateSpace(InputModel):
    """Make a space."""

    name: str | None = Field(default=None, max_length=200, examples=["goals"], description="'default', if not given.")
    metadata: dict[str, Any] | None = None
    once: bool = Field(default=False, description="Give the first space of that name, if there is one.")


class CategoryIn(InputModel):
    """Your own name for a sort of memory, and its kind. Patterns are found by the platform, and cannot be written."""

    name: str = Field(max_length=200, examples=["preference"])
    kind: CategoryKindIn = Field(examples=["PREFERENCE"])


class AddAtom(InputModel):
    """Something to remember: a fact of importance 3 that is certain and true from now on, if not said otherwise."""

    text: str = Field(examples=["User prefers morning meetings"])
    category: CategoryIn | None = None
    importance: Annotated[int, Field(ge=1, le=5)] | None = None
    confidence: FractionIn | None = None
    valid_from: DatetimeIn | None = None
    valid_to: DatetimeIn | None = None
    source_conversation_id: IdIn | None = None
    source_message_ids: list[IdIn] | None = Field(default=None, max_length=MAX_IDS)
    entity_ids: list[IdIn] | None = Field(default=None, max_length=MAX_IDS)


class AddAtoms(InputModel):
    """Many things to remember: all are stored, or none."""

    atoms: list[AddAtom] = Field(max_length=MAX_ATOMS)


class SupersedeAtom(AddAtom):
    """What holds instead of an atom. What is not given is as in the old one, but for where it comes from."""


class CreateEntity(InputModel):
    """Make an entity that atoms can be about."""

    type: EntityTypeIn = Field(examples=["PERSON"])
    canonical_name: str = Field(max_length=500, examples=["Ana Silva"])
    description: str | None = None
    attributes: dict[str, Any] | None = None
    aliases: list[NameIn] = Field(default_factory=list, max_length=MAX_IDS, examples=[["Ana"]])


class MergeEntity(InputModel):
    """Which entity another is to stand for."""

    alias_id: IdIn = Field(examples=[_ENTITY_ID])


class RememberConversation(InputModel):
    """Which conversation to remember word for word."""

    conversation_id: IdIn


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
