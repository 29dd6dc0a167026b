"""Spaces, atoms and entities on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar

from pydantic import Field

from tellback.types.memory import (
    Atom,
    AtomStatus,
    Category,
    CategoryKind,
    Citation,
    Entity,
    EntityStatus,
    EntityType,
    MemorySpace,
)
from tellback.wire.base import InputModel, WireModel
from tellback.wire.bounds import CategoryKindIn, DatetimeIn, EntityTypeIn, FractionIn, IdIn, NameIn

MAX_ATOMS = 500
"""How many atoms one request may add."""

MAX_IDS = 200
"""How many ids a field may have."""

_ATOM_ID, _SPACE_ID, _ENTITY_ID = (f"{kind}_018f3c0de0a17b2c4d5e6f708192" for kind in ("atom", "ms", "ent"))


class SpaceWire(WireModel):
    """A named part of a user's memory."""

    value_type: ClassVar[type[Any] | None] = MemorySpace

    id: str = Field(examples=[_SPACE_ID])
    tenant_id: str
    app_id: str
    user_id: str
    name: str = Field(examples=["goals"])
    created_at: datetime
    updated_at: datetime
    metadata: dict[str, Any] = Field(default_factory=dict)
    atom_count: int = 0


class CategoryWire(WireModel):
    """Your own name for a sort of memory, and its kind, which decides how fast it fades."""

    name: str = Field(examples=["preference"])
    kind_: CategoryKind = Field(examples=["PREFERENCE"])

    def value(self) -> Category:
        """The category."""
        return Category(self.name, self.kind_)


class CitationWire(WireModel):
    """Where something was said."""

    value_type: ClassVar[type[Any] | None] = Citation

    conversation_id: str
    message_ids: list[str] = Field(default_factory=list)


class AtomWire(WireModel):
    """One remembered thing.

    `validFrom` and `validTo` say when it was true (`validTo` null: still), `createdAt` and `supersededAt` when that was
    known. `citations` is everywhere it was said.
    """

    value_type: ClassVar[type[Any] | None] = Atom

    id: str = Field(examples=[_ATOM_ID])
    memory_space_id: str = Field(examples=[_SPACE_ID])
    tenant_id: str
    app_id: str
    user_id: str
    text: str = Field(examples=["User prefers morning meetings"])
    category: CategoryWire
    importance: int = Field(default=3, description="1 to 5")
    confidence: float = Field(default=1.0, description="0 to 1")
    valid_from: datetime
    valid_to: datetime | None = None
    status: AtomStatus = AtomStatus.ACTIVE
    source_conversation_id: str | None = None
    source_message_ids: list[str] = Field(default_factory=list)
    entity_ids: list[str] = Field(default_factory=list)
    created_at: datetime
    updated_at: datetime
    superseded_at: datetime | None = None
    supersedes: str | None = None
    superseded_by: str | None = None
    other_sources: list[CitationWire] = Field(default_factory=list)
    citations: list[CitationWire] = Field(default_factory=list)


class EntityWire(WireModel):
    """A person, a place or another thing that memories are about."""

    value_type: ClassVar[Any] = Entity  # `type` is a field here

    id: str = Field(examples=[_ENTITY_ID])
    memory_space_id: str = Field(examples=[_SPACE_ID])
    tenant_id: str
    app_id: str
    user_id: str
    type: EntityType = Field(examples=["PERSON"])
    canonical_name: str = Field(examples=["Ana Silva"])
    description: str | None = None
    attributes: dict[str, Any] = Field(default_factory=dict)
    aliases: list[str] = Field(default_factory=list)
    status: EntityStatus = EntityStatus.ACTIVE
    merged_into: str | None = None
    first_seen_at: datetime | None = None
    last_seen_at: datetime | None = None
    atom_count: int = 0
    created_at: datetime
    updated_at: datetime


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
