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
from tellback.wire.base import Input, Wire
from tellback.wire.bounds import EntityTypeIn, IdIn, KindIn, MomentIn, NameIn, ShareIn

MOST_ATOMS = 500
"""How many atoms one request may add."""

MOST_IDS = 200
"""How many ids a field may have."""

_ATOM, _SPACE, _ENTITY = (f"{kind}_018f3c0de0a17b2c4d5e6f708192" for kind in ("atom", "ms", "ent"))


class SpaceWire(Wire):
    """A named part of a user's memory."""

    kind: ClassVar[type[Any] | None] = MemorySpace

    id: str = Field(examples=[_SPACE])
    tenant_id: str
    app_id: str
    user_id: str
    name: str = Field(examples=["goals"])
    created_at: datetime
    updated_at: datetime
    metadata: dict[str, Any] = Field(default_factory=dict)
    atom_count: int = 0


class CategoryWire(Wire):
    """Your own name for a sort of memory, and its kind, which decides how fast it fades."""

    name: str = Field(examples=["preference"])
    kind_: CategoryKind = Field(examples=["PREFERENCE"])

    def value(self) -> Category:
        """The category."""
        return Category(self.name, self.kind_)


class CitationWire(Wire):
    """Where something was said."""

    kind: ClassVar[type[Any] | None] = Citation

    conversation_id: str
    message_ids: list[str] = Field(default_factory=list)


class AtomWire(Wire):
    """One remembered thing.

    `validFrom` and `validTo` say when it was true (`validTo` null: still), `createdAt` and `supersededAt` when that was
    known. `citations` is everywhere it was said.
    """

    kind: ClassVar[type[Any] | None] = Atom

    id: str = Field(examples=[_ATOM])
    memory_space_id: str = Field(examples=[_SPACE])
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


class EntityWire(Wire):
    """A person, a place or another thing that memories are about."""

    kind: ClassVar[Any] = Entity  # `type` is a field here

    id: str = Field(examples=[_ENTITY])
    memory_space_id: str = Field(examples=[_SPACE])
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


class CreateSpace(Input):
    """Make a space."""

    name: str | None = Field(default=None, max_length=200, examples=["goals"], description="'default', if not given.")
    metadata: dict[str, Any] | None = None
    once: bool = Field(default=False, description="Give the first space of that name, if there is one.")


class CategoryIn(Input):
    """Your own name for a sort of memory, and its kind. Patterns are found by the platform, and cannot be written."""

    name: str = Field(max_length=200, examples=["preference"])
    kind: KindIn = Field(examples=["PREFERENCE"])


class AddAtom(Input):
    """Something to remember: a fact of importance 3 that is certain and true from now on, if not said otherwise."""

    text: str = Field(examples=["User prefers morning meetings"])
    category: CategoryIn | None = None
    importance: Annotated[int, Field(ge=1, le=5)] | None = None
    confidence: ShareIn | None = None
    valid_from: MomentIn | None = None
    valid_to: MomentIn | None = None
    source_conversation_id: IdIn | None = None
    source_message_ids: list[IdIn] | None = Field(default=None, max_length=MOST_IDS)
    entity_ids: list[IdIn] | None = Field(default=None, max_length=MOST_IDS)


class AddAtoms(Input):
    """Many things to remember: all are stored, or none."""

    atoms: list[AddAtom] = Field(max_length=MOST_ATOMS)


class SupersedeAtom(AddAtom):
    """What holds instead of an atom. What is not given is as in the old one, but for where it comes from."""


class CreateEntity(Input):
    """Make an entity that atoms can be about."""

    type: EntityTypeIn = Field(examples=["PERSON"])
    canonical_name: str = Field(max_length=500, examples=["Ana Silva"])
    description: str | None = None
    attributes: dict[str, Any] | None = None
    aliases: list[NameIn] = Field(default_factory=list, max_length=MOST_IDS, examples=[["Ana"]])


class MergeEntity(Input):
    """Which entity another is to stand for."""

    alias_id: IdIn = Field(examples=[_ENTITY])


class RememberConversation(Input):
    """Which conversation to remember word for word."""

    conversation_id: IdIn
