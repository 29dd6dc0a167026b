"""Memory in SQL: `Memories` on any engine."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any

from tellback.stores import atoms, entities, large, reconciling, rows
from tellback.stores.engine import UNBOUNDED, Operation, SqlEngine
from tellback.stores.ports import (
    AtomDraft,
    AtomFilter,
    EntityDraft,
    JobEnd,
    KnownAtom,
    Reconciliation,
    SpaceChanges,
    SpaceSearch,
)
from tellback.types.memory import Atom, AtomStatus, Entity, EntityType, MemorySpace
from tellback.types.scope import Scope
from tellback.types.times import to_micros


class SqlMemoryStore:
    """`Memories` on an engine."""

    def __init__(self, engine: SqlEngine) -> None:
        self._engine = engine
        self._is_searchable = engine.search != "none"

    @property
    def can_search(self) -> bool:
        """Whether the engine is a server that can search."""
        return self._engine.search != "none"

    async def create_space(self, scope: Scope, space: MemorySpace, *, reuse_existing: bool = False) -> MemorySpace:
        values: dict[str, Any] = {
            "id": space.id,
            "name": space.name,
            "metadata": rows.dump_stored_json(dict(space.metadata)),
            "now": to_micros(space.created_at),
        }
        return await self._engine.write(scope, partial(atoms.create_space, values, reuse_existing))

    async def space(self, scope: Scope, id: str) -> MemorySpace | None:
        return await self._engine.read(scope, partial(atoms.get_space, id))

    async def spaces(self, scope: Scope, *, name: str | None = None) -> list[MemorySpace]:
        return await self._engine.read(scope, partial(atoms.list_spaces, name))

    async def delete_space(self, scope: Scope, id: str, *, now: datetime) -> None:
        await self._engine.write(scope, partial(atoms.delete_space, id, to_micros(now)))

    async def add(self, scope: Scope, space_id: str, drafts: Sequence[AtomDraft], *, now: datetime) -> list[Atom]:
        return await self._engine.write(
            scope, partial(atoms.add_atoms, scope, space_id, drafts, to_micros(now), self._is_searchable)
        )

    async def atoms_by_origin(self, scope: Scope, space_id: str, origins: Sequence[str]) -> dict[str, Atom]:
        return await self._engine.read(scope, partial(atoms.atoms_by_origin, space_id, origins))

    async def atom(self, scope: Scope, id: str) -> Atom | None:
        return await self._engine.read(scope, partial(atoms.get_atom, id))

    async def atoms(self, scope: Scope, space_id: str, atom_filter: AtomFilter) -> list[Atom]:
        return await self._engine.read(scope, partial(atoms.list_atoms, space_id, atom_filter))

    async def supersede(self, scope: Scope, old_id: str, draft: AtomDraft, *, now: datetime) -> Atom:
        return await self._engine.write(
            scope, partial(atoms.supersede_atom, scope, old_id, draft, to_micros(now), self._is_searchable)
        )

    async def known_atoms(
        self, scope: Scope, space_id: str, *, slots: Sequence[str], conversation_id: str | None
    ) -> list[KnownAtom]:
        return await self._engine.read(scope, partial(reconciling.load_known_atoms, space_id, slots, conversation_id))

    async def reconcile(
        self,
        scope: Scope,
        space_id: str,
        changes: Reconciliation,
        *,
        expected_version: int,
        end: JobEnd | None,
        now: datetime,
    ) -> list[Atom] | None:
        operation = partial(
            reconciling.reconcile, scope, space_id, changes, expected_version, end, to_micros(now), self._is_searchable
        )
        try:
            return await self._engine.write(scope, operation)
        except reconciling.SpaceChangedError:
            return None

    async def set_status(self, scope: Scope, id: str, status: AtomStatus, *, now: datetime) -> Atom:
        return await self._engine.write(scope, partial(atoms.set_atom_status, id, status, to_micros(now)))

    async def create_entity(self, scope: Scope, space_id: str, draft: EntityDraft, *, now: datetime) -> Entity:
        return await self._engine.write(scope, partial(entities.create_entity, space_id, draft, to_micros(now)))

    async def entity(self, scope: Scope, id: str) -> Entity | None:
        return await self._engine.read(scope, partial(entities.get_entity, id))

    async def entities(
        self,
        scope: Scope,
        space_id: str,
        *,
        type: EntityType | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[Entity]:
        return await self._engine.read(scope, partial(entities.list_entities, space_id, type, after, limit))

    async def find_entities(
        self, scope: Scope, space_id: str, name: str, *, type: EntityType | None = None
    ) -> list[Entity]:
        return await self._engine.read(scope, partial(entities.find_entities, space_id, name, type))

    async def merge(self, scope: Scope, canonical_id: str, alias_id: str, *, now: datetime) -> Entity:
        return await self._engine.write(scope, partial(entities.merge_entities, canonical_id, alias_id, to_micros(now)))

    async def version(self, scope: Scope, space_id: str) -> int:
        return (await self._engine.read(scope, partial(atoms.space_version, space_id), brief=True)).version

    async def changes(
        self, scope: Scope, space_id: str, *, after: int, embedder: str, max_atoms: int | None = None
    ) -> SpaceChanges:
        operation = partial(
            atoms.load_changes, space_id, after, embedder, UNBOUNDED if max_atoms is None else max_atoms
        )
        return await self._engine.read(scope, operation)

    async def search_atoms(self, scope: Scope, space_id: str, search: SpaceSearch) -> SpaceChanges:
        by_vector = self._engine.search == "meaning"
        return await self._engine.read(scope, partial(large.search_space, space_id, search, by_vector))

    async def atoms_without_vector(
        self, scope: Scope, space_id: str, *, embedder: str, before: int | None, limit: int
    ) -> list[tuple[int, str]]:
        operation = partial(
            atoms.atoms_without_vector, space_id, embedder, UNBOUNDED if before is None else before, limit
        )
        return await self._engine.read(scope, operation)

    async def save_vectors(
        self, scope: Scope, space_id: str, embedder: str, vectors: Sequence[tuple[int, bytes]], *, now: datetime
    ) -> None:
        operation = partial(atoms.save_vectors, space_id, embedder, vectors, to_micros(now), self._is_searchable)
        await self._engine.write(scope, operation)

    async def delete_other_vectors(self, scope: Scope, space_id: str, *, embedder: str) -> None:
        await self._engine.write(scope, partial(atoms.delete_other_vectors, space_id, embedder))

    async def all_spaces(
        self, *, after: str, limit: int, changed_since: datetime | None = None
    ) -> list[tuple[Scope, str]]:
        since = -UNBOUNDED if changed_since is None else to_micros(changed_since)
        return await self._engine.read(
            None, partial(_list_all_spaces, {"after": after, "limit": limit, "since": since})
        )


def _list_all_spaces(values: dict[str, Any]) -> Operation[list[tuple[Scope, str]]]:
    found = yield "platform_spaces", values
    return [(Scope(row[0], row[1], row[2]), row[3]) for row in found]
