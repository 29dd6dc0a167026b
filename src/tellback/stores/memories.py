"""Memory in SQL: `Memories` on any engine."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any

from tellback.stores import atoms, entities, large, reconciling, rows
from tellback.stores.engine import FOREVER, Engine, Operation
from tellback.stores.ports import (
    AtomDraft,
    AtomFilter,
    EntityDraft,
    JobEnd,
    KnownAtom,
    Reconciliation,
    Search,
    SpaceChanges,
)
from tellback.types.memory import Atom, AtomStatus, Entity, EntityType, MemorySpace
from tellback.types.scope import Scope
from tellback.types.times import to_micros


class SqlMemories:
    """`Memories` on an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._wide = engine.search != "none"

    @property
    def can_find(self) -> bool:
        """Whether the engine is a server that can search."""
        return self._engine.search != "none"

    async def create_space(self, scope: Scope, space: MemorySpace, *, once: bool = False) -> MemorySpace:
        values: dict[str, Any] = {
            "id": space.id,
            "name": space.name,
            "metadata": rows.to_json(dict(space.metadata)),
            "now": to_micros(space.created_at),
        }
        return await self._engine.write(scope, partial(atoms.create_space, values, once))

    async def space(self, scope: Scope, id: str) -> MemorySpace | None:
        return await self._engine.read(scope, partial(atoms.get_space, id))

    async def spaces(self, scope: Scope, *, name: str | None = None) -> list[MemorySpace]:
        return await self._engine.read(scope, partial(atoms.list_spaces, name))

    async def delete_space(self, scope: Scope, id: str, *, now: datetime) -> None:
        await self._engine.write(scope, partial(atoms.delete_space, id, to_micros(now)))

    async def add(self, scope: Scope, space_id: str, drafts: Sequence[AtomDraft], *, now: datetime) -> list[Atom]:
        return await self._engine.write(scope, partial(atoms.add, scope, space_id, drafts, to_micros(now), self._wide))

    async def originals(self, scope: Scope, space_id: str, origins: Sequence[str]) -> dict[str, Atom]:
        return await self._engine.read(scope, partial(atoms.originals, space_id, origins))

    async def atom(self, scope: Scope, id: str) -> Atom | None:
        return await self._engine.read(scope, partial(atoms.get_atom, id))

    async def atoms(self, scope: Scope, space_id: str, wanted: AtomFilter) -> list[Atom]:
        return await self._engine.read(scope, partial(atoms.list_atoms, space_id, wanted))

    async def supersede(self, scope: Scope, old_id: str, draft: AtomDraft, *, now: datetime) -> Atom:
        return await self._engine.write(
            scope, partial(atoms.supersede, scope, old_id, draft, to_micros(now), self._wide)
        )

    async def known(
        self, scope: Scope, space_id: str, *, slots: Sequence[str], conversation_id: str | None
    ) -> list[KnownAtom]:
        return await self._engine.read(scope, partial(reconciling.known, space_id, slots, conversation_id))

    async def reconcile(
        self,
        scope: Scope,
        space_id: str,
        wanted: Reconciliation,
        *,
        expected_version: int,
        end: JobEnd | None,
        now: datetime,
    ) -> list[Atom] | None:
        changing = partial(
            reconciling.reconcile, scope, space_id, wanted, expected_version, end, to_micros(now), self._wide
        )
        try:
            return await self._engine.write(scope, changing)
        except reconciling.SpaceMoved:
            return None

    async def set_status(self, scope: Scope, id: str, status: AtomStatus, *, now: datetime) -> Atom:
        return await self._engine.write(scope, partial(atoms.set_status, id, status, to_micros(now)))

    async def create_entity(self, scope: Scope, space_id: str, draft: EntityDraft, *, now: datetime) -> Entity:
        return await self._engine.write(scope, partial(entities.create, space_id, draft, to_micros(now)))

    async def entity(self, scope: Scope, id: str) -> Entity | None:
        return await self._engine.read(scope, partial(entities.get, id))

    async def entities(
        self,
        scope: Scope,
        space_id: str,
        *,
        type: EntityType | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[Entity]:
        return await self._engine.read(scope, partial(entities.listed, space_id, type, after, limit))

    async def entities_named(
        self, scope: Scope, space_id: str, name: str, *, type: EntityType | None = None
    ) -> list[Entity]:
        return await self._engine.read(scope, partial(entities.named, space_id, name, type))

    async def merge(self, scope: Scope, canonical_id: str, alias_id: str, *, now: datetime) -> Entity:
        return await self._engine.write(scope, partial(entities.merge, canonical_id, alias_id, to_micros(now)))

    async def version(self, scope: Scope, space_id: str) -> int:
        return (await self._engine.read(scope, partial(atoms.version, space_id), brief=True)).version

    async def changes(
        self, scope: Scope, space_id: str, *, after: int, embedder: str, most: int | None = None
    ) -> SpaceChanges:
        reading = partial(atoms.changes, space_id, after, embedder, FOREVER if most is None else most)
        return await self._engine.read(scope, reading)

    async def find(self, scope: Scope, space_id: str, search: Search) -> SpaceChanges:
        meaning = self._engine.search == "meaning"
        return await self._engine.read(scope, partial(large.find, space_id, search, meaning))

    async def to_embed(
        self, scope: Scope, space_id: str, *, embedder: str, before: int | None, limit: int
    ) -> list[tuple[int, str]]:
        reading = partial(atoms.to_embed, space_id, embedder, FOREVER if before is None else before, limit)
        return await self._engine.read(scope, reading)

    async def save_vectors(
        self, scope: Scope, space_id: str, embedder: str, vectors: Sequence[tuple[int, bytes]], *, now: datetime
    ) -> None:
        writing = partial(atoms.save_vectors, space_id, embedder, vectors, to_micros(now), self._wide)
        await self._engine.write(scope, writing)

    async def forget_vectors(self, scope: Scope, space_id: str, *, but: str) -> None:
        await self._engine.write(scope, partial(atoms.forget_vectors, space_id, but))

    async def all_spaces(
        self, *, after: str, limit: int, changed_since: datetime | None = None
    ) -> list[tuple[Scope, str]]:
        since = -FOREVER if changed_since is None else to_micros(changed_since)
        return await self._engine.read(None, partial(_all_spaces, {"after": after, "limit": limit, "since": since}))


def _all_spaces(values: dict[str, Any]) -> Operation[list[tuple[Scope, str]]]:
    found = yield "platform_spaces", values
    return [(Scope(row[0], row[1], row[2]), row[3]) for row in found]
