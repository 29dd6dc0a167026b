"""The port of memory: drafts, changes and searches of spaces, atoms and entities."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from tellback.stores.ports.jobs import JobEnd
from tellback.types.access import Scope
from tellback.types.memory import Atom, AtomStatus, Category, CategoryKind, Citation, Entity, EntityType, MemorySpace


@dataclass(frozen=True, slots=True)
class AtomDraft:
    """An atom about to be added.

    `origin` names what it was made from: a space holds one atom of each. `vector` is half-precision, little-endian, and
    made by `embedder`. `slot` names what it says something about ("user: home city"), `value` what it says.
    """

    id: str
    text: str
    category: Category
    valid_from: datetime
    importance: int = 3
    confidence: float = 1.0
    valid_to: datetime | None = None
    source_conversation_id: str | None = None
    source_message_ids: tuple[str, ...] = ()
    entity_ids: tuple[str, ...] = ()
    origin: str | None = None
    embedder: str | None = None
    vector: bytes | None = None
    other_sources: tuple[Citation, ...] = ()
    slot: str | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True)
class EntityDraft:
    """An entity about to be made."""

    id: str
    type: EntityType
    canonical_name: str
    description: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Replacement:
    """An atom to take another's place."""

    old_id: str
    draft: AtomDraft


@dataclass(frozen=True, slots=True)
class AddedCitation:
    """An atom was said again."""

    atom_id: str
    citation: Citation


AtomChange = AtomDraft | Replacement | AddedCitation


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What is to change in a space, all at once: entities to make, names that known ones are also called by, and
    atoms, in their order. A later change may name what an earlier one makes."""

    entities: tuple[EntityDraft, ...] = ()
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    changes: tuple[AtomChange, ...] = ()


@dataclass(frozen=True, slots=True)
class KnownAtom:
    """An atom with what it says about what, and when the messages that it cites were said, as far as they are kept."""

    atom: Atom
    slot: str | None = None
    value: str | None = None
    message_dates: tuple[datetime, ...] = ()


@dataclass(frozen=True, slots=True)
class AtomFilter:
    """Which atoms to list: those of a status that were known at `known_at` and were not over at `valid_at`.

    With `must_have_started`, they must also have begun by then. `before` is the id to go on from, `categories` any of
    these, `kind` that of their categories.
    """

    status: AtomStatus
    valid_at: datetime
    known_at: datetime | None = None
    must_have_started: bool = False
    categories: tuple[str, ...] = ()
    limit: int | None = None
    before: str | None = None
    kind: CategoryKind | None = None


class Row(Protocol):
    """A row of any engine: `sqlite3.Row`, asyncpg's `Record`, or a dictionary made from one."""

    def __getitem__(self, name: str, /) -> Any: ...

    def keys(self) -> Iterable[str]: ...


@dataclass(frozen=True, slots=True)
class SpaceChanges:
    """What changed in a space after a version: rows as the store keeps them, which
    `tellback.stores.rows` reads by the names of their columns.

    `atoms` come in the order of their seq; `validity_ends` are (seq, known_at, valid_to), all there are of each of
    these atoms, `vectors` (seq, vector).
    """

    version: int
    last_seq: int
    atoms: Sequence[Row] = ()
    validity_ends: Sequence[Sequence[int]] = ()
    vectors: Sequence[Sequence[Any]] = ()
    entities: Sequence[Entity] = ()


@dataclass(frozen=True, slots=True)
class SpaceSearch:
    """What to look for in a space that is too large to be held, by moments in microseconds.

    Atoms of these statuses and categories, known by `known_at`, begun by `started_by`, not ended by `ends_after`, that
    held at some moment from `since` to `until`: those with any of the `words`, near the `vector`, about an entity of
    these ids or folded `names`; at most `limit` of each.
    """

    limit: int
    known_at: int
    started_by: int
    ends_after: int
    since: int
    until: int
    statuses: tuple[str, ...] = ("ACTIVE",)
    categories: tuple[str, ...] | None = None
    min_importance: int = 0
    words: tuple[str, ...] = ()
    vector: bytes | None = None
    embedder: str = ""
    entity_ids: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


class MemoryStore(Protocol):
    """Spaces, atoms and entities: in scope, every change with its event in the same transaction.

    - A space that was deleted is unknown, and so is all that is in it.
    - `add` stores all drafts or none, numbered by `seq`, dense from 1 in each space, in the order of commits. A draft
      whose origin the space already holds is not stored again: the stored atom takes its place. Raises `NotFoundError`
      for the space or an entity. `atoms_by_origin` gives the stored atoms of some origins.
    - An atom holds at (valid_at, known_at) if it was created by `known_at`, has begun by `valid_at`, and no end of
      validity known by then is at or before `valid_at`. `supersede` adds the new atom and ends all atoms before it in
      the chain at its `valid_from`, from `now` on: once any of a chain has begun, exactly one holds. Raises
      `AtomSupersededError` if it was superseded already.
    - `set_status` changes nothing if it is so already. What was deleted stays so: it raises `NotFoundError`. A deleted
      atom leaves its chain: those before it end where those after it begin, and what was the last is so again.
    - `known_atoms` gives what a space has about some slots, what took the place of that, and all that cites a
      conversation, whatever its status. `reconcile` changes a space in one transaction, and with `end` ends the job
      that asked for it, too: all or nothing. It gives None, and changes nothing, if the space's version is not the
      expected one, and raises `JobLostError` if the job is no longer run by that attempt. A citation the atom already
      has changes nothing. What is not in that space raises `NotFoundError`.
    - `entities` gives those that stand for themselves, the oldest first: at most `limit`, those after the id `after`.
    - `merge` gives the alias's names and atoms to the canonical entity; both are followed to what they were merged
      into. Merging again changes nothing.
    - `version` counts a space's changes. `changes` gives what changed after one (all there is, after -1), and may give
      more than once what changes while it reads. A space that ever had more than `max_atoms` atoms is not read: only
      the numbers come back.
    - `search_atoms` gives a part of a large space that is worth ranking, numbered as if it were all. `can_search` says
      whether the store can do that; where it cannot, a space is held whatever its size.
    - `atoms_without_vector` gives atoms (seq, text) without a vector by that embedder, the newest first, before a seq.
      `save_vectors` replaces that embedder's vectors of them, and leaves those of others until
      `delete_other_vectors` deletes all but one embedder's in a space.
    """

    @property
    def can_search(self) -> bool: ...

    async def create_space(self, scope: Scope, space: MemorySpace, *, reuse_existing: bool = False) -> MemorySpace: ...

    async def space(self, scope: Scope, id: str) -> MemorySpace | None: ...

    async def spaces(self, scope: Scope, *, name: str | None = None) -> list[MemorySpace]: ...

    async def delete_space(self, scope: Scope, id: str, *, now: datetime) -> None: ...

    async def add(self, scope: Scope, space_id: str, drafts: Sequence[AtomDraft], *, now: datetime) -> list[Atom]: ...

    async def atoms_by_origin(self, scope: Scope, space_id: str, origins: Sequence[str]) -> dict[str, Atom]: ...

    async def atom(self, scope: Scope, id: str) -> Atom | None: ...

    async def atoms(self, scope: Scope, space_id: str, atom_filter: AtomFilter) -> list[Atom]: ...

    async def supersede(self, scope: Scope, old_id: str, draft: AtomDraft, *, now: datetime) -> Atom: ...

    async def known_atoms(
        self, scope: Scope, space_id: str, *, slots: Sequence[str], conversation_id: str | None
    ) -> list[KnownAtom]: ...

    async def reconcile(
        self,
        scope: Scope,
        space_id: str,
        changes: Reconciliation,
        *,
        expected_version: int,
        end: JobEnd | None,
        now: datetime,
    ) -> list[Atom] | None: ...

    async def set_status(self, scope: Scope, id: str, status: AtomStatus, *, now: datetime) -> Atom: ...

    async def create_entity(self, scope: Scope, space_id: str, draft: EntityDraft, *, now: datetime) -> Entity: ...

    async def entity(self, scope: Scope, id: str) -> Entity | None: ...

    async def entities(
        self,
        scope: Scope,
        space_id: str,
        *,
        type: EntityType | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[Entity]: ...

    async def find_entities(
        self, scope: Scope, space_id: str, name: str, *, type: EntityType | None = None
    ) -> list[Entity]: ...

    async def merge(self, scope: Scope, canonical_id: str, alias_id: str, *, now: datetime) -> Entity: ...

    async def version(self, scope: Scope, space_id: str) -> int: ...

    async def changes(
        self, scope: Scope, space_id: str, *, after: int, embedder: str, max_atoms: int | None = None
    ) -> SpaceChanges: ...

    async def search_atoms(self, scope: Scope, space_id: str, search: SpaceSearch) -> SpaceChanges: ...

    async def atoms_without_vector(
        self, scope: Scope, space_id: str, *, embedder: str, before: int | None, limit: int
    ) -> list[tuple[int, str]]: ...

    async def save_vectors(
        self, scope: Scope, space_id: str, embedder: str, vectors: Sequence[tuple[int, bytes]], *, now: datetime
    ) -> None: ...

    async def delete_other_vectors(self, scope: Scope, space_id: str, *, embedder: str) -> None: ...

    async def all_spaces(
        self, *, after: str, limit: int, changed_since: datetime | None = None
    ) -> list[tuple[Scope, str]]: ...
