"""Patterns: what recurs in a user's episodes, found now and then, without any model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from tellback.conversations.runtime import Runtime
from tellback.errors import NotFoundError
from tellback.memory.embedding import Embedding
from tellback.memory.extraction.embedded import embedded
from tellback.memory.extraction.patterns import Mined, mine
from tellback.memory.pattern_mining import PatternMining
from tellback.stores import AtomFilter, Memories, Reconciliation
from tellback.types.memory import Atom, AtomStatus, CategoryKind
from tellback.types.scope import Scope

BATCH = 256
ATTEMPTS = 10
EVER = datetime(1, 1, 1, tzinfo=UTC)


class Miner:
    """Mines the spaces of a store."""

    def __init__(self, runtime: Runtime, embedding: Embedding, mining: PatternMining) -> None:
        self._runtime = runtime
        self._embedding = embedding
        self._mining = mining

    async def mine_all(self, changed_since: datetime | None = None) -> int:
        """Mine every space, or those that changed since then; gives how many atoms were added or changed."""
        count = 0
        async for scope, space_id in self._spaces(changed_since):
            try:
                count += await self.mine(scope, space_id)
            except NotFoundError:  # deleted meanwhile
                continue
        return count

    async def mine(self, scope: Scope, space_id: str) -> int:
        """Mine one space; gives how many atoms were added or changed."""
        for _ in range(ATTEMPTS):
            version = await self._memories.version(scope, space_id)
            mined = await self._mined(scope, space_id)
            changed = await self._changed(scope, space_id, mined.wanted, version)
            if changed is not None:
                archived = await self._set(scope, mined.archived, AtomStatus.ARCHIVED)
                return changed + archived + await self._set(scope, mined.restored, AtomStatus.ACTIVE)
        return 0  # it changes all the time: its turn comes again

    async def _mined(self, scope: Scope, space_id: str) -> Mined:
        episodes = await self._atoms(scope, space_id, AtomStatus.ACTIVE, CategoryKind.EPISODE)
        patterns = [
            atom for status in AtomStatus for atom in await self._atoms(scope, space_id, status, CategoryKind.PATTERN)
        ]
        if not patterns and len(episodes) < self._mining.at_least:
            return Mined()
        how = self._mining
        # Thousands of episodes take a while, in which others are to be served.
        return await asyncio.to_thread(mine, episodes, patterns, at_least=how.at_least, exclude=how.exclude)

    async def _changed(self, scope: Scope, space_id: str, wanted: Reconciliation, version: int) -> int | None:
        """How many atoms were added or changed; None if the space has changed meanwhile."""
        if not wanted.changes:
            return 0 if await self._memories.version(scope, space_id) == version else None
        wanted = replace(wanted, changes=await embedded(self._embedding, wanted.changes))
        changed = await self._memories.reconcile(
            scope, space_id, wanted, expected_version=version, end=None, now=self._runtime.clock()
        )
        return None if changed is None else len(changed)

    async def _set(self, scope: Scope, ids: Sequence[str], status: AtomStatus) -> int:
        count = 0
        for id in ids:
            try:
                await self._memories.set_status(scope, id, status, now=self._runtime.clock())
            except NotFoundError:  # deleted meanwhile
                continue
            count += 1
        return count

    async def _atoms(self, scope: Scope, space_id: str, status: AtomStatus, kind: CategoryKind) -> list[Atom]:
        return await self._memories.atoms(scope, space_id, AtomFilter(status, EVER, kind=kind))

    async def _spaces(self, changed_since: datetime | None) -> AsyncIterator[tuple[Scope, str]]:
        after = ""
        while found := await self._memories.all_spaces(after=after, limit=BATCH, changed_since=changed_since):
            for each in found:
                yield each
            after = found[-1][1]

    @property
    def _memories(self) -> Memories:
        return self._runtime.store.memories
